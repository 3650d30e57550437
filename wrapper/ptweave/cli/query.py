# SPDX-License-Identifier: MIT
"""`ptweave query`: DuckDB over the tables of a run."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

from ptweave.data.errors import BadInput, Exit, MachineLacks
from ptweave.merge import Result, Run
from ptweave.merge.render import TextTable, safe, values

SUMMARY = "ask a run with SQL (DuckDB)"

EXAMPLES = """\
examples:
  ptweave query prog.ptw --list
  ptweave query prog.ptw "select name, count(*) from syscalls group by name order by 2 desc"
  ptweave query prog.ptw "select function, sum(instructions) as instructions
                          from profile join stacks using (stack) group by function order by 2 desc limit 10"
  ptweave query prog.ptw "from flow_range(0, 1000, 1100) join blocks using (block)" --format csv
  ptweave query prog.ptw "from executions('main')" --format parquet -o main.parquet

macros: flow_range(thread, a, b), executions(function), block_counts(), edge_counts(), frames(stack);
view: flow_blocks. Exit status: 0 done, 2 wrong SQL or a bundle that cannot be read.
"""

_SAMPLE = 1000  # rows the widths of a printed table follow


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("run", metavar="RUN", type=Path, help="run bundle (NAME.ptw)")
    sql = parser.add_argument("sql", metavar="SQL", help="the query; - reads it from standard input")
    sql.required = False  # nargs="?" would not find a query that comes after an option
    parser.add_argument("--list", action="store_true", help="show the tables: columns, units, row counts")
    parser.add_argument("--format", choices=sorted(_WRITERS), default="table",
                        help="table (default), csv, json (an object a line) or parquet")
    parser.add_argument("-o", dest="output", metavar="FILE", type=Path, help="write to FILE instead of standard output")


def run(args: argparse.Namespace) -> int:
    """Answer; returns the exit status. Raises PtweaveError for what the user must know."""
    if args.list == (args.sql is not None):
        raise BadInput("needs either SQL or --list", where="query", remedy='ptweave query RUN "select …"')
    if args.format == "parquet" and not args.output and sys.stdout.isatty():
        raise BadInput("parquet is not for a terminal", where="query", remedy="name a file with -o FILE")
    with Run(args.run) as opened:
        if args.list:
            result: Result | None = None
        else:
            result = opened.sql(sys.stdin.read() if args.sql == "-" else args.sql)
        with _sink(args.output) as sink, _quiet_when_nobody_reads():
            if result is None:
                _list(opened, args.format, sink)
            else:
                _WRITERS[args.format](_Rows.of(result), sink)
            sink.flush()
    return int(Exit.DONE)


@contextlib.contextmanager
def _sink(path: Path | None) -> Iterator[IO[bytes]]:
    """Where the answer goes: standard output, or a file that is there only when it is whole."""
    if path is None:
        sys.stdout.flush()
        yield sys.stdout.buffer
        return
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with partial.open("wb") as file:
            yield file
        partial.replace(path)
    except OSError as error:
        raise MachineLacks(f"cannot be written ({error.strerror})", where=str(path),
                           remedy="choose another place with -o") from error
    finally:
        partial.unlink(missing_ok=True)


@contextlib.contextmanager
def _quiet_when_nobody_reads() -> Iterator[None]:
    """A reader that has seen enough (`| head`) is no error."""
    try:
        yield
    except BrokenPipeError:
        # what is left in the buffer has nowhere to go: keep the interpreter from trying again at its exit
        with contextlib.suppress(OSError, io.UnsupportedOperation):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)


class _Rows:
    """An answer on its way out: a schema and batches."""

    def __init__(self, schema: pa.Schema, numeric: list[bool], batches: Iterator[pa.RecordBatch]) -> None:
        self.schema = schema
        self.names: list[str] = schema.names
        self.numeric = numeric
        self.batches = batches

    @classmethod
    def of(cls, result: Result) -> _Rows:
        """The first batch is computed here, so that an error comes before any output."""
        schema, batches = result.stream()
        first = list(islice(batches, 1))
        return cls(schema, result.numeric, chain(first, batches))

    def tuples(self) -> Iterator[tuple[Any, ...]]:
        """Rows as tuples; columns may share a name."""
        for batch in self.batches:
            yield from zip(*(values(column) for column in batch.columns), strict=True)


# --- writers -------------------------------------------------------------------------------------------------------


def _write_table(rows: _Rows, sink: IO[bytes]) -> None:
    tuples = rows.tuples()
    sample = list(islice(tuples, _SAMPLE))
    terminal = sink is sys.stdout.buffer and sys.stdout.isatty()
    table = TextTable(rows.names, rows.numeric, sample, shutil.get_terminal_size().columns if terminal else None)
    for line in chain(table.header(), table.lines(chain(sample, tuples))):
        sink.write(line.encode() + b"\n")


def _write_csv(rows: _Rows, sink: IO[bytes]) -> None:
    """RFC 4180. Lists are JSON in a field."""
    schema = pa.schema([pa.field(field.name, _flat_type(field.type)) for field in rows.schema])
    if not len(schema):
        return
    with pc.CSVWriter(pa.PythonFile(sink, mode="w"), schema) as writer:
        for batch in rows.batches:
            columns = [_flat(column) if field.type != column.type else column
                       for field, column in zip(schema, batch.columns, strict=True)]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))


def _flat_type(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_nested(kind) or pa.types.is_binary(kind) else kind


def _flat(column: pa.Array) -> pa.Array:
    return pa.array([None if value is None else value.hex() if isinstance(value, bytes) else json.dumps(_plain(value))
                     for value in column.to_pylist()], pa.string())


def _write_json(rows: _Rows, sink: IO[bytes]) -> None:
    """One object a line (ndjson). Of columns that share a name the later ones get a number."""
    keys = [json.dumps(name) + ":" for name in _distinct(rows.names)]
    for row in rows.tuples():
        fields = ",".join(key + json.dumps(_plain(value), ensure_ascii=False)
                          for key, value in zip(keys, row, strict=True))
        sink.write(b"{" + fields.encode("utf-8", "backslashreplace") + b"}\n")


def _distinct(names: list[str]) -> list[str]:
    taken: dict[str, int] = {}
    found = []
    for name in names:
        count = taken.get(name, 0)
        taken[name] = count + 1
        found.append(f"{name}_{count}" if count else name)
    return found


def _plain(value: Any) -> Any:
    """A value as JSON knows it: what it does not have becomes null or text."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    return str(value)


def _write_parquet(rows: _Rows, sink: IO[bytes]) -> None:
    schema = pa.schema([pa.field(name, field.type) for name, field in zip(_distinct(rows.names), rows.schema,
                                                                           strict=True)])
    with pq.ParquetWriter(pa.PythonFile(sink, mode="w"), schema, compression="zstd", compression_level=1) as writer:
        for batch in rows.batches:
            writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))


_WRITERS: dict[str, Callable[[_Rows, IO[bytes]], None]] = {
    "table": _write_table, "csv": _write_csv, "json": _write_json, "parquet": _write_parquet}


# --- the list of tables ----------------------------------------------------------------------------------------------


def _list(opened: Run, form: str, sink: IO[bytes]) -> None:
    """The tables: for reading, or a row a column in the other formats."""
    if form != "table":
        rows = [{"table": table.name, "rows": table.rows, "column": column.name, "type": str(column.type),
                 "unit": column.unit, "doc": column.doc} for table in opened.tables() for column in table.columns]
        schema = pa.schema([("table", pa.string()), ("rows", pa.int64()), ("column", pa.string()),
                            ("type", pa.string()), ("unit", pa.string()), ("doc", pa.string())])
        batches = pa.Table.from_pylist(rows, schema).to_batches()
        _WRITERS[form](_Rows(schema, [False, True, False, False, False, False], iter(batches)), sink)
        return
    terminal = sink is sys.stdout.buffer and sys.stdout.isatty()
    for table in opened.tables():
        count = "cannot be read" if table.rows is None else f"{table.rows:,} rows"
        lines = [f"{table.name}  ({count})  {table.doc}"]
        if table.name in opened.missing:
            lines.append(f"  {safe(opened.missing[table.name])}")
        columns = [(f"  {column.name}", str(column.type), column.unit, column.doc) for column in table.columns]
        text = TextTable(["", "", "", ""], [False] * 4, columns,
                         shutil.get_terminal_size().columns if terminal else None)
        sink.write("\n".join([*lines, *text.lines(columns), "", ""]).encode())
