# SPDX-License-Identifier: MIT
"""Writes tables as Parquet files: row groups of about 1 M rows; zstd level 1; columns encoded as the tables say, with
bounds of those that are in order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from inspect import signature
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import pyarrow as pa
import pyarrow.parquet as pq

from ptweave.data.parquet_writer import ParquetWriter
from ptweave.data.table_types import Column, Table

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

ROW_GROUP = 1 << 20
"""Rows of a row group."""

ENCODED = pa.dictionary(pa.int32(), pa.string())
"""Columns of text as dictionaries."""

PAGES: dict[str, int] = {"write_batch_size": 1 << 14}
"""How Parquet writers divide columns: newer ones end a page after 20,000 rows unless they are told, and take a
compressor's memory anew for each."""
if "max_rows_per_page" in signature(pq.ParquetWriter).parameters:
    PAGES["max_rows_per_page"] = 1 << 17


def _leaf(column: Column) -> str:
    """What Parquet calls the column its values are in."""
    return f"{column.name}.list.element" if pa.types.is_list(column.type) else column.name


def _encoded(kind: pa.DataType) -> pa.DataType:
    return pa.list_(ENCODED) if pa.types.is_list(kind) else ENCODED


class AllOrNothing(ABC):
    """What is written in a `with` block is there when that ends, and is not when an error ends it."""

    @abstractmethod
    def close(self) -> None:
        """Finish, and give what was written its name."""

    @abstractmethod
    def abort(self) -> None:
        """Give up what was written: nothing is left under its name."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if kind is None:
            try:
                self.close()
            except BaseException:
                self.abort()
                raise
        else:
            self.abort()


class TableWriter(AllOrNothing):
    """Writes one table's Parquet file, streaming; a row group every `row_group` rows.

    The file appears under its name only when it is closed without an error. Where rows are cut into row groups depends
    on the rows alone, not on how they came.
    """

    def __init__(self, folder: Path, table: Table, name: str = "0.parquet", *, row_group: int = ROW_GROUP,
                 encoded: Collection[str] = (), pool: Executor | None = None) -> None:
        """`encoded`: columns of text, or of lists of text, that come as dictionaries and need not be looked up again;
        the file is the same to whoever reads it. With `pool` rows are compressed there, one lot at a time, while the
        next ones are made; what goes wrong in it is raised by whatever is called next."""
        self.table = table
        self._pool = pool
        self._storing: Future[None] | None = None
        self.rows = 0
        self._schema = table.schema
        for at, column in enumerate(table.columns):
            if column.name in encoded:
                self._schema = self._schema.set(at, self._schema.field(at).with_type(_encoded(column.type)))
        self._row_group = row_group
        target = folder / table.name
        target.mkdir(parents=True, exist_ok=True)
        self._path = target / name
        self._partial = target / f".{name}.partial"
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        try:
            self._writer = self._open(plain=not encoded)
        except BaseException:
            self._partial.unlink(missing_ok=True)
            raise

    def _open(self, *, plain: bool) -> ParquetWriter:
        columns = self.table.columns
        return ParquetWriter(
            str(self._partial), self._schema, compression="zstd", compression_level=1,
            use_dictionary=[_leaf(c) for c in columns if c.dictionary],
            column_encoding={_leaf(c): "DELTA_BINARY_PACKED" if c.delta else "BYTE_STREAM_SPLIT" for c in columns
                             if (c.delta or c.split) and not c.dictionary} or None,
            write_statistics=self.table.bounded,
            data_page_size=1 << 18, store_schema=plain, **PAGES)

    def write(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Append rows; columns must have the table's names and castable types."""
        rows = pa.table(batch) if isinstance(batch, pa.RecordBatch) else batch
        if not rows.schema.equals(self._schema):
            rows = rows.cast(self._schema)
        for part in rows.to_batches():
            self._pending.append(part)
            self._pending_rows += part.num_rows
        if self._pending_rows >= self._row_group:
            self._flush(self._pending_rows // self._row_group * self._row_group)

    def _flush(self, count: int) -> None:
        if count:
            table = pa.Table.from_batches(self._pending, self._schema)
            self._store(table.slice(0, count))
            self.rows += count
            self._pending = table.slice(count).to_batches()
            self._pending_rows -= count

    def _store(self, rows: pa.Table) -> None:
        self._wait()
        if self._pool:
            self._storing = self._pool.submit(self._writer.write_table, rows, row_group_size=self._row_group)
        else:
            self._writer.write_table(rows, row_group_size=self._row_group)

    def _wait(self) -> None:
        storing, self._storing = self._storing, None
        if storing:
            storing.result()

    def end(self) -> None:
        """No rows follow: with a pool what is left is compressed while others work, until `close`."""
        self._flush(self._pending_rows)

    def finish(self) -> None:
        """Write all of the file, but leave it without its name until `publish`."""
        self.end()
        self._wait()
        self._writer.close()

    def publish(self) -> None:
        self._partial.replace(self._path)

    def close(self) -> None:
        self.finish()
        self.publish()

    def abort(self) -> None:
        """Give the file up: nothing is left under the table's name."""
        if self._storing and not self._storing.cancel():
            self._storing.exception()  # it is over now; the file is given up anyway
        try:
            self._writer.close()
        finally:
            self._partial.unlink(missing_ok=True)


def write_table(folder: Path, table: Table, rows: pa.Table | Iterable[dict[str, object]]) -> int:
    """Write a whole small table at once; returns its row count."""
    data = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(list(rows), schema=table.schema)
    with TableWriter(folder, table) as writer:
        writer.write(data)
    return int(data.num_rows)
