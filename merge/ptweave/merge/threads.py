# SPDX-License-Identifier: MIT
"""The table `threads`: who each thread was (sideband), what of it was decoded (decode's counts)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ptweave.data.bundle import Bundle
from ptweave.data.schemas import THREADS
from ptweave.merge.program import Program
from ptweave.merge.tables import open_parquet
from ptweave.merge.tasks import Tasks

FILE = "threads.parquet"

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
            "pid": task.pid if task else None,
            "tid": task.tid if task else None,
            "parent": tasks.parent(thread),
            "start_function": starts.get(thread) or program.function_of(counts.get("first_block")),
            "t_start": task.t_start if task else None,
            "t_end": task.t_end if task else None,
            "exit_status": tasks.exit_status(thread),
            **{name: counts.get(name) for name in _COUNTS},
        })
    return pa.Table.from_pylist(rows, schema=THREADS.schema)


def _decoded(bundle: Bundle) -> dict[int, dict[str, Any]]:
    path = bundle.decoded / FILE
    if not path.exists():
        return {}
    with open_parquet(path, pa.schema([])) as file:
        return {row["thread"]: row for row in file.read(use_threads=False).to_pylist() if row["thread"] is not None}
