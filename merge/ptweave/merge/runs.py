# SPDX-License-Identifier: MIT
"""`Runs`: many run bundles asked at once. Every table has a column `run` before its own."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType

import duckdb
import pyarrow as pa

from ptweave.data.bundle import Bundle
from ptweave.data.errors import BadInput, PtweaveError
from ptweave.data.schemas import TABLES, Column, Table
from ptweave.merge import views
from ptweave.merge.named import tables_of
from ptweave.merge.not_made import why_not_made
from ptweave.merge.result import QueryFolder, Result, ask, connect, shut, warn
from ptweave.merge.run import TableInfo
from ptweave.merge.tables import open_parquet, table_files

RUN = Column("run", pa.string(), "", "the run: its bundle's name without .ptw; its path where two have one name")

_STATEMENTS = (
    """create view path_blocks as
       select run, path, unnest(blocks) as block, (unnest(range(len(blocks))))::integer as place from paths""",
    """create view flow_blocks as
       select run, flow.thread, flow.seq + path_blocks.place as seq, path_blocks.block, flow.path
       from flow join path_blocks using (run, path)""",
    """create macro executions(of_function) as table
       select run, flow.thread, flow.seq + entered.place as seq, entered.block
       from flow join (select run, path, place, block from path_blocks
                       where (run, block) in (select (run, block) from blocks
                                              where function = of_function and function_offset = 0)) as entered
       using (run, path) order by 1, 2, 3""",
    """create macro block_counts() as table
       select run, block, sum(executed)::bigint as executions
       from (select run, path, count(*) as executed from flow group by all) join path_blocks using (run, path)
       group by run, block order by 3 desc, 1, 2""",
    """create view page_sets as
       select run, thunks.thread, thunks.thunk, accesses.page, bool_or(accesses.write) as write
       from thunks join accesses using (run, thread)
       where accesses.thunk <= thunks.thunk and accesses.until_thunk >= thunks.thunk
       group by all""",
)

def _with_run(table: Table) -> Table:
    return replace(table, columns=(RUN, *table.columns))


class Runs:
    """Run bundles, open for questions.

    `sql` sees every table of `ptweave.data.schemas.TABLES` as one view over all runs, with a column `run`; and
    `flow_blocks`, `page_sets`, `executions(function)` and `block_counts()`, as `Run` has them, each with that column.
    A condition on `run` reads that run's files only.

    A run that has no table adds no rows to it: `lacking` says of a query which runs those are. `left_out` are the
    bundles that cannot be opened, each with the reason. Raises BadInput when none can.
    """

    def __init__(self, paths: Sequence[str | os.PathLike[str]]) -> None:
        self.left_out: dict[str, str] = {}
        bundles = []
        for path in dict.fromkeys(os.fspath(path) for path in paths):
            try:
                bundles.append((path, Bundle.open(Path(path))))
            except PtweaveError as error:
                self.left_out[path] = error.line()
        if not bundles:
            raise BadInput(next(iter(self.left_out.values()), "there is no run"), where="query",
                           remedy="" if self.left_out else "name run bundles")
        stems = [bundle.path.resolve().stem for _, bundle in bundles]
        self.names = [stem if stems.count(stem) == 1 else path
                      for stem, (path, _) in zip(stems, bundles, strict=True)]
        self._missing: dict[str, dict[str, str]] = {name: {} for name in TABLES}
        self._counts: dict[str, int] = dict.fromkeys(TABLES, 0)
        self._folder = QueryFolder()
        try:
            self._connection = self._connect([bundle for _, bundle in bundles])
        except BaseException:
            self._folder.cleanup()
            raise

    def _connect(self, bundles: list[Bundle]) -> duckdb.DuckDBPyConnection:
        """Bundles are links 0, 1, … in a folder of ours: so no name of theirs is SQL or a pattern, and a file's name
        says which run it is of."""
        links = Path(self._folder.name) / "runs"
        links.mkdir()
        for number, bundle in enumerate(bundles):
            (links / str(number)).symlink_to(bundle.path.resolve())
        spill = Path(self._folder.name) / "spill"
        spill.mkdir()
        connection = connect(str(spill))
        allowed: list[str] = []
        for table in TABLES.values():
            files = [file for number, bundle in enumerate(bundles)
                     for file in self._check(table, number, bundle, links)]
            allowed += files
            connection.execute(self._view(table, files, len(links.parts)))
        for statement in _STATEMENTS:
            connection.execute(statement)
        shut(connection, allowed)
        return connection

    def _check(self, table: Table, number: int, bundle: Bundle, links: Path) -> list[str]:
        """The files of a run's table; none when one of them cannot be read."""
        names, count = [], 0
        try:
            for path in table_files(bundle, table):
                with open_parquet(path, table.schema) as file:
                    count += file.metadata.num_rows
                if any(char in path.name for char in "*?["):
                    raise BadInput("is no name of a table's file", where=str(path), remedy="call it 0.parquet")
                names.append(str(links / str(number) / "tables" / table.name / path.name))
        except PtweaveError as error:
            self._missing[table.name][self.names[number]] = error.line()
            return []
        if not names:
            self._missing[table.name][self.names[number]] = f"was not made: {why_not_made(bundle, table)}"
        self._counts[table.name] += count
        return names

    def _view(self, table: Table, files: list[str], depth: int) -> str:
        """The view; `depth` parts of a file's name come before the run's number."""
        if not files:
            return views.empty_view(_with_run(table))
        columns = ", ".join(views.name(column.name) for column in table.columns)
        names = ", ".join(views.quoted(name) for name in self.names)
        listed = ", ".join(views.quoted(file) for file in files)
        return (f"create view {views.name(table.name)} as "
                f"select [{names}][split_part(filename, '/', {depth + 1})::integer + 1] as run, {columns} "
                f"from read_parquet([{listed}], filename = true)")

    def sql(self, query: str, *params: object) -> Result:
        """Ask DuckDB; `params` fill `?` or `$1`. Computed when rows are asked for.

        Warns (NotMadeWarning) of runs that add nothing to it. Raises BadInput with DuckDB's message and the place in
        the query when it is wrong.
        """
        result = self.ask(query, *params)
        warn(self.lacking(query))
        return result

    def ask(self, query: str, *params: object) -> Result:
        """The same without a warning."""
        return ask(self._connection, query, params, self._folder)

    def lacking(self, query: str) -> list[str]:
        """Which runs add nothing to a query, because they lack a table that it reads: a line a table."""
        return [self._told(name) for name in tables_of(self._connection, query) if self._missing[name]]

    def _told(self, table: str) -> str:
        missing = self._missing[table]
        shown = [f"{run} ({why})" for run, why in list(missing.items())[:3]] + ["…"] * (len(missing) > 3)
        return f"{table}: lacking in {len(missing)} of {len(self.names)} runs: {', '.join(shown)}"

    @property
    def missing(self) -> dict[str, str]:
        """Tables that not all runs have, and which do not."""
        return {table: self._told(table) for table, runs in self._missing.items() if runs}

    def tables(self) -> list[TableInfo]:
        """Every table: what a row is, how many there are in all runs, the columns with type, unit and meaning."""
        return [TableInfo(table.name, table.doc, self._counts[table.name], _with_run(table).columns)
                for table in TABLES.values()]

    def close(self) -> None:
        """Give the connection back. Results can be used no longer."""
        self._connection.close()
        self._folder.cleanup()

    def __enter__(self) -> Runs:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()
