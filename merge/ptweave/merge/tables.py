# SPDX-License-Identifier: MIT
"""Reading a bundle's tables: which files hold one, checked, and streamed thread by thread."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ptweave.data.bundle import Bundle
from ptweave.data.errors import BadInput
from ptweave.data.schemas import Table
from ptweave.merge.render import safe

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]
T = TypeVar("T")

BATCH_ROWS = 1 << 17
"""Rows of a table handled at a time."""

CACHED_ROWS = 1 << 21
"""Rows of the largest row group that is read at once."""


def optional(values: npt.NDArray[Any], none: Bools) -> pa.Array:
    """Values, null where there is none: the same memory where they all are."""
    return pa.array(values, mask=none) if none.any() else pa.array(values)


def corrupt(path: Path, error: object) -> BadInput:
    """The error of a table file that cannot be read."""
    return BadInput(f"is corrupt ({safe(' '.join(str(error).split()))})", where=str(path),
                    remedy="decode and merge the run again")


def table_files(bundle: Bundle, table: Table) -> list[Path]:
    """The files of a table in the order of their numbers; [] when it was never made. Links are not followed."""
    folder = bundle.tables / table.name
    if folder.is_symlink() or not folder.is_dir():
        return []
    files = [path for path in folder.iterdir()
             if path.suffix == ".parquet" and not path.name.startswith(".")
             and path.is_file() and not path.is_symlink()]
    return sorted(files, key=lambda path: [int(part) if part.isdigit() else 0 for part in re.split(r"(\d+)", path.name)]
                  + [0])


def open_parquet(path: Path, schema: pa.Schema, dictionaries: list[str] | None = None) -> pq.ParquetFile:
    """Open a Parquet file that must have (at least) the columns of `schema`; some columns of text come as dictionaries.
    Raises BadInput naming the file."""
    try:
        file = pq.ParquetFile(path, read_dictionary=dictionaries)
        found = file.schema_arrow
    except (OSError, pa.ArrowException, ValueError) as error:
        raise corrupt(path, error) from error
    for column in schema:
        index = found.get_field_index(column.name)
        kind = found.field(index).type if index >= 0 else None
        if kind is not None and column.name in (dictionaries or ()) and pa.types.is_dictionary(kind):
            kind = kind.value_type
        if kind != column.type:
            what = "no column" if index < 0 else f"another type ({kind}) of column"
            file.close()
            raise BadInput(f"has {what} {column.name}", where=str(path),
                           remedy="decode and merge the run again with this ptweave")
    return file


def read_open(file: pq.ParquetFile, path: Path, columns: list[str]) -> pa.Table:
    """Some columns of an open file. Raises BadInput when it is corrupt."""
    try:
        return file.read(columns, use_threads=False).select(columns)
    except (OSError, pa.ArrowException, ValueError) as error:
        raise corrupt(path, error) from error


def read_table(bundle: Bundle, table: Table, columns: list[str], dictionaries: list[str] | None = None) -> pa.Table:
    """Some columns of a whole table. Raises BadInput for a file that is corrupt or has other columns."""
    schema = pa.schema([table.schema.field(name) for name in columns])
    parts = []
    for path in table_files(bundle, table):
        with open_parquet(path, schema, dictionaries) as file:
            parts.append(read_open(file, path, columns))
    if not parts:
        return schema.empty_table()
    return pa.concat_tables(parts)


def read_group(file: pq.ParquetFile, path: Path, group: int, columns: list[str]) -> pa.Table:
    """Some columns of a row group of an open file. Raises BadInput when it is corrupt."""
    try:
        return file.read_row_group(group, columns=columns, use_threads=False)
    except (OSError, pa.ArrowException, ValueError) as error:
        raise corrupt(path, error) from error


def leaf(metadata: pq.FileMetaData, column: str) -> int:
    """Index of a flat column among the file's leaf columns."""
    return next(i for i in range(metadata.num_columns) if metadata.schema.column(i).path == column)


def row_groups(bundle: Bundle, table: Table, columns: list[str]) -> Iterator[pa.Table]:
    """Some columns of a whole table, part by part: what reading one takes beside its rows, the next uses again.
    Raises BadInput for a file that is corrupt or has other columns."""
    schema = pa.schema([table.schema.field(name) for name in columns])
    for path in table_files(bundle, table):
        with open_parquet(path, schema) as file:
            for group in range(file.num_row_groups):
                yield read_group(file, path, group, columns)


@dataclass(frozen=True)
class RowGroup:
    """A row group of one of a table's files, and which threads have rows in it."""

    file: int
    group: int
    rows: int
    first: int
    last: int


class ThreadRows:
    """A table sorted by (thread, …), read one thread at a time, in batches, with bounded memory.

    Row groups are found through the statistics of the thread column. Rows of one thread come in the order of the
    files and of the rows in them.
    """

    def __init__(self, bundle: Bundle, table: Table, columns: list[str]) -> None:
        self.table = table
        self._columns = columns
        self._paths = table_files(bundle, table)
        schema = pa.schema([table.schema.field(name) for name in ["thread", *columns]])
        self._files = [open_parquet(path, schema) for path in self._paths]
        self._groups = [group for number in range(len(self._files)) for group in self._index(number)]
        self._of_threads: dict[tuple[int, int], dict[int, tuple[int, int]]] = {}
        self._lock = Lock()  # several threads may read, each its own rows
        self._cached: tuple[int, int] = (-1, -1)
        self._cache: pa.Table | None = None

    @property
    def rows(self) -> int:
        return sum(group.rows for group in self._groups)

    def _index(self, number: int) -> Iterator[RowGroup]:
        metadata = self._files[number].metadata
        for group in range(metadata.num_row_groups):
            first, last = self._bounds(number, group, "thread") or (-(1 << 31), (1 << 31) - 1)
            yield RowGroup(number, group, metadata.row_group(group).num_rows, first, last)

    def _bounds(self, file: int, group: int, column: str) -> tuple[int, int] | None:
        """The least and the greatest number in a column of a row group, as its statistics have them; None: they do
        not, or some are null."""
        metadata = self._files[file].metadata
        statistics = metadata.row_group(group).column(leaf(metadata, column)).statistics
        if statistics is None or not statistics.has_min_max or statistics.null_count:
            return None
        return int(statistics.min), int(statistics.max)

    def threads(self) -> list[int]:
        """Numbers of the threads that have rows, ascending."""
        found: set[int] = set()
        for group in self._groups:
            with self._lock:  # no file may be read at two places at once
                found.update([group.first] if group.first == group.last else self._spans(group))
        return sorted(found)

    def sizes(self) -> dict[int, int]:
        """About how many rows threads have: those of row groups that several share are left out."""
        found: dict[int, int] = {}
        for group in self._groups:
            if group.first == group.last:
                found[group.first] = found.get(group.first, 0) + group.rows
        return found

    def _spans(self, group: RowGroup) -> dict[int, tuple[int, int]]:
        """First row, and the one behind the last, of each thread in a row group; the group is read once for it.

        Raises BadInput for one that is not sorted."""
        key = (group.file, group.group)
        if key not in self._of_threads:
            found: dict[int, tuple[int, int]] = {}
            done, latest = 0, -(1 << 31)
            for batch in self._batches(group, ["thread"]):
                numbers = _integers(batch, 0, self._paths[group.file])
                edges = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
                for begin, end in pairwise(edges if len(numbers) else []):
                    thread = int(numbers[begin])
                    if thread < latest:
                        raise corrupt(self._paths[group.file], "it is not sorted by thread")
                    found[thread] = found.get(thread, (done + begin, 0))[0], done + end
                    latest = thread
                done += len(numbers)
            self._of_threads[key] = found
        return self._of_threads[key]

    def _batches(self, group: RowGroup, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """A row group's rows; small row groups are kept where another thread may have rows in them. What is not kept is
        read in small pieces, into the same memory each time."""
        key = (group.file, group.group)
        try:
            if group.rows > CACHED_ROWS or columns == ["thread"] or group.first == group.last:
                yield from self._files[group.file].iter_batches(
                    BATCH_ROWS, row_groups=[group.group], columns=columns, use_threads=False)
                return
            if self._cached != key or self._cache is None:
                self._cache = read_group(self._files[group.file], self._paths[group.file], group.group, columns)
                self._cached = key
        except (OSError, pa.ArrowException, ValueError) as error:
            raise corrupt(self._paths[group.file], error) from error
        yield from self._cache.select(columns).to_batches(max_chunksize=BATCH_ROWS)

    def batches(self, thread: int, skip: int = 0) -> Iterator[pa.RecordBatch]:
        """The thread's rows (without the thread column), but for the first ones. Raises BadInput for a file that is
        corrupt or unsorted."""
        return self._locked(self._rows_of(thread, skip))

    def _locked(self, items: Iterator[T]) -> Generator[T, None, None]:
        """The same items, each read while nobody else reads."""
        while True:
            with self._lock:
                item = next(items, None)
            if item is None:
                return
            yield item

    def _groups_of(self, thread: int, skip: int) -> Iterator[tuple[RowGroup, int, int]]:
        """Row groups with rows of a thread: the first of these in each, and the one behind the last, without the first
        `skip` of all. To be asked with the lock held."""
        for group in self._groups:
            if not group.first <= thread <= group.last:
                continue
            first, last = 0, group.rows
            if group.first != group.last:  # not all of it is this thread's
                first, last = self._spans(group).get(thread, (0, 0))
            left = min(skip, last - first)
            first, skip = first + left, skip - left
            if last > first:
                yield group, first, last

    def _rows_in(self, group: RowGroup, first: int, last: int) -> Iterator[pa.RecordBatch]:
        done = 0
        for batch in self._batches(group, self._columns):
            begin, end = max(first, done), min(last, done + len(batch))
            if end > begin:
                yield batch.slice(begin - done, end - begin)
            done += len(batch)

    def _rows_of(self, thread: int, skip: int) -> Iterator[pa.RecordBatch]:
        for group, first, last in self._groups_of(thread, skip):
            yield from self._rows_in(group, first, last)

    def close(self) -> None:
        for file in self._files:
            file.close()
        self._cache = None


def _integers(batch: pa.RecordBatch, column: int, path: Path) -> I32:
    array = batch.column(column)
    if array.null_count:
        raise corrupt(path, f"column {batch.schema.names[column]} has nulls")
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    values: I32 = array.to_numpy(zero_copy_only=False)
    return values


def numbers(batch: pa.RecordBatch | pa.Table, column: str, fill: int = 0) -> npt.NDArray[np.int64]:
    """An integer column as numpy, in its own width; nulls become `fill`."""
    array = batch.column(column)
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
    if array.null_count:
        array = array.fill_null(fill)
    values: npt.NDArray[np.int64] = array.to_numpy(zero_copy_only=False)
    return values


def encoded_column(table: pa.Table, column: str) -> pa.DictionaryArray:
    """A string column, dictionary-encoded with one dictionary."""
    array = table.column(column)
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    array = array.unify_dictionaries().combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks else pa.array([], pa.string()).dictionary_encode()
    return array


def within(count: I64) -> I64:
    """0, 1, … for each count."""
    ends = np.cumsum(count)
    result: I64 = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - count, count)
    return result
