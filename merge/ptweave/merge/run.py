# SPDX-License-Identifier: MIT
"""`Run`: a run bundle to ask. SQL over its tables, as Arrow, pandas, polars or rows; shows itself in a notebook."""

from __future__ import annotations

import contextlib
import hashlib
import html
import json
import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from ptweave.data.bundle import Bundle
from ptweave.data.errors import BadInput, NotInstalled, PtweaveError
from ptweave.data.ledger import Ledger
from ptweave.data.manifest import Manifest
from ptweave.data.schemas import TABLES, THUNKS, Column, Table
from ptweave.merge import call_waits, critical_path, diff, questions, timeline_rows, views
from ptweave.merge import timeline as timelines
from ptweave.merge.facts import HOW_THREADS_RAN, Fact, Threads, facts_of
from ptweave.merge.lineage import Direction, Lineage, node_of
from ptweave.merge.named import tables_of
from ptweave.merge.not_made import why_not_made
from ptweave.merge.questions import By, Part, Question, part_of, thunk_number
from ptweave.merge.relations import Relations
from ptweave.merge.render import TextTable, html_table
from ptweave.merge.result import QueryFolder, Quick, Result, ask, connect, query_errors, shut, warn
from ptweave.merge.similar import FOUND, NEAR, Similar
from ptweave.merge.tables import leaf, open_parquet, read_table, table_files

if TYPE_CHECKING:
    from ptweave.merge.plots import Plots


class NotMade(BadInput):
    """A table that a question needs was never made of this run."""


@dataclass(frozen=True)
class TableInfo:
    """A table of a run: what a row is, how many there are (None: not known, it cannot be read), its columns."""

    name: str
    doc: str
    rows: int | None
    columns: tuple[Column, ...]


@dataclass(frozen=True)
class Differences:
    """What two runs differ in: `differences` likeliest cause first, `timing` what both did alike but not in the same
    time, `threads` which thread was compared with which; `notes` say what could not be compared."""

    differences: Result
    timing: Result
    threads: Result
    notes: list[str]


_MOMENTS = {"clock": "min(t), max(t)", "threads": "min(t_start), max(t_end)", "thunks": "min(t), max(t)",
            "syscalls": "min(t_enter), max(t_exit)"}
"""What tables know of a run's first and last moment."""


class Run(Relations):
    """A run bundle, open for questions.

    `sql` sees every table of `ptweave.data.schemas.TABLES` as a view, and

    - `flow_blocks`: thread, seq, block, path: every executed block (expand as little of it as you can);
    - `flow_range(thread, a, b)`: the blocks from ordinal a up to b of a thread (joined with others: `order by seq`);
    - `executions(function)`: thread, seq, block, wherever a function's first instruction ran;
    - `block_counts()`, `block_counts_in(thread, a, b)`: block, executions;
    - `edge_counts()`: from_block, to_block, executions;
    - `frames(stack)`: depth, function, block, stack: a call stack, innermost frame first;
    - `read_set(thread, thunk)`, `write_set(thread, thunk)`: pages a thunk could read, could write;
    - `page_sets`: thread, thunk, page, write: the same for all thunks;
    - `call_text(number, args, result, paths, files, data)`: a row of syscalls as a line like strace's.

    A table that was never made is empty, which `sql` warns of; one that cannot be read fails when it is asked.
    `missing` says which and why. Queries see the bundle's tables and no other file; nothing in the bundle is written.
    Raises BadInput for a bundle that is none, is malformed, or of a newer format.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._bundle = Bundle.open(Path(path))
        self.path = self._bundle.path
        self.missing: dict[str, str] = {}
        self._counts: dict[str, int | None] = {}
        try:
            self.ledger: Ledger = self._bundle.ledger()
        except BadInput as error:
            self.ledger = Ledger()
            self.missing["ledger"] = error.line()
        self._spill = QueryFolder()
        self._descriptor = os.open(self._bundle.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._connection = self._connect()
        except BaseException:
            os.close(self._descriptor)
            self._spill.cleanup()
            raise

    @property
    def manifest(self) -> Manifest:
        """What was run, where, how."""
        return self._bundle.manifest

    # --- the tables ----------------------------------------------------------------------------------------------

    def _connect(self) -> duckdb.DuckDBPyConnection:
        connection = connect(self._spill.name)
        allowed: list[str] = []
        longest = 0
        for table in TABLES.values():
            files = self._check(table)
            allowed += files
            if files and table.name == "paths":
                longest = self._longest(files)
            connection.execute(self._view(table, files))
        for statement in views.macros(longest):
            connection.execute(statement)
        shut(connection, allowed)
        return connection

    def _check(self, table: Table) -> list[str]:
        """Names of a table's files as DuckDB is to open them: through the descriptor of the bundle, so that a
        bundle's name is neither SQL nor a pattern. Fills `missing` and the row count."""
        names, count = [], 0
        try:
            paths = table_files(self._bundle, table)
            for number, path in enumerate(paths):
                with open_parquet(path, table.schema) as file:
                    count += file.metadata.num_rows
                if any(char in path.name for char in "*?["):
                    raise BadInput("is no name of a table's file", where=str(path), remedy=f"call it {number}.parquet")
                names.append(f"/proc/self/fd/{self._descriptor}/tables/{table.name}/{path.name}")
        except PtweaveError as error:
            self.missing[table.name] = error.line()
            self._counts[table.name] = None
            return []
        if not paths:
            self.missing[table.name] = f"was not made: {why_not_made(self._bundle, table)}"
        self._counts[table.name] = count
        return names

    def _view(self, table: Table, files: list[str]) -> str:
        if files:
            return views.table_view(table, files)
        if self._counts[table.name] is None:
            return views.broken_view(table, self.missing[table.name])
        return views.empty_view(table)

    @staticmethod
    def _longest(files: list[str]) -> int:
        """Blocks in the longest path: from the statistics, or a bound that is always right."""
        longest = 0
        for name in files:
            metadata = pq.read_metadata(name)
            for group in range(metadata.num_row_groups):
                statistics = metadata.row_group(group).column(leaf(metadata, "length")).statistics
                if statistics is None or not statistics.has_min_max:
                    return 1 << 31
                longest = max(longest, int(statistics.max))
        return longest

    def tables(self) -> list[TableInfo]:
        """Every table: what a row is, how many rows, the columns with type, unit and meaning."""
        return [TableInfo(table.name, table.doc, self._counts[table.name], table.columns)
                for table in TABLES.values()]

    def table(self, name: str) -> Result:
        """A table by its name; most have a property, too: `run.thunks`. Raises BadInput for a name that is none."""
        if name not in TABLES:
            raise BadInput("is no table", where=name, remedy=f"there are {', '.join(TABLES)}")
        return self.sql(f"from {views.name(name)}")

    def flow(self, *, thread: int | None = None, since: int | None = None, until: int | None = None,
             part: Part | None = None) -> Result:
        """Executed blocks: thread, seq, block, path; of all or one thread, from ordinal `since` up to `until`, or of a
        part of a thread's flow. Paths are expanded as rows are read: ask for as little as you need.

        Raises BadInput for ordinals without a thread.
        """
        if part is not None:
            thread, since, until = part.thread, part.begin, part.end
        if thread is None:
            if since is not None or until is not None:
                raise BadInput("need a thread", where="since and until", remedy="ordinals are each thread's own")
            return self.sql("from flow_blocks")
        found = self.part(thread, since or 0, until)
        return self.sql("from flow_range(?, ?, ?)", found.thread, found.begin, found.end)

    @property
    def plot(self) -> Plots:
        """Pictures of this run (docs/notebooks.md): `run.plot.timeline()`. Raises MachineLacks without plotly."""
        try:
            from ptweave.merge.plots import Plots
        except ImportError as error:
            raise NotInstalled("plotly", "notebook") from error
        return Plots(self)

    # --- questions -----------------------------------------------------------------------------------------------

    def sql(self, query: str, *params: object) -> Result:
        """Ask DuckDB; `params` fill `?` or `$1`. Computed when rows are asked for.

        Warns (NotMadeWarning) of tables that it reads and that were never made: they have no rows. Raises BadInput with
        DuckDB's message and the place in the query when it is wrong.
        """
        result = self.ask(query, *params)
        warn(self.lacking(query))
        return result

    def ask(self, query: str, *params: object) -> Result:
        """The same without a warning."""
        return ask(self._connection, query, params, self._spill)

    def lacking(self, query: str) -> list[str]:
        """Which tables that a query reads were never made, and what makes them: a line a table."""
        return [f"without {name}, which {self.missing[name]}" for name in tables_of(self._connection, query)
                if name in self.missing and self._counts[name] is not None]

    def _ask(self, question: Question) -> Result:
        return self.ask(question.sql, *question.params)

    def _of(self, table: pa.Table) -> Result:
        """An answer that was computed already."""
        return Result(self._connection.cursor().from_arrow(table), folder=self._spill)

    def need(self, *tables: str) -> None:
        """Raise BadInput when one of these tables cannot be read, NotMade when it was not made."""
        for name in tables:
            if name in self.missing:
                kind = BadInput if self._counts[name] is None else NotMade
                raise kind(f"table {name}: {self.missing[name]}", where=str(self.path))

    def need_thread(self, thread: int | None) -> None:
        """Raise BadInput when the run has no such thread: no rows would look as if it had done nothing."""
        if thread is None or "threads" in self.missing:
            return
        if not 0 <= thread < 1 << 31 or not self.ask("select 1 from threads where thread = ?", thread).rows():
            raise BadInput("is no thread of this run", where=f"thread {thread}",
                           remedy='ptweave query RUN "from threads" shows which there are')

    def moments(self) -> tuple[int, int] | None:
        """The first and the last moment that are known of the run, in ns; None where none is. The first is that of the
        flow where there is one: `dump` counts from it."""
        found = {name: self.ask(f"select {columns} from {name}").rows()[0] for name, columns in _MOMENTS.items()
                 if name not in self.missing}
        known = {name: row for name, row in found.items() if None not in row}
        if not known:
            return None
        first = known["clock"][0] if "clock" in known else min(first for first, _ in known.values())
        return first, max(last for _, last in known.values())

    def part(self, thread: int, begin: int = 0, end: int | None = None) -> Part:
        """Part of a thread's flow: blocks from ordinal `begin` up to `end` (None: all that follow).

        Raises BadInput for a thread that is not there, and a part that ends before it begins.
        """
        self.need_thread(thread)
        _need_order(begin, end)
        return Part(thread, begin, 1 << 62 if end is None else end)

    def thunk(self, name: str) -> Part:
        """The part of the flow that a thunk is, named "THREAD.THUNK". Raises BadInput for one that is not there."""
        rows = self.ask("select thread, seq, seq_end from thunks where thread = ? and thunk = ?",
                        *thunk_number(name)).rows()
        return part_of(rows, name)

    def hot(self, by: By | str = By.FUNCTION, *, thread: int | None = None, part: Part | None = None) -> Result:
        """Where instructions were executed (docs/merge.md): by function, line, block or image; of all, a thread, or a
        part.

        Raises BadInput for a thread that is not there, and for what cannot be summed up by.
        """
        if by not in list(By):
            raise BadInput("is nothing to sum up by", where=str(by), remedy=f"give one of {', '.join(By)}")
        self.need_thread(thread)
        counted = part is not None or By(by) in (By.LINE, By.BLOCK)
        self.need("images", *(("flow", "paths", "blocks") if counted else ("profile", "stacks")))
        return self._ask(questions.hot(By(by), thread=thread, part=part))

    def contention(self, *, each: bool = False, calls: bool = False) -> Result:
        """What threads waited for, how long, and who held it; with `each` every wait. With `calls` waits in system
        calls outside of operations instead, each: which thread ended it, where one of the run is known to have."""
        if calls:
            self.need("syscalls", "threads")
            return self.ask(call_waits.CALLS)
        self.need("thunks", "edges")
        return self._ask(questions.contention(each=each))

    def races(self) -> Result:
        """Accesses that conflict and have no order, surest first. Needs a run with --threads process."""
        self.need("races")
        return self._ask(questions.races())

    def timeline(self, *, thread: int | None = None, begin: int | None = None, end: int | None = None,
                 parts: Collection[str] = timelines.PARTS, resolution: int | None = None) -> Result:
        """What threads did in order of time; `begin` and `end` in ns. `parts` are the tables it is made of: without
        thunks the question is answered only when it is asked without them. Spans shorter than `resolution` (ns) are
        folded, and counted in a column `spans`. Raises BadInput for a resolution below 1, a thread that is not there,
        an end before the begin, and parts that are none."""
        _check_resolution(resolution)
        for part in parts:
            if part not in timelines.PARTS:
                raise BadInput("is no part of a timeline", where=part, remedy=f"there are {', '.join(timelines.PARTS)}")
        self.need_thread(thread)
        _need_order(begin, end)
        if "thunks" in parts:
            self.need("thunks")

        def query() -> Result:
            return self._ask(timelines.question(self.names_of(timelines.names(parts)), thread=thread, begin=begin,
                                               end=end, parts=parts, resolution=resolution))

        if "thunks" not in parts or any(one is not None for one in (thread, begin, end, resolution)):
            return query()
        return Quick(query, timeline_rows.SCHEMA, lambda rows: self._whole_timeline(parts, rows))

    def _whole_timeline(self, parts: Collection[str], rows: int) -> Iterator[pa.RecordBatch] | None:
        """All rows of a timeline, so many at a time; None: they are SQL's to sort."""
        if sum(self._counts[name] or 0 for name in parts) > timeline_rows.MOST:
            return None
        ends = self.ask("select thread, t_end from threads where t_end is not null").rows()
        return timeline_rows.merged(
            read_table(self._bundle, THUNKS, timeline_rows.THUNK_COLUMNS, timeline_rows.TEXT_COLUMNS), dict(ends),
            self.ask(timelines.others(parts)).arrow(), rows)

    def names_of(self, query: str) -> str:
        """The name of an enumeration (a type of DuckDB's) of the texts that a query gives; made if there is none yet.

        Raises BadInput when the query fails.
        """
        texts = [text for text, in self.ask(query).rows()]
        name = f"names_{hashlib.sha256(json.dumps(texts).encode()).hexdigest()}"
        with query_errors():
            self._connection.cursor().execute(f"create type if not exists {name} as enum ({query})")
        return name

    def calls(self, part: Part) -> Result:
        """Calls that reach into part of a flow, in order. Needs a run merged with calls."""
        self.need("calls")
        return self._ask(questions.calls(part))

    def critical_path(self, *, resolution: int | None = None) -> Result:
        """What the run's end had to wait for, in order of time. Segments shorter than `resolution` (ns) are folded, and
        counted in a column `spans`. Raises BadInput for a resolution below 1."""
        _check_resolution(resolution)
        self.need("thunks", "edges")
        names = self.names_of(timelines.names(critical_path.TEXTS))
        asked = (critical_path.THUNKS.format(names=names), critical_path.EDGES, critical_path.ENDS,
                 critical_path.BEGINNINGS, critical_path.CALLS.format(names=names), call_waits.WAITS)
        path = critical_path.critical_path(*(self.ask(sql).arrow() for sql in asked))
        return self._of(path if resolution is None else critical_path.folded(path, resolution))

    def lineage(self, *, to: str | None = None, from_: str | None = None, memory: bool = False) -> Result:
        """All that a node depended on (`to`), or reached (`from_`): thunks, and inputs or outputs. docs/merge.md says
        how nodes are written and what is followed. Raises BadInput for a node that is not in the run."""
        if (to is None) == (from_ is None):
            raise BadInput("needs either a node to go to or one to come from", where="lineage")
        self.need("edges")
        direction = Direction.TO if to is not None else Direction.FROM
        found = Lineage(lambda sql, *params: self.ask(sql, *params).rows(), direction, memory=memory)
        return self._of(found.of(node_of(to if to is not None else str(from_))))

    def diff(self, other: Run, *, progress: Callable[[int, int], None] | None = None) -> Differences:
        """What differs between this run and another one of the same program (docs/comparing.md).

        Raises BadInput for runs of different programs. `progress(done, total)` counts rows of flow.
        """
        found = diff.compare_runs(self, other, progress)
        return Differences(self._of(found.differences), self._of(found.timing), self._of(found.threads), found.notes)

    def similar(self, node: str, other: Run | None = None, *, most: int = FOUND) -> Result:
        """Nodes of another run (None: of this one) that are like a node of this one: "THREAD.THUNK", or
        "THREAD@FROM-TO" in ns; best first (docs/comparing.md). Raises BadInput for a node that is not in the run, and
        when other than 1 to 64 are asked for."""
        if not 1 <= most <= NEAR:
            raise BadInput(f"is not between 1 and {NEAR}", where=f"most {most}")
        runs = (self, other or self)
        for run in runs:
            run.need("thunks", "threads")
        asks = [lambda sql, *params, run=run: run.ask(sql, *params).rows() for run in runs]
        flow = [not {"flow", "paths", "blocks"} & run.missing.keys() for run in runs]
        found = Similar(asks[0], asks[1], same=self.path.samefile(runs[1].path), flow=(flow[0], flow[1]))
        return self._of(found.of(node, most))

    def close(self) -> None:
        """Give the connection and the bundle's descriptor back. Results can be used no longer."""
        if self._descriptor >= 0:
            self._connection.close()
            os.close(self._descriptor)
            self._descriptor = -1
            self._spill.cleanup()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    # --- how it shows itself -------------------------------------------------------------------------------------

    def facts(self) -> list[Fact]:
        """What was run, how it ended, and what is lost, lacking or missing: pairs of a name and a text."""
        return facts_of(self.manifest, self.ledger, self._threads(), self.missing)

    def _threads(self) -> Threads | None:
        """What facts tell of threads; of a table that turns out to be corrupt no more than its rows."""
        count = self._counts["threads"]
        if count is None:
            return None
        with contextlib.suppress(BadInput):
            return Threads(count, *self.ask(HOW_THREADS_RAN).rows()[0])
        return Threads(count)

    def _rows(self) -> list[tuple[str, int | None, str]]:
        return [(table.name, table.rows, table.doc) for table in self.tables()]

    def __repr__(self) -> str:
        facts = self.facts()
        top = TextTable(["", ""], [False, False], facts)
        rows = self._rows()
        table = TextTable(["table", "rows", "a row is"], [False, True, False], rows)
        return "\n".join([f"Run({str(self.path)!r})", *top.lines(facts), "", *table.header(), *table.lines(rows)])

    def _repr_html_(self) -> str:
        return (f"<h4>{html.escape(self.path.name)}</h4>"
                + html_table(["", ""], [False, False], self.facts())
                + html_table(["table", "rows", "a row is"], [False, True, False], self._rows()))


def _check_resolution(resolution: int | None) -> None:
    if resolution is not None and resolution < 1:
        raise BadInput("is no resolution", where=str(resolution), remedy="give 1 ns or more")


def _need_order(begin: int | None, end: int | None) -> None:
    """Raises BadInput for what ends before it begins."""
    if begin is not None and end is not None and end < begin:
        raise BadInput("ends before it begins", where=f"{begin} to {end}", remedy="give the smaller one first")
