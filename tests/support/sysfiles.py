# SPDX-License-Identifier: MIT
"""Writes bundles with system calls as the soft engine logs them and as the kernel records them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ptweave.data.bundle import Bundle
from ptweave.data.manifest import Clocks, Manifest
from ptweave.data.schemas import RAW_FILES, RAW_SYSCALLS
from ptweave.data.sideband import SidebandKind, write_sideband
from ptweave.data.syslog import SYSLOG_DTYPE

TICKS = 3
"""TSC ticks in a nanosecond of the bundles made here."""

ANSWERED = 1
RESTARTED = 2


@dataclass
class LoggedCall:
    """A record of trace/<thread>.sys; times in ns."""

    number: int
    enter: int
    exit: int | None
    args: Sequence[int] = ()
    result: int = 0
    flags: int = 0
    ip: int = 0x401000


@dataclass
class KernelRow:
    """A row of events/syscalls.arrow."""

    number: int
    enter: int
    exit: int | None
    args: Sequence[int] = ()
    result: int | None = 0
    paths: Sequence[bytes | None] = ()
    pid: int = 100
    tid: int = 100
    ip: int = 0x401002
    files: Sequence[int] = (0, 0, 0)
    captures: Sequence[dict[str, Any]] = ()


@dataclass
class Life:
    """A thread of the sideband; times in ns."""

    thread: int
    tid: int = 100
    pid: int = 100
    begin: int = 0
    end: int | None = None


@dataclass
class Run:
    """What a bundle shall hold."""

    logs: dict[int, list[LoggedCall]] = field(default_factory=dict)
    rows: list[KernelRow] | None = None
    lives: list[Life] = field(default_factory=lambda: [Life(0)])
    execs: list[tuple[int, int]] = field(default_factory=list)  # (pid, ns): a traced program begun by an exec


def _six(args: Sequence[int]) -> list[int]:
    return [*args, *[0] * (6 - len(args))]


def recording_batch(rows: Sequence[KernelRow]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([
        {"t_enter": row.enter, "t_exit": row.exit, "pid": row.pid, "tid": row.tid, "number": row.number,
         "ip": row.ip, "args": _six(row.args), "paths": list(row.paths),
         "result": None if row.exit is None else row.result,
         "files": list(row.files), "captures": list(row.captures)} for row in rows],
        schema=RAW_SYSCALLS)


def write_files(path: Path, names: Mapping[int, bytes]) -> None:
    """`events/files.arrow` with these names by id."""
    rows = [{"id": number, "path": name, "filesystem": "tmpfs", "device": 1, "inode": number, "mode": 0o100644,
             "deleted": False, "t": 0} for number, name in names.items()]
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, RAW_FILES) as writer:
        writer.write_batch(pa.RecordBatch.from_pylist(rows, schema=RAW_FILES))


def write_recording(path: Path, rows: Sequence[KernelRow], rows_a_batch: int = 7) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, RAW_SYSCALLS) as writer:
        for begin in range(0, len(rows), rows_a_batch):
            writer.write_batch(recording_batch(rows[begin:begin + rows_a_batch]))


def write_log(path: Path, calls: Sequence[LoggedCall]) -> None:
    records = np.zeros(len(calls), dtype=SYSLOG_DTYPE)
    for record, call in zip(records, calls, strict=True):
        record["tsc_enter"] = call.enter * TICKS
        record["tsc_exit"] = 0 if call.exit is None else call.exit * TICKS
        record["result"], record["ip"], record["number"] = call.result, call.ip, call.number
        record["flags"], record["args"] = call.flags, _six(call.args)
    records.tofile(path)


def make_bundle(folder: Path, run: Run, name: str = "run") -> Bundle:
    """A bundle `folder/NAME.ptw` with this run in it."""
    clocks = Clocks(tsc0=TICKS * 1000, t0_ns=1000, tsc1=TICKS * 1_000_001_000, t1_ns=1_000_001_000)
    bundle = Bundle.create(folder / f"{name}.ptw", Manifest(clocks=clocks))
    for thread, calls in run.logs.items():
        write_log(bundle.trace / f"{thread}.sys", calls)
    if run.rows is not None:
        write_recording(bundle.events / "syscalls.arrow", run.rows)
    sideband: list[dict[str, object]] = []
    for life in run.lives:
        ids = {"pid": life.pid, "tid": life.tid, "thread": life.thread, "space": 0}
        sideband.append({"kind": SidebandKind.THREAD, "tsc": life.begin * TICKS, **ids})
        if life.end is not None:
            sideband.append({"kind": SidebandKind.THREAD_EXIT, "tsc": life.end * TICKS, **ids})
    sideband += [{"kind": SidebandKind.PROCESS, "tsc": time * TICKS, "pid": pid, "tid": pid, "space": 1,
                  "detail": "exec", "path": "/bin/other"} for pid, time in run.execs]
    write_sideband(bundle.sideband, sorted(sideband, key=lambda row: int(str(row["tsc"]))))
    return bundle


def decoded(bundle: Bundle) -> list[dict[str, Any]]:
    """The rows of decoded/syscalls.parquet."""
    rows: list[dict[str, Any]] = pq.read_table(bundle.decoded / "syscalls.parquet").to_pylist()
    return rows
