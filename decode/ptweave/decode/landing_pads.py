# SPDX-License-Identifier: MIT
"""Where exceptions go on: the landing pads of a file's functions.

An FDE of `.eh_frame` (LSB 10.6) points to its function's language-specific data (LSDA), whose call sites name the
landing pad each (the C++ ABI's exception handling tables, as libgcc's `unwind-pe.h` reads them). The unwinder jumps
there, and nothing in the code says so.

Written for hostile files: every length is checked before it is used, and the tables of a file are read only as far as
they are no longer, together, than the file, which those of a linker never are. What is malformed ends its table; what
came before stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ptweave.decode.elf import PT_LOAD, Addresses, BadElf, Elf

OMIT = 0xFF
_PCREL, _INDIRECT = 0x10, 0x80
_FIXED = {0x00: (8, False), 0x02: (2, False), 0x03: (4, False), 0x04: (8, False), 0x0A: (2, True), 0x0B: (4, True),
          0x0C: (8, True)}
_ULEB, _SLEB = 0x01, 0x09
_LEB_MAX = 10
_TEXT_MAX = 16  # letters of an augmentation: there are seven
_WORD = (1 << 64) - 1


class _Malformed(ValueError):
    """A table contradicts itself; never leaves this module."""


class _Cursor:
    """Reads bytes that are loaded at `address`."""

    def __init__(self, data: memoryview, address: int, at: int = 0) -> None:
        self.data, self.address, self.at = data, address, at

    def number(self, size: int, signed: bool = False) -> int:
        if self.at + size > len(self.data):
            raise _Malformed
        self.at += size
        return int.from_bytes(self.data[self.at - size:self.at], "little", signed=signed)

    def leb(self, signed: bool = False) -> int:
        value = 0
        for index in range(_LEB_MAX):
            byte = self.number(1)
            value |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                return value - (1 << 7 * (index + 1)) if signed and byte & 0x40 else value
        raise _Malformed

    def text(self) -> bytes:
        found = bytearray()
        while byte := self.number(1):
            found.append(byte)
            if len(found) > _TEXT_MAX:
                raise _Malformed
        return bytes(found)

    def value(self, encoding: int) -> int:
        """A number in a DW_EH_PE format, whatever it is relative to."""
        form = encoding & 0x0F
        if form in (_ULEB, _SLEB):
            return self.leb(form == _SLEB)
        if form not in _FIXED:
            raise _Malformed
        return self.number(*_FIXED[form])

    def pointer(self, encoding: int) -> int:
        """An address; 0 stays 0 whatever it is relative to."""
        place = self.address + self.at
        value = self.value(encoding)
        if encoding & 0x70 not in (0, _PCREL) or encoding & _INDIRECT:
            raise _Malformed
        return (value + place if value and encoding & _PCREL else value) & _WORD


@dataclass(frozen=True)
class _Common:
    """What a CIE says of its FDEs."""

    begins: int = 0
    tables: int = OMIT
    augmented: bool = False


def landing_pads(elf: Elf) -> Addresses:
    """Link-time addresses in code where the unwinder may go on, sorted.

    Raises BadElf when the tables are longer than the file.
    """
    frames = elf.section(".eh_frame")
    raw = memoryview(b"") if frames is None else elf.bytes_of(frames)
    found: set[int] = set()
    left = len(elf.data)
    if frames is not None:
        for begin, table in _tables(raw, frames.address):
            left -= _read_table(_loaded(elf, table), table, begin, found, left)
            if left <= 0:
                raise BadElf("its exception tables are longer than the file")
    pads = np.fromiter(found, np.uint64, len(found))
    return np.sort(pads[elf.executable(pads)])


def _tables(raw: memoryview, address: int) -> Iterator[tuple[int, int]]:
    """Begin and LSDA of the functions that have one."""
    known: dict[int, _Common] = {}
    at = 0
    while at + 4 <= len(raw):
        cursor = _Cursor(raw, address, at)
        length, wide = cursor.number(4), False
        if length == 0xFFFFFFFF:
            if at + 12 > len(raw):
                return
            length, wide = cursor.number(8), True
        body, end = cursor.at, cursor.at + length
        at = end
        if end > len(raw):
            return
        if not length:  # the end of one object's, libgcc finds what is behind it through .eh_frame_hdr
            continue
        entry = _Cursor(raw[:end], address, body)
        try:
            to_common = entry.number(8 if wide else 4)
            if to_common:
                pair = _entry(entry, _common(raw, address, body - to_common, known))
                if pair is not None:
                    yield pair
        except _Malformed:
            continue


def _common(raw: memoryview, address: int, start: int, known: dict[int, _Common]) -> _Common:
    """The CIE that begins at `start`."""
    if start not in known:
        if start < 0:
            raise _Malformed
        known[start] = _Common()  # of one that cannot be read, nothing is believed
        cursor = _Cursor(raw, address, start)
        size, length = 4, cursor.number(4)
        if length == 0xFFFFFFFF:
            size, length = 8, cursor.number(8)
        cursor.data = raw[:cursor.at + length]
        if cursor.number(size):
            raise _Malformed
        known[start] = _read_common(cursor)
    return known[start]


def _read_common(cursor: _Cursor) -> _Common:
    version = cursor.number(1)
    augmentation = cursor.text()
    if version == 4:
        cursor.number(2)
    cursor.leb()
    cursor.leb(signed=True)
    if version == 1:
        cursor.number(1)
    else:
        cursor.leb()
    if not augmentation.startswith(b"z"):
        return _Common()
    cursor.leb()
    begins, tables = 0, OMIT
    for letter in augmentation[1:]:
        if letter == ord("L"):
            tables = cursor.number(1)
        elif letter == ord("R"):
            begins = cursor.number(1)
        elif letter == ord("P"):
            cursor.value(cursor.number(1))
        elif letter not in b"SB":
            break
    return _Common(begins, tables, True)


def _entry(cursor: _Cursor, common: _Common) -> tuple[int, int] | None:
    if common.tables == OMIT or not common.augmented:
        return None
    begin = cursor.pointer(common.begins)
    cursor.value(common.begins)
    cursor.leb()
    table = cursor.pointer(common.tables)
    return (begin, table) if table else None


def _loaded(elf: Elf, address: int) -> memoryview:
    """What the file has at an address, up to its segment's end."""
    for segment in elf.segments:
        if segment.type == PT_LOAD and 0 <= address - segment.address < segment.size:
            return elf.data[segment.offset + address - segment.address:segment.offset + segment.size]
    return elf.data[:0]


def _read_table(raw: memoryview, address: int, begin: int, found: set[int], most: int) -> int:
    """Add an LSDA's landing pads. Returns how many bytes it took, which are not many more than `most`."""
    cursor = _Cursor(raw, address)
    try:
        encoding = cursor.number(1)
        base = begin if encoding == OMIT else cursor.pointer(encoding)
        if cursor.number(1) != OMIT:
            cursor.leb()  # to the types that are caught
        encoding = cursor.number(1)
        end = cursor.leb()
        end += cursor.at
        while cursor.at < min(end, most):
            cursor.value(encoding)
            cursor.value(encoding)
            pad = cursor.value(encoding)
            cursor.leb()
            if pad:
                found.add((base + pad) & _WORD)
    except _Malformed:
        pass  # libgcc reads no further either
    return max(cursor.at, 1)
