# SPDX-License-Identifier: MIT
"""What the decoder needs of an ELF file: segments, sections, build id; every length checked before it is used.

Written for hostile files: a file that is truncated, loops or contradicts itself raises `BadElf`, after work bounded
by its size. 32-bit and 64-bit, little-endian (System V ABI; the GNU build id is note type 3 of owner GNU).
"""

from __future__ import annotations

import mmap
import os
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

PT_LOAD, PT_NOTE = 1, 4
PF_X = 1
SHT_SYMTAB, SHT_RELA, SHT_NOTE, SHT_NOBITS, SHT_REL, SHT_DYNSYM = 2, 4, 7, 8, 9, 11
SHF_COMPRESSED = 0x800
NT_GNU_BUILD_ID = 3
MAX_HEADERS = 1 << 16
"""More segments or sections than any linker makes."""
MAX_NAME = 256
"""Bytes of a section's name that are read."""
MAX_NOTES = 64
"""Note segments and sections that are looked into, and notes in each."""
MAX_NOTE_BYTES = 1 << 20

Addresses = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]


class BadElf(ValueError):
    """The file is no ELF file, or a malformed one; the text says how."""


@dataclass(frozen=True)
class Segment:
    """A program header (PT_*): `size` bytes of the file at `offset` are loaded at `address`.

    It takes `memory` bytes there: more than the file has in data segments and in separate debug files.
    """

    type: int
    flags: int
    offset: int
    address: int
    size: int
    memory: int


@dataclass(frozen=True)
class Section:
    """A section header (SHT_*)."""

    name: str
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    entry_size: int


class Elf:
    """One ELF file in memory. Reads headers at once and section contents on demand.

    `damage` says what is wrong with the section headers of a file whose segments can be read: it has no sections then.
    """

    def __init__(self, data: bytes | memoryview) -> None:
        """Parse the headers of `data`, the whole file. Raises BadElf."""
        self.data = memoryview(data)
        if len(self.data) < 52 or bytes(self.data[:4]) != b"\x7fELF":
            raise BadElf("no ELF header")
        if self.data[4] not in (1, 2) or self.data[5] != 1:
            raise BadElf("not a little-endian 32-bit or 64-bit file")
        self.is_64 = self.data[4] == 2
        header = struct.Struct("<HHIQQQIHHHHHH" if self.is_64 else "<HHIIIIIHHHHHH")
        (self.type, self.machine, _version, self.entry, phoff, shoff, _flags, _size, phentsize, phnum, shentsize,
         shnum, shstrndx) = self._unpack(header, 16)
        self.segments = self._segments(phoff, phentsize, phnum)
        self.damage: str | None = None
        try:
            self.sections = self._sections(shoff, shentsize, shnum, shstrndx)
        except BadElf as error:
            self.sections, self.damage = [], f"section headers: {error}"
        self._by_name: dict[str, Section] = {}
        for section in self.sections:
            self._by_name.setdefault(section.name, section)

    @classmethod
    def open(cls, path: Path) -> Elf:
        """Read a regular file; raises BadElf for one that cannot be read too."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
            try:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise BadElf("not a regular file")
                return cls(memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)))
            finally:
                os.close(descriptor)
        except (OSError, ValueError) as error:
            if isinstance(error, BadElf):
                raise
            raise BadElf(f"cannot be read ({error})") from error

    def _unpack(self, layout: struct.Struct, offset: int) -> tuple[int, ...]:
        if offset < 0 or offset + layout.size > len(self.data):
            raise BadElf("truncated")
        return layout.unpack_from(self.data, offset)

    def _table(self, layout: struct.Struct, offset: int, stride: int, count: int) -> Iterator[tuple[int, ...]]:
        if count and stride < layout.size:
            raise BadElf("header entries too small")
        if count > MAX_HEADERS or offset + stride * count > len(self.data):
            raise BadElf("headers outside the file")
        for index in range(count):
            yield self._unpack(layout, offset + stride * index)

    def _segments(self, offset: int, stride: int, count: int) -> list[Segment]:
        layout = struct.Struct("<IIQQQQQQ" if self.is_64 else "<IIIIIIII")
        found = []
        for entry in self._table(layout, offset, stride, count):
            if self.is_64:
                kind, flags, start, address, _physical, size, memory, _align = entry
            else:
                kind, start, address, _physical, size, memory, flags, _align = entry
            found.append(Segment(kind, flags, start, address, size, memory))
        return found

    def _sections(self, offset: int, stride: int, count: int, names: int) -> list[Section]:
        if not offset:
            return []
        layout = struct.Struct("<IIQQQQIIQQ" if self.is_64 else "<IIIIIIIIII")
        raw = list(self._table(layout, offset, stride, count))
        table = self.data[:0]
        if names < len(raw):
            start, size = raw[names][4], raw[names][5]
            if start + size > len(self.data):
                raise BadElf("section names outside the file")
            table = self.data[start:start + size]
        return [Section(text_at(table, name, MAX_NAME), kind, flags, address, start, size, link, entry_size)
                for name, kind, flags, address, start, size, link, _info, _align, entry_size in raw]

    def section(self, name: str) -> Section | None:
        """The first section of that name."""
        return self._by_name.get(name)

    def bytes_of(self, section: Section) -> memoryview:
        """A section's raw bytes; empty for one without any. Raises BadElf when it lies outside the file."""
        if section.type == SHT_NOBITS:
            return self.data[:0]
        if section.offset + section.size > len(self.data):
            raise BadElf(f"section {section.name} outside the file")
        return self.data[section.offset:section.offset + section.size]

    @property
    def build_id(self) -> str | None:
        """The GNU build id in hex, from a note segment or section."""
        places = [(s.offset, s.size) for s in self.segments if s.type == PT_NOTE]
        places += [(s.offset, s.size) for s in self.sections if s.type == SHT_NOTE]
        for offset, size in places[:MAX_NOTES]:
            if offset + size <= len(self.data):
                for owner, kind, payload in notes(self.data[offset:offset + min(size, MAX_NOTE_BYTES)]):
                    if owner == b"GNU\0" and kind == NT_GNU_BUILD_ID and 0 < len(payload) <= 64:
                        return payload.hex()
        return None

    def addresses(self, offsets: Addresses) -> tuple[Addresses, Mask]:
        """Link-time addresses of file offsets, and which offsets are in an executable segment."""
        result = np.zeros(len(offsets), np.uint64)
        known = np.zeros(len(offsets), np.bool_)
        # segments share file pages with their neighbours: code is in the executable one
        for segment in self._loaded(executable=True):
            inside = ~known & (offsets - np.uint64(segment.offset) < np.uint64(segment.size))
            result[inside] = offsets[inside] - np.uint64(segment.offset) + np.uint64(segment.address)
            known |= inside
        return result, known

    def executable(self, addresses: Addresses) -> Mask:
        """Which link-time addresses are in an executable segment."""
        return _inside(self._loaded(executable=True), addresses)

    def loaded(self, addresses: Addresses) -> Mask:
        """Which link-time addresses are in memory: in any loaded segment."""
        return self.executable(addresses) | _inside(self._loaded(executable=False), addresses)

    @property
    def distance(self) -> int | None:
        """How far executable code is linked from where it is in the file, in bytes; None when that is not the same for
        all of it."""
        found = {segment.address - segment.offset for segment in self._loaded(executable=True)}
        return found.pop() if len(found) == 1 else None

    @property
    def lowest(self) -> int:
        """The lowest link-time address in an executable segment, 0 when there is none."""
        return min((segment.address for segment in self._loaded(executable=True)), default=0)

    def _loaded(self, *, executable: bool) -> list[Segment]:
        """The loaded segments, at most 64 of them: linkers make a handful."""
        return [s for s in self.segments if s.type == PT_LOAD and bool(s.flags & PF_X) == executable][:64]


def _inside(segments: list[Segment], addresses: Addresses) -> Mask:
    inside = np.zeros(len(addresses), np.bool_)
    for segment in segments:
        inside |= addresses - np.uint64(segment.address) < np.uint64(segment.memory)
    return inside


def notes(data: memoryview) -> Iterator[tuple[bytes, int, bytes]]:
    """(owner, type, payload) of the first notes; stops at a malformed one. Long owners and payloads are cut."""
    position = 0
    for _ in range(MAX_NOTES):
        if position + 12 > len(data):
            return
        name_size, size, kind = struct.unpack_from("<III", data, position)
        name_at = position + 12
        payload_at = name_at + (name_size + 3 & ~3)
        if payload_at + size > len(data):
            return
        yield (bytes(data[name_at:name_at + min(name_size, 256)]), kind,
               bytes(data[payload_at:payload_at + min(size, 256)]))
        position = payload_at + (size + 3 & ~3)


def text_at(table: bytes | memoryview, offset: int, limit: int = 1 << 16) -> str:
    """The NUL-terminated text at `offset`; empty outside the table, cut at `limit` bytes."""
    if not 0 <= offset < len(table):
        return ""
    size = min(128, limit)  # nearly every name is shorter: a view has no find
    while True:
        piece = bytes(table[offset:offset + size])
        end = piece.find(b"\0")
        if end >= 0 or len(piece) < size or size == limit:
            return piece[:end if end >= 0 else len(piece)].decode("utf-8", "replace")
        size = min(8 * size, limit)
