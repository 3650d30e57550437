# SPDX-License-Identifier: MIT
"""The table `threads`: who each thread was (sideband), what of it was decoded (decode's counts)."""

from __future__ import annotations

import os
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ptweave.data.bundle import Bundle
from ptweave.data.evl import EVL_HEADER_SIZE, EVL_MAGIC
from ptweave.data.schemas import THREADS, THUNKS
from ptweave.merge.addresses import Addresses
from ptweave.merge.program import Program
from ptweave.merge.tables import BATCH_ROWS, open_parquet, table_files
from ptweave.merge.tasks import Tasks

FILE = "threads.parquet"

_HEADER = struct.Struct("<8sIIiIQQQQQ")
_START_ROUTINE = 7
assert _HEADER.size == EVL_HEADER_SIZE

_COUNTS = ("trace_bytes", "instructions", "blocks", "branches", "gaps", "lost_bytes")
_DECODED = pa.schema([("thread", pa.int32()), *((name, pa.int64()) for name in _COUNTS)])


def thread_table(bundle: Bundle, tasks: Tasks, program: Program, starts: dict[int, str]) -> pa.Table:
    """One row a thread known to the sideband or to decoding. `starts` are start routines known better than by
    the first block."""
    decoded = _decoded(bundle)
    rows = []
    for thread in sorted({*tasks.threads, *decoded}):
        task, counts = tasks.threads.get(thread), decoded.get(thread, {})
        rows.append({
            "thread": thread,
            "pid": tasks.program(thread),
            "tid": task.tid if task else None,
            "parent": tasks.parent(thread),
            "start_function": starts.get(thread) or program.function_of(counts.get("first_block")),
            "t_start": task.t_start if task else None,
            "t_end": task.t_end if task else None,
            "own": task.own if task else False,
            "exit_status": tasks.exit_status(thread),
            **{name: counts.get(name) for name in _COUNTS},
        })
    return pa.Table.from_pylist(rows, schema=THREADS.schema)


def start_routines(bundle: Bundle, tasks: Tasks, program: Program, addresses: Addresses) -> dict[int, str]:
    """Names of the routines threads were created with, where libtthread logged them and they were executed."""
    found = {}
    for thread, task in tasks.threads.items():
        routine = _start_routine(bundle, thread)
        if routine:
            ip = np.array([routine], np.uint64)
            place = addresses.locate(thread, np.array([task.t_start or 0], np.int64), ip)
            block = int(addresses.blocks_at(place, ip)[0])
            name = program.function_of(block) if block >= 0 else None
            if name:
                found[thread] = name
    return found


def forking_functions(bundle: Bundle, tasks: Tasks) -> dict[int, str]:
    """Names of the functions that called fork, by the threads that its children began with, which begin in the midst
    of a function of the C library's or of libtthread's. Read from the merged thunks."""
    pids = {process.pid for process in tasks.processes if process.began_by == "fork"}
    children = {task.pid: task.thread for task in tasks.threads.values() if task.tid == task.pid and task.pid in pids}
    found: dict[int, str] = {}
    for path in table_files(bundle, THUNKS) if children else []:
        with open_parquet(path, THUNKS.schema, ["operation", "caller"]) as file:
            for batch in file.iter_batches(BATCH_ROWS, columns=["operation", "result", "caller"], use_threads=False):
                forks = pc.and_(pc.equal(batch["operation"], "fork"), pc.is_valid(batch["caller"]))
                for row in batch.filter(forks).to_pylist():
                    if row["result"] in children:
                        found[children[row["result"]]] = row["caller"]
    return found


def _start_routine(bundle: Bundle, thread: int) -> int:
    """The start routine in the header of a thread's event list; 0 when there is none."""
    try:
        descriptor = os.open(bundle.dependence / f"{thread}.evl", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:  # no list, or nothing that could be one: it is decoding that accounts for it
        return 0
    with os.fdopen(descriptor, "rb") as file:
        header = file.read(EVL_HEADER_SIZE)
    if len(header) < EVL_HEADER_SIZE or not header.startswith(EVL_MAGIC):
        return 0
    return int(_HEADER.unpack(header)[_START_ROUTINE])


def _decoded(bundle: Bundle) -> dict[int, dict[str, Any]]:
    path = bundle.decoded / FILE
    if not path.exists():
        return {}
    with open_parquet(path, pa.schema([])) as file:
        return {row["thread"]: row for row in file.read(use_threads=False).to_pylist() if row["thread"] is not None}
