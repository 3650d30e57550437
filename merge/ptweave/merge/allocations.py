# SPDX-License-Identifier: MIT
"""Which allocation a page of the heap belongs to: the last one before the access that took the page's unit."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ptweave.data import layout
from ptweave.merge.tables import I64, U64, numbers, within

_UNIT = np.uint64(layout.UNIT)
_RANK_BITS = 32
_LARGE = 1 << 16  # units: 4 GiB


class Allocations:
    """Allocations by unit and time. `table`: columns t, address and size, a row an allocation; its number is its row.

    Memory: two words for each unit of 64 KiB that was ever taken, as often as it was; those of very large ones (address
    space, hardly memory) are not counted out but compared one by one.
    """

    def __init__(self, table: pa.Table, *, large: int = _LARGE) -> None:
        start, size = numbers(table, "address").astype(np.uint64), numbers(table, "size").astype(np.uint64)
        t = numbers(table, "t").astype(np.int64)
        inside = (start >= layout.HEAP) & (start < layout.REGION_END) & (size <= layout.REGION_END - layout.HEAP)
        first = np.where(inside, (start - np.uint64(layout.HEAP)) // _UNIT, 0).astype(np.int64)
        count = np.where(inside, (size + _UNIT - np.uint64(1)) // _UNIT, 0).astype(np.int64)
        self._times: I64 = np.sort(t)
        rank = np.searchsorted(self._times, t, side="left")
        self._large = [(int(number), int(rank[number]), int(first[number]), int(first[number] + count[number]))
                       for number in np.flatnonzero(count > large)]
        count = np.where(count > large, 0, count)
        number = np.repeat(np.arange(len(t)), count)
        unit = np.repeat(first, count) + within(count)
        keys = unit << _RANK_BITS | rank[number]
        order = np.argsort(keys, kind="stable")
        self._keys: I64 = keys[order]
        self._number: I64 = number[order]

    def of(self, pages: U64, times: I64) -> I64:
        """The allocation each page belonged to at a time; −1 where none is known."""
        inside = (pages >= layout.HEAP) & (pages < layout.REGION_END)
        unit = np.where(inside, (pages - np.uint64(layout.HEAP)) // _UNIT, 0).astype(np.int64)
        rank = np.searchsorted(self._times, times, side="right")
        at = np.searchsorted(self._keys, unit << _RANK_BITS | rank, side="left") - 1
        found = np.full(len(pages), -1, np.int64)
        hit = np.flatnonzero(inside & (at >= 0))
        hit = hit[self._keys[at[hit]] >> _RANK_BITS == unit[hit]]
        found[hit] = self._number[at[hit]]
        latest = np.full(len(pages), -1, np.int64)
        latest[hit] = self._keys[at[hit]] & ((1 << _RANK_BITS) - 1)
        for number, when, first, end in self._large:
            here = inside & (unit >= first) & (unit < end) & (when < rank) & (when > latest)
            found[here], latest[here] = number, when
        return found

