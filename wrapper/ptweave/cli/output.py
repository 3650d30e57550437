# SPDX-License-Identifier: MIT
"""Answers on their way out: as a table, CSV, JSON or Parquet, to standard output or a file."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.csv as pc

from ptweave.data.errors import BadInput, MachineLacks
from ptweave.data.parquet_writer import ParquetWriter
from ptweave.merge import Result
from ptweave.merge.render import TextTable, texts, tuples, values

_ENCODER = json.JSONEncoder(ensure_ascii=False)  # `json.dumps` would make one for each value
_PIECE = 8 << 20  # bytes of rows that are text at a time
_SAMPLE = 1000  # rows the widths of a printed table follow


def add_output(parser: argparse.ArgumentParser) -> None:
    """The options --format and -o of what answers."""
    parser.add_argument("--format", choices=sorted(WRITERS), default="table",
                        help="table (default), csv, json (an object a line) or parquet")
    parser.add_argument("-o", dest="output", metavar="FILE", type=Path, help="write to FILE instead of standard output")


def add_limit(parser: argparse.ArgumentParser) -> None:
    """The option -n of answers whose first rows matter most."""
    parser.add_argument("-n", "--limit", metavar="N", type=_rows, help="the first N rows only")


def _rows(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of rows")
    return int(text)


def check_output(args: argparse.Namespace) -> None:
    """Raises BadInput when the answer may not go where it is to go."""
    if args.format == "parquet" and not args.output and sys.stdout.isatty():
        raise BadInput("parquet is not for a terminal", where="--format", remedy="name a file with -o FILE")


def write_result(result: Result, args: argparse.Namespace) -> None:
    """Write an answer as the options say."""
    _write(lambda: Rows.of(result), args)


def write_rows(rows: Rows, args: argparse.Namespace) -> None:
    """The same with rows that are there."""
    _write(lambda: rows, args)


def _write(answer: Callable[[], Rows], args: argparse.Namespace) -> None:
    check_output(args)
    with sink(args.output) as out, quiet_when_nobody_reads():
        rows = answer()
        WRITERS[args.format](rows if getattr(args, "limit", None) is None else rows.first(args.limit), out)
        out.flush()


@contextlib.contextmanager
def sink(path: Path | None) -> Iterator[IO[bytes]]:
    """Where the answer goes: standard output, or a file that is there only when it is whole."""
    if path is None:
        sys.stdout.flush()
        yield sys.stdout.buffer
        return
    if not path.name:
        raise BadInput("is a folder", where=str(path), remedy="name a file with -o")
    try:
        with _written(path) as file:
            yield file
    except OSError as error:
        raise MachineLacks(f"cannot be written ({error.strerror})", where=str(path),
                           remedy="choose another place with -o") from error


@contextlib.contextmanager
def _written(path: Path) -> Iterator[IO[bytes]]:
    """A file to write, which gets its name when it is whole. What is there and no file (a pipe, /dev/null) is written
    to: it must not be replaced by one, which root could. So is what a symbolic link leads to: the kernel knows which
    links root must not follow (protected_symlinks)."""
    if path.is_symlink() or (path.exists() and not path.is_file() and not path.is_dir()):
        with path.open("wb") as file:
            yield file
        return
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with partial.open("wb") as file:
            yield file
        partial.replace(path)
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()


@contextlib.contextmanager
def quiet_when_nobody_reads() -> Iterator[None]:
    """A reader that has seen enough (`| head`) is no error."""
    try:
        yield
    except BrokenPipeError:
        # what is left in the buffer has nowhere to go: keep the interpreter from trying again at its exit
        with contextlib.suppress(OSError, io.UnsupportedOperation):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)


class Rows:
    """An answer on its way out: a schema and batches; which columns hold numbers, and which of these addresses."""

    def __init__(self, schema: pa.Schema, numeric: list[bool], batches: Iterator[pa.RecordBatch],
                 addresses: list[bool] | None = None) -> None:
        self.schema = schema
        self.names: list[str] = schema.names
        self.numeric = numeric
        self.addresses = addresses
        self.batches = batches

    @classmethod
    def of(cls, result: Result) -> Rows:
        """The first batch is computed here, so that an error comes before any output."""
        schema, batches = result.stream()
        first = list(islice(batches, 1))
        return cls(schema, result.numeric, chain(first, batches), result.addresses)

    @classmethod
    def given(cls, **columns: pa.Array) -> Rows:
        """Of columns that are there: text or numbers."""
        table = pa.table(columns)
        numeric = [not pa.types.is_string(kind) for kind in table.schema.types]
        return cls(table.schema, numeric, iter(table.to_batches()))

    def first(self, count: int) -> Rows:
        """So many rows of it; the others are not computed where that is not needed."""
        return Rows(self.schema, self.numeric, _first(self.batches, count), self.addresses)


def _first(batches: Iterator[pa.RecordBatch], count: int) -> Iterator[pa.RecordBatch]:
    """The first rows. There is a batch, if the answer has one, to write the columns' names by."""
    for batch in batches:
        yield batch.slice(0, count)
        count -= len(batch)
        if count <= 0:
            return


def pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows, so many at a time that their text, of which there are a few copies meanwhile, is not much: rows
    may have kilobytes of data each."""
    for batch in batches:
        step = max(1, batch.num_rows * _PIECE // max(batch.nbytes, 1))
        for first in range(0, batch.num_rows, step):
            yield batch.slice(first, step)


# --- writers -------------------------------------------------------------------------------------------------------


def _write_table(rows: Rows, sink: IO[bytes]) -> None:
    batches, first = pieces(rows.batches), []
    sample: list[tuple[Any, ...]] = []
    for batch in batches:
        first.append(batch)
        sample += tuples(batch.slice(0, _SAMPLE - len(sample)))
        if len(sample) == _SAMPLE:
            break
    terminal = sink is sys.stdout.buffer and sys.stdout.isatty()
    table = TextTable(rows.names, rows.numeric, sample, shutil.get_terminal_size().columns if terminal else None,
                      rows.addresses)
    sink.write("".join(f"{line}\n" for line in table.header()).encode())
    for batch in chain(first, batches):
        sink.write(table.text(batch).encode())


def _write_csv(rows: Rows, sink: IO[bytes]) -> None:
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
    return pa.string() if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_interval(kind) else kind


def _flat(column: pa.Array) -> pa.Array:
    return pa.array([None if value is None else value.hex() if isinstance(value, bytes) else json.dumps(_plain(value))
                     for value in values(column)], pa.string())


def _write_json(rows: Rows, sink: IO[bytes]) -> None:
    """One object a line (ndjson). Of columns that share a name the later ones get a number."""
    keys = [json.dumps(name) + ":" for name in _distinct(rows.names)]
    for batch in pieces(rows.batches):
        columns = [texts(column, _json) for column in batch.columns]
        for row in zip(*(column.to_pylist() for column in columns), strict=True):
            fields = ",".join([key + value for key, value in zip(keys, row, strict=True)])
            sink.write(b"{" + fields.encode("utf-8", "backslashreplace") + b"}\n")


def _json(value: Any) -> str:
    return _ENCODER.encode(_plain(value))


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


def _write_parquet(rows: Rows, sink: IO[bytes]) -> None:
    schema = pa.schema([pa.field(name, field.type) for name, field in zip(_distinct(rows.names), rows.schema,
                                                                           strict=True)])
    for field in schema:
        _check_parquet(field)
    with ParquetWriter(pa.PythonFile(sink, mode="w"), schema, compression="zstd", compression_level=1) as writer:
        for batch in rows.batches:
            writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))


def _check_parquet(field: pa.Field) -> None:
    """Raises BadInput for a column of a type that Parquet has not."""
    try:
        with ParquetWriter(pa.BufferOutputStream(), pa.schema([field])):
            pass
    except pa.ArrowNotImplementedError as error:
        raise BadInput(f"column {field.name} is of a type that Parquet has not ({field.type})", where="--format",
                       remedy="cast it in the query, say to varchar") from error


WRITERS: dict[str, Callable[[Rows, IO[bytes]], None]] = {
    "table": _write_table, "csv": _write_csv, "json": _write_json, "parquet": _write_parquet}
