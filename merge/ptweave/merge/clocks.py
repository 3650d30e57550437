# SPDX-License-Identifier: MIT
"""The vector clocks of all thunks, where C finds them at once: in files that are mapped, not in memory.

Each has a component for every thread, and differs from the one before in few: they are kept as chunks of 64 (`struct
ptm_clocks`), new ones only where something changed. So a thunk takes a byte for each 16 threads, and 256 where it came
to know more of some of 64. The files lie beside the bundle's decoded tables, and have no name.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ptweave.data.errors import BadInput
from ptweave.merge._merge import ffi, lib
from ptweave.merge.scratch import Scratch
from ptweave.merge.tables import I32, Bools, numbers
from ptweave.merge.thunk_rows import FILE, ThunkRows

THREADS_MAX = 1_000_000
"""Greatest thread number believed."""
SHIFT = 6
"""Chunks of 64 components, at most: fewer where there are fewer threads."""

_BLOCK = np.dtype([("begin", np.int64), ("first", np.int32), ("width", np.int32)])
"""struct ptm_clock_block."""

_POINTERS = {np.dtype(np.int32): "int32_t[]", np.dtype(np.uint32): "uint32_t[]", _BLOCK: "struct ptm_clock_block[]"}

U32 = npt.NDArray[np.uint32]


class Clocks:
    """`count[i]` thunks of thread i, each with its clock. Use as a context manager.

    Raises BadInput when a thread's thunks are not numbered one after the other.
    """

    def __init__(self, scratch: Scratch, rows: ThunkRows) -> None:
        self._rows = rows
        self._where = str(scratch.folder / FILE)
        counts = self._counts()
        self.threads = max(counts, default=-1) + 1
        self.count: I32 = np.zeros(self.threads, np.int32)
        self.count[list(counts)] = list(counts.values())
        self._shift = min(SHIFT, max(self.threads - 1, 0).bit_length())
        with ExitStack() as files:
            chunks = files.enter_context(tempfile.TemporaryFile(dir=scratch.folder))
            index = files.enter_context(tempfile.TemporaryFile(dir=scratch.folder))
            chunks.write(bytes(4 << self._shift))  # number 0
            threads, blocks = self._pack(chunks, index)
            arrays = {"chunks": _mapped(chunks), "index": _mapped(index), "count": self.count}
            self._files = files.pop_all()
        arrays["block"] = np.searchsorted(threads, np.arange(self.threads + 1)).astype(np.int32)
        self.arrays = arrays | {"blocks": np.array(blocks, _BLOCK)}
        """As C has them."""
        self.raw: Any = ffi.new("struct ptm_clocks *", {"threads": self.threads, "shift": self._shift, **{
            name: ffi.from_buffer(_POINTERS[array.dtype], array) for name, array in self.arrays.items()}})

    def close(self) -> None:
        self._files.close()

    def __enter__(self) -> Clocks:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def _counts(self) -> dict[int, int]:
        """How many thunks each thread has."""
        threads = self._rows.threads
        if self._rows.numbered and max(threads, default=-1) < THREADS_MAX:
            return {thread: rows.stop - rows.start for thread, rows in threads.items() if thread >= 0}
        counts: dict[int, int] = {}
        for thread, first, part in self._parts(["thread", "thunk"]):
            if first != counts.get(thread, 0) or not 0 <= thread < THREADS_MAX:
                raise BadInput("has thunks that do not follow each other", where=self._where,
                               remedy="decode and merge the run again")
            counts[thread] = first + len(part)
        return counts

    def _parts(self, columns: list[str]) -> Iterator[tuple[int, int, pa.RecordBatch]]:
        """Thunks of one thread that follow each other: the thread, the first one's number (−1: they do not follow), and
        their rows."""
        for batch in self._rows.batches(columns, placed=True):
            threads, thunk = numbers(batch, "thread"), numbers(batch, "thunk", -1)
            edges = [0, *(np.flatnonzero(np.diff(threads)) + 1).tolist(), len(threads)]
            for begin, end in itertools.pairwise(edges):
                first = int(thunk[begin]) if bool((np.diff(thunk[begin:end]) == 1).all()) else -1
                yield int(threads[begin]), first, batch.slice(begin, end - begin)

    def _pack(self, chunks: Any, index: Any) -> tuple[list[int], list[tuple[int, int, int]]]:
        """Write all clocks' chunks and their numbers; the blocks these lie in (`_BLOCK`): of which thread each is, and
        they."""
        threads: list[int] = []
        blocks: list[tuple[int, int, int]] = []
        packing: Any = ffi.new("struct ptm_packing *", {"next": 1, "shift": self._shift, "own": -1})
        last, at = np.zeros(0, np.uint32), np.zeros(0, np.uint32)
        begin = width = 0
        for thread, first, part in self._parts(["thread", "thunk", "clock"]):
            if thread != packing.own:
                last[:], at[:], packing.own, width = 0, 0, thread, 0
            clock = part.column("clock")
            offsets = clock.offsets.to_numpy()
            values = clock.values.fill_null(0).to_numpy()
            length = min(int(np.diff(offsets).max()), self.threads)
            width = max(width, -(-length >> self._shift))
            at, last = _grown(at, width), _grown(last, width << self._shift)
            packing.at, packing.last = ffi.from_buffer("uint32_t[]", at), ffi.from_buffer("uint32_t[]", last)
            packing.width = width
            rows = np.empty(len(part) * width, np.uint32)
            found = np.empty(len(rows) << self._shift, np.uint32)
            made = lib.ptm_clocks_pack(
                packing, ffi.from_buffer("int32_t[]", offsets), ffi.from_buffer("uint32_t[]", values), len(part),
                ffi.from_buffer("uint32_t[]", rows), ffi.from_buffer("uint32_t[]", found))
            if made < 0:
                raise BadInput("has more clocks than can be told apart", where=self._where,
                               remedy="record a shorter part of the run")
            index.write(rows)
            chunks.write(found[:made << self._shift])
            threads.append(thread)
            blocks.append((begin, first, width))
            begin += len(rows)
        return threads, blocks

    def has(self, threads: I32, thunks_: I32) -> Bools:
        """Whether there are such thunks."""
        good: Bools = (threads >= 0) & (threads < self.threads)
        good[good] = (thunks_[good] >= 0) & (thunks_[good] < self.count[threads[good]])
        return good


def _grown(array: U32, size: int) -> U32:
    """With zeros behind it, or the array itself when it is long enough."""
    return array if len(array) >= size else np.concatenate([array, np.zeros(size - len(array), np.uint32)])


def _mapped(file: Any) -> U32:
    file.flush()
    size = file.seek(0, 2) // 4
    return np.memmap(file, np.uint32, "r", shape=size) if size else np.zeros(1, np.uint32)
