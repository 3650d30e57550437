# SPDX-License-Identifier: MIT
"""The Debian packages that the laboratory is made of: downloaded in pinned versions, or in those that the
archive has instead, unpacked, never installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

PINS = Path(__file__).with_name("packages.txt")
SOURCE = "linux-source-"
"""The package whose driver is used where there is one; without it, or with PTWEAVE_LAB_PMU=own, a PMU of our own is."""
DRIVER = ("arch/x86/events/intel/pt.c", "arch/x86/events/intel/pt.h")
"""The kernel's own driver of Intel PT, in its source package."""
TAKEN = "packages.txt"
"""Lies beside what was unpacked."""


class Unavailable(Exception):
    """The laboratory cannot be built on this machine; the text says what is missing and what to do."""


def pins() -> dict[str, str]:
    """Package → version."""
    return _listed(PINS.read_text())


def _listed(text: str) -> dict[str, str]:
    lines = (line.split("#")[0].strip() for line in text.splitlines())
    return dict(line.split("=", 1) for line in lines if line)


def taken(root: Path) -> dict[str, str]:
    """Package → version of what was unpacked below `root`: the pins, or what the archive had instead."""
    return _listed((root / TAKEN).read_text())


def kernel_release(packages: dict[str, str]) -> str:
    """Such as 6.1.0-57-cloud-amd64."""
    return next(name.removeprefix("linux-image-") for name in packages if name.startswith("linux-image-"))


def fetch(folder: Path) -> tuple[dict[str, str], dict[str, Path]]:
    """Download what is not in `folder` yet: package → version, and → file. In the pinned versions; where Debian's
    archive has those no longer, in the ones it has now. Raises Unavailable."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = pins()
    found = _fetched(folder, wanted)
    gone = _gone(wanted, found)
    if gone:
        instead = _current(wanted)
        if instead is not None:
            wanted, found = instead, _fetched(folder, instead)
    if _gone(wanted, found):
        raise Unavailable(f"cannot be downloaded: {', '.join(gone)}. Are Debian 12's archives reachable (apt-get "
                          f"update)? If these versions are gone from them, raise the pins in {PINS}")
    return {name: version for name, version in wanted.items() if name in found}, found


def _gone(wanted: dict[str, str], found: dict[str, Path]) -> list[str]:
    return [f"{name} {version}" for name, version in wanted.items()
            if name not in found and not name.startswith(SOURCE)]


def _fetched(folder: Path, wanted: dict[str, str]) -> dict[str, Path]:
    found = _found(folder, wanted)
    missing = [f"{name}={version}" for name, version in wanted.items() if name not in found]
    if missing:
        if shutil.which("apt-get") is None:
            raise Unavailable("no apt-get: the laboratory's kernel comes from Debian's packages")
        if not _download(folder, missing):
            if os.geteuid() == 0:  # the lists may be old
                subprocess.run(["apt-get", "-q", "update"], capture_output=True, check=False)
            source = [one for one in missing if one.startswith(SOURCE)]  # if that alone is gone
            if not _download(folder, missing) and source:
                _download(folder, [one for one in missing if one not in source])
        found = _found(folder, wanted)
    return found


def _current(wanted: dict[str, str]) -> dict[str, str] | None:
    """The same packages as the archive has them now, of the kernel of the same series that is current there; None where
    that is another."""
    release = kernel_release(wanted)
    flavour = release.split("-", 2)[2]
    named = re.search(r"^Depends:.*?\blinux-image-(\S+)", _shown(f"linux-image-{flavour}"), re.MULTILINE)
    if named is None or named[1].split("-")[0] != release.split("-")[0]:
        return None
    old, new = (one.removesuffix(f"-{flavour}") for one in (release, named[1]))
    names = [name.replace(old, new) for name in wanted]
    versions = {name: re.search(r"^Version: (\S+)", _shown(name), re.MULTILINE) for name in names}
    if any(version is None for name, version in versions.items() if not name.startswith(SOURCE)):
        return None
    return {name: version[1] for name, version in versions.items() if version is not None}


def _shown(package: str) -> str:
    return subprocess.run(["apt-cache", "show", "--no-all-versions", package], capture_output=True, text=True,
                          check=False).stdout


def _file_name(name: str, version: str) -> str:
    return f"{name}_{version.replace(':', '%3a')}_"


def _found(folder: Path, wanted: dict[str, str]) -> dict[str, Path]:
    files = list(folder.glob("*.deb"))
    return {name: file for name, version in wanted.items() for file in files
            if file.name.startswith(_file_name(name, version))}


def _download(folder: Path, missing: list[str]) -> bool:
    """Into a folder beside it first: what stands in `folder` is whole."""
    partial = folder / "partial"
    partial.mkdir(exist_ok=True)
    done = subprocess.run(["apt-get", "-q", "download", *missing], cwd=partial, capture_output=True, check=False)
    if done.returncode == 0:
        for file in partial.glob("*.deb"):
            file.replace(folder / file.name)
    shutil.rmtree(partial)
    return done.returncode == 0


def unpack(debs: dict[str, Path], versions: dict[str, str], root: Path) -> None:
    """All but the source package, below `root`, which is made anew."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    for name, file in debs.items():
        if not name.startswith(SOURCE):
            subprocess.run(["dpkg-deb", "-x", file, root], check=True)
    (root / TAKEN).write_text("".join(f"{name}={version}\n" for name, version in versions.items()))


def unpack_driver(debs: dict[str, Path], folder: Path) -> None:
    """The files of DRIVER out of the source package, into `folder`; none where there is no such package."""
    shutil.rmtree(folder, ignore_errors=True)
    deb = next((file for name, file in debs.items() if name.startswith(SOURCE)), None)
    if deb is None:
        return
    folder.mkdir(parents=True)
    members = [f"linux-source-6.1/{name}" for name in DRIVER]
    outer = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", deb], stdout=subprocess.PIPE)
    inner = subprocess.Popen(["tar", "-xOf", "-", "--wildcards", "*linux-source-6.1.tar.xz"], stdin=outer.stdout,
                             stdout=subprocess.PIPE)
    done = subprocess.run(["tar", "-xJf", "-", "--strip-components=5", "-C", folder, *members], stdin=inner.stdout,
                          capture_output=True, check=False)
    for pipe in (outer, inner):
        assert pipe.stdout is not None
        pipe.stdout.close()
        pipe.wait()
    if done.returncode != 0 or not all((folder / Path(name).name).exists() for name in DRIVER):
        raise RuntimeError(f"{deb.name}: no {DRIVER[0]} in it: {done.stderr.decode(errors='replace')}")
