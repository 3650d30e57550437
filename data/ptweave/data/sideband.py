# SPDX-License-Identifier: MIT
"""`sideband.arrow`: what the decoder must know beside the packets. Arrow IPC file, rows in time order.

An *address space* (`space`) is one process image: a process from its fork or exec to its next exec or end.
Its mappings change in *epochs*: epoch 0 at its start, one more each time executed code went away or changed.

| kind | a row says | columns beside kind, tsc, pid, space |
|---|---|---|
| process | an address space begins | tid, path, value (parent), detail: `fork`, `exec`, `start`, `thread` |
| process_exit | a process ended | value (wait status, −1 unknown) |
| thread | a thread begins, or goes on as another task | tid, thread, value (tid of its creator, 0 none) |
| thread_exit | a thread ended | tid, thread |
| comm | a task's name | tid, thread, detail |
| map | code mapped from a file ran | addr, size, offset (in the file), epoch, image, path |
| code | code in anonymous memory as it was when executed | addr, size, offset (in the image), epoch, image |
| unmap | code went away at the beginning of `epoch` | addr, size, epoch |
| slice | `thread`'s trace from byte `offset` on runs in (`space`, `epoch`), to its next slice | thread, offset, epoch |
| lost | packets are missing in `thread`'s trace at `offset` | thread, offset, size (bytes, 0 unknown), detail |
| finish | the thread's trace ends orderly at byte `offset` | thread, offset |
| switch | from `tsc` on a trace is of `thread` in (`space`, `epoch`) | cpu, tid, thread, epoch, value (SwitchWhen) |
| entry | a function of the kernel's begins at `addr` | addr, detail (its name) |

A trace has `slice` rows when its recorder knows where its bytes belong (each slice begins with a PSB), or `switch` rows
when it knows only the time, as perf does: then one PSB range may run through several of them. `cpu` says that the
switch is in the trace of a processor, `trace/cpu-<cpu>.pt`; without it, it is in the thread's own trace. A null
`thread` in a processor's trace: idle, or a task nobody asked for. What lies before the first switch is of the first.
Where there is an `entry` SWITCH_TO, switches that are TOLD take place where the processor's trace comes to it.

Where threads run as processes, a thread is made and then clones a process that goes on in its place (`thread`): it
keeps its number, and its trace and its calls go on. Such a process is no program of its own.

The image set of (space, epoch): the space's rows with epoch ≤ that one, in row order; `map` and `code` put an
image over what was there, `unmap` takes a range away. `image` names a file in `images/`; null when it could not be
kept.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from pathlib import Path

import pyarrow as pa

from ptweave.data.errors import BadInput

SERVANT = "ptweave-servant"
"""Name (`comm`) of the threads of libtthread's own."""


class SidebandKind(StrEnum):
    PROCESS = "process"
    PROCESS_EXIT = "process_exit"
    THREAD = "thread"
    THREAD_EXIT = "thread_exit"
    COMM = "comm"
    MAP = "map"
    CODE = "code"
    UNMAP = "unmap"
    SLICE = "slice"
    LOST = "lost"
    FINISH = "finish"
    SWITCH = "switch"
    ENTRY = "entry"


class SwitchWhen(IntEnum):
    """When a switch takes place; null in the column is AT_TIME."""

    AT_TIME = 0
    TOLD = 1  # the kernel wrote of it before it made it, at `tsc`
    DONE = 2  # the kernel wrote of it after it had made it


SWITCH_TO = "__switch_to"
"""The function of the kernel in which the next thread goes on."""

TELLERS = ("__perf_event_task_sched_out", "perf_trace_sched_switch")
"""The functions in which the kernel writes of a switch before it makes it: of the event's own kind, of a tracepoint."""


SIDEBAND_SCHEMA = pa.schema(
    [
        pa.field("kind", pa.string(), nullable=False),
        pa.field("tsc", pa.uint64(), nullable=False),
        pa.field("pid", pa.int32(), nullable=False),
        pa.field("space", pa.uint32(), nullable=False),
        pa.field("tid", pa.int32()),
        pa.field("thread", pa.int32()),
        pa.field("epoch", pa.uint32()),
        pa.field("addr", pa.uint64()),
        pa.field("size", pa.uint64()),
        pa.field("offset", pa.uint64()),
        pa.field("value", pa.int64()),
        pa.field("image", pa.string()),
        pa.field("path", pa.string()),
        pa.field("detail", pa.string()),
        pa.field("cpu", pa.int32()),
    ],
    metadata={b"ptweave.sideband": b"1"},
)


def write_sideband(path: Path, rows: list[dict[str, object]]) -> None:
    """Write rows (column → value; `kind` a SidebandKind or its value) as the run's sideband."""
    plain = [{**row, "kind": SidebandKind(str(row["kind"])).value} for row in rows]
    table = pa.Table.from_pylist(plain, schema=SIDEBAND_SCHEMA)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, SIDEBAND_SCHEMA) as writer:
        writer.write_table(table)


def read_sideband(path: Path) -> pa.Table:
    """The sideband as an Arrow table. Raises BadInput when it is missing, malformed or of another version."""
    try:
        # of memory: a file would be read by threads, which a decode that forks its processes must not have
        with pa.BufferReader(path.read_bytes()) as source:
            table = pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(use_threads=False)).read_all()
    except (OSError, pa.ArrowException) as error:
        raise BadInput(f"cannot be read ({error})", where=str(path),
                       remedy="record the run again") from error
    version = (table.schema.metadata or {}).get(b"ptweave.sideband")
    if version != b"1":
        raise BadInput(f"is of version {version!r}, not 1", where=str(path), remedy="use a newer ptweave")
    columns = []
    for field in SIDEBAND_SCHEMA:
        if field.name in table.column_names:
            columns.append(table[field.name].cast(field.type))
        elif field.nullable:  # written before there was such a column
            columns.append(pa.chunked_array([pa.nulls(len(table), field.type)]))
        else:
            raise BadInput(f"has no column {field.name}", where=str(path), remedy="record the run again")
    return pa.Table.from_arrays(columns, schema=SIDEBAND_SCHEMA)
