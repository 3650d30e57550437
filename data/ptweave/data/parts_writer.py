# SPDX-License-Identifier: MIT
"""Writes a table as several Parquet files, of which some are compressed at a time: a writer of one file has one thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from concurrent.futures import Executor, Future
from pathlib import Path

import pyarrow as pa

from ptweave.data.table_types import Table
from ptweave.data.table_writer import AllOrNothing, TableWriter

AT_A_TIME = 2


class PartsWriter(AllOrNothing):
    """A file for every `rows` rows, in their order: 0.parquet, 1.parquet, …; one without rows when there are none.

    They appear under their names when it is closed without an error, all of them. Where rows are cut into files depends
    on the rows alone, not on how they came. Leaves the folder's other files alone.
    """

    def __init__(self, folder: Path, table: Table, rows: int, *, encoded: Collection[str] = (), pool: Executor) -> None:
        """`encoded` as for TableWriter. Files are written in `pool`, AT_A_TIME of them, whose
        rows are held; what goes wrong there is raised by whatever is called next."""
        self._folder = folder
        self._table = table
        self._rows = rows
        self._encoded = encoded
        self._pool = pool
        self._pending: list[pa.Table] = []
        self._pending_rows = 0
        self._writing: deque[Future[TableWriter]] = deque()
        self._written: list[TableWriter] = []
        self._files = 0

    def write(self, rows: pa.Table) -> None:
        """Append rows, as TableWriter does."""
        self._pending.append(rows)
        self._pending_rows += rows.num_rows
        while self._pending_rows >= self._rows:
            self._store(self._rows)

    def _store(self, count: int) -> None:
        while len(self._writing) >= AT_A_TIME:
            self._take()
        rows = pa.concat_tables(self._pending) if self._pending else self._table.schema.empty_table()
        self._pending = [rows.slice(count)]
        self._pending_rows -= count
        self._writing.append(self._pool.submit(self._file, self._files, rows.slice(0, count)))
        self._files += 1

    def _file(self, number: int, rows: pa.Table) -> TableWriter:
        writer = TableWriter(self._folder, self._table, f"{number}.parquet", row_group=max(1, rows.num_rows),
                             encoded=self._encoded)
        try:
            writer.write(rows)
            writer.finish()
        except BaseException:
            writer.abort()
            raise
        return writer

    def _take(self) -> None:
        self._written.append(self._writing.popleft().result())

    def close(self) -> None:
        if self._pending_rows or not self._files:
            self._store(self._pending_rows)
        while self._writing:
            self._take()
        for writer in self._written:
            writer.publish()

    def abort(self) -> None:
        """Give the files up: nothing is left under the table's name."""
        for future in self._writing:
            if not future.cancel() and not future.exception():
                self._written.append(future.result())
        for writer in self._written:
            writer.abort()
