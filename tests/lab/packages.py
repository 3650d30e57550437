# SPDX-License-Identifier: MIT
"""The Debian packages that the laboratory is made of: downloaded in pinned versions, unpacked, never installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

PINS = Path(__file__).with_name("packages.txt")
SOURCE = "linux-source-"
"""The package whose driver is used where there is one; without it, or with PTWEAVE_LAB_PMU=own, a PMU of our own is."""
DRIVER = ("arch/x86/events/intel/pt.c", "arch/x86/events/intel/pt.h")
"""The kernel's own driver of Intel PT, in its source package."""


class Unavailable(Exception):
    """The laboratory cannot be built on this machine; the text says what is missing and what to do."""


def pins() -> dict[str, str]:
    """Package → version."""
    lines = (line.split("#")[0].strip() for line in PINS.read_text().splitlines())
    return dict(line.split("=", 1) for line in lines if line)


def kernel_release() -> str:
    """Such as 6.1.0-56-cloud-amd64."""
    return next(name.removeprefix("linux-image-") for name in pins() if name.startswith("linux-image-"))


def fetch(folder: Path) -> dict[str, Path]:
    """Download what is not in `folder` yet; package → file. Raises Unavailable."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = pins()
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
    gone = [f"{name} {version}" for name, version in wanted.items()
            if name not in found and not name.startswith(SOURCE)]
    if gone:
        raise Unavailable(f"cannot be downloaded: {', '.join(gone)}. Are Debian 12's archives reachable (apt-get "
                          f"update)? If these versions are gone from them, raise the pins in {PINS}")
    return found


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


def unpack(debs: dict[str, Path], root: Path) -> None:
    """All but the source package, below `root`."""
    for name, file in debs.items():
        if not name.startswith(SOURCE):
            subprocess.run(["dpkg-deb", "-x", file, root], check=True)


def unpack_driver(debs: dict[str, Path], folder: Path) -> None:
    """The files of DRIVER out of the source package, into `folder`; none where there is no such package."""
    deb = next((file for name, file in debs.items() if name.startswith(SOURCE)), None)
    if deb is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
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
