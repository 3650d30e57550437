# SPDX-License-Identifier: MIT
"""A DuckDB of the merge's own, for sorting and joining what may not fit into memory.

It is loaded, beside what the merge does, where there is much to sort or to join: that takes a twelfth of a processor's
second.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, closing, contextmanager
from functools import cache, partial
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING

import pyarrow as pa

from ptweave.data.errors import MachineLacks
from ptweave.merge.beside import Beside
from ptweave.merge.tables import BATCH_ROWS, corrupt

if TYPE_CHECKING:
    import duckdb

MEMORY = "256MB"
"""For two queries at a time; what does not fit goes to disk."""


def _connected(spill: str) -> duckdb.DuckDBPyConnection:
    import duckdb

    return duckdb.connect(config={
        "memory_limit": MEMORY, "threads": 1, "temp_directory": spill,
        "autoinstall_known_extensions": False, "python_enable_replacements": False})


class Queries:
    """Queries of a folder's files through one connection, one after the other.

    Files are named relative to that folder through its descriptor, so that no name of a bundle becomes part of
    any SQL or is taken for a pattern.
    """

    def __init__(self, folder: Path, base: str, connect: Callable[[], duckdb.DuckDBPyConnection]) -> None:
        """`base`: the name of the folder for `connect`'s connection."""
        self.folder = folder
        self._base = base
        self._connect = connect

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        return self._connect()

    def batches(self, name: str, query: str, **tables: pa.Table) -> Iterator[pa.RecordBatch]:
        """Rows of a query over `source`, the Parquet file `name` of the folder (with its row numbers as
        `file_row_number`), and given Arrow tables. Raises BadInput when the file is corrupt."""
        for key, table in tables.items():
            self.connection.register(key, table)
        try:
            with self._errors(name), self._ask(name, query).to_arrow_reader(BATCH_ROWS) as reader:
                yield from reader
        finally:
            for key in tables:
                self.connection.unregister(key)

    def table(self, name: str, query: str) -> pa.Table:
        """All rows of such a query."""
        with self._errors(name):
            return self._ask(name, query).to_arrow_table()

    def view(self, name: str, file: str) -> None:
        """Give queries another file of the folder, as the view `name`. Raises BadInput when the file is corrupt."""
        with self._errors(file):
            self.connection.execute(f"create or replace temp view {name} as select * from "
                                    f"read_parquet('{self._base}/{file}', file_row_number = true)")

    def _ask(self, name: str, query: str) -> duckdb.DuckDBPyRelation:
        self.connection.execute(f"create or replace temp view source as "
                                f"select * from read_parquet('{self._base}/{name}', file_row_number = true)")
        relation = self.connection.sql(query)
        assert relation is not None
        return relation

    @contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        import duckdb

        where = self.folder / name
        try:
            yield
        except duckdb.OutOfMemoryException as error:
            raise MachineLacks("ran out of memory or disk space while sorting", where=str(where),
                               remedy="free some disk space beside the bundle") from error
        except duckdb.Error as error:
            raise corrupt(where, str(error).splitlines()[0]) from error


class Scratch(Queries):
    """A connection whose spilled data lives below `folder`, and goes away with it. Use as a context manager."""

    def __init__(self, folder: Path, beside: Beside) -> None:
        self._spill = folder / ".spill"
        shutil.rmtree(self._spill, ignore_errors=True)
        folder.mkdir(exist_ok=True)
        self._descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        self._beside = beside
        self._connecting: Future[duckdb.DuckDBPyConnection] | None = None
        self._lock = Lock()
        self._made = ExitStack()
        super().__init__(folder, f"/proc/self/fd/{self._descriptor}", cache(partial(self._cursor, self._made)))

    def begin(self) -> None:
        """Connect, beside what the caller does next. Who asks connects, too."""
        with self._lock:
            if self._connecting is None:
                self._connecting = self._beside.start(self._connect_first)

    def _connect_first(self) -> duckdb.DuckDBPyConnection:
        return _connected(f"{self._base}/.spill")

    def _cursor(self, made: ExitStack) -> duckdb.DuckDBPyConnection:
        """A connection to the database for one thread. The first one is asked nothing: who wants another would wait
        for the answer."""
        with self._lock:
            if self._connecting is None:  # here: beside what is done beside others there may be no room for it
                first: Future[duckdb.DuckDBPyConnection] = Future()
                first.set_result(self._connect_first())
                self._connecting = first
        return made.enter_context(closing(self._connecting.result().cursor()))

    @contextmanager
    def another(self) -> Iterator[Queries]:
        """For another thread: a connection to the same database, with views of its own; they share its memory."""
        with ExitStack() as made:
            yield Queries(self.folder, self._base, cache(partial(self._cursor, made)))

    def close(self) -> None:
        self._made.close()
        if self._connecting and not self._connecting.cancel() and not self._connecting.exception():
            self._connecting.result().close()
        os.close(self._descriptor)
        shutil.rmtree(self._spill, ignore_errors=True)

    def __enter__(self) -> Scratch:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()
