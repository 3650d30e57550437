# SPDX-License-Identifier: MIT
"""Streaming over the stored tables of a run: the rows of one thread, in order, a bounded number at a time.

A table may be one file or several (`tables/<table>/*.parquet`), read in the order of the numbers in their names.
What the statistics of a row group rule out is not read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ptweave.data.bundle import Bundle
from ptweave.data.errors import BadInput

BATCH = 1 << 16
"""Rows read at a time."""

Columns = dict[str, npt.NDArray[Any]]


def not_decoded(bundle: Bundle) -> BadInput:
    return BadInput("is not decoded yet", where=str(bundle.path), remedy=f"run ptweave decode {bundle.path} first")


def table_files(bundle: Bundle, table: str) -> list[Path]:
    """A table's files in order; empty when there are none. Raises BadInput when the run has not been decoded."""
    folder = bundle.tables / table
    if not (bundle.tables / "flow").is_dir():
        raise not_decoded(bundle)
    return sorted((path for path in folder.glob("*.parquet") if not path.name.startswith(".")), key=_natural)


def _natural(path: Path) -> list[tuple[int, str]]:
    """Numbers by value, all else by character."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", path.name) if part]


def read_table(bundle: Bundle, table: str, columns: list[str], dictionaries: Sequence[str] = ()) -> pa.Table:
    """All of a small table; columns it does not have are left out. Raises BadInput."""
    files = table_files(bundle, table)
    if not files:
        raise not_decoded(bundle)
    parts = []
    for path in files:
        try:
            with pq.ParquetFile(path, read_dictionary=list(dictionaries)) as file:
                parts.append(file.read([name for name in columns if name in file.schema_arrow.names]))
        except (OSError, pa.ArrowException) as error:
            raise _unreadable(path, error) from error
    return pa.concat_tables(parts)


def _unreadable(path: Path, error: Exception) -> BadInput:
    return BadInput(f"cannot be read ({error})", where=str(path), remedy="decode the run again")


def numbers(column: pa.Array | pa.ChunkedArray, default: int = 0) -> npt.NDArray[Any]:
    """A column of numbers, nulls as `default`; shared where possible. (pyarrow's own to_numpy loads pandas, which
    takes longer than all else a short command does.)"""
    if isinstance(column, pa.ChunkedArray):
        parts = [numbers(chunk, default) for chunk in column.chunks]
        return parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, str(column.type)), *parts])
    data = column.buffers()[1]
    if data is None or not len(column):
        return np.zeros(len(column), str(column.type))
    values = np.frombuffer(data, str(column.type), len(column), column.offset * column.type.bit_width // 8)
    return values if not column.null_count else np.where(valid(column), values, values.dtype.type(default))


def valid(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Where a column has a value."""
    bitmap = column.buffers()[0]
    if bitmap is None:
        return np.ones(len(column), np.bool_)
    bits = np.unpackbits(np.frombuffer(bitmap, np.uint8), bitorder="little")
    return bits[column.offset:column.offset + len(column)].astype(np.bool_)


def distinct(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Each value once, ascending. (np.unique puts numbers into a hash table before it sorts them since numpy 2.3, which
    takes more than ten times as long.)"""
    ordered = np.sort(values)
    return ordered[np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])[:len(ordered)])]


class Stored:
    """One table, opened: its row groups with what their statistics say."""

    def __init__(self, bundle: Bundle, table: str) -> None:
        """Raises BadInput when the run is not decoded, or a file cannot be read."""
        self._files: list[pq.ParquetFile] = []
        self._groups: list[tuple[int, int, dict[str, tuple[int, int] | None]]] = []
        for number, path in enumerate(table_files(bundle, table)):
            try:
                file = pq.ParquetFile(path)
            except (OSError, pa.ArrowException) as error:
                raise _unreadable(path, error) from error
            self._files.append(file)
            self._groups += [(number, group, _statistics(file, group)) for group in range(file.num_row_groups)]
        self._paths = [str(path) for path in table_files(bundle, table)]

    def close(self) -> None:
        for file in self._files:
            file.close()

    def threads(self) -> set[int]:
        """The threads that have rows."""
        found: set[int] = set()
        for number, group, statistics in self._groups:
            bounds = statistics.get("thread")
            if bounds is not None and bounds[0] == bounds[1]:
                found.add(bounds[0])
            else:
                try:
                    column = self._files[number].read_row_group(group, columns=["thread"])["thread"]
                except (OSError, pa.ArrowException) as error:
                    raise _unreadable(Path(self._paths[number]), error) from error
                found.update(pc.unique(column).drop_null().to_pylist())
        return found

    def least(self, column: str) -> int | None:
        """The smallest value of a column, if the statistics tell."""
        bounds = [statistics[column] for _, _, statistics in self._groups if column in statistics]
        return min((low for low, _ in (bound for bound in bounds if bound is not None)), default=None)

    def batches(self, thread: int, columns: list[str], *, since: int | None = None,
                wanted: Callable[[dict[str, tuple[int, int] | None]], bool] | None = None) -> Iterator[pa.RecordBatch]:
        """The thread's rows in order, in batches. `since`: no more rows with a smaller seq than needed to have the
        last one at or before it. `wanted` may refuse row groups by their statistics."""
        groups = [entry for entry in self._groups if _may_hold(entry[2].get("thread"), thread)]
        if since is not None:
            groups = groups[_first_group([entry[2] for entry in groups], thread, since):]
        for number, group, statistics in groups:
            if wanted is not None and not wanted(statistics):
                continue
            try:
                for batch in self._files[number].iter_batches(BATCH, row_groups=[group], columns=["thread", *columns],
                                                              use_threads=False):
                    ours = np.flatnonzero(numbers(batch["thread"], -1) == thread)
                    if len(ours):  # tables are sorted by thread: the rows are neighbours
                        yield batch.slice(int(ours[0]), len(ours))
            except (OSError, pa.ArrowException) as error:
                raise _unreadable(Path(self._paths[number]), error) from error


def _statistics(file: pq.ParquetFile, group: int) -> dict[str, tuple[int, int] | None]:
    metadata = file.metadata.row_group(group)
    found: dict[str, tuple[int, int] | None] = {}
    for index in range(metadata.num_columns):
        column = metadata.column(index)
        statistics = column.statistics
        if column.path_in_schema in ("thread", "seq", "t"):
            found[column.path_in_schema] = (
                (statistics.min, statistics.max) if statistics is not None and statistics.has_min_max else None)
    return found


def _may_hold(bounds: tuple[int, int] | None, value: int) -> bool:
    return bounds is None or bounds[0] <= value <= bounds[1]


def _first_group(groups: list[dict[str, tuple[int, int] | None]], thread: int, since: int) -> int:
    """The last of the thread's row groups that begins at or before `since`: rows before it are not needed."""
    first = 0
    for index, statistics in enumerate(groups):
        only, bounds = statistics.get("thread"), statistics.get("seq")
        if only != (thread, thread) or bounds is None:
            continue  # other threads' rows are in it, too: nothing is known of ours
        if bounds[0] > since:
            break
        first = index
    return first


class Cursor:
    """The rows of a stream of batches, taken seq by seq."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._rows: pa.RecordBatch | None = None
        self._seqs: npt.NDArray[np.int64] = np.zeros(0, np.int64)

    def before(self, end: int | None) -> list[pa.RecordBatch]:
        """The next rows with seq < `end` (None: all that are left)."""
        taken: list[pa.RecordBatch] = []
        while True:
            if self._rows is None:
                self._rows = next(self._batches, None)
                if self._rows is None:
                    return taken
                self._seqs = numbers(self._rows["seq"])
            count = len(self._seqs) if end is None else int(np.searchsorted(self._seqs, end))
            if count:
                taken.append(self._rows.slice(0, count))
            if count < len(self._seqs):
                self._rows, self._seqs = self._rows.slice(count), self._seqs[count:]
                return taken
            self._rows = None
