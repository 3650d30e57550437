# SPDX-License-Identifier: MIT
"""Decoded system calls as Arrow columns: names, errors, as many arguments as a call has, paths as text."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ptweave.data.call_columns import PATH_COUNTS, arguments, errnos, names, offsets, per_number, text_of
from ptweave.data.schemas import CAPTURES, DECODED_SYSCALLS
from ptweave.decode.raw_syscalls import NO_THREAD, MemoryStore

ENGINE, BOTH, KERNEL = range(3)
_SOURCES = ("engine", "both", "kernel")

@dataclass
class Calls:
    """Calls of one thread, a column each; all have the same length.

    `index` is None where the log does not have them; t_exit and result hold where `returned`; `memory` are ordinals in
    the MemoryStore, -1 where nothing is known of them; `source` is ENGINE, BOTH or KERNEL.
    """

    thread: int
    index: npt.NDArray[np.int64] | None
    source: npt.NDArray[np.int8]
    pid: npt.NDArray[np.int32]
    tid: npt.NDArray[np.int32]
    t_enter: npt.NDArray[np.int64]
    t_exit: npt.NDArray[np.int64]
    result: npt.NDArray[np.int64]
    returned: npt.NDArray[np.bool_]
    number: npt.NDArray[np.int32]
    args: npt.NDArray[np.uint64]
    ip: npt.NDArray[np.uint64]
    memory: npt.NDArray[np.int64]


def _memory(calls: Calls, store: MemoryStore) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Paths, files and data: what is known, and for calls without lists of nulls, as long as the call has path
    arguments."""
    known = np.flatnonzero(calls.memory >= 0)
    unknown = np.flatnonzero(calls.memory < 0)
    memory = store.take(calls.memory[known])
    lists = memory.field("paths")
    texts = pa.ListArray.from_arrays(lists.offsets, text_of(lists.values)) if len(known) else \
        pa.array([], pa.list_(pa.string()))
    lengths = per_number(PATH_COUNTS, calls.number[unknown], 0)
    nothing = pa.ListArray.from_arrays(offsets(lengths), pa.nulls(int(lengths.sum()), pa.string()))
    order = np.empty(len(calls.memory), dtype=np.int64)
    order[np.concatenate([known, unknown])] = np.arange(len(order))
    back, missing = pa.array(order), len(unknown)
    return (pa.concat_arrays([texts, nothing]).take(back),
            pa.concat_arrays([memory.field("files"), pa.nulls(missing, pa.list_(pa.string()))]).take(back),
            pa.concat_arrays([memory.field("data"), pa.nulls(missing, CAPTURES)]).take(back))


def to_batch(calls: Calls, store: MemoryStore) -> pa.RecordBatch:
    """The calls as a batch of schemas.DECODED_SYSCALLS."""
    rows = len(calls.number)
    paths, files, data = _memory(calls, store)
    gone = ~calls.returned
    columns = {
        "thread": pa.nulls(rows, pa.int32()) if calls.thread == NO_THREAD else
        pa.array(np.full(rows, calls.thread, np.int32)),
        "index": pa.nulls(rows, pa.int64()) if calls.index is None else pa.array(calls.index),
        "pid": pa.array(calls.pid, pa.int32(), mask=calls.pid == 0),
        "tid": pa.array(calls.tid, pa.int32(), mask=calls.tid == 0),
        "t_enter": pa.array(calls.t_enter, pa.int64()),
        "t_exit": pa.array(calls.t_exit, pa.int64(), mask=gone),
        "number": pa.array(calls.number, pa.int32()),
        "name": names(calls.number),
        "args": arguments(calls.number, calls.args),
        "paths": paths,
        "files": files,
        "data": data,
        "result": pa.array(calls.result, pa.int64(), mask=gone),
        "errno": errnos(calls.result, calls.returned),
        "ip": pa.array(calls.ip, pa.uint64()),
        "source": pa.array(_SOURCES, pa.string()).take(pa.array(calls.source)),
    }
    return pa.record_batch([columns[name] for name in DECODED_SYSCALLS.names], schema=DECODED_SYSCALLS)
