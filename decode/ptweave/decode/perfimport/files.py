# SPDX-License-Identifier: MIT
"""Finds the files whose code ran, by the names and build ids a foreign recording gives them, and keeps copies.

Names come from the recording: one with a `..` in it is never opened; symbolic links are followed inside the root they
were found in, as if it were the whole file system; the last component is opened without following anything.
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from ptweave.decode.elf import BadElf, Elf
from ptweave.decode.importing import Images

LINKS_MAX = 40
COMPONENTS_MAX = 256
ID_LENGTH = range(4, 65)


class Unresolved(OSError):
    """The name leads nowhere, or outside."""


def open_inside(root: Path, name: str) -> int:
    """Open the regular file `name` below `root` for reading. Raises OSError."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if not parts or ".." in parts or "\0" in name or len(parts) > COMPONENTS_MAX:
        raise Unresolved(errno.ENOENT, "not a name inside the root", name)
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
    opened = [os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)]
    try:
        links = 0
        while parts:
            part = parts.pop(0)
            if part in ("", "."):
                continue
            if part == "..":
                if len(opened) > 1:
                    os.close(opened.pop())
                continue
            try:
                target = os.readlink(part, dir_fd=opened[-1])
            except OSError as error:
                if error.errno != errno.EINVAL:  # it is there, and no link
                    raise
            else:
                links += 1
                parts = target.split("/") + parts
                if links > LINKS_MAX or len(parts) > COMPONENTS_MAX:
                    raise Unresolved(errno.ELOOP, os.strerror(errno.ELOOP), name)
                if target.startswith("/"):
                    while len(opened) > 1:
                        os.close(opened.pop())
                continue
            if any(rest not in ("", ".") for rest in parts):
                opened.append(os.open(part, flags | os.O_DIRECTORY, dir_fd=opened[-1]))
                continue
            fd = os.open(part, flags, dir_fd=opened[-1])
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                os.close(fd)
                raise Unresolved(errno.EINVAL, "not a regular file", name)
            return fd
        raise Unresolved(errno.EISDIR, os.strerror(errno.EISDIR), name)
    finally:
        for fd in opened:
            os.close(fd)


def plain_id(build_id: str | None) -> str | None:
    """The build id when it is one: hex of 4 to 32 bytes, trailing zeros (an old perf's padding) kept."""
    if not build_id or len(build_id) // 2 not in ID_LENGTH or not build_id.isalnum() or not build_id.strip("0"):
        return None
    return build_id


def build_id_of(path: Path) -> str | None:
    """GNU build id of a file; None for one without, or that is no ELF file."""
    try:
        return Elf.open(path).build_id
    except BadElf:
        return None


def same_build_id(found: str, wanted: str) -> bool:
    """Whether they are one: an old perf pads short ids with zeros."""
    return found == wanted or (len(wanted) == 40 and wanted.startswith(found) and not wanted[len(found):].strip("0"))


@dataclass
class Mismatch:
    """A file was found, and is another one than the recording saw."""

    path: str
    wanted: str
    found: str


class Finder:
    """Looks files up: below `symfs` (the machine's own root when None), and in build-id caches."""

    def __init__(self, images: Images, symfs: Path | None, caches: list[Path]) -> None:
        self.images = images
        self.root = symfs or Path("/")
        self.caches = caches + ([symfs] if symfs is not None else [])
        self.mismatches: list[Mismatch] = []
        self.missing: list[tuple[str, str | None]] = []
        self.untested = 0  # files taken although the recording has no build id of them
        self._known: dict[tuple[str, str | None], str | None] = {}

    def find(self, path: str, build_id: str | None) -> str | None:
        """Name in images/ of the file that was mapped from `path`; None when there is none to be had."""
        key = (path, plain_id(build_id))
        if key not in self._known:
            self._known[key] = self._find(*key)
            if self._known[key] is None:
                self.missing.append(key)
        return self._known[key]

    def _find(self, path: str, build_id: str | None) -> str | None:
        mismatches: list[Mismatch] = []
        for root, name in self._places(path, build_id):
            try:
                fd = open_inside(root, name)
            except (OSError, ValueError):
                continue
            try:
                if self._fits(fd, path, build_id, mismatches):
                    return self.images.keep(os.dup(fd), path).name
            finally:
                os.close(fd)
        if path == "[vdso]" and build_id is not None:
            found = self._own_vdso(build_id)
            if found is not None:
                return found
        self.mismatches += mismatches
        return None

    def _places(self, path: str, build_id: str | None) -> list[tuple[Path, str]]:
        places = [(self.root, path.removesuffix(" (deleted)"))]
        if build_id is not None:
            entry = f".build-id/{build_id[:2]}/{build_id[2:]}"
            last = "vdso" if path == "[vdso]" else "elf"
            places += [(cache, name) for cache in self.caches for name in (f"{entry}/{last}", entry)]
        return places

    def _fits(self, fd: int, path: str, build_id: str | None, mismatches: list[Mismatch]) -> bool:
        if build_id is None:
            self.untested += 1
            return True
        found = build_id_of(Path(f"/proc/self/fd/{fd}"))
        if found is not None and same_build_id(found, build_id):
            return True
        mismatches.append(Mismatch(path, build_id, found or "none"))
        return False

    def _own_vdso(self, build_id: str) -> str | None:
        """This machine's vdso, if it is the one."""
        try:
            maps = Path("/proc/self/maps").read_text()
            line = next(line for line in maps.splitlines() if line.endswith("[vdso]"))
            start, end = (int(word, 16) for word in line.split()[0].split("-"))
            with Path("/proc/self/mem").open("rb") as memory:
                memory.seek(start)
                data = memory.read(end - start)
            found = Elf(data).build_id
        except (OSError, ValueError, StopIteration):
            return None
        return self.images.keep_bytes(data).name if found is not None and same_build_id(found, build_id) else None
