# SPDX-License-Identifier: MIT
"""Files of events (preload/src/vector_format.h) to Arrow: one schema for each kind, rows as they were logged.

The C reader (decode/src/vector_reader.h) fills the columns. A file may be read while it is written, and after a crash.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ptweave.data import BadInput
from ptweave.data.manifest import Clocks
from ptweave.decode._vector import ffi, lib


class FieldType(IntEnum):
    """`enum ptv_type`."""

    I64 = 1
    U64 = 2
    F64 = 3
    STRING = 4
    BYTES = 5
    WORDS = 6


_ARROW = {FieldType.I64: pa.int64(), FieldType.U64: pa.uint64(), FieldType.F64: pa.float64(),
          FieldType.STRING: pa.string(), FieldType.BYTES: pa.binary(), FieldType.WORDS: pa.list_(pa.uint64())}
_NUMPY = {FieldType.I64: "<i8", FieldType.U64: "<u8", FieldType.F64: "<f8"}
PAIRS = pa.map_(pa.string(), pa.string())
"""Ad-hoc keys and values; numbers are decimal."""
ORIGIN = (pa.field("pid", pa.uint32()), pa.field("tid", pa.uint32()), pa.field("t", pa.int64()),
          pa.field("tsc", pa.uint64()))
"""Columns every kind has before its own: who logged it, and when (CLOCK_MONOTONIC, ns)."""
TAIL = (pa.field("data", PAIRS), pa.field("truncated", pa.bool_()))
"""Columns every kind has behind its own: pairs, and whether something was cut (`PTV_EVENT_MAX`)."""


@dataclass(frozen=True)
class Field:
    name: str
    type: FieldType


@dataclass(frozen=True)
class Kind:
    """A kind of events: declarations of the same name and fields are one kind."""

    name: str
    fields: tuple[Field, ...]

    @property
    def schema(self) -> pa.Schema:
        """ORIGIN, the fields (one that has another column's name gets `_` behind it), TAIL."""
        taken = {one.name for one in (*ORIGIN, *TAIL)}
        own = []
        for field in self.fields:
            name = field.name
            while name in taken:
                name += "_"
            taken.add(name)
            own.append(pa.field(name, _ARROW[field.type]))
        return pa.schema([*ORIGIN, *own, *TAIL])


@dataclass(frozen=True)
class Account:
    """What the file says of itself (`struct ptv_file_head`), and what the reader met.

    `begun`, `lost`, `unfinished` and `dropped` count events in the lists that were read to their end; `stored` is how
    many were written ever, of which a ring has `overwritten` some. `came` came out; `corrupt` contradicted themselves;
    `unread` bytes could not be read; `moved` lists of a ring were overwritten while they were read.
    """

    closed: bool
    begun: int
    stored: int
    lost: int
    unfinished: int
    overwritten: int
    unwritten: int
    dropped: tuple[int, ...]
    came: int
    corrupt: int
    unread: int
    moved: int


class EventFile:
    """A file of events, open. Use as a context manager. Raises BadInput when it is none."""

    def __init__(self, path: Path, clocks: Clocks | None = None) -> None:
        """`clocks` convert its times; without them those that its writer noted do."""
        pointer = ffi.new("struct evv_reader **")
        error = lib.evv_reader_open(os.fsencode(path), pointer)
        if error < 0:
            known = {errno.EINVAL: "is no file of events", errno.ENOTSUP: "is of another version of ptweave",
                     errno.ELOOP: "is a symbolic link"}
            raise BadInput(known.get(-error, os.strerror(-error)), where=str(path))
        self.path = path
        self._reader = pointer[0]
        head = lib.evv_reader_head(self._reader)
        clocks = clocks or Clocks(head.tsc0, head.t0, head.tsc1, head.t1)
        self._clocks = ffi.new("struct evl_clocks *", {
            "tsc0": clocks.tsc0, "tsc1": clocks.tsc1, "t0": clocks.t0_ns, "t1": clocks.t1_ns})
        self._kinds: dict[int, Kind | None] = {}

    def __enter__(self) -> EventFile:
        return self

    def __exit__(self, *_: object) -> None:
        lib.evv_reader_close(self._reader)

    def batches(self) -> Iterator[tuple[Kind, pa.RecordBatch]]:
        """All events in batches of one kind; those of one thread and kind in order. Raises BadInput."""
        batch = ffi.new("struct evv_batch *")
        while more := lib.evv_reader_next(self._reader, batch):
            if more < 0:
                raise BadInput(os.strerror(-more), where=str(self.path))
            kind = self._kind(int(batch.kind))
            if kind is not None:
                yield kind, self._record_batch(kind, batch)

    def tables(self) -> dict[Kind, pa.Table]:
        """Everything, in memory, by kind."""
        found: dict[Kind, list[pa.RecordBatch]] = {}
        for kind, batch in self.batches():
            found.setdefault(kind, []).append(batch)
        return {kind: pa.Table.from_batches(batches) for kind, batches in found.items()}

    def account(self) -> Account:
        """What the file holds; the reader's part is complete when `batches` has ended."""
        head, raw = lib.evv_reader_head(self._reader), ffi.new("struct evv_counts *")
        lib.evv_reader_counts(self._reader, raw)
        return Account(bool(head.closed), head.begun, head.stored, head.lost, head.unfinished, head.overwritten,
                       head.unwritten, tuple(head.dropped), raw.events, raw.corrupt, raw.unread, raw.moved)

    def _kind(self, index: int) -> Kind | None:
        if index not in self._kinds:
            raw = lib.evv_reader_kind(self._reader, index)
            self._kinds[index] = None if raw == ffi.NULL else Kind(
                _text(raw.name), tuple(Field(_text(raw.field[i].name), FieldType(raw.field[i].type))
                                       for i in range(raw.fields)))
        return self._kinds[index]

    def _times(self, batch: Any, rows: int) -> pa.Array:
        times = np.empty(rows, "<i8")
        lib.evv_times(self._clocks, batch.tsc, rows, ffi.cast("int64_t *", times.ctypes.data))
        return pa.array(times)

    def _record_batch(self, kind: Kind, batch: Any) -> pa.RecordBatch:
        rows = int(batch.rows)
        columns = [
            pa.array(_copy(batch.pid, rows, "<u4")), pa.array(_copy(batch.tid, rows, "<u4")),
            self._times(batch, rows), pa.array(_copy(batch.tsc, rows, "<u8")),
            *(_column(batch.field[i], rows) for i in range(len(kind.fields))),
            _pairs(batch, rows), pa.array(_copy(batch.truncated, rows, "u1") != 0)]
        return pa.RecordBatch.from_arrays(columns, schema=kind.schema)


def _text(name: Any) -> str:
    return bytes(ffi.string(name)).decode(errors="backslashreplace")


def _copy(pointer: Any, count: int, dtype: str) -> np.ndarray[Any, np.dtype[Any]]:
    """A copy of C memory: the reader uses it again for the next batch."""
    size = np.dtype(dtype).itemsize * count
    return np.frombuffer(bytes(ffi.buffer(pointer, size)) if size else b"", dtype)


def _buffers(column: Any, rows: int) -> tuple[Any, Any]:
    offsets = _copy(column.offset, rows + 1, "<i4") if rows else np.zeros(1, "<i4")
    return offsets, pa.py_buffer(bytes(ffi.buffer(column.data, int(offsets[-1]))) if offsets[-1] else b"")


def _column(column: Any, rows: int) -> pa.Array:
    kind = FieldType(column.type)
    missing = _copy(column.valid, rows, "u1") == 0
    if kind in _NUMPY:
        return pa.array(_copy(column.word, rows, _NUMPY[kind]), mask=missing)
    offsets, data = _buffers(column, rows)
    if kind is FieldType.WORDS:
        words = pa.array(np.frombuffer(data, "<u8"))
        return pa.ListArray.from_arrays(pa.array(offsets // 8), words, mask=pa.array(missing))
    valid = pa.array(~missing).buffers()[1] if rows else None
    return pa.Array.from_buffers(_ARROW[kind], rows, [valid, pa.py_buffer(offsets.tobytes()), data])


def _pairs(batch: Any, rows: int) -> pa.Array:
    offsets = _copy(batch.pair_offset, rows + 1, "<i4")
    count = int(offsets[-1])
    keys, values = _column(batch.key, count), _column(batch.value, count)
    return pa.MapArray.from_arrays(pa.array(offsets), keys, values)
