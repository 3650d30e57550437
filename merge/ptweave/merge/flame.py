# SPDX-License-Identifier: MIT
"""The tree of calls that a flame graph shows: call stacks put together by function, from the outermost frame inwards.

Stacks differ by the block that called; here callers of the same name are one. Branches that are a small share of the
run are left out; what they spent is in their parents.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
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

Ask = Callable[[str], pa.Table]


def flame(ask: Ask, *, by_thread: bool = False, share: float = 0.0005, budget: int = 4000) -> pa.Table:
    """Rows of SCHEMA. `ask(sql)` asks the run. With `by_thread` threads are the nodes of depth 1.

    Nodes that are less than `share` of the run in both instructions and time are left out; at most `budget` are kept,
    the larger ones.
    """
    sums, stacks = ask(_SUMS.format(key="thread" if by_thread else "null::integer")), ask(_STACKS)
    tree = _Tree(stacks)
    start = numbers(sums, "thread", -1).astype(np.int64)
    nodes = tree.merge(start, numbers(sums, "stack", -1).astype(np.int64))
    own = {name: np.bincount(nodes, weights=numbers(sums, name).astype(np.float64), minlength=len(tree.parent))
           for name in _MEASURES}
    return _pruned(tree, own, share, budget)


class _Tree:
    """Nodes made of stacks. `parent`, `depth`, `function` (−1 none) and `thread` (−1 none) by node; 0 is the root."""

    def __init__(self, stacks: pa.Table) -> None:
        number = numbers(stacks, "stack", -1).astype(np.int64)
        encoded = stacks.column("function").combine_chunks().dictionary_encode()
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.unify_dictionaries().combine_chunks()
        self.names: list[str] = encoded.dictionary.to_pylist()
        self._function: I64 = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        self._depth = numbers(stacks, "depth").astype(np.int64)
        self._number = number
        parent = self._row(numbers(stacks, "parent", -1).astype(np.int64))
        if len(parent) and ((parent >= 0) != (self._depth > 1)).any() | (
                self._depth[parent[parent >= 0]] != self._depth[parent >= 0] - 1).any():
            raise BadInput("has call stacks whose parents are not one frame shorter", where="table stacks",
                           remedy="merge the run again")
        self._parent = parent
        self.parent = np.array([-1], np.int64)
        self.depth = np.zeros(1, np.int64)
        self.function = np.array([-1], np.int64)
        self.thread = np.array([-1], np.int64)

    def _row(self, stack: I64) -> I64:
        """Row of a stack's number, −1 where there is none."""
        if not len(self._number):
            return np.full(len(stack), -1, np.int64)
        at = np.minimum(np.searchsorted(self._number, stack), len(self._number) - 1)
        return np.where(self._number[at] == stack, at, -1)

    def _add(self, parent: I64, function: I64, thread: I64) -> I64:
        """Nodes for these keys, one for equal ones; their numbers. Keys are given with all of their siblings."""
        keys = np.stack([parent, function, thread])
        distinct, inverse = np.unique(keys, axis=1, return_inverse=True)
        first = len(self.parent)
        self.parent = np.concatenate([self.parent, distinct[0]])
        self.depth = np.concatenate([self.depth, self.depth[distinct[0]] + 1])
        self.function = np.concatenate([self.function, distinct[1]])
        self.thread = np.concatenate([self.thread, distinct[2]])
        return first + inverse.reshape(-1)

    def merge(self, thread: I64, stack: I64) -> I64:
        """The node of each pair of a thread (−1: none) and a stack; makes them and their ancestors.

        Collects the pairs of each depth from the deepest up, then makes nodes from the outermost frames down. A stack
        that is not known is its thread's own, or the root's.
        """
        row = self._row(stack)
        depth = np.where(row >= 0, self._depth[row], 0) if len(self._depth) else np.zeros(len(row), np.int64)
        deepest = int(depth.max(initial=0))
        levels: list[tuple[I64, I64]] = []  # pairs of each depth, the deepest first
        above = (np.array([], np.int64), np.array([], np.int64))
        for level in range(deepest, -1, -1):
            here = depth == level
            pairs = _distinct(np.concatenate([thread[here], above[0]]), np.concatenate([row[here], above[1]]))
            levels.append(pairs)
            parents = self._parent[pairs[1]] if len(self._parent) else pairs[1]
            above = (pairs[0], np.where(pairs[1] >= 0, parents, -1))
        result = np.zeros(len(row), np.int64)
        one, rows = levels.pop()
        nodes = np.zeros(len(one), np.int64)
        if (one >= 0).any():
            nodes = self._add(nodes, np.full(len(one), -1, np.int64), one)
        result[depth == 0] = nodes[_find((one, rows), thread[depth == 0], row[depth == 0])]
        for level, pairs in enumerate(reversed(levels), 1):
            parents = nodes[_find((one, rows), pairs[0], self._parent[pairs[1]])]
            nodes = self._add(parents, self._function[pairs[1]], np.full(len(pairs[0]), -1, np.int64))
            one, rows = pairs
            here = depth == level
            result[here] = nodes[_find(pairs, thread[here], row[here])]
        return result


def _distinct(one: I64, other: I64) -> tuple[I64, I64]:
    """Distinct pairs, in order."""
    order = np.lexsort((other, one))
    one, other = one[order], other[order]
    new = np.ones(len(one), bool)
    new[1:] = (one[1:] != one[:-1]) | (other[1:] != other[:-1])
    return one[new], other[new]


def _find(pairs: tuple[I64, I64], one: I64, other: I64) -> I64:
    """Where pairs are among distinct ones in order; all of them are there."""
    shift = np.int64(1 << 32)
    return np.searchsorted((pairs[0] + 1) * shift + pairs[1] + 1, (one + 1) * shift + other + 1)


def _pruned(tree: _Tree, own: dict[str, Any], share: float, budget: int) -> pa.Table:
    whole = {name: values.copy() for name, values in own.items()}
    order = np.argsort(-tree.depth, kind="stable")
    for level in range(int(tree.depth.max(initial=0)), 0, -1):
        rows = order[np.searchsorted(-tree.depth[order], -level):np.searchsorted(-tree.depth[order], -level, "right")]
        for values in whole.values():
            np.add.at(values, tree.parent[rows], values[rows])
    size = np.maximum(*(whole[name] / max(whole[name][0], 1) for name in ("instructions", "time")))
    size[0] = np.inf
    wanted = np.flatnonzero(size >= share)
    if len(wanted) > budget:
        # a parent is never smaller than its child: those of equal size come by depth
        wanted = wanted[np.lexsort((tree.depth[wanted], -size[wanted]))][:budget]
    wanted = wanted[np.lexsort((-whole["instructions"][wanted], tree.depth[wanted]))]
    number = np.full(len(tree.parent), -1, np.int64)
    number[wanted] = np.arange(len(wanted))
    parent = np.where(tree.parent[wanted] >= 0, number[tree.parent[wanted]], -1)
    names = pa.array(tree.names, pa.string())
    function, thread = tree.function[wanted], tree.thread[wanted]
    columns = {
        "node": np.arange(len(wanted)), "parent": pa.array(parent, mask=parent < 0), "depth": tree.depth[wanted],
        "function": names.take(pa.array(function, mask=function < 0)) if len(names) else pa.nulls(len(wanted)),
        "thread": pa.array(thread, mask=thread < 0), "calls": whole["calls"][wanted].astype(np.int64)}
    for name in ("instructions", "time"):
        columns[name] = whole[name][wanted].astype(np.int64)
        columns[f"own_{name}"] = own[name][wanted].astype(np.int64)
    return pa.table([pa.array(columns[field.name]).cast(field.type) for field in SCHEMA], schema=SCHEMA)
