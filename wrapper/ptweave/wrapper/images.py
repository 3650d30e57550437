# SPDX-License-Identifier: MIT
"""Keeps the files whose code ran, by build id, or by sha256 where they have none.

Paths come from the target: a file is opened without following a last symbolic link, and taken only when it is the
file that was mapped (device, inode, and where known time and size).
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import struct
from dataclasses import dataclass
from pathlib import Path

SIZE_MAX = 4 << 30
CHUNK = 1 << 20
NOTE_MAX = 1 << 16
GNU_BUILD_ID = 3
COPY_TRIES = 3
"""How often a file is copied onto a full disk."""
_PT_NOTE = 4


@dataclass(frozen=True)
class MappedFile:
    """A file mapped with code: what it was when it was mapped. `mtime_ns` and `size` are 0 where unknown.
    `pid`, `start` and `end` name one mapping of it."""

    path: str
    dev: int
    inode: int
    mtime_ns: int
    size: int
    pid: int
    start: int
    end: int

    @property
    def identity(self) -> tuple[int, int, int, int]:
        return self.dev, self.inode, self.mtime_ns, self.size


class ImageStore:
    """The `images/` folder of a bundle."""

    def __init__(self, folder: Path, copies: Path) -> None:
        """`copies`: the folder in which the engine leaves copies of files that may vanish."""
        self._folder = folder
        self._copies = copies
        self._names: dict[tuple[int, int, int, int], str] = {}
        self._latest: dict[tuple[int, int], str] = {}
        self._digests: dict[str, str] = {}
        self._refused: dict[tuple[int, int, int, int], int] = {}
        self.kept = 0

    def keep(self, file: MappedFile) -> str | None:
        """The name of its image in the folder; None when the file is gone. Copies it the first time."""
        name = self._names.get(file.identity)
        if name is None and not file.size:
            name = self._latest.get((file.dev, file.inode))
        if name is not None:
            return name
        for path, exact, links in self._places(file):
            fd = _open(path, links)
            if fd < 0:
                continue
            try:
                if _is_same(os.fstat(fd), file, exact):
                    name = self._copy_or_give_up(fd, file)
                    if name is None:
                        return None
                    self._names[file.identity] = name
                    self._latest[file.dev, file.inode] = name
                    return name
            finally:
                os.close(fd)
        return None

    def keep_bytes(self, data: bytes) -> str:
        """Keep code that is in no file."""
        digest = hashlib.sha256(data).hexdigest()
        if digest not in self._digests:
            partial = self._folder / ".partial"
            partial.write_bytes(data)
            self._settle(partial, digest, digest)
        return digest

    def path(self, name: str) -> Path:
        return self._folder / name

    def _places(self, file: MappedFile) -> list[tuple[Path, bool, bool]]:
        """Where the file may be: path, whether inode and time are its own there, whether the path is a link."""
        copy = f"F{file.dev:x}.{file.inode:x}.{file.mtime_ns:x}.{file.size:x}"
        mapped = Path(f"/proc/{file.pid}/map_files/{file.start:x}-{file.end:x}")
        return [(Path(file.path), True, False), (self._copies / copy, False, False), (mapped, True, True)]

    def _copy_or_give_up(self, fd: int, file: MappedFile) -> str | None:
        """None: the disk is full, and was so the last time: it is not tried again and again."""
        if self._refused.get(file.identity, 0) >= COPY_TRIES:
            return None
        try:
            return self._copy(fd)
        except OSError as error:
            (self._folder / ".partial").unlink(missing_ok=True)
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            self._refused[file.identity] = self._refused.get(file.identity, 0) + 1
            return None

    def _copy(self, fd: int) -> str:
        partial = self._folder / ".partial"
        digest = hashlib.sha256()
        offset = 0
        with partial.open("wb") as out:
            while chunk := os.pread(fd, CHUNK, offset):
                digest.update(chunk)
                out.write(chunk)
                offset += len(chunk)
        name = digest.hexdigest()
        return self._settle(partial, build_id(fd) or name, name)

    def _settle(self, partial: Path, name: str, digest: str) -> str:
        """Give the partial file its name: another one when a different file has it (a copied build id)."""
        target = self._folder / name
        if name not in self._digests and target.exists():
            self._digests[name] = hashlib.sha256(target.read_bytes()).hexdigest()
        if self._digests.get(name, digest) != digest:
            name = digest
            target = self._folder / name
        if name in self._digests:
            partial.unlink()
        else:
            partial.replace(target)
            self._digests[name] = digest
            self.kept += 1
        return name


def _open(path: Path, links: bool) -> int:
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        return os.open(path, flags if links else flags | os.O_NOFOLLOW)
    except (OSError, ValueError):  # ValueError: a path with a NUL in it
        return -1


def _is_same(found: os.stat_result, file: MappedFile, exact: bool) -> bool:
    if not stat.S_ISREG(found.st_mode) or found.st_size > SIZE_MAX:
        return False
    if not exact:
        return found.st_size == file.size and file.size > 0
    if (found.st_dev, found.st_ino) != (file.dev, file.inode):
        return False
    return not file.size or (found.st_size, found.st_mtime_ns) == (file.size, file.mtime_ns)


def build_id(fd: int) -> str | None:
    """The GNU build id of an open ELF file, in hex; None where there is none (or no ELF file)."""
    header = os.pread(fd, 64, 0)
    if len(header) < 64 or header[:6] != b"\x7fELF\x02\x01":
        return None
    (table,) = struct.unpack_from("<Q", header, 32)
    entry, count = struct.unpack_from("<HH", header, 54)
    if entry < 56:
        return None
    for index in range(count):
        try:
            program = os.pread(fd, 56, table + index * entry)
        except (OSError, OverflowError):
            return None
        if len(program) < 56:
            return None
        kind, _, offset, _, _, size = struct.unpack_from("<IIQQQQ", program)
        if kind == _PT_NOTE and offset < SIZE_MAX:
            found = _build_id_note(os.pread(fd, min(size, NOTE_MAX), offset))
            if found:
                return found
    return None


def _build_id_note(notes: bytes) -> str | None:
    at = 0
    while at + 12 <= len(notes):
        name_size, size, kind = struct.unpack_from("<III", notes, at)
        data = at + 12 + (name_size + 3 & ~3)
        if kind == GNU_BUILD_ID and notes[at + 12:at + 16] == b"GNU\0" and name_size == 4:
            value = notes[data:data + size]
            return value.hex() if 4 <= size <= 64 and len(value) == size else None
        at = data + (size + 3 & ~3)
    return None
