# SPDX-License-Identifier: MIT
"""All rows of a timeline, as `timeline.question` without a part asks for them, in a fraction of its time.

A thread's thunks are in the order of time already: threads are merged (timeline_api.h), where SQL sorts every row. What
is in no such order, or too much to have in memory, is left to SQL.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ptweave.merge._merge import ffi, lib
from ptweave.merge.beside import side_by_side
from ptweave.merge.tables import I32, I64, encoded_column, numbers

MOST = 1 << 22
"""Thunks of which all are in memory, 60 bytes each."""
MOST_WORKERS = 4
"""Threads that make rows, which are in memory until their turn comes."""

TEXT_COLUMNS = ["operation", "variable", "caller"]
THUNK_COLUMNS = ["thread", "thunk", "object", "t", "wait", *TEXT_COLUMNS]
SCHEMA = pa.schema([("t_begin", pa.int64()), ("t_end", pa.int64()), ("ns", pa.int64()), ("thread", pa.int32()),
                    ("what", pa.string()), ("detail", pa.string()), ("thunk", pa.int32()), ("object", pa.uint64()),
                    ("variable", pa.string()), ("function", pa.string())])
_KINDS = ("begin", "operation", "run")
_COLUMNS = {"begin": np.int64, "end": np.int64, "ns": np.int64, "thread": np.int32, "what": np.int32,
            "detail": np.int32, "thunk": np.int32, "object": np.uint64, "variable": np.int32, "function": np.int32}
"""Arrays of `struct ptm_timeline`, in the order of SCHEMA."""
_POINTERS = {np.dtype(np.uint8): "uint8_t", np.dtype(np.int32): "int32_t", np.dtype(np.int64): "int64_t",
             np.dtype(np.uint64): "uint64_t"}


def merged(thunks: pa.Table, ends: Mapping[int, int], others: pa.Table, rows: int) -> Iterator[pa.RecordBatch] | None:
    """The rows of SCHEMA, so many at a time; None where they are in no order that merging could keep.

    `thunks`: THUNK_COLUMNS of all, in the table's order. `ends`: when threads ended, where that is known. `others`:
    t_begin, t_end, thread, what, detail, in the timeline's order; those without a time come last.
    """
    if any(thunks[name].null_count for name in ("thread", "thunk", "t")):
        return None
    timed = others.num_rows - others["t_begin"].null_count
    if others["t_end"].slice(0, timed).null_count or others["thread"].null_count:
        return None
    try:
        found = _Merged(thunks, ends, others.slice(0, timed))
    except ValueError:
        return None
    return chain(found.batches(rows), _untimed(others.slice(timed), rows))


def _untimed(others: pa.Table, rows: int) -> Iterator[pa.RecordBatch]:
    """Rows of the timeline that have no time."""
    columns = [others[name] if name in others.column_names else pa.nulls(others.num_rows, SCHEMA.field(name).type)
               for name in SCHEMA.names]
    yield from pa.table(columns, schema=SCHEMA).to_batches(rows)


class _Texts(NamedTuple):
    """A column of text: the index of each row's among `texts`, of which the last is none."""

    which: I32
    texts: pa.Array

    @classmethod
    def of(cls, table: pa.Table, name: str) -> _Texts:
        """Of a column of dictionaries or texts."""
        column = encoded_column(table, name)
        texts = pa.concat_arrays([column.dictionary.cast(pa.string()), pa.nulls(1, pa.string())])
        return cls(column.indices.fill_null(len(texts) - 1).to_numpy(zero_copy_only=False), texts)


class _Doings(NamedTuple):
    """Arrays of `struct ptm_doings`, each in its own width (`numbers`)."""

    thread: I64
    thunk: I64
    called: I64
    returned: I64
    ended: I64
    object: I64
    with_object: npt.NDArray[np.uint8]
    operation: I32
    variable: I32
    function: I32

    @classmethod
    def of(cls, thunks: pa.Table, ends: Mapping[int, int], operation: I32, variable: I32, function: I32) -> _Doings:
        thread, called = numbers(thunks, "thread"), numbers(thunks, "t")
        returned = called + np.maximum(numbers(thunks, "wait"), 0)
        ended = np.concatenate([called[1:], called[:1]])  # of a thread's last one: known below
        lasts = np.flatnonzero(np.append(thread[1:] != thread[:-1], len(thread) > 0))
        ended[lasts] = [max(ends.get(int(thread[row]), int(returned[row])), int(returned[row])) for row in lasts]
        returned = np.maximum(np.minimum(returned, ended), called)  # as `boundaries` of timeline.py
        known = thunks["object"].is_valid().to_numpy().astype(np.uint8)
        return cls(thread, numbers(thunks, "thunk"), called, returned, ended, numbers(thunks, "object"), known,
                   operation, variable, function)


class _Others(NamedTuple):
    """Arrays of `struct ptm_others`, as those."""

    thread: I64
    begin: I64
    end: I64
    what: I32
    detail: I32


def _struct(name: str, arrays: NamedTuple) -> Any:
    """A C structure of arrays, which must outlive it."""
    return ffi.new(f"struct {name} *", {"n": len(arrays[0]), **_pointers(arrays._asdict())})


def _pointers(arrays: Mapping[str, npt.NDArray[Any]]) -> dict[str, Any]:
    return {name: ffi.cast(f"{_POINTERS[array.dtype]} *", ffi.from_buffer(array)) for name, array in arrays.items()}


class _Merged:
    """Rows of threads' thunks, and others."""

    def __init__(self, thunks: pa.Table, ends: Mapping[int, int], others: pa.Table) -> None:
        """`thunks`: THUNK_COLUMNS of all, in the table's order, t everywhere. `ends`: when threads ended, where that
        is known. `others`: t_begin, t_end, thread, what, detail, in the timeline's order, times everywhere.

        Raises ValueError for a thread whose times go back.
        """
        operation, variable, function = (_Texts.of(thunks, name) for name in TEXT_COLUMNS)
        what, detail = _Texts.of(others, "what"), _Texts.of(others, "detail")
        self._whats = pa.concat_arrays([pa.array(_KINDS, pa.string()), what.texts])
        self._details = pa.concat_arrays([operation.texts, detail.texts])
        self._variables, self._functions = variable.texts, function.texts
        self._texts = ffi.new("struct ptm_texts *", {
            "begin": _KINDS.index("begin"), "operation": _KINDS.index("operation"), "run": _KINDS.index("run"),
            "no_detail": len(operation.texts) - 1, "no_variable": len(variable.texts) - 1,
            "no_function": len(function.texts) - 1})
        self._arrays = (
            _Doings.of(thunks, ends, operation.which, variable.which, function.which),
            _Others(numbers(others, "thread"), numbers(others, "t_begin"), numbers(others, "t_end"),
                    what.which + np.int32(len(_KINDS)), detail.which + np.int32(len(operation.texts))))
        self._doings = _struct("ptm_doings", self._arrays[0])
        self._others = _struct("ptm_others", self._arrays[1])
        self._order = np.empty(2 * thunks.num_rows + others.num_rows, np.uint32)
        error = lib.ptm_timeline_order(self._doings, self._others, ffi.from_buffer("uint32_t[]", self._order))
        if error:
            raise ValueError(f"no order of time ({error})")

    def batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """All rows, so many at a time. Mostly texts are copied, which Arrow does beside other threads' work."""
        parts = (self._order[begin:begin + rows] for begin in range(0, len(self._order), rows))
        return side_by_side(self._batch, parts, min(pa.cpu_count(), MOST_WORKERS))

    def _batch(self, order: npt.NDArray[np.uint32]) -> pa.RecordBatch:
        columns = {name: np.empty(len(order), kind) for name, kind in _COLUMNS.items()}
        known = {name: np.zeros((len(order) + 7) // 8, np.uint8) for name in ("with_thunk", "with_object")}
        out = ffi.new("struct ptm_timeline *", _pointers(columns | known))
        lib.ptm_timeline_rows(self._doings, self._others, self._texts, ffi.from_buffer("uint32_t[]", order),
                              len(order), out)
        found = {name: pa.array(array) for name, array in columns.items()}
        for name in ("thunk", "object"):
            found[name] = pa.Array.from_buffers(found[name].type, len(order), [
                pa.py_buffer(known[f"with_{name}"]), pa.py_buffer(columns[name])])
        for name, texts in (("what", self._whats), ("detail", self._details), ("variable", self._variables),
                            ("function", self._functions)):
            found[name] = texts.take(found[name])
        return pa.record_batch(list(found.values()), schema=SCHEMA)
