# SPDX-License-Identifier: MIT
"""What a query answers, the database that is asked, and its errors as ours."""

from __future__ import annotations

import contextlib
import re
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import duckdb
import pyarrow as pa

from ptweave.data.errors import BadInput, MachineLacks, PtweaveError
from ptweave.data.schemas import ADDRESSES, TABLES
from ptweave.merge import calltext, views
from ptweave.merge.render import TextTable, html_table, safe, tuples
from ptweave.merge.tables import BATCH_ROWS

if TYPE_CHECKING:
    import pandas
    import polars

_T = TypeVar("_T")
_QUERY = "query"
_PLACE = "\nLINE "
_MEMORY = "1GB"
_SHOWN = 20  # rows of a result shown in a notebook
_TUPLES = 1 << 14  # rows that are tuples at a time


class NotMadeWarning(UserWarning):
    """An answer is of tables that were never made, and have no rows."""


class QueryFolder(tempfile.TemporaryDirectory[str]):
    """A folder that queries need. It goes when it is cleaned up, when nobody has it any more, or with the process."""

    _lent: ClassVar[set[QueryFolder]] = set()

    def __init__(self) -> None:
        super().__init__(prefix="ptweave-query-")

    def lend(self) -> None:
        """To relations of DuckDB, which do not hold it, nor do those that are made of them: it stays."""
        self._lent.add(self)

    def cleanup(self) -> None:
        """It is needed no longer."""
        self._lent.discard(self)
        super().cleanup()


class Result:
    """What a query answers. Nothing is computed before rows are asked for; each call computes anew.

    Iterating gives tuples, streaming.
    """

    def __init__(self, relation: duckdb.DuckDBPyRelation | None, connection: duckdb.DuckDBPyConnection | None = None,
                 folder: QueryFolder | None = None) -> None:
        """`connection`: the relation's, which a Ctrl-C is to interrupt. `folder`: what it needs to be computed."""
        self._found = relation
        self._of = connection
        self._folder = folder

    @property
    def _relation(self) -> duckdb.DuckDBPyRelation | None:
        return self._found

    @cached_property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self._relation.columns) if self._relation is not None else []

    @cached_property
    def types(self) -> list[str]:
        """Their types, by DuckDB's names."""
        return [str(kind) for kind in self._relation.types] if self._relation is not None else []

    def stream(self, rows: int = BATCH_ROWS) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """The Arrow schema, and batches of at most `rows` rows as they are computed.

        Raises BadInput, then or on the way, when the query fails.
        """
        if self._relation is None:
            return pa.schema([]), iter(())
        with query_errors():
            reader = self._heard(partial(self._relation.to_arrow_reader, rows))
        return reader.schema, self._read(reader)

    def _read(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        with reader:
            while True:
                with query_errors():
                    batch = self._heard(lambda: next(iter(reader), None))
                if batch is None:
                    return
                yield batch

    def _heard(self, work: Callable[[], _T]) -> _T:
        """What `work`, which asks DuckDB, gives; a Ctrl-C in between is heard."""
        if self._of is None or threading.current_thread() is not threading.main_thread():
            return work()
        return _beside(work, self._of.interrupt)

    def arrow(self) -> pa.Table:
        """All rows as an Arrow table."""
        if self._relation is None:
            return pa.table({})
        with query_errors():
            table: pa.Table = self._heard(self._relation.to_arrow_table)
        return table

    def pandas(self) -> pandas.DataFrame:
        """All rows as a pandas DataFrame."""
        import pandas

        if self._relation is None:
            return pandas.DataFrame()
        with query_errors():
            frame: pandas.DataFrame = self._heard(self._relation.df)
        return frame

    df = pandas

    def polars(self) -> polars.DataFrame:
        """All rows as a polars DataFrame. Raises MachineLacks when polars is not installed."""
        try:
            import polars
        except ImportError as error:
            raise MachineLacks("polars is not installed", remedy="pip install polars") from error
        frame = polars.from_arrow(self.arrow())
        assert isinstance(frame, polars.DataFrame)
        return frame

    def relation(self) -> duckdb.DuckDBPyRelation:
        """As a relation of DuckDB, to go on with: nothing of it is computed yet. Its errors are DuckDB's own.

        Raises BadInput for a statement that gives no rows.
        """
        if self._relation is None:
            raise BadInput("gives no rows", where=_QUERY, remedy="ask with select")
        if self._folder:
            self._folder.lend()
        return self._relation

    def where(self, condition: str) -> Result:
        """The rows for which an SQL condition holds. Raises BadInput when it is wrong."""
        return self._next(lambda relation: relation.filter(condition))

    def select(self, columns: str) -> Result:
        """Columns, as SQL has them between select and from. Raises BadInput when they are wrong."""
        return self._next(lambda relation: relation.project(columns))

    def order(self, by: str) -> Result:
        """In the order of SQL expressions. Raises BadInput when they are wrong."""
        return self._next(lambda relation: relation.order(by))

    def limit(self, rows: int) -> Result:
        """The first rows."""
        return self._next(lambda relation: relation.limit(rows))

    def _next(self, step: Callable[[duckdb.DuckDBPyRelation], duckdb.DuckDBPyRelation]) -> Result:
        if self._relation is None:
            return self
        try:
            return Result(step(self._relation), self._of, self._folder)
        except duckdb.Error as error:
            raise sql_error(error) from error

    def rows(self) -> list[tuple[Any, ...]]:
        """All rows as tuples."""
        return list(self)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        for batch in self.stream(_TUPLES)[1]:
            yield from tuples(batch)

    @property
    def numeric(self) -> list[bool]:
        """Which columns hold numbers."""
        return [kind.startswith(("DECIMAL", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT",
                                 "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT", "FLOAT", "DOUBLE"))
                and not kind.endswith("]") for kind in self.types]

    @property
    def addresses(self) -> list[bool]:
        """Which columns hold addresses, by their names and type."""
        return [name in ADDRESSES and kind == "UBIGINT" for name, kind in zip(self.columns, self.types, strict=True)]

    def _first(self) -> tuple[list[tuple[Any, ...]], bool]:
        """The first rows, and whether there are more."""
        found: list[tuple[Any, ...]] = []
        for row in self:
            if len(found) == _SHOWN:
                return found, True
            found.append(row)
        return found, False

    def __repr__(self) -> str:
        rows, more = self._first()
        table = TextTable(self.columns, self.numeric, rows, limit=120, addresses=self.addresses)
        return "\n".join([*table.header(), *table.lines(rows), *(["…"] if more else [])])

    def _repr_html_(self) -> str:
        rows, more = self._first()
        return html_table(self.columns, self.numeric, rows, self.addresses) + ("<p>…</p>" if more else "")


class Quick(Result):
    """The answer of a query that has a quicker way to all of its rows, in the same order; parts are asked by SQL."""

    def __init__(self, query: Callable[[], Result], schema: pa.Schema,
                 whole: Callable[[int], Iterator[pa.RecordBatch] | None]) -> None:
        """`schema`: of the query's rows. `whole` gives them so many at a time, or None where it cannot."""
        super().__init__(None)
        self._query, self._schema, self._whole = query, schema, whole

    @cached_property
    def _asked(self) -> Result:
        asked = self._query()
        self._of, self._folder = asked._of, asked._folder
        return asked

    @property
    def _relation(self) -> duckdb.DuckDBPyRelation | None:
        return self._asked._relation

    @cached_property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self._schema.names)

    def stream(self, rows: int = BATCH_ROWS) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """As of other answers."""
        batches = self._whole(rows)
        return super().stream(rows) if batches is None else (self._schema, batches)

    def arrow(self) -> pa.Table:
        """All rows as an Arrow table."""
        batches = self._whole(BATCH_ROWS)
        return super().arrow() if batches is None else pa.Table.from_batches(batches, self._schema)


def connect(spill: str) -> duckdb.DuckDBPyConnection:
    """A DuckDB of our own, with `call_text`; what does not fit into its memory goes to the folder `spill`."""
    connection = duckdb.connect(config={
        "autoinstall_known_extensions": False, "autoload_known_extensions": False,
        "python_enable_replacements": False, "memory_limit": _MEMORY, "temp_directory": spill})
    calltext.register(connection)
    return connection


def shut(connection: duckdb.DuckDBPyConnection, allowed: list[str]) -> None:
    """From now on its queries see these files and no others."""
    connection.execute(f"set allowed_paths = [{', '.join(views.quoted(file) for file in allowed)}]")
    connection.execute("set enable_external_access = false")
    connection.execute("set lock_configuration = true")


def ask(connection: duckdb.DuckDBPyConnection, query: str, params: tuple[object, ...],
        folder: QueryFolder | None = None) -> Result:
    """A query to a connection, whose answer needs `folder`. Raises BadInput with DuckDB's message and the place in the
    query when it is wrong."""
    cursor = connection.cursor()
    try:
        relation = cursor.sql(query, params=list(params)) if params else cursor.sql(query)
    except duckdb.Error as error:
        raise sql_error(_with_place(cursor, query, params, error)) from error
    return Result(relation, cursor, folder)


def warn(lines: Iterable[str]) -> None:
    """Tell who called our caller of tables that an answer lacks."""
    for line in lines:
        warnings.warn(safe(line), NotMadeWarning, stacklevel=3)


def _one_line(text: str) -> str:
    return " ".join(text.split())


@contextlib.contextmanager
def query_errors() -> Iterator[None]:
    """Errors of a running query as ours."""
    try:
        yield
    except duckdb.Error as error:
        raise sql_error(error) from error
    except (pa.ArrowException, OSError) as error:
        raise BadInput(f"failed ({_one_line(str(error))})", where=_QUERY, remedy="correct the query") from error


def _beside(work: Callable[[], _T], interrupt: Callable[[], None]) -> _T:
    """What `work` gives, in a thread of its own: DuckDB does not always look for signals while it computes, and what
    the main thread is told while it is in there would wait until it is done."""
    answer: Future[_T] = Future()

    def run() -> None:
        try:
            answer.set_result(work())
        except BaseException as error:  # noqa: BLE001  it is raised where it is waited for
            answer.set_exception(error)

    threading.Thread(target=run, name="query").start()
    try:
        return answer.result()
    except KeyboardInterrupt:
        interrupt()
        answer.exception()  # until it has ended
        raise


def _with_place(cursor: duckdb.DuckDBPyConnection, query: str, params: tuple[object, ...],
                error: duckdb.Error) -> duckdb.Error:
    """The same error with its place in the query, which DuckDB tells only when it is asked to execute."""
    if _PLACE in str(error):
        return error
    try:
        cursor.execute(query, list(params) or None)
    except duckdb.Error as again:
        if str(again).startswith(str(error)):
            return again
    return error


def sql_error(error: duckdb.Error) -> PtweaveError:
    """DuckDB's error as one of ours: its message, and the place in the query where DuckDB knows it."""
    message, _, place = str(error).partition(_PLACE)
    text = _with_our_suggestions(_one_line(message))
    if views.BROKEN in text:
        return BadInput(text.partition(views.BROKEN)[2])
    if type(error) is duckdb.Error:  # none of its kinds: what is in a Parquet file cannot be made out
        return BadInput(f"a table that it reads is corrupt ({safe(text)})", where=_QUERY,
                        remedy="decode and merge the run again")
    if isinstance(error, duckdb.OutOfMemoryException):
        return MachineLacks(f"the query ran out of memory ({text})", where=_QUERY, remedy="ask for less at once")
    lines = place.splitlines()
    if len(lines) > 1 and "^" in lines[1]:
        number, shown = lines[0].split(":", 1)
        first = lines[1].index("^") - len(_PLACE) + 1 - len(number) - 1
        text += f" (line {number.strip()}, at “{shown[max(first, 0):][:max(lines[1].count('^'), 20)].strip()}”)"
    return BadInput(text, where=_QUERY, remedy="correct the query")


def _with_our_suggestions(text: str) -> str:
    """The message without a table that DuckDB suggests, if that is one of its own catalogs'."""
    found = re.search(r"(?<=!) Did you mean \"([^\"]*)\"\?", text)
    if not found or not text.startswith("Catalog Error: Table ") or found[1] in TABLES.keys() | views.NAMES:
        return text
    return text.replace(found[0], "")
