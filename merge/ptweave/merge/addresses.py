# SPDX-License-Identifier: MIT
"""From an address in a thread's process to the place in an image, the block there and its function."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ptweave.data.bundle import Bundle
from ptweave.data.schemas import MAPS
from ptweave.merge.program import Program, pack
from ptweave.merge.tables import I64, U64, numbers, read_table
from ptweave.merge.tasks import Tasks

_NOWHERE = np.uint64(0)

MAX_SPACES = 1 << 20
"""No thread has as many address spaces: there is one an exec."""

_MANY = 1 << 12
"""Addresses beyond which each distinct one is looked up once."""


@dataclass
class _Space:
    """One address space's mappings as disjoint intervals: [bounds[i], bounds[i+1]) is `packed[i]` on, 0 nowhere.

    An interval where different code ran at different times is nowhere too: it is better to know nothing. What a place
    held before it ran (code that was patched at the start) does not count.
    """

    bounds: U64
    packed: U64

    def locate(self, ips: U64) -> U64:
        if not len(self.packed):
            return np.zeros(len(ips), np.uint64)
        if len(ips) < _MANY:
            return self._look_up(ips)
        encoded = pa.array(np.ascontiguousarray(ips)).dictionary_encode()
        distinct = self._look_up(encoded.dictionary.to_numpy(zero_copy_only=False))
        found: U64 = distinct[encoded.indices.to_numpy(zero_copy_only=False)]
        return found

    def _look_up(self, ips: U64) -> U64:
        index = np.searchsorted(self.bounds, ips, side="right") - 1
        inside = (index >= 0) & (index < len(self.packed))
        index = np.where(inside, index, 0)
        base = self.packed[index]
        return np.where(inside & (base != 0), base + (ips - self.bounds[index]), _NOWHERE)


def _flatten(start: U64, end: U64, packed_start: U64, ran: npt.NDArray[np.bool_]) -> _Space:
    """Mappings [start, end) of what begins at `packed_start`; `ran`: some of it was executed."""
    order = np.argsort(ran, kind="stable")  # what never ran first: it gives way
    order = order[end[order] > start[order]]
    start, end, base, ran = start[order], end[order], packed_start[order], ran[order]
    bounds = np.unique(np.concatenate([start, end]))
    packed = np.zeros(max(len(bounds) - 1, 0), np.uint64)
    live, mixed = np.zeros(len(packed), np.bool_), np.zeros(len(packed), np.bool_)
    first, last = np.searchsorted(bounds, start), np.searchsorted(bounds, end)
    for i, (low, high) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
        here = base[i] + (bounds[low:high] - start[i])
        other = (packed[low:high] != 0) & (packed[low:high] != here)
        mixed[low:high] |= other & (live[low:high] if ran[i] else True)
        if ran[i]:
            mixed[low:high] &= live[low:high]
        live[low:high] |= ran[i]
        packed[low:high] = here
    packed[mixed] = 0
    return _Space(bounds, packed)


def _sorted(keys: U64) -> tuple[U64, I64]:
    order = np.argsort(keys, kind="stable")
    return keys[order], order


class Addresses:
    """Looks addresses up. Vectorised: arrays in, arrays of the same length out. `maps`: what was read of that table."""

    def __init__(self, bundle: Bundle, program: Program, tasks: Tasks) -> None:
        self._tasks = tasks
        blocks = program.blocks
        self._starts, self._order = _sorted(blocks["addr"])
        self._ends: U64 = np.maximum.accumulate(self._starts + blocks["size"][self._order])
        self._functions = blocks["function"][self._order]
        self._blocks = blocks
        self.maps = read_table(bundle, MAPS, ["space", "start", "end", "offset", "image"])
        self._spaces = self._load(self.maps)

    @cached_property
    def _by_end(self) -> tuple[U64, I64]:
        """Where blocks end, ascending, and which they are."""
        return _sorted(self._blocks["addr"] + self._blocks["size"])

    @cached_property
    def _by_ip(self) -> tuple[U64, I64]:
        """Where blocks are in memory, ascending, and which they are."""
        return _sorted(self._blocks["ip"])

    def _load(self, table: pa.Table) -> dict[int, _Space]:
        space = numbers(table, "space")
        columns = [numbers(table, name, -1 if name == "image" else 0) for name in ("start", "end", "offset", "image")]
        known = columns[3] >= 0
        space = space[known]
        start, end, offset, image = (column[known].astype(np.uint64) for column in columns)
        base = pack(image, offset.astype(np.int64))
        ran = self._ran(base, base + (end - start))
        spaces = {}
        for number in np.unique(space):
            here = space == number
            spaces[int(number)] = _flatten(start[here], end[here], base[here], ran[here])
        return spaces

    def _ran(self, begin: U64, end: U64) -> npt.NDArray[np.bool_]:
        """Whether a block was executed in [begin, end), packed places."""
        if not len(self._starts):
            return np.zeros(len(begin), np.bool_)
        below = np.searchsorted(self._starts, end, side="left") - 1
        found: npt.NDArray[np.bool_] = (below >= 0) & (self._ends[np.maximum(below, 0)] > begin)
        return found

    def locate(self, thread: int, times: I64, ips: U64) -> U64:
        """Packed places of addresses in a thread's process at given times; 0 where unknown."""
        found = np.zeros(len(ips), np.uint64)
        for number, here in self.by_space(thread, times):
            if number in self._spaces:
                found[here] = self._spaces[number].locate(ips[here])
        return found

    def by_space(self, thread: int, times: I64) -> Iterator[tuple[int, slice | I64]]:
        """The address spaces a thread was in at given times: the number of each, and which of the times. Where
        there is no sideband, the run's only one, if it has just one."""
        task = self._tasks.threads.get(thread)
        if task is None or not task.spaces:
            if len(self._spaces) == 1:
                yield next(iter(self._spaces)), slice(None)
        elif len(task.spaces) == 1:
            yield task.spaces[0][1], slice(None)
        else:
            which = self.spaces_at(thread, times)
            for ordinal in np.unique(which).tolist():
                yield task.spaces[ordinal][1], np.flatnonzero(which == ordinal)

    def spaces_at(self, thread: int, times: I64) -> I64:
        """Which of its address spaces a thread was in at given times: ordinals, less than MAX_SPACES."""
        task = self._tasks.threads.get(thread)
        if task is None or len(task.spaces) < 2:
            return np.broadcast_to(np.zeros((), np.int64), len(times))  # takes no memory: there may be millions
        since = np.array([t for t, _ in task.spaces], np.int64)
        return np.maximum(np.searchsorted(since, times, side="right") - 1, 0)

    def blocks_at(self, packed: U64, ips: U64) -> I64:
        """A block that begins at each place, or where the place is unknown at the address; −1 none."""
        found = np.full(len(packed), -1, np.int64)
        for (starts, order), keys, use in (((self._starts, self._order), packed, packed != 0),
                                           (self._by_ip, ips, packed == 0)):
            if len(starts):
                index = np.minimum(np.searchsorted(starts, keys), len(starts) - 1)
                hit = use & (starts[index] == keys)
                found[hit] = order[index[hit]]
        return found

    def blocks_before(self, packed: U64) -> I64:
        """A block that ends right before each place (that called, when it is where a call returns to); −1 none."""
        found = np.full(len(packed), -1, np.int64)
        ends, order = self._by_end
        if len(ends):
            index = np.minimum(np.searchsorted(ends, packed), len(ends) - 1)
            hit = (packed != 0) & (ends[index] == packed)
            found[hit] = order[index[hit]]
        return found

    def functions_at(self, packed: U64) -> npt.NDArray[np.int64]:
        """Function numbers of places: of the block that holds it, or of the blocks on both sides when they agree."""
        if not len(self._starts):
            return np.zeros(len(packed), np.int64)
        below = np.searchsorted(self._starts, packed, side="right") - 1
        above = np.minimum(below + 1, len(self._starts) - 1)
        valid = (below >= 0) & (packed != 0)
        below = np.maximum(below, 0)
        held = packed < self._ends[below]  # ends grow: some block at or before it reaches beyond
        agreed = (self._functions[below] == self._functions[above]) & (above != below)
        return np.where(valid & (held | agreed), self._functions[below], 0).astype(np.int64)
