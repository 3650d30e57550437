# SPDX-License-Identifier: MIT
"""System calls on the critical path: which a thread was in while it ran, and which ended because of another thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ptweave.merge.tables import I64, encoded_column, numbers

FOR_EVER = (1 << 63) - 1
"""When a call was left that never was."""


class Pieces(NamedTuple):
    """Rows cut at system calls: of which row each piece is, from when to when, and the call's name (-1: in none)."""

    row: I64
    begin: I64
    end: I64
    name: I64


@dataclass
class Calls:
    """System calls by thread, one after the other: when they were entered and left, and which of `names` they have."""

    names: list[str] = field(default_factory=list)
    enter: dict[int, I64] = field(default_factory=dict)
    leave: dict[int, I64] = field(default_factory=dict)
    name: dict[int, I64] = field(default_factory=dict)

    @classmethod
    def of(cls, table: pa.Table | None) -> Calls:
        """From rows (thread, t_enter, t_exit, name) sorted by thread and t_enter; FOR_EVER: never left."""
        calls = cls()
        if table is None or not table.num_rows:
            return calls
        thread, enter, leave = (numbers(table, name).astype(np.int64) for name in ("thread", "t_enter", "t_exit"))
        encoded = encoded_column(table, "name")
        calls.names = encoded.dictionary.to_pylist()
        name = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        edges = np.flatnonzero(np.concatenate([[True], thread[1:] != thread[:-1], [True]]))
        for begin, end in pairwise(edges.tolist()):
            one = int(thread[begin])
            calls.enter[one], calls.name[one] = enter[begin:end], name[begin:end]
            following = np.append(enter[begin + 1:end], FOR_EVER)
            calls.leave[one] = np.maximum(enter[begin:end], np.minimum(leave[begin:end], following))
        return calls

    def number(self, name: str) -> int:
        """Which of `names` a name is, from now on if it was none."""
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name)

    def within(self, thread: int, begin: I64, end: I64) -> Pieces | None:
        """Spans of a thread, one after the other, cut at its calls; of those that no call is in there is no piece, and
        None is for no piece at all."""
        if thread not in self.enter or not len(begin):
            return None
        enter, leave = self.enter[thread], self.leave[thread]
        first = np.searchsorted(leave, begin, side="right")
        count = np.maximum(np.searchsorted(enter, end, side="left") - first, 0)
        if not count.any():
            return None
        row = np.repeat(np.arange(len(begin)), count)
        call = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)
        since, until = np.maximum(enter[call], begin[row]), np.minimum(leave[call], end[row])
        cut = np.flatnonzero(count)
        before = np.where(np.diff(row, prepend=-1) != 0, begin[row], np.append(0, until[:-1]))
        tail = until[np.cumsum(count[cut]) - 1]
        outside = np.full(len(row) + len(cut), -1)
        return Pieces(np.concatenate([row, row, cut]), np.concatenate([since, before, tail]),
                      np.concatenate([until, since, end[cut]]), np.concatenate([self.name[thread][call], outside]))


class CallWait(NamedTuple):
    """A system call in which a thread waited, in the thunk at that place: when another thread ended that, and which."""

    place: int
    leave: int
    name: str
    released: int
    by: int


@dataclass
class CallWaits:
    """Those of each thread, one after the other."""

    waits: dict[int, list[CallWait]] = field(default_factory=dict)
    released: dict[int, I64] = field(default_factory=dict)

    @classmethod
    def of(cls, table: pa.Table | None, running: Callable[[int, I64], I64]) -> CallWaits:
        """From rows of call_waits.WAITS. `running`: the place of the thunk in which a thread ran at some times, -1 for
        none: what is part of an operation is the operation's."""
        found = cls()
        if table is None or not table.num_rows:
            return found
        columns = {name: numbers(table, name).astype(np.int64)
                   for name in ("thread", "t_enter", "t_exit", "released", "by_thread")}
        names = table["name"].to_pylist()
        for thread in np.unique(columns["thread"]).tolist():
            rows = np.flatnonzero(columns["thread"] == thread)
            places = running(thread, columns["t_enter"][rows])
            released = np.maximum.accumulate(columns["released"][rows])
            found.released[thread] = released[places >= 0]
            found.waits[thread] = [
                CallWait(int(place), int(columns["t_exit"][row]), names[row], int(when), int(columns["by_thread"][row]))
                for row, place, when in zip(rows, places, released, strict=True) if place >= 0]
        return found

    def last(self, thread: int, *, since: int, until: int) -> CallWait | None:
        """A thread's last wait that had been ended before a time, if it was not before the thunk at place `since`."""
        if thread not in self.waits:
            return None
        index = int(np.searchsorted(self.released[thread], until, side="left")) - 1
        return self.waits[thread][index] if index >= 0 and self.waits[thread][index].place >= since else None
