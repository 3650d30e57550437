# SPDX-License-Identifier: MIT
"""What the variable at an address is called: of the program and its libraries, not of the heap and stacks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import pyarrow as pa

from ptweave.data.bundle import Bundle
from ptweave.data.nested import Nested
from ptweave.data.schemas import VARIABLES
from ptweave.merge.addresses import Addresses
from ptweave.merge.tables import I32, I64, U64, numbers, optional, read_table

_FAR = 1 << 63  # no address is there
_LARGEST = np.uint64(1 << 47)  # all of user space


@dataclass(frozen=True)
class _Image:
    """An image's variables by their offsets: rows `first` on of all. `end`: of the one that reaches farthest."""

    first: int
    starts: I64
    end: int
    nested: Nested

    @classmethod
    def of(cls, first: int, starts: I64, ends: I64) -> _Image:
        return cls(first, starts, int(ends.max()), Nested(starts, ends))


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
        rows = {(base + int(images[image].starts[0]), base + images[image].end, base, image)
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
            found = image.nested.find(offset)
            inside = found >= 0
            row[here[inside]] = image.first + found[inside]
            into[here[inside]] = (offset - image.starts[found])[inside]
        return row, into


@dataclass(frozen=True)
class _Known:
    """All variables of a run: the names of their rows, and where they are: from `low` on, below `high`."""

    names: pa.ChunkedArray
    images: dict[int, _Image]
    spaces: dict[int, _Space]
    low: int
    high: int

    @classmethod
    def of(cls, table: pa.Table, maps: pa.Table) -> _Known:
        """Of the tables `variables`, sorted by image and offset, and `maps`."""
        images = _images(table)
        space, image = numbers(maps, "space").astype(np.int64), numbers(maps, "image", -1).astype(np.int64)
        base = (numbers(maps, "start") - numbers(maps, "offset")).view(np.int64)
        spaces = {int(number): _Space.of(base[space == number], image[space == number], images)
                  for number in np.unique(space)}
        return cls(table.column("name"), images, spaces,
                   min((int(space.low[0]) for space in spaces.values() if len(space.low)), default=0),
                   max((int(space.high[-1]) for space in spaces.values() if len(space.low)), default=0))


class Variables:
    """Looks addresses up. What was found is named by one dictionary, which grows. The table is read when the first
    address is asked for: runs without events of threads have none to ask for."""

    def __init__(self, bundle: Bundle, addresses: Addresses) -> None:
        self._bundle = bundle
        self._addresses = addresses
        self._codes: dict[tuple[int, int], int] = {}
        self._texts: list[str] = []

    @cached_property
    def _known(self) -> _Known:
        table = read_table(self._bundle, VARIABLES, ["image", "offset", "size", "name"]).sort_by(
            [("image", "ascending"), ("offset", "ascending")])
        return _Known.of(table, self._addresses.maps)

    def of(self, threads: I64, times: I64, addresses: U64) -> pa.DictionaryArray:
        """The variables that addresses (0: none) in threads' processes are in, at given times: `name`, or `name+0x8`;
        null for none. Raises BadInput when the table of variables is corrupt."""
        values = addresses.view(np.int64)
        near = ((values >= self._known.low) & (values < self._known.high) if values.any()
                else np.zeros(len(values), np.bool_))
        if near.all() and len(values) and (threads == threads[0]).all():
            codes = self._in_thread(int(threads[0]), times, values)
        else:
            codes = self._in_threads(np.flatnonzero(near), threads, times, values)
        return pa.DictionaryArray.from_arrays(optional(codes, codes < 0), pa.array(self._texts, pa.string()))

    def _in_threads(self, asked: I64, threads: I64, times: I64, values: I64) -> I32:
        """Codes of the variables at some of the values, −1 none."""
        codes = np.full(len(values), -1, np.int32)
        asked = asked[np.argsort(threads[asked], kind="stable")]
        for rows in np.split(asked, np.flatnonzero(np.diff(threads[asked])) + 1):
            if len(rows):
                codes[rows] = self._in_thread(int(threads[rows[0]]), times[rows], values[rows])
        return codes

    def _in_thread(self, thread: int, times: I64, values: I64) -> I32:
        codes = np.full(len(values), -1, np.int32)
        for number, here in self._addresses.by_space(thread, times):
            space = self._known.spaces.get(number)
            if space is None:
                continue
            encoded = pa.array(values[here]).dictionary_encode()  # a few objects are used time and again
            row, into = space.locate(encoded.dictionary.to_numpy(zero_copy_only=False), self._known.images)
            code = np.array([self._code(*place) for place in zip(row.tolist(), into.tolist(), strict=True)], np.int32)
            codes[here] = code[encoded.indices.to_numpy(zero_copy_only=False)]
        return codes

    def _code(self, row: int, into: int) -> int:
        if row < 0:
            return -1
        code = self._codes.setdefault((row, into), len(self._texts))
        if code == len(self._texts):
            name = str(self._known.names[row].as_py())
            self._texts.append(f"{name}+{into:#x}" if into else name)
        return code


def _images(table: pa.Table) -> dict[int, _Image]:
    """The variables of each image, of a table that is sorted by image and offset."""
    image, start = numbers(table, "image", -1), numbers(table, "offset")
    end = start + np.minimum(numbers(table, "size"), _LARGEST).astype(np.int64)
    edges = [0, *(np.flatnonzero(np.diff(image)) + 1).tolist(), len(image)]
    return {int(image[first]): _Image.of(first, start[first:last], end[first:last])
            for first, last in pairwise(edges) if last > first}
