# SPDX-License-Identifier: MIT
"""What the two kinds of logged rows, system calls and thunks, have in common when they are placed on a flow."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ptweave.data.ledger import Ledger
from ptweave.data.schemas import Placed
from ptweave.merge.tables import I64, Bools, optional

PLACED = [Placed.NONE.value, Placed.TIME.value, Placed.EXACT.value]
"""Codes of `Places.how`."""


@dataclass
class Places:
    """Where rows were placed: block ordinals (−1 none) and how (an index into PLACED)."""

    seq: I64
    how: npt.NDArray[np.uint8]

    @classmethod
    def nowhere(cls, rows: int) -> Places:
        return cls(np.full(rows, -1, np.int64), np.zeros(rows, np.uint8))

    def put(self, rows: I64, seqs: I64, exact: Bools) -> None:
        """Place rows at ordinals; those with ordinal −1 stay where they are: nowhere."""
        here = seqs >= 0
        self.seq[rows[here]] = seqs[here]
        self.how[rows[here]] = np.where(exact[here], 2, 1)

    def put_exactly(self, rows: slice, seqs: I64) -> None:
        """The same of rows beside each other, whose places, not negative, are certain."""
        self.seq[rows] = seqs
        self.how[rows] = 2

    def account(self, ledger: Ledger, stream: str) -> None:
        """Exact rows are stored; the others are listed with how they were placed."""
        none, time, exact = (int(np.count_nonzero(self.how == how)) for how in range(3))
        ledger.add(stream, "rows", stored=exact, lost={Placed.TIME.value: time, Placed.NONE.value: none})

    def columns(self, rows: slice | I64) -> tuple[pa.Array, pa.Array]:
        """Arrow columns `seq` and `placed` of some rows."""
        seq = self.seq[rows]
        return (optional(seq, seq < 0),
                pa.DictionaryArray.from_arrays(pa.array(self.how[rows].astype(np.int8)), pa.array(PLACED)))


@dataclass
class Grouped:
    """Rows grouped by thread: `of(thread)` gives their numbers in their order. −1 stands for no thread."""

    order: I64
    starts: dict[int, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def by(cls, threads: npt.NDArray[np.int64], *keys: I64) -> Grouped:
        """Group rows; within a thread they are sorted by the keys, the first one first."""
        order: I64 = np.lexsort((*reversed(keys), threads))
        distinct, first = np.unique(threads[order], return_index=True)
        ends = [*first[1:].tolist(), len(order)][:len(distinct)]
        return cls(order, {int(thread): (int(a), int(b))
                           for thread, a, b in zip(distinct, first.tolist(), ends, strict=True)})

    def of(self, thread: int) -> I64:
        first, last = self.starts.get(thread, (0, 0))
        return self.order[first:last]
