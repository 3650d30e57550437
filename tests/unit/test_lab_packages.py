# SPDX-License-Identifier: MIT
"""Which packages the laboratory is made of, as an archive has the pinned ones, or others, or none. The archive is a
folder of names that two shell scripts in apt's place look into."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab import packages
from lab.packages import Unavailable, fetch, kernel_release

PINNED = """# of a kernel
linux-image-6.1.0-8-cloud-amd64=6.1.80-2
linux-headers-6.1.0-8-cloud-amd64=6.1.80-2
linux-headers-6.1.0-8-common=6.1.80-2
linux-kbuild-6.1=6.1.80-2
linux-source-6.1=6.1.80-2
busybox-static=1:1.35-4
"""
LATER = dict.fromkeys((
    "linux-image-6.1.0-9-cloud-amd64", "linux-headers-6.1.0-9-cloud-amd64", "linux-headers-6.1.0-9-common",
    "linux-kbuild-6.1", "linux-source-6.1"), "6.1.81-1")
APT_GET = """#!/bin/sh
[ "$2" = update ] && exit 0
shift 2
for one; do [ -e "{archive}/$one" ] || exit 100; done
for one; do
    name=${{one%%=*}}; version=$(echo "${{one#*=}}" | sed s/:/%3a/)
    : > "${{name}}_${{version}}_amd64.deb"
done
"""
APT_CACHE = """#!/bin/sh
cat "{archive}/$3.shown" 2> /dev/null
"""


class Archive:
    """What apt finds."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder / "archive"
        pins, tools = folder / "pins.txt", folder / "tools"
        for one in (self.folder, tools):
            one.mkdir()
        for name, text in (("apt-get", APT_GET), ("apt-cache", APT_CACHE)):
            (tools / name).write_text(text.format(archive=self.folder))
            (tools / name).chmod(0o755)
        pins.write_text(PINNED)
        monkeypatch.setattr(packages, "PINS", pins)
        monkeypatch.setenv("PATH", str(tools), prepend=":")

    def add(self, versions: dict[str, str]) -> None:
        for name, version in versions.items():
            (self.folder / f"{name}={version}").touch()
            (self.folder / f"{name}.shown").write_text(f"Package: {name}\nVersion: {version}\n")

    def current(self, release: str) -> None:
        """The kernel that the flavour's name stands for."""
        (self.folder / "linux-image-cloud-amd64.shown").write_text(
            f"Version: 1\nDepends: linux-image-{release} (= 1)\nDescription: all\n")


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Archive:
    return Archive(tmp_path, monkeypatch)


def test_the_pinned_packages_are_taken_where_the_archive_has_them(archive: Archive, tmp_path: Path) -> None:
    archive.add(LATER)
    archive.add(packages.pins())
    archive.current("6.1.0-9-cloud-amd64")
    versions, files = fetch(tmp_path / "debs")
    assert versions == packages.pins() and files.keys() == versions.keys()
    assert all(file.exists() for file in files.values())
    assert kernel_release(versions) == "6.1.0-8-cloud-amd64"


def test_the_archives_own_kernel_of_the_series_is_taken_where_it_has_the_pinned_one_no_longer(
        archive: Archive, tmp_path: Path) -> None:
    archive.add({**LATER, "busybox-static": "1:1.35-4"})
    archive.current("6.1.0-9-cloud-amd64")
    versions, files = fetch(tmp_path / "debs")
    assert versions == {**LATER, "busybox-static": "1:1.35-4"} and files.keys() == versions.keys()
    assert kernel_release(versions) == "6.1.0-9-cloud-amd64"


def test_without_its_source_alone_the_pinned_kernel_stays(archive: Archive, tmp_path: Path) -> None:
    archive.add({name: version for name, version in packages.pins().items() if name != "linux-source-6.1"})
    archive.add(LATER)
    archive.current("6.1.0-9-cloud-amd64")
    versions, _ = fetch(tmp_path / "debs")
    assert versions == {name: version for name, version in packages.pins().items() if name != "linux-source-6.1"}


@pytest.mark.parametrize("release", [None, "6.12.9-cloud-amd64"])
def test_without_a_kernel_of_the_series_what_is_missing_is_said(archive: Archive, tmp_path: Path,
                                                                release: str | None) -> None:
    archive.add({"busybox-static": "1:1.35-4"})
    if release is not None:
        archive.current(release)
    with pytest.raises(Unavailable, match=r"linux-image-6\.1\.0-8-cloud-amd64 6\.1\.80-2, .* raise the pins in"):
        fetch(tmp_path / "debs")


def test_a_kernel_whose_headers_the_archive_lacks_is_not_taken(archive: Archive, tmp_path: Path) -> None:
    archive.add({name: version for name, version in LATER.items() if "common" not in name})
    archive.add({"busybox-static": "1:1.35-4"})
    archive.current("6.1.0-9-cloud-amd64")
    with pytest.raises(Unavailable, match=r"linux-headers-6\.1\.0-8-common"):
        fetch(tmp_path / "debs")


def test_what_is_there_is_not_downloaded_again(archive: Archive, tmp_path: Path) -> None:
    archive.add(packages.pins())
    _, files = fetch(tmp_path / "debs")
    for file in archive.folder.iterdir():
        file.unlink()
    assert fetch(tmp_path / "debs") == (packages.pins(), files)
