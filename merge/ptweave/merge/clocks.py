# SPDX-License-Identifier: MIT
"""The vector clocks of all thunks, where C finds them at once: in a file that is mapped, not in memory.

It takes four bytes for each thunk and component, beside the bundle's decoded tables, and has no name.
"""

from __future__ import annotations

import tempfile
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from ptweave.data.errors import BadInput
from ptweave.merge import thunks
from ptweave.merge._merge import ffi
from ptweave.merge.scratch import Scratch
from ptweave.merge.tables import I32, I64, Bools, numbers
from ptweave.merge.thunk_rows import ThunkRows

THREADS_MAX = 1_000_000
"""Greatest thread number believed."""


class Clocks:
    """`count[i]` thunks of thread i, each with `width[i]` components. Use as a context manager.

    Raises BadInput when a thread's thunks are not numbered one after the other.
    """

    def __init__(self, scratch: Scratch) -> None:
        sizes = scratch.table(thunks.FILE, (
            "select thread, count(*) as thunks, min(thunk) as first, max(thunk) as last, "
            "count(distinct thunk) as kinds, coalesce(max(len(clock)), 0) as width "
            "from source where thread is not null group by thread order by thread"))
        thread, count = numbers(sizes, "thread").astype(np.int64), numbers(sizes, "thunks").astype(np.int64)
        last, width = numbers(sizes, "last"), numbers(sizes, "width").astype(np.int64)
        if len(thread) and (thread[0] < 0 or thread[-1] >= THREADS_MAX or (numbers(sizes, "first") != 0).any()
                            or (last != count - 1).any() or (numbers(sizes, "kinds") != count).any()):
            raise BadInput("has thunks that do not follow each other", where=str(scratch.folder / thunks.FILE),
                           remedy="decode and merge the run again")
        self.threads = int(thread[-1]) + 1 if len(thread) else 0
        self.count: I32 = self._spread(thread, count)
        self.width: I32 = self._spread(thread, width)
        cells = self.count.astype(np.int64) * self.width
        self.begin: I64 = np.concatenate([[0], np.cumsum(cells)]).astype(np.int64)
        self._file = tempfile.TemporaryFile(dir=scratch.folder)  # noqa: SIM115 (closed by `close`)
        self.values: npt.NDArray[np.uint32] = np.memmap(self._file, np.uint32, "w+", shape=max(int(self.begin[-1]), 1))
        self._fill(scratch)
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

    def _spread(self, thread: I64, values: I64) -> I32:
        found = np.zeros(self.threads, np.int32)
        found[thread] = values
        return found

    def _fill(self, scratch: Scratch) -> None:
        for batch in ThunkRows(scratch).batches(["thread", "thunk", "clock"], placed=True):
            thread, thunk = numbers(batch, "thread"), numbers(batch, "thunk").astype(np.int64)
            clock = batch.column("clock")
            lengths = clock.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
            row = self.begin[thread] + thunk * self.width[thread]
            place = np.repeat(row - np.cumsum(lengths) + lengths, lengths) + np.arange(int(lengths.sum()))
            self.values[place] = clock.flatten().to_numpy(zero_copy_only=False)

    def has(self, threads: I32, thunks_: I32) -> Bools:
        """Whether there are such thunks."""
        good: Bools = (threads >= 0) & (threads < self.threads)
        good[good] = (thunks_[good] >= 0) & (thunks_[good] < self.count[threads[good]])
        return good
