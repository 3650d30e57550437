# SPDX-License-Identifier: MIT
"""Which thread logged an event of an event vector."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from ptweave.data.evl import EVL_HEADER, EVL_MAGIC


@dataclass
class ThreadsByTask:
    """Which thread a kernel task was at a moment: the first header of each thread's list says from when on."""

    _began: dict[tuple[int, int], list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def of(cls, lists: Iterable[Path]) -> ThreadsByTask:
        found = cls()
        for path in lists:
            try:
                with path.open("rb") as file:
                    header = file.read(EVL_HEADER.size)
            except OSError:
                continue  # decode_thunks counts it
            if len(header) == EVL_HEADER.size and header.startswith(EVL_MAGIC):
                _, pid, tid, thread, _, tsc, *_ = EVL_HEADER.unpack(header)
                found._began[pid, tid].append((tsc, thread))
        for began in found._began.values():
            began.sort()
        return found

    def thread(self, pid: int, tid: int, tsc: int) -> int | None:
        """The thread; None when the task is not known."""
        began = self._began.get((pid, tid), [])
        at = bisect_right(began, (tsc, 1 << 31))
        return began[max(at - 1, 0)][1] if began else None

    def column(self, batch: pa.RecordBatch) -> pa.Array:
        """The thread of each event (columns pid, tid, tsc)."""
        pid, tid, tsc = (batch.column(name).to_numpy(zero_copy_only=False) for name in ("pid", "tid", "tsc"))
        task = pid.astype(np.int64) << 32 | tid.astype(np.int64)
        owners = np.full(len(task), -1, np.int32)
        for one in np.unique(task).tolist():
            began = self._began.get((one >> 32, one & 0xffffffff), [])
            if not began:
                continue
            here = task == one
            since = np.array([moment for moment, _ in began], np.uint64)
            at = np.searchsorted(since, tsc[here].astype(np.uint64), side="right") - 1
            owners[here] = np.array([thread for _, thread in began], np.int32)[np.maximum(at, 0)]
        return pa.array(owners, pa.int32(), mask=owners < 0)
