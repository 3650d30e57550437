# SPDX-License-Identifier: MIT
"""Reading `decoded/thunks.parquet` in the order of threads and thunks, and its call stacks, most of which are alike."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ptweave.data.schemas import DECODED_THUNKS
from ptweave.merge.recorded_stacks import as_bytes
from ptweave.merge.scratch import Scratch
from ptweave.merge.tables import BATCH_ROWS, I32, I64, corrupt, numbers, open_parquet

FILE = "thunks.parquet"

_ORDER = "order by thread nulls last, thunk, file_row_number"

STACK_BYTES = 1 << 26
"""Bytes of distinct stacks kept; of runs that have more, stacks are read a second time."""


class ThunkRows:
    """The file's rows. Decoding writes them in order: only files that are not are sorted."""

    def __init__(self, scratch: Scratch) -> None:
        self._scratch = scratch
        self._path: Path = scratch.folder / FILE
        self._sorted = all(self._in_order(["thread", "thunk"]))

    def _in_order(self, columns: list[str]) -> Iterator[bool]:
        """Whether each batch goes on where the one before ended."""
        last = (-(1 << 31), -(1 << 31))
        for batch in self._as_stored(columns):
            thread, thunk = numbers(batch, "thread", (1 << 31) - 1), numbers(batch, "thunk", (1 << 31) - 1)
            step, inner = np.diff(thread, prepend=last[0]), np.diff(thunk, prepend=last[1])
            yield not bool(((step < 0) | ((step == 0) & (inner < 0))).any())
            last = int(thread[-1]), int(thunk[-1])

    def _as_stored(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        with open_parquet(self._path, DECODED_THUNKS) as file:
            try:
                for batch in file.iter_batches(BATCH_ROWS, columns=columns, use_threads=False):
                    if len(batch):
                        yield batch
            except (OSError, pa.ArrowException, ValueError) as error:
                raise corrupt(self._path, error) from error

    def batches(self, columns: list[str], *, placed: bool = False) -> Iterator[pa.RecordBatch]:
        """Rows by thread and thunk, those without a thread last, or with `placed` not at all. Raises BadInput when the
        file is corrupt."""
        names = ", ".join(f'"{name}"' for name in columns)
        rows = self._as_stored(columns) if self._sorted else self._scratch.batches(
            FILE, f"select {names} from source {_ORDER}")
        for batch in rows:
            if placed and batch.column("thread").null_count:
                batch = batch.filter(batch.column("thread").is_valid())
            if len(batch):
                yield batch


class Stacks:
    """Call stacks of rows (return addresses, innermost first), each distinct one kept once."""

    def __init__(self) -> None:
        self._known: dict[bytes, int] = {}
        self._values: list[bytes] = []
        self._codes: list[I32] = []
        self._size = 0
        self.whole = True
        """False: there were too many to keep, and `codes` has none."""

    def add(self, lists: pa.ListArray) -> None:
        """Take more rows' stacks."""
        if not self.whole:
            return
        codes, distinct = encoded(lists)
        values = distinct.to_pylist()
        self._size += sum(len(value) for value in values if value not in self._known)
        if self._size > STACK_BYTES:
            self.whole, self._known, self._values, self._codes = False, {}, [], []
            return
        for value in values:
            if self._known.setdefault(value, len(self._values)) == len(self._values):
                self._values.append(value)
        numbers_ = np.array([self._known[value] for value in values], np.int32)
        self._codes.append(numbers_[codes])

    def close(self) -> None:
        """Nothing more comes."""
        self.codes: I32 = np.concatenate([np.zeros(0, np.int32), *self._codes])
        self.distinct = pa.array(self._values, pa.large_binary())
        self._codes, self._known, self._values = [], {}, []


def encoded(lists: pa.ListArray) -> tuple[I32, pa.LargeBinaryArray]:
    """Rows' lists of words as numbers of distinct ones, and these as bytes."""
    found = as_bytes(lists).dictionary_encode()
    return found.indices.to_numpy(zero_copy_only=False), found.dictionary


def words(stacks: pa.LargeBinaryArray) -> pa.ListArray:
    """Lists of words that were made bytes."""
    offsets = np.frombuffer(stacks.buffers()[1], np.int64)[stacks.offset:stacks.offset + len(stacks) + 1]
    first, last = (int(offsets[0]), int(offsets[-1])) if len(stacks) else (0, 0)
    data = stacks.buffers()[2]
    values = np.frombuffer(data, np.uint8)[first:last].view("<u8") if last > first else np.zeros(0, np.uint64)
    return pa.ListArray.from_arrays(pa.array(((offsets - first) // 8).astype(np.int32)), pa.array(values))


def innermost(lists: pa.ListArray) -> npt.NDArray[np.uint64]:
    """The first word of each list; 0 where there is none."""
    lengths = lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    begins: I64 = np.cumsum(lengths) - lengths
    values = lists.flatten().to_numpy(zero_copy_only=False).astype(np.uint64, copy=False)
    found = np.zeros(len(lists), np.uint64)
    found[lengths > 0] = values[begins[lengths > 0]]
    return found
