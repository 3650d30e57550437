# SPDX-License-Identifier: MIT
"""Reads accesses of memory out of event lists (`ptweave.data.evl`): a reader of its own, to hold the decoder's against.

Records of accesses lie between those that begin thunks. A page is open from the record that opened it to the one that
closed it, or to the end of the thread; a window opens several pages with one record.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from support.truth_check import Accesses

ACCESS_READ, ACCESS_WRITE, ACCESS_END = 33, 34, 35
PAGE = 4096
_HEADER = struct.Struct("<8sIIiIQQQQQ")
_RECORD = struct.Struct("<IHHQQQqQQ")


@dataclass
class _Pages:
    """What is open to one thread: page → (opened in thunk, for writing)."""

    thread: int
    reading: dict[int, int] = field(default_factory=dict)
    writing: dict[int, int] = field(default_factory=dict)
    rows: list[tuple[int, int, int, int, bool]] = field(default_factory=list)

    def open(self, first: int, pages: int, thunk: int, write: bool) -> None:
        for page in range(first, first + pages * PAGE, PAGE):
            (self.writing if write else self.reading).setdefault(page, thunk)

    def close(self, first: int, pages: int, thunk: int) -> None:
        """`pages` from `first`; 0 pages: all."""
        end = first + pages * PAGE
        for table, write in ((self.reading, False), (self.writing, True)):
            for page in [one for one in table if not pages or first <= one < end]:
                self.rows.append((self.thread, table.pop(page), thunk, page, write))


def _thread_accesses(data: bytes) -> list[tuple[int, int, int, int, bool]]:
    magic, _, _, thread, *_ = _HEADER.unpack_from(data)
    assert magic == b"PTWEVL1\0"
    pages, at, thunk = _Pages(thread), _HEADER.size, -1
    while at < len(data):
        size, operation, _, _, _, first, _, _, argument = _RECORD.unpack_from(data, at)
        assert size >= _RECORD.size and not size % 8, f"thread {thread}: not a record at {at}"
        if operation == ACCESS_END:
            pages.close(first // PAGE * PAGE, argument, max(thunk, 0))
        elif operation in (ACCESS_READ, ACCESS_WRITE):
            pages.open(first // PAGE * PAGE, max(argument, 1), max(thunk, 0), operation == ACCESS_WRITE)
        else:
            thunk += 1
        at += size
    pages.close(0, 0, max(thunk, 0))
    return pages.rows


def read_accesses(dependence: Path) -> Accesses:
    """All accesses of a run whose threads each have one section."""
    rows = [row for path in sorted(dependence.glob("*.evl")) for row in _thread_accesses(path.read_bytes())]
    columns = list(zip(*rows, strict=True)) or [()] * 5
    return Accesses(*(np.array(column, kind) for column, kind in zip(
        columns, ("<i4", "<i8", "<i8", "<u8", "?"), strict=True)))
