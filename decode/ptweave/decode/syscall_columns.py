# SPDX-License-Identifier: MIT
"""Decoded system calls as Arrow columns: names, errors, as many arguments as a call has, paths as text."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ptweave.data import syscall_table
from ptweave.data.schemas import DECODED_SYSCALLS
from ptweave.decode.raw_syscalls import NO_THREAD, PathStore

ENGINE, BOTH, KERNEL = range(3)
_SOURCES = ("engine", "both", "kernel")

_TABLE_SIZE = 512
_NARGS = np.array([min(syscall_table.nargs_of(number), 6) for number in range(_TABLE_SIZE)], dtype=np.int64)
_PATHS = np.array([len(syscall_table.SYSCALLS[number].paths) if number in syscall_table.SYSCALLS else 0
                   for number in range(_TABLE_SIZE)], dtype=np.int64)


@dataclass
class Calls:
    """Calls of one thread, a column each; all have the same length.

    `index` is None where the log does not have them; t_exit and result hold where `returned`; `paths` are ordinals in
    the PathStore, -1 where nothing is known of them; `source` is ENGINE, BOTH or KERNEL.
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
    paths: npt.NDArray[np.int64]


def _per_number(table: npt.NDArray[np.int64], numbers: npt.NDArray[np.int32], other: int) -> npt.NDArray[np.int64]:
    known = (numbers >= 0) & (numbers < _TABLE_SIZE)
    return np.where(known, table[np.where(known, numbers, 0)], other)


def _names(numbers: npt.NDArray[np.int32]) -> pa.Array:
    distinct, index = np.unique(numbers, return_inverse=True)
    names = pa.array([syscall_table.name_of(int(number)) for number in distinct], pa.string())
    return names.take(pa.array(index))


def _errnos(result: npt.NDArray[np.int64], returned: npt.NDArray[np.bool_]) -> pa.Array:
    failed = returned & (result >= -syscall_table.MAX_ERRNO) & (result <= -1)
    distinct, index = np.unique(np.where(failed, result, 0), return_inverse=True)
    names = pa.array([syscall_table.errno_name(int(one)) for one in distinct], pa.string())
    return names.take(pa.array(index))


def _offsets(lengths: npt.NDArray[np.int64]) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.array(offsets)


def _args(numbers: npt.NDArray[np.int32], args: npt.NDArray[np.uint64]) -> pa.Array:
    lengths = _per_number(_NARGS, numbers, 6)
    values = args[np.arange(6) < lengths[:, None]]
    return pa.ListArray.from_arrays(_offsets(lengths), pa.array(values, pa.uint64()))


def text_of(paths: pa.Array) -> pa.Array:
    """Paths as text; bytes that are not UTF-8 appear as \\xNN."""
    try:
        return paths.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if one is None else one.decode("utf-8", "backslashreplace")
                         for one in paths.to_pylist()], pa.string())


def _paths(calls: Calls, store: PathStore) -> pa.Array:
    """Known lists of paths, and lists of nulls, as long as the call has path arguments, for calls without."""
    known = np.flatnonzero(calls.paths >= 0)
    unknown = np.flatnonzero(calls.paths < 0)
    lists = store.take(calls.paths[known])
    texts = pa.ListArray.from_arrays(lists.offsets, text_of(lists.values)) if len(known) else \
        pa.array([], pa.list_(pa.string()))
    lengths = _per_number(_PATHS, calls.number[unknown], 0)
    nothing = pa.ListArray.from_arrays(_offsets(lengths), pa.nulls(int(lengths.sum()), pa.string()))
    order = np.empty(len(calls.paths), dtype=np.int64)
    order[np.concatenate([known, unknown])] = np.arange(len(order))
    return pa.concat_arrays([texts, nothing]).take(pa.array(order))


def to_batch(calls: Calls, store: PathStore) -> pa.RecordBatch:
    """The calls as a batch of schemas.DECODED_SYSCALLS."""
    rows = len(calls.number)
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
        "name": _names(calls.number),
        "args": _args(calls.number, calls.args),
        "paths": _paths(calls, store),
        "result": pa.array(calls.result, pa.int64(), mask=gone),
        "errno": _errnos(calls.result, calls.returned),
        "ip": pa.array(calls.ip, pa.uint64()),
        "source": pa.array(_SOURCES, pa.string()).take(pa.array(calls.source)),
    }
    return pa.record_batch([columns[name] for name in DECODED_SYSCALLS.names], schema=DECODED_SYSCALLS)
