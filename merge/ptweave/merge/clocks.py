# SPDX-License-Identifier: MIT
"""The vector clocks of all thunks, where C finds them at once: in a file that is mapped, not in memory.

It takes four bytes for each thunk and component, beside the bundle's decoded tables, and has no name.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from ptweave.data.errors import BadInput
from ptweave.merge._merge import ffi
from ptweave.merge.scratch import Scratch
from ptweave.merge.tables import I32, I64, Bools, numbers, within
from ptweave.merge.thunk_rows import FILE, ThunkRows

THREADS_MAX = 1_000_000
"""Greatest thread number believed."""


class Clocks:
    """`count[i]` thunks of thread i, each with `width[i]` components. Use as a context manager.

    Raises BadInput when a thread's thunks are not numbered one after the other.
    """

    def __init__(self, scratch: Scratch, rows: ThunkRows) -> None:
        self._rows = rows
        sizes = self._sizes(str(scratch.folder / FILE))
        self.threads = max(sizes) + 1 if sizes else 0
        self.count: I32 = self._spread({thread: count for thread, (count, _) in sizes.items()})
        self.width: I32 = self._spread({thread: width for thread, (_, width) in sizes.items()})
        cells = self.count.astype(np.int64) * self.width
        self.begin: I64 = np.concatenate([[0], np.cumsum(cells)]).astype(np.int64)
        self._file = tempfile.TemporaryFile(dir=scratch.folder)  # noqa: SIM115 (closed by `close`)
        self.values: npt.NDArray[np.uint32] = np.memmap(self._file, np.uint32, "w+", shape=max(int(self.begin[-1]), 1))
        self._fill()
        self.raw: Any = ffi.new("struct ptm_clocks *", {
            "values": ffi.from_buffer("uint32_t[]", self.values), "begin": ffi.from_buffer("int64_t[]", self.begin),
            "count": ffi.from_buffer("int32_t[]", self.count), "width": ffi.from_buffer("int32_t[]", self.width),
            "threads": self.threads})

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Clocks:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def _sizes(self, where: str) -> dict[int, tuple[int, int]]:
        """How many thunks each thread has, and components their clocks."""
        sizes: dict[int, tuple[int, int]] = {}
        for thread, first, lengths, _ in self._parts():
            count, width = sizes.get(thread, (0, 0))
            if first != count or not 0 <= thread < THREADS_MAX:
                raise BadInput("has thunks that do not follow each other", where=where,
                               remedy="decode and merge the run again")
            sizes[thread] = count + len(lengths), max(width, int(lengths.max()))
        return sizes

    def _parts(self) -> Iterator[tuple[int, int, I64, npt.NDArray[np.uint32]]]:
        """Thunks of one thread that follow each other: the thread, the first one's number (−1: they do not follow), the
        lengths of their clocks, and these."""
        for batch in self._rows.batches(["thread", "thunk", "clock"], placed=True):
            threads, thunk = numbers(batch, "thread"), numbers(batch, "thunk", -1)
            edges = [0, *(np.flatnonzero(np.diff(threads)) + 1).tolist(), len(threads)]
            for begin, end in itertools.pairwise(edges):
                clock = batch.column("clock").slice(begin, end - begin)
                first = int(thunk[begin]) if bool((np.diff(thunk[begin:end]) == 1).all()) else -1
                yield (int(threads[begin]), first,
                       clock.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64),
                       clock.flatten().to_numpy(zero_copy_only=False))

    def _spread(self, values: dict[int, int]) -> I32:
        found = np.zeros(self.threads, np.int32)
        found[list(values)] = list(values.values())
        return found

    def _fill(self) -> None:
        for thread, first, lengths, values in self._parts():
            width = int(self.width[thread])
            begin = int(self.begin[thread]) + first * width
            if len(values) == len(lengths) * width:
                self.values[begin:begin + len(values)] = values
                continue
            row = begin + np.arange(len(lengths)) * width
            self.values[np.repeat(row, lengths) + within(lengths)] = values

    def has(self, threads: I32, thunks_: I32) -> Bools:
        """Whether there are such thunks."""
        good: Bools = (threads >= 0) & (threads < self.threads)
        good[good] = (thunks_[good] >= 0) & (thunks_[good] < self.count[threads[good]])
        return good
