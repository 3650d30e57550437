# SPDX-License-Identifier: MIT
"""What the variable at an address is called: of the program and its libraries, not of the heap and stacks."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from ptweave.data.bundle import Bundle
from ptweave.data.schemas import MAPS, VARIABLES
from ptweave.merge.addresses import Addresses
from ptweave.merge.tables import I32, I64, U64, numbers, read_table
from ptweave.merge.tasks import Tasks

_FAR = 1 << 63  # no address is there
_LARGEST = np.uint64(1 << 47)  # all of user space


@dataclass(frozen=True)
class _Image:
    """An image's variables by their offsets: rows `first` on of all. `around`: of those up to each one, the one that
    reaches farthest, which may contain others."""

    first: int
    starts: I64
    ends: I64
    around: I64

    @classmethod
    def of(cls, first: int, starts: I64, ends: I64) -> _Image:
        farthest = np.maximum.accumulate(ends)
        sets = np.concatenate([[True], farthest[1:] > farthest[:-1]])
        around: I64 = np.maximum.accumulate(np.where(sets, np.arange(len(ends)), 0))
        return cls(first, starts, ends, around)

    def find(self, offsets: I64) -> I64:
        """The innermost variable that each offset is in; −1 none."""
        at = np.searchsorted(self.starts, offsets, side="right") - 1
        at = np.where((at >= 0) & (offsets >= self.ends[at]), self.around[at], at)
        found: I64 = np.where((at >= 0) & (offsets < self.ends[at]), at, -1)
        return found


@dataclass(frozen=True)
class _Space:
    """Where an address space has images with variables, ascending: from `low` to `high` the variables of `image`, whose
    offsets are distances from `base`. Addresses are signed: the kernel's are negative."""

    low: I64
    high: I64
    base: I64
    image: I64

    @classmethod
    def of(cls, bases: I64, numbers_: I64, images: dict[int, _Image]) -> _Space:
        known = [(int(base), int(image)) for base, image in zip(bases, numbers_, strict=True) if int(image) in images]
        rows = {(base + int(images[image].starts[0]), base + int(images[image].ends.max()), base, image)
                for base, image in known}
        table: I64 = np.array(sorted(row for row in rows if -_FAR <= row[0] <= row[1] < _FAR), np.int64).reshape(-1, 4)
        # where two images were, one after the other, it is better to know nothing
        apart = np.ones(len(table), np.bool_)
        apart[1:] &= table[1:, 0] >= np.maximum.accumulate(table[:-1, 1])
        apart[:-1] &= table[:-1, 1] <= table[1:, 0]
        return cls(*(np.ascontiguousarray(column) for column in table[apart].T))

    def locate(self, values: I64, images: dict[int, _Image]) -> tuple[I64, I64]:
        """For each address the row of its variable, −1 none, and how far into it it lies."""
        row, into = np.full(len(values), -1, np.int64), np.zeros(len(values), np.int64)
        if not len(self.low):
            return row, into
        at = np.searchsorted(self.low, values, side="right") - 1
        for index in np.unique(at[(at >= 0) & (values < self.high[at])]).tolist():
            image = images[int(self.image[index])]
            here = np.flatnonzero((at == index) & (values < self.high[index]))
            offset = values[here] - self.base[index]
            found = image.find(offset)
            inside = found >= 0
            row[here[inside]] = image.first + found[inside]
            into[here[inside]] = (offset - image.starts[found])[inside]
        return row, into


class Variables:
    """Looks addresses up. What was found is named by one dictionary, which grows."""

    def __init__(self, bundle: Bundle, tasks: Tasks, addresses: Addresses) -> None:
        self._tasks = tasks
        self._addresses = addresses
        table = read_table(bundle, VARIABLES, ["image", "offset", "size", "name"]).sort_by(
            [("image", "ascending"), ("offset", "ascending")])
        self._names = table.column("name")
        self._images = _images(table)
        self._spaces = self._load(bundle)
        self._low = min((int(space.low[0]) for space in self._spaces.values() if len(space.low)), default=0)
        self._high = max((int(space.high[-1]) for space in self._spaces.values() if len(space.low)), default=0)
        self._codes: dict[tuple[int, int], int] = {}
        self._texts: list[str] = []

    def _load(self, bundle: Bundle) -> dict[int, _Space]:
        table = read_table(bundle, MAPS, ["space", "start", "offset", "image"])
        space, image = numbers(table, "space").astype(np.int64), numbers(table, "image", -1).astype(np.int64)
        base = (numbers(table, "start") - numbers(table, "offset")).view(np.int64)
        return {int(number): _Space.of(base[space == number], image[space == number], self._images)
                for number in np.unique(space)}

    def of(self, threads: I64, times: I64, addresses: U64) -> pa.DictionaryArray:
        """The variables that addresses in threads' processes are in, at given times: `name`, or `name+0x8`; null for
        none."""
        codes = np.full(len(addresses), -1, np.int32)
        values = addresses.view(np.int64)
        asked = np.flatnonzero((values >= self._low) & (values < self._high))
        asked = asked[np.argsort(threads[asked], kind="stable")]
        for rows in np.split(asked, np.flatnonzero(np.diff(threads[asked])) + 1):
            if len(rows):
                codes[rows] = self._in_thread(int(threads[rows[0]]), times[rows], values[rows])
        return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), pa.array(self._texts, pa.string()))

    def _in_thread(self, thread: int, times: I64, values: I64) -> I32:
        codes = np.full(len(values), -1, np.int32)
        spaces = self._spaces_of(thread, times)
        for number in np.unique(spaces).tolist():
            here = np.flatnonzero(spaces == number)
            space = self._spaces.get(number)
            if space is None:
                continue
            encoded = pa.array(values[here]).dictionary_encode()  # a few objects are used time and again
            row, into = space.locate(encoded.dictionary.to_numpy(zero_copy_only=False), self._images)
            code = np.array([self._code(*place) for place in zip(row.tolist(), into.tolist(), strict=True)], np.int32)
            codes[here] = code[encoded.indices.to_numpy(zero_copy_only=False)]
        return codes

    def _spaces_of(self, thread: int, times: I64) -> I64:
        """The address spaces a thread was in at given times; −1 unknown."""
        task = self._tasks.threads.get(thread)
        if task is None or not task.spaces:
            only = next(iter(self._spaces)) if len(self._spaces) == 1 else -1
            return np.full(len(times), only, np.int64)
        spaces = np.array([space for _, space in task.spaces], np.int64)
        found: I64 = spaces[self._addresses.spaces_at(thread, times)]
        return found

    def _code(self, row: int, into: int) -> int:
        if row < 0:
            return -1
        code = self._codes.setdefault((row, into), len(self._texts))
        if code == len(self._texts):
            name = str(self._names[row].as_py())
            self._texts.append(f"{name}+{into:#x}" if into else name)
        return code


def _images(table: pa.Table) -> dict[int, _Image]:
    """The variables of each image, of a table that is sorted by image and offset."""
    image, start = numbers(table, "image", -1), numbers(table, "offset")
    end = start + np.minimum(numbers(table, "size"), _LARGEST).astype(np.int64)
    edges = [0, *(np.flatnonzero(np.diff(image)) + 1).tolist(), len(image)]
    return {int(image[first]): _Image.of(first, start[first:last], end[first:last])
            for first, last in pairwise(edges) if last > first}
