# SPDX-License-Identifier: MIT
"""`call_text` for SQL: rows of the table syscalls as lines like strace's, computed for the rows that are asked for."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa

from ptweave.data.syscall_text import Call, Captured, line

_CAPTURE = "struct(argument tinyint, kind tinyint, part tinyint, \"when\" tinyint, size bigint, data blob)"
_PARAMETERS = ["integer", "ubigint[]", "bigint", "varchar[]", "varchar[]", f"{_CAPTURE}[]"]


def _text(number: int, args: list[int] | None, result: int | None, paths: list[str | None] | None,
          files: list[str | None] | None, data: list[dict[str, Any]] | None) -> str:
    captures = [Captured(**one) for one in data or ()]
    return line(Call(number, args or [], result, paths or [], files or [], captures))


def _texts(number: pa.ChunkedArray, args: pa.ChunkedArray, result: pa.ChunkedArray, paths: pa.ChunkedArray,
           files: pa.ChunkedArray, data: pa.ChunkedArray) -> pa.Array:
    rows = zip(*(column.to_pylist() for column in (number, args, result, paths, files, data)), strict=True)
    return pa.array([None if row[0] is None else _text(*row) for row in rows], pa.string())


def register(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the function known to a connection and its cursors."""
    parameters: Any = _PARAMETERS  # names of types, which DuckDB's stubs know only in part
    kind: Any = "arrow"
    nulls: Any = "special"
    connection.create_function("call_text", _texts, parameters, "varchar", type=kind, null_handling=nulls)
