# SPDX-License-Identifier: MIT
"""The tree of calls that a flame graph shows: call stacks put together by function, from the outermost frame inwards.

Stacks differ by the block that called; here callers of the same name are one. Branches that are a small share of the
run are left out; what they spent is in their parents.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ptweave.data.errors import BadInput
from ptweave.merge.tables import I64, numbers

SCHEMA = pa.schema([
    ("node", pa.int32()), ("parent", pa.int32()), ("depth", pa.int32()), ("function", pa.string()),
    ("thread", pa.int32()), ("instructions", pa.int64()), ("own_instructions", pa.int64()), ("time", pa.int64()),
    ("own_time", pa.int64()), ("calls", pa.int64())])
"""A row is a node, parents first; node 0 is the root, of depth 0, and has no function. `instructions` and `time` are
those of the node with all that it called, `own_…` its own. `thread` is that of a node that stands for a thread."""

_MEASURES = ("instructions", "time", "calls")

_SUMS = """select {key} as thread, stack, sum(instructions)::bigint as instructions, sum("time")::bigint as time,
  sum(calls)::bigint as calls from profile group by all"""
_STACKS = "select stack, parent, depth, function from stacks order by stack"

F64 = npt.NDArray[np.float64]

_ROWS = 32  # bits of a row, and of a function or a thread
_ROOT = -1  # for a row of stacks: there is none

Ask = Callable[[str], pa.Table]


class Stacks:
    """A run's call stacks, as its table `stacks` has them. `ask(sql)` asks the run."""

    def __init__(self, ask: Ask) -> None:
        table = ask(_STACKS)
        encoded = table.column("function").combine_chunks().dictionary_encode()
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.unify_dictionaries().combine_chunks()
        self.names: list[str] = encoded.dictionary.to_pylist()
        self.function: I64 = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        """Indices into `names`, by row; -1: it has none."""
        self._number = numbers(table, "stack", -1).astype(np.int64)
        self._counted = np.array_equal(self._number, np.arange(len(self._number)))
        self._depth = numbers(table, "depth").astype(np.int64)
        self.parent = self.rows(numbers(table, "parent", -1).astype(np.int64))
        """Rows, by row; _ROOT: it is the outermost frame."""
        if len(self.parent) and ((self.parent >= 0) != (self._depth > 1)).any() | (
                self._depth[self.parent[self.parent >= 0]] != self._depth[self.parent >= 0] - 1).any():
            raise BadInput("has call stacks whose parents are not one frame shorter", where="table stacks",
                           remedy="merge the run again")

    def rows(self, stacks: I64) -> I64:
        """Rows of stacks, by number; _ROOT where there are none."""
        if not len(self._number):
            return np.full(len(stacks), _ROOT, np.int64)
        if self._counted:
            return np.where((stacks >= 0) & (stacks < len(self._number)), stacks, _ROOT)
        at = np.minimum(np.searchsorted(self._number, stacks), len(self._number) - 1)
        return np.where(self._number[at] == stacks, at, _ROOT)

    def depth(self, rows: I64) -> I64:
        """Their frames; of _ROOT none."""
        return np.where(rows >= 0, self._depth[rows], 0) if len(self._depth) else np.zeros(len(rows), np.int64)


def flame(ask: Ask, *, by_thread: bool = False, share: float = 0.0005, budget: int = 4000,
          stacks: Stacks | None = None) -> pa.Table:
    """Rows of SCHEMA. `ask(sql)` asks the run; who has its `stacks` already may give them. With `by_thread` threads are
    the nodes of depth 1.

    Nodes that are less than `share` of the run in both instructions and time are left out; at most `budget` are kept,
    the larger ones.
    """
    sums, stacks = ask(_SUMS.format(key="thread" if by_thread else "null::integer")), stacks or Stacks(ask)
    keys = _keys(numbers(sums, "thread", -1).astype(np.int64),
                 stacks.rows(numbers(sums, "stack", -1).astype(np.int64)))
    own = np.stack([numbers(sums, name).astype(np.int64) for name in _MEASURES])
    return _table(_nodes(stacks, _levels(stacks, keys, own), share), stacks, budget)


@dataclass(frozen=True)
class _Level:
    """Pairs of a thread (-1: all) and a stack of one depth, ascending, and what each has: its own, and the whole with
    all that it called; a row each of _MEASURES."""

    keys: I64
    own: I64
    whole: I64


def _keys(thread: I64, row: I64) -> I64:
    """One number a pair."""
    return (thread + 1 << _ROWS) | row + 1


def _rows(keys: I64) -> I64:
    return (keys & (1 << _ROWS) - 1) - 1


def _threads(keys: I64) -> I64:
    return (keys >> _ROWS) - 1


def _levels(stacks: Stacks, keys: I64, own: I64) -> list[_Level]:
    """The pairs of each depth from 0 on, with those that others were called from: from the deepest up."""
    depth = stacks.depth(_rows(keys))
    order = np.argsort(depth, kind="stable")
    ends = np.cumsum(np.bincount(depth, minlength=1))
    found: list[_Level] = []
    for level in range(len(ends) - 1, -1, -1):
        here = order[ends[level - 1] if level else 0:ends[level]]
        one, of_one, whole = keys[here], own[:, here], own[:, here]
        if found:
            below = found[-1]
            rows = _rows(below.keys)
            above = _keys(_threads(below.keys), stacks.parent[rows] if len(stacks.parent) else rows)
            one = np.concatenate([one, above])
            of_one = np.concatenate([of_one, np.zeros_like(below.whole)], axis=1)
            whole = np.concatenate([whole, below.whole], axis=1)
        found.append(_summed(one, of_one, whole))
    return found[::-1]


def _summed(keys: I64, own: I64, whole: I64) -> _Level:
    """One of each key."""
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    first = np.flatnonzero(np.concatenate([np.ones(min(len(keys), 1), np.bool_), keys[1:] != keys[:-1]]))
    if not len(first):
        return _Level(keys, own, whole)
    return _Level(keys[first], np.add.reduceat(own[:, order], first, axis=1),
                  np.add.reduceat(whole[:, order], first, axis=1))


@dataclass(frozen=True)
class _Nodes:
    """Nodes, parents first; 0 is the root. `parent`, `function` and `thread` are -1 where there is none; `size` is the
    larger share of the run, in instructions or time; `own` and `whole` have a row each of _MEASURES."""

    parent: I64
    depth: I64
    function: I64
    thread: I64
    size: F64
    own: I64
    whole: I64

    @classmethod
    def of(cls, parts: list[_Nodes]) -> _Nodes:
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts], axis=-1) for field in fields(cls)))


def _nodes(stacks: Stacks, levels: list[_Level], share: float) -> _Nodes:
    """From the outermost frames inwards: stacks of one function and one caller are one node. What is called by one that
    is too small is too small as well, and not looked at."""
    outermost = levels[0]
    total = outermost.whole.sum(axis=1, keepdims=True)
    root = _Nodes(np.array([-1]), np.zeros(1, np.int64), np.array([-1]), np.array([-1]), np.array([np.inf]),
                  outermost.own.sum(axis=1, keepdims=True), total)
    threads = _threads(outermost.keys)
    parts, number = [root], np.zeros(len(threads), np.int64)  # of the pairs of a level, the nodes they are; -1: none
    if (threads >= 0).any():
        root.own[:] = 0
        number = _grown(parts, total, share, outermost, number, threads, of_threads=True)
    above = outermost.keys
    for level in levels[1:]:
        rows = _rows(level.keys)
        callers = number[np.searchsorted(above, _keys(_threads(level.keys), stacks.parent[rows]))]
        number = _grown(parts, total, share, level, callers, stacks.function[rows])
        above = level.keys
        if not (number >= 0).any():
            break
    return _Nodes.of(parts)


def _grown(parts: list[_Nodes], total: I64, share: float, level: _Level, callers: I64, names: I64, *,
           of_threads: bool = False) -> I64:
    """Add the nodes that pairs of a level are, of these functions (or threads) called by these nodes; returns the
    number of each pair's, -1 where it is too small."""
    number = np.full(len(callers), -1, np.int64)
    asked = np.flatnonzero(callers >= 0)
    if not len(asked):
        return number
    keys = callers[asked] << _ROWS | names[asked] + 1
    grown = _summed(keys, level.own[:, asked], level.whole[:, asked])
    size = (grown.whole[:2] / np.maximum(total[:2], 1)).max(axis=0)
    kept = np.flatnonzero(size >= share)
    parent, name = grown.keys[kept] >> _ROWS, _rows(grown.keys[kept])
    none = np.full(len(kept), -1, np.int64)
    first = sum(len(part.parent) for part in parts)
    depth = parts[-1].depth[-1:] + np.ones(len(kept), np.int64)
    parts.append(_Nodes(parent, depth, none if of_threads else name, name if of_threads else none, size[kept],
                        grown.own[:, kept], grown.whole[:, kept]))
    numbered = np.full(len(grown.keys), -1, np.int64)
    numbered[kept] = first + np.arange(len(kept))
    number[asked] = numbered[np.searchsorted(grown.keys, keys)]
    return number


def _table(nodes: _Nodes, stacks: Stacks, budget: int) -> pa.Table:
    """Rows of SCHEMA: at most `budget`, the larger ones."""
    wanted = np.arange(len(nodes.parent))
    if len(wanted) > budget:
        # a parent is never smaller than its child: those of equal size come by depth
        wanted = wanted[np.lexsort((nodes.depth, -nodes.size))][:budget]
    wanted = wanted[np.lexsort((-nodes.whole[0, wanted], nodes.depth[wanted]))]
    number = np.full(len(nodes.parent), -1, np.int64)
    number[wanted] = np.arange(len(wanted))
    parent = np.where(nodes.parent[wanted] >= 0, number[nodes.parent[wanted]], -1)
    names = pa.array(stacks.names, pa.string())
    function, thread = nodes.function[wanted], nodes.thread[wanted]
    columns = {
        "node": np.arange(len(wanted)), "parent": pa.array(parent, mask=parent < 0), "depth": nodes.depth[wanted],
        "function": names.take(pa.array(function, mask=function < 0)) if len(names) else pa.nulls(len(wanted)),
        "thread": pa.array(thread, mask=thread < 0)}
    for row, name in enumerate(_MEASURES):
        columns[name] = nodes.whole[row, wanted]
        columns[f"own_{name}"] = nodes.own[row, wanted]
    return pa.table([pa.array(columns[field.name]).cast(field.type) for field in SCHEMA], schema=SCHEMA)
