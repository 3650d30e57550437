# SPDX-License-Identifier: MIT
"""Events straight into tables: Parquet parts written as the events come, in memory that does not grow with the run.

`tables/<name>/<n>.parquet` is a part. A part is closed, and readable from then on, when it has PART_ROWS rows or has
been open for a while: a second at first, twice as long each time, at most a minute. A recorder that is killed loses
what is in the part that is open, no more.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ptweave.data.call_columns import (
    arguments,
    constant,
    encoded_errnos,
    encoded_names,
    errnos,
    names,
    offsets,
    text_of,
)
from ptweave.data.errors import MachineLacks
from ptweave.data.event_schemas import BLOCKING, FD_CHANGES, GC, JNI_REFS, SIGNALS, UPROBES, WRITES
from ptweave.data.schemas import SYSCALLS, Table
from ptweave.data.syscall_flags import signal_name
from ptweave.data.table_writer import TableWriter
from ptweave.wrapper.filters import Kind

PART_ROWS = 1 << 20
GROUP_ROWS = 1 << 17
FIRST_AGE, LAST_AGE = 1.0, 60.0
ENCODED_CALLS = ("name", "errno", "source", "placed")
"""Columns of the table syscalls that are made as dictionaries."""
FILES_KEPT = 1 << 17
"""Names of files that are remembered: the programs have at most 2^14 ids in use."""

Rows = npt.NDArray[np.void]

_SYSCALL_INSTRUCTION = 2  # bytes; the kernel reports the address behind it
_RESULTS = ("delivered", "ignored", "already_pending", "overflow_fail", "lose_info")  # TRACE_SIGNAL_*
_S_IFMT, _KINDS = 0o170000, {
    0o100000: "file", 0o040000: "directory", 0o010000: "pipe", 0o140000: "socket", 0o020000: "char_device",
    0o060000: "block_device"}

TABLE_OF: dict[Kind, Table] = {
    Kind.SYSCALL: SYSCALLS, Kind.BLOCKING: BLOCKING, Kind.FILE_DESCRIPTOR_CHANGE: FD_CHANGES, Kind.SIGNAL: SIGNALS,
    Kind.WRITE: WRITES, Kind.GARBAGE_COLLECT: GC, Kind.JNI_REFERENCE: JNI_REFS, Kind.UPROBE: UPROBES}


class Parts:
    """One table, part after part."""

    def __init__(self, folder: Path, table: Table, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._table, self._clock = folder, table, clock
        self._writer: TableWriter | None = None
        self._began = 0.0
        self._age = FIRST_AGE
        self._number = 0
        self._open_rows = 0
        self.stored = 0
        """Rows in finished parts."""
        self.lost = 0
        """Rows that could not be written."""
        self._broken = False

    def write(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Append. Raises MachineLacks, once, when that fails; goes on counting then."""
        if self._broken:
            self.lost += rows.num_rows
            return
        try:
            if self._writer is None:
                self._writer = TableWriter(self._folder, self._table, f"{self._number:06}.parquet",
                                           row_group=GROUP_ROWS,
                                           encoded=ENCODED_CALLS if self._table is SYSCALLS else ())
                self._began = self._clock()
            self._open_rows += rows.num_rows
            self._writer.write(rows)
            if self._open_rows >= PART_ROWS:
                self._finish()
        except OSError as error:
            raise self._break(error) from error

    def tick(self) -> None:
        """Finish the part that is old enough. Raises as `write` does."""
        if self._writer is None or self._broken or self._clock() - self._began < self._age:
            return
        try:
            self._finish()
            self._age = min(2 * self._age, LAST_AGE)
        except OSError as error:
            raise self._break(error) from error

    def close(self) -> None:
        """Finish the last part. Raises as `write` does."""
        try:
            if self._writer is not None and not self._broken:
                self._finish()
        except OSError as error:
            raise self._break(error) from error

    def _finish(self) -> None:
        assert self._writer is not None
        self._writer.close()
        self._writer = None
        self.stored += self._open_rows
        self._open_rows = 0
        self._number += 1

    def _break(self, error: OSError) -> MachineLacks:
        self._broken = True
        self.lost += self._open_rows
        self._open_rows = 0
        for partial in (self._folder / self._table.name).glob(".*.partial"):
            partial.unlink(missing_ok=True)
        return MachineLacks(f"cannot be written ({error.strerror or error})",
                            where=str(self._folder / self._table.name),
                            remedy="make room; the parts finished so far are kept, the other rows are counted")


class Files:
    """What ids of open files stand for, of those used last."""

    def __init__(self, kept: int = FILES_KEPT) -> None:
        self._kept = kept
        self._ids = np.zeros(1, np.uint64)  # ascending: the programs count up
        self._used = np.zeros(1, np.int64)
        self._paths = pa.array([None], pa.string())
        self._kinds = pa.array([None], pa.string())
        self._turn = 0
        self.unknown = 0
        """Ids that were asked for and not known: their definition was lost, or forgotten."""

    def __len__(self) -> int:
        return len(self._ids) - 1

    def define(self, batch: pa.RecordBatch) -> None:
        """Learn definitions (RAW_FILES)."""
        if not batch.num_rows:
            return
        self._turn += 1
        kinds = [_kind(mode, filesystem, path) for mode, filesystem, path in zip(
            *(batch.column(name).to_pylist() for name in ("mode", "filesystem", "path")), strict=True)]
        ids = np.concatenate([self._ids, np.asarray(batch.column("id"))])
        order = np.argsort(ids, kind="stable")
        self._ids = ids[order]
        self._used = np.concatenate([self._used, np.full(batch.num_rows, self._turn)])[order]
        self._paths = pa.concat_arrays([self._paths, text_of(batch.column("path"))]).take(pa.array(order))
        self._kinds = pa.concat_arrays([self._kinds, pa.array(kinds, pa.string())]).take(pa.array(order))
        if len(self) > self._kept:
            self._forget()

    def _forget(self) -> None:
        """Keep the half that was used last."""
        self._used[0] = np.iinfo(np.int64).max  # 0 stands for none
        last = np.sort(np.argsort(self._used, kind="stable")[-self._kept // 2:])
        self._ids, self._used = self._ids[last], self._used[last]
        self._paths, self._kinds = self._paths.take(pa.array(last)), self._kinds.take(pa.array(last))

    def _find(self, ids: npt.NDArray[np.uint64]) -> pa.Array:
        at = np.minimum(np.searchsorted(self._ids, ids), len(self._ids) - 1)
        unknown = self._ids[at] != ids
        self.unknown += int(unknown.sum())
        self._used[at[~unknown]] = self._turn
        return pa.array(at, mask=unknown)

    def names(self, ids: npt.NDArray[np.uint64]) -> pa.Array:
        """Their paths; null for 0 and what is not known."""
        return self._paths.take(self._find(ids))

    def both(self, ids: npt.NDArray[np.uint64]) -> tuple[pa.Array, pa.Array]:
        """Paths and kinds."""
        at = self._find(ids)
        return self._paths.take(at), self._kinds.take(at)


def _kind(mode: int, filesystem: str, path: bytes) -> str:
    if filesystem == "anon_inodefs":
        return "anon_inode"
    if path.startswith(b"/memfd:"):
        return "memfd"
    return _KINDS.get(mode & _S_IFMT, "anon_inode")


def _column(rows: Rows, name: str) -> npt.NDArray[Any]:
    return np.ascontiguousarray(rows[name])


def _head(rows: Rows) -> dict[str, Any]:
    return {name: _column(rows, name) for name in ("t", "pid", "tid")}


def syscalls(batch: pa.RecordBatch, files: Files) -> pa.Table:
    """Rows of the table syscalls from RAW_SYSCALLS."""
    rows = batch.num_rows
    numbers = np.asarray(batch.column("number"))
    returned = np.asarray(batch.column("t_exit").is_valid())
    args = np.asarray(batch.column("args").flatten()).reshape(-1, 6)
    paths = batch.column("paths")
    described = files.names(np.asarray(batch.column("files").flatten()))
    result = np.asarray(batch.column("result").fill_null(0))
    return pa.table({
        "thread": pa.nulls(rows, pa.int32()), "seq": pa.nulls(rows, pa.int64()),
        "pid": batch.column("pid"), "tid": batch.column("tid"), "t_enter": batch.column("t_enter"),
        "t_exit": batch.column("t_exit"), "number": batch.column("number"), "name": encoded_names(numbers),
        "args": arguments(numbers, args),
        "paths": pa.ListArray.from_arrays(paths.offsets, text_of(paths.values)),
        "files": pa.ListArray.from_arrays(offsets(np.full(rows, 3)), described),
        "data": batch.column("captures"), "result": batch.column("result"), "errno": encoded_errnos(result, returned),
        "ip": np.asarray(batch.column("ip")) - np.uint64(_SYSCALL_INSTRUCTION),
        "source": constant("kernel", rows), "placed": constant("none", rows),
    })


def blocking(rows: Rows, files: Files) -> pa.Table:
    """Rows of the table blocking."""
    delay = np.minimum(rows["run_delay"], rows["duration"])  # the two clocks are not read in one moment
    return pa.table({**_head(rows), "name": names(rows["number"].astype(np.int32)),
                     "duration": rows["duration"] - delay, "run_delay": delay})


def fd_changes(rows: Rows, files: Files) -> pa.Table:
    """Rows of the table fd_changes."""
    operation = pa.array([None, "open", "close"], pa.string()).take(pa.array(np.minimum(rows["operation"], 2)))
    return pa.table({**_head(rows), "name": names(rows["number"].astype(np.int32)), "operation": operation,
                     "fd": pa.array(_column(rows, "fd"), mask=rows["fd"] < 0),
                     "open_fds": pa.array(_column(rows, "open_fds"), mask=rows["complete"] == 0)})


def signals(rows: Rows, files: Files) -> pa.Table:
    """Rows of the table signals."""
    delivered = rows["delivered"] != 0
    handler = _column(rows, "handler")
    action = np.where(handler == 0, 0, np.where(handler == 1, 1, 2))
    result = _column(rows, "result")
    known = (result >= 0) & (result < len(_RESULTS)) & ~delivered
    return pa.table({
        **_head(rows), "operation": pa.array(["sent", "delivered"]).take(pa.array(delivered.astype(np.int8))),
        "signal": _column(rows, "signal"),
        "name": pa.array([signal_name(int(one)) for one in rows["signal"]], pa.string()),
        "code": _column(rows, "code"), "target_pid": _column(rows, "target_pid"),
        "target_tid": _column(rows, "target_tid"),
        "result": pa.array(_RESULTS).take(pa.array(np.where(known, result, 0), mask=~known)),
        "action": pa.array(["default", "ignored", "handler"]).take(pa.array(action, mask=~delivered)),
        "handler": pa.array(handler, mask=~delivered | (action != 2))})


def writes(rows: Rows, files: Files) -> pa.Table:
    """Rows of the table writes."""
    path, kind = files.both(_column(rows, "file"))
    result = _column(rows, "bytes")
    return pa.table({
        **_head(rows), "source": names(rows["number"].astype(np.int32)), "fd": _column(rows, "fd"), "path": path,
        "kind": kind, "bytes": pa.array(result, mask=result < 0),
        "errno": errnos(result, np.ones(len(rows), np.bool_)), "duration": _column(rows, "duration")})


EVENT_ROWS: dict[Kind, Callable[[Rows, Files], pa.Table]] = {
    Kind.BLOCKING: blocking, Kind.FILE_DESCRIPTOR_CHANGE: fd_changes, Kind.SIGNAL: signals, Kind.WRITE: writes}
