# SPDX-License-Identifier: MIT
"""Reads accesses of memory out of event lists (`ptweave.data.evl`): a reader of its own, to hold the decoder's against.

Records of accesses lie between those that begin thunks. A page is open from the record that opened it to the one that
closed it, or to the end of the thread; a window opens several pages with one record. A commit says which bytes of a
page the thunk it lies in has changed.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from support.truth_check import Accesses

ACCESS_READ, ACCESS_WRITE, ACCESS_END, ACCESS_COMMIT, ALLOCATION = 33, 34, 35, 36, 37
PAGE = 4096
_HEADER = struct.Struct("<8sIIiIQQQQQ")
_RECORD = struct.Struct("<IHHQQQqQQ")


NOTHING = bytes(PAGE // 8)


def changed_bytes(runs: int, words: bytes) -> bytes:
    """A commit's words as a bitmap: so many runs, or (0 runs) a bitmap already."""
    if not runs:
        assert len(words) == len(NOTHING)
        return words
    flags, end = np.zeros(PAGE, np.uint8), -1
    for offset, length in struct.iter_unpack("<HH", words[:4 * runs]):
        assert offset > end and length and offset + length <= PAGE and len(words) == (runs + 1) // 2 * 8
        end = offset + length
        flags[offset:end] = 1
    return np.packbits(flags, bitorder="little").tobytes()


@dataclass
class _Pages:
    """What is open to one thread: page → (opened in thunk, for writing)."""

    thread: int
    reading: dict[int, int] = field(default_factory=dict)
    writing: dict[int, int] = field(default_factory=dict)
    rows: list[tuple[int, int, int, int, bool, bytes]] = field(default_factory=list)

    def open(self, first: int, pages: int, thunk: int, write: bool) -> None:
        for page in range(first, first + pages * PAGE, PAGE):
            (self.writing if write else self.reading).setdefault(page, thunk)

    def close(self, first: int, pages: int, thunk: int) -> None:
        """`pages` from `first`; 0 pages: all."""
        end = first + pages * PAGE
        for table, write in ((self.reading, False), (self.writing, True)):
            for page in [one for one in table if not pages or first <= one < end]:
                self.rows.append((self.thread, table.pop(page), thunk, page, write, NOTHING))


def _thread_accesses(data: bytes) -> list[tuple[int, int, int, int, bool, bytes]]:
    magic, _, _, thread, *_ = _HEADER.unpack_from(data)
    assert magic == b"PTWEVL1\0"
    pages, at, thunk = _Pages(thread), _HEADER.size, -1
    while at < len(data):
        size, operation, _, _, _, first, result, _, argument = _RECORD.unpack_from(data, at)
        assert size >= _RECORD.size and not size % 8, f"thread {thread}: not a record at {at}"
        if operation == ACCESS_END:
            pages.close(first // PAGE * PAGE, argument, max(thunk, 0))
        elif operation == ACCESS_COMMIT:
            bits = changed_bytes(result, data[at + _RECORD.size:at + size])
            assert not first % PAGE and argument == int.from_bytes(bits, "little").bit_count() > 0
            pages.rows.append((thread, max(thunk, 0), max(thunk, 0), first, True, bits))
        elif operation in (ACCESS_READ, ACCESS_WRITE):
            pages.open(first // PAGE * PAGE, max(argument, 1), max(thunk, 0), operation == ACCESS_WRITE)
        elif operation != ALLOCATION:
            thunk += 1
        at += size
    pages.close(0, 0, max(thunk, 0))
    return pages.rows


def read_accesses(dependence: Path) -> Accesses:
    """All accesses of a run whose threads each have one section."""
    rows = [row for path in sorted(dependence.glob("*.evl")) for row in _thread_accesses(path.read_bytes())]
    *columns, bits = list(zip(*rows, strict=True)) or [()] * 6
    return Accesses(*(np.array(column, kind) for column, kind in zip(
        columns, ("<i4", "<i8", "<i8", "<u8", "?"), strict=True)),
        bytes=np.frombuffer(b"".join(bits), np.uint8).reshape(-1, len(NOTHING)))
