# SPDX-License-Identifier: MIT
"""`ptweave query`: DuckDB over the tables of a run, or of many."""

from __future__ import annotations

import argparse
import glob
import shutil
import sys
from pathlib import Path
from typing import IO

import pyarrow as pa

from ptweave.cli.output import WRITERS, Rows, add_output, check_output, quiet_when_nobody_reads, sink, write_result
from ptweave.data.errors import BadInput, Exit
from ptweave.merge import Run, Runs
from ptweave.merge.render import TextTable, safe

SUMMARY = "ask a run, or many, with SQL (DuckDB)"

EXAMPLES = """\
  ptweave query prog.ptw --list
  ptweave query prog.ptw "select name, count(*) from syscalls group by name order by 2 desc"
  ptweave query prog.ptw "select function, sum(instructions) as instructions
                          from profile join stacks using (stack) group by function order by 2 desc limit 10"
  ptweave query prog.ptw "from flow_range(0, 1000, 1100) join blocks using (block) order by seq" --format csv
  ptweave query prog.ptw "from write_set(1, 5)"          # pages that thunk 5 of thread 1 could write
  ptweave query prog.ptw "from executions('main')" --format parquet -o main.parquet

of many runs, each table has a column run before its own:
  ptweave query 'runs/*.ptw' "select run, sum(wait) from thunks group by run order by 2 desc"
  ptweave query good.ptw bad.ptw "select run, name, count(*) from syscalls group by all"

macros: flow_range(thread, a, b), executions(function), block_counts(), edge_counts(), frames(stack),
read_set(thread, thunk), write_set(thread, thunk); views: flow_blocks, page_sets.
Of many runs: executions(function), block_counts(), flow_blocks, page_sets.
Exit status: 0 done; 1 done, but a table that was asked for was never made and has no rows (a line says which, and what
makes it), or some of many runs cannot be opened; 2 wrong SQL or a bundle that cannot be read.
"""

def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("run", metavar="RUN", nargs="+", help="run bundle (NAME.ptw), or a pattern that many match")
    sql = parser.add_argument("sql", metavar="SQL", help="the query; - reads it from standard input")
    sql.required = False  # nargs="?" would not find a query that comes after an option
    parser.add_argument("--list", action="store_true", help="show the tables: columns, units, row counts")
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Answer; returns the exit status. Raises PtweaveError for what the user must know."""
    from ptweave.cli import say

    if args.list and args.sql is not None and Path(args.sql).is_dir():
        args.run, args.sql = [*args.run, args.sql], None
    if args.list == (args.sql is not None):
        raise BadInput("needs either SQL or --list", where="query", remedy='ptweave query RUN "select …"')
    check_output(args)
    sql = sys.stdin.read() if args.sql == "-" else args.sql
    with _open(args.run) as opened:
        lacks = _lacks(opened, sql)
        if sql is not None:
            write_result(opened.ask(sql), args)
        else:
            with sink(args.output) as out, quiet_when_nobody_reads():
                _list(opened, args.format, out)
                out.flush()
    for line in lacks:
        say(safe(line))
    return int(Exit.INCOMPLETE if lacks else Exit.DONE)


def _open(names: list[str]) -> Run | Runs:
    """One run that is named, or all that are named or match. Raises BadInput when there is none."""
    if len(names) == 1 and (Path(names[0]).exists() or not glob.has_magic(names[0])):
        return Run(names[0])
    found = []
    for name in names:
        one = Path(name).exists() or not glob.has_magic(name)
        matches = [name] if one else sorted(glob.glob(name))  # noqa: PTH207 (Path.glob takes no absolute pattern)
        if not matches:
            raise BadInput("matches no run", where=name, remedy="name run bundles, as in 'runs/*.ptw'")
        found += matches
    return Runs(found)


def _lacks(opened: Run | Runs, sql: str | None) -> list[str]:
    """What is not in the answer though it was asked for."""
    lacking = opened.lacking(sql) if sql is not None else []
    if isinstance(opened, Run):
        return [f"{opened.path}: {line}" for line in lacking]
    return [f"left out: {why}" for why in opened.left_out.values()] + lacking


# --- the list of tables ----------------------------------------------------------------------------------------------


def _list(opened: Run | Runs, form: str, out: IO[bytes]) -> None:
    """The tables: for reading, or a row a column in the other formats."""
    if form != "table":
        rows = [{"table": table.name, "rows": table.rows, "column": column.name, "type": str(column.type),
                 "unit": column.unit, "doc": column.doc} for table in opened.tables() for column in table.columns]
        schema = pa.schema([("table", pa.string()), ("rows", pa.int64()), ("column", pa.string()),
                            ("type", pa.string()), ("unit", pa.string()), ("doc", pa.string())])
        batches = pa.Table.from_pylist(rows, schema).to_batches()
        WRITERS[form](Rows(schema, [False, True, False, False, False, False], iter(batches)), out)
        return
    terminal = out is sys.stdout.buffer and sys.stdout.isatty()
    for table in opened.tables():
        count = "cannot be read" if table.rows is None else f"{table.rows:,} rows"
        lines = [f"{table.name}  ({count})  {table.doc}"]
        if table.name in opened.missing:
            lines.append(f"  {safe(opened.missing[table.name])}")
        columns = [(f"  {column.name}", str(column.type), column.unit, column.doc) for column in table.columns]
        text = TextTable(["", "", "", ""], [False] * 4, columns,
                         shutil.get_terminal_size().columns if terminal else None)
        out.write("\n".join([*lines, *text.lines(columns), "", ""]).encode())
