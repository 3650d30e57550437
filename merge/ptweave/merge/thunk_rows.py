# SPDX-License-Identifier: MIT
"""Reading `decoded/thunks.parquet` in the order of threads and thunks, and the call stacks that it names."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ptweave.data.schemas import DECODED_STACKS, DECODED_THUNKS
from ptweave.merge.beside import Beside
from ptweave.merge.scratch import Scratch
from ptweave.merge.tables import BATCH_ROWS, I64, U64, corrupt, numbers, open_parquet

FILE = "thunks.parquet"
STACKS_FILE = "stacks.parquet"
TEXT = ["operation"]
"""Columns that come as dictionaries."""

CLOCK_BYTES = 8 << 20
"""Of clocks read at a time, about: each has a component for every thread."""

_ORDER = "order by thread nulls last, thunk, file_row_number"
_NONE = (1 << 31) - 1
"""Stands for a thread that is not known: those come last."""
_LISTED = 1 << 14
"""Stacks read at a time."""


class ThunkRows:
    """The file's rows, `count` of them. Decoding writes them in order: only files that are not are sorted."""

    def __init__(self, scratch: Scratch, beside: Beside) -> None:
        self._scratch = scratch
        self._beside = beside
        self._path: Path = scratch.folder / FILE
        with open_parquet(self._path, DECODED_THUNKS, TEXT) as file:
            self.count = int(file.metadata.num_rows)
            self.with_clock = _rows_with_clock(file.metadata)
            """Rows that are read at a time with their clocks."""
        self.sorted = True
        """Whether the file is in order, as far as it was gone over: no other file is read through `scratch`."""
        self.threads: dict[int, slice] = {}
        """The rows of each thread (−1: of none), as far as they were gone over."""
        self.numbered = False
        """Whether they were gone over, and each thread's are numbered 0, 1, …"""

    def column(self, kind: type[np.signedinteger[Any]]) -> npt.NDArray[Any]:
        """Memory for a value of each row. Raises BadInput when the file claims more rows than there can be."""
        try:
            return np.empty(self.count, kind)
        except (MemoryError, ValueError) as error:
            raise corrupt(self._path, f"it claims {self.count} rows") from error

    def load(self, columns: list[str], put: Callable[[slice, pa.RecordBatch], None]) -> None:
        """Go over the rows for the first time: each batch's place among all rows, and the batch, which has columns
        `thread` and `thunk`. Begins anew, from row 0, when the file turns out not to be in order.

        Raises BadInput when the file is corrupt or claims other rows than it has.
        """
        last = (-(1 << 31), -(1 << 31))
        done, numbered, stored = 0, self.sorted, self.sorted
        self.threads.clear()
        with closing(self.ahead(columns)) as batches:
            for batch in batches:
                thread = numbers(batch, "thread", _NONE)
                if stored:
                    thunk = numbers(batch, "thunk", _NONE)
                    step, inner = np.diff(thread, prepend=last[0]), np.diff(thunk, prepend=last[1])
                    self.sorted = not bool(((step < 0) | ((step == 0) & (inner < 0))).any())
                    if not self.sorted:
                        break
                    last = int(thread[-1]), int(thunk[-1])
                    none = thread == _NONE
                    numbered = (numbered and int(none.sum()) == batch.column("thread").null_count
                                and bool(thread[0] >= 0)
                                and bool((np.where(step == 0, inner == 1, thunk == 0) | none).all()))
                rows, done = slice(done, done + len(batch)), done + len(batch)
                if done > self.count:
                    break
                self._note_threads(rows, thread)
                put(rows, batch)
        if stored and not self.sorted:
            self.load(columns, put)
            return
        if done != self.count:
            raise corrupt(self._path, f"it claims {self.count} rows and has {done}")
        self.numbered = numbered

    def _note_threads(self, rows: slice, thread: npt.NDArray[np.int64]) -> None:
        """Whose the next rows are: those of a thread follow each other."""
        for first, last in itertools.pairwise([0, *(np.flatnonzero(np.diff(thread)) + 1).tolist(), len(thread)]):
            number = -1 if thread[first] == _NONE else int(thread[first])
            begin = self.threads[number].start if number in self.threads else rows.start + first
            self.threads[number] = slice(begin, rows.start + last)

    def _as_stored(self, columns: list[str]) -> Generator[pa.RecordBatch, None, None]:
        with open_parquet(self._path, DECODED_THUNKS, TEXT) as file:
            rows = self.with_clock if "clock" in columns else BATCH_ROWS
            try:
                for batch in file.iter_batches(rows, columns=columns, use_threads=False):
                    if len(batch):
                        yield batch
            except (OSError, pa.ArrowException, ValueError) as error:
                raise corrupt(self._path, error) from error

    def batches(self, columns: list[str], *, placed: bool = False) -> Generator[pa.RecordBatch, None, None]:
        """Rows by thread and thunk, those without a thread last, or with `placed` not at all. Raises BadInput when the
        file is corrupt."""
        names = ", ".join(f'"{name}"' for name in columns)
        rows = self._as_stored(columns) if self.sorted else self._scratch.batches(
            FILE, f"select {names} from source {_ORDER}")
        for batch in rows:
            if placed and batch.column("thread").null_count:
                batch = batch.filter(batch.column("thread").is_valid())
            if len(batch):
                yield batch

    def ahead(self, columns: list[str]) -> Generator[pa.RecordBatch, None, None]:
        """The same; where the file is in order, each batch is read while the one before it is used."""
        return self._beside.ahead(self.batches(columns)) if self.sorted else self.batches(columns)


def _rows_with_clock(metadata: pq.FileMetaData) -> int:
    widest = 1
    for group in (metadata.row_group(number) for number in range(metadata.num_row_groups)):
        for column in (group.column(number) for number in range(group.num_columns)):
            if column.path_in_schema.startswith("clock.") and group.num_rows > 0:
                widest = max(widest, column.num_values // group.num_rows)
    return max(1, min(BATCH_ROWS, CLOCK_BYTES // (4 * widest)))


def stack_batches(scratch: Scratch) -> Iterator[tuple[I64, U64]]:
    """Call stacks in the order of their numbers: offsets of each batch's, and their return addresses, innermost first.
    Raises BadInput when the file is corrupt or missing."""
    path = scratch.folder / STACKS_FILE
    with open_parquet(path, DECODED_STACKS) as file:
        try:
            for batch in file.iter_batches(_LISTED, use_threads=False):
                lists = batch.column("stack")
                lengths = lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
                words = lists.flatten().fill_null(0).to_numpy(zero_copy_only=False).astype(np.uint64, copy=False)
                yield np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), words
        except (OSError, pa.ArrowException, ValueError) as error:
            raise corrupt(path, error) from error
