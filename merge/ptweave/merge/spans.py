# SPDX-License-Identifier: MIT
"""What threads did when, small enough to draw: the longest spans one by one, and how full each moment was of what.

It reads the question `timeline` once, as it streams, and keeps a bounded number of rows whatever the run's length.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ptweave.merge.tables import I64, numbers

KINDS = ("run", "operation", "system call", "gap")
"""What a span is: running, a synchronisation operation, a system call, or a gap in the record."""

_GAP = KINDS.index("gap")
_COLUMNS = ["t_begin", "t_end", "ns", "thread", "what", "detail", "thunk", "object", "variable", "function"]


@dataclass(frozen=True)
class Spans:
    """Spans of threads.

    `table`: columns of the question `timeline`, and `kind` (index into KINDS); by thread, then time. `total`: how many
    spans there are; where more than the table has, `filled[i, kind, bin]` says how much of a bin (0 to 1) the spans of
    a kind fill in `threads[i]`; bins have equal lengths from `begin` to `end` (ns).
    """

    table: pa.Table
    total: int
    begin: int
    end: int
    threads: list[int]
    filled: npt.NDArray[np.float64]

    @property
    def complete(self) -> bool:
        """Whether every span is in the table."""
        return len(self.table) == self.total


class _Filled:
    """Time in bins, by thread and kind. Spans that reach over bins cost no more than others."""

    def __init__(self, threads: list[int], begin: int, end: int, bins: int) -> None:
        self._index = np.array(threads, np.int64)
        self._begin, self._bins = begin, bins
        self._width = max(end - begin, 1) / bins
        self._size = bins + 1
        self._whole = np.zeros(len(threads) * len(KINDS) * self._size)
        self._parts = np.zeros_like(self._whole)

    def add(self, thread: I64, kind: I64, begin: I64, end: I64) -> None:
        """Spans of known threads."""
        row = (np.searchsorted(self._index, thread) * len(KINDS) + kind) * self._size
        low = np.clip((begin - self._begin) / self._width, 0, self._bins)
        high = np.maximum(np.clip((end - self._begin) / self._width, 0, self._bins), low)
        first, last = low.astype(np.int64), high.astype(np.int64)
        alone = first == last
        np.add.at(self._parts, row + first, np.where(alone, high - low, first + 1 - low))
        np.add.at(self._parts, row + last, np.where(alone, 0, high - last))
        np.add.at(self._whole, np.where(alone, row, row + first + 1), np.where(alone, 0, 1))
        np.add.at(self._whole, np.where(alone, row, row + last), np.where(alone, 0, -1))

    def shares(self) -> npt.NDArray[np.float64]:
        shape = (len(self._index), len(KINDS), self._size)
        whole = np.cumsum(self._whole.reshape(shape), axis=2) + self._parts.reshape(shape)
        return np.clip(whole[:, :, :self._bins], 0, 1)


def collect(batches: Iterable[pa.RecordBatch], threads: list[int], begin: int, end: int, *, budget: int = 20_000,
            bins: int = 1500) -> Spans:
    """Spans out of the batches of a timeline, of these threads, ascending; `budget` of them one by one, the longest
    first, but gaps, which have no length, before all."""
    filled = _Filled(threads, begin, end, bins)
    known = pa.array(threads, pa.int32())
    kept: list[pa.Table] = []
    total = held = 0
    for batch in batches:
        table = pa.Table.from_batches([batch]).select(_COLUMNS)
        table = table.filter(pc.is_in(table.column("thread"), known))
        table = _with_kind(table.filter(pc.and_kleene(pc.is_valid(table.column("t_begin")),
                                                      pc.is_valid(table.column("t_end")))))
        total += len(table)
        filled.add(*(numbers(table, name).astype(np.int64) for name in ("thread", "kind", "t_begin", "t_end")))
        kept.append(table)
        held += len(table)
        if held > 4 * budget:
            kept = [_longest(pa.concat_tables(kept), budget)]
            held = len(kept[0])
    whole = _longest(pa.concat_tables(kept), budget) if kept else _with_kind(pa.table(
        {name: pa.array([], pa.int64()) for name in _COLUMNS}))
    ordered = whole.sort_by([("thread", "ascending"), ("t_begin", "ascending"), ("t_end", "descending")])
    return Spans(ordered, total, begin, end, threads, filled.shares())


def _with_kind(table: pa.Table) -> pa.Table:
    """A column more: the kind. What is none of KINDS is an operation: `begin`, a thread's first."""
    kind = pc.index_in(table.column("what"), pa.array(KINDS, table.column("what").type)) if len(table) else pa.array(
        [], pa.int32())
    return table.append_column("kind", pc.fill_null(kind, KINDS.index("operation")).cast(pa.int32()))


def _longest(table: pa.Table, budget: int) -> pa.Table:
    if len(table) <= budget:
        return table
    length = numbers(table, "ns").astype(np.int64)
    length = np.where(numbers(table, "kind") == _GAP, np.iinfo(np.int64).max, length)
    return table.take(pa.array(np.sort(np.argpartition(-length, budget)[:budget])))
