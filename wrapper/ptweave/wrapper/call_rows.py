# SPDX-License-Identifier: MIT
"""System calls that were recorded without eBPF, as rows of RAW_SYSCALLS: without files and captures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ptweave.data.schemas import RAW_SYSCALLS
from ptweave.data.syscall_arguments import SIGNATURES, Capture

NEVER = -1
"""t_exit of a call that did not return."""

PATHS = {number: tuple(i for i, one in enumerate(signature.arguments) if one.capture is Capture.PATH)
         for number, signature in SIGNATURES.items()}
"""Arguments that are paths, by call number."""


@dataclass(frozen=True)
class Calls:
    """Calls as columns, one element a call; times in ns, CLOCK_MONOTONIC; t_exit NEVER for one that did not return."""

    t_enter: npt.NDArray[np.int64]
    t_exit: npt.NDArray[np.int64]
    pid: npt.NDArray[np.int32]
    tid: npt.NDArray[np.int32]
    number: npt.NDArray[np.int32]
    ip: npt.NDArray[np.uint64]
    args: npt.NDArray[np.uint64]  # (calls, 6)
    result: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.number)


def batch(calls: Calls, paths: Sequence[Sequence[bytes | None]] | None = None) -> pa.RecordBatch:
    """Rows of RAW_SYSCALLS; `paths` by call, None when none could be read: each is null then."""
    rows = len(calls)
    if paths is None:
        counts = np.array([len(PATHS.get(int(number), ())) for number in calls.number], np.int32)
        values = pa.nulls(int(counts.sum()), pa.binary())
    else:
        counts = np.array([len(one) for one in paths], np.int32)
        values = pa.array([path for one in paths for path in one], pa.binary())
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
    running = calls.t_exit == NEVER
    captures = RAW_SYSCALLS.field("captures").type
    empty = pa.array(np.zeros(rows + 1, np.int32))
    return pa.RecordBatch.from_arrays([
        pa.array(calls.t_enter), pa.array(calls.t_exit, mask=running), pa.array(calls.pid), pa.array(calls.tid),
        pa.array(calls.number), pa.array(calls.ip),
        pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(calls.args).reshape(-1)), 6),
        pa.ListArray.from_arrays(offsets, values), pa.array(calls.result, mask=running),
        pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(3 * rows, np.uint64)), 3),
        pa.ListArray.from_arrays(empty, pa.nulls(0, captures.value_type), type=captures),
    ], schema=RAW_SYSCALLS)


__all__ = ["NEVER", "PATHS", "Calls", "batch"]
