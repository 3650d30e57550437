# SPDX-License-Identifier: MIT
"""Comparing the flows of two threads, in C: where they go apart, and what each did until they agree again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from ptweave.merge._merge import ffi, lib
from ptweave.merge.events import Events
from ptweave.merge.places import Places
from ptweave.merge.program import check
from ptweave.merge.run_code import Code
from ptweave.merge.tables import I32, I64, U64
from ptweave.merge.walk import MAX_DEPTH, MAX_STACKS, NODE_DTYPE

Flow = Iterator[tuple[I64, I32]]
"""Executed paths, batch by batch: the ordinal of the first block of each, and its number."""

NONE = 0xFFFFFFFF

FREELY = 1 << 26
"""Blocks gone through in a thread to find where flows agree again, calls passed over: two seconds. From then on a few
that agree are enough where there are few."""


class Apart(StrEnum):
    """How two flows went apart."""

    FLOW = "flow"  # from the same place execution went two ways
    GAP = "gap"    # one side's record has a hole
    END = "end"    # one side ended


_KINDS = {int(lib.PTM_APART_FLOW): Apart.FLOW, int(lib.PTM_APART_GAP): Apart.GAP, int(lib.PTM_APART_END): Apart.END}


@dataclass(frozen=True)
class Frame:
    """A frame of a call stack: its function, and the block in it that made the call (of the innermost: that ran)."""

    function: str | None
    block: int | None


@dataclass(frozen=True)
class Way:
    """One side of a difference. `seq`: the first block it alone executed, `from_seq` the last one both did, `sync_seq`
    the one from which they agree again (None: there is none). `blocks` and `instructions` are those of all times."""

    seq: int | None
    block: int | None
    from_seq: int | None
    from_block: int | None
    sync_seq: int | None
    blocks: int
    instructions: int
    callees: tuple[tuple[str, int], ...]
    stack: tuple[Frame, ...]


@dataclass(frozen=True)
class Difference:
    """A place where two flows went apart, `times` times; the ways are those of the first time."""

    kind: Apart
    times: int
    a: Way
    b: Way


@dataclass(frozen=True)
class Compared:
    """What comparing two flows gave: differences in the order of their first times, how many more there were at places
    beyond the most that are kept, and in how many blocks both agreed."""

    differences: list[Difference]
    others: int
    agreed: int


class Comparer:
    """Compares flows of two runs, one pair of threads after the other. The codes must outlive it."""

    def __init__(self, a: Code, b: Code, places: Places) -> None:
        self._codes = (a, b)
        self._places = places
        self._trees = [ffi.NULL, ffi.NULL]
        self._compare = ffi.NULL
        try:
            for side in range(2):
                tree = ffi.new("struct ptm_tree **")
                check(lib.ptm_tree_create(MAX_STACKS // 2, MAX_DEPTH, tree), "diff")
                self._trees[side] = tree[0]
            made = ffi.new("struct ptm_compare **")
            check(lib.ptm_compare_create(
                a.program.handle, ffi.from_buffer("struct ptm_places[]", places.a), self._trees[0],
                b.program.handle, ffi.from_buffer("struct ptm_places[]", places.b), self._trees[1], FREELY, made),
                "diff")
        except BaseException:
            self.close()
            raise
        self._compare = made[0]

    def close(self) -> None:
        lib.ptm_compare_destroy(self._compare)
        self._compare = ffi.NULL
        for side in range(2):
            lib.ptm_tree_destroy(self._trees[side])
            self._trees[side] = ffi.NULL

    def __enter__(self) -> Comparer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def threads(self, flows: tuple[Flow, Flow], events: tuple[Events, Events],
                progress: Callable[[int], None] | None = None) -> Compared:
        """Compare two threads' flows. `progress` is told rows read. Raises BadInput for flows of paths that are not."""
        lib.ptm_compare_begin(self._compare)
        feeds = [_Feed(self._codes[side], flows[side], events[side]) for side in range(2)]
        while lacks := check(int(lib.ptm_compare_run(self._compare)), "flow"):
            for side in range(2):
                if lacks >> side & 1:
                    rows = feeds[side].give(self._compare, side)
                    if progress:
                        progress(rows)
        count = ffi.new("size_t *")
        others, agreed = ffi.new("int64_t *"), ffi.new("int64_t *")
        found = lib.ptm_compare_found(self._compare, count, others, agreed)
        nodes = [self._nodes(side) for side in range(2)]
        return Compared([Difference(_KINDS[found[i].kind], int(found[i].times), self._way(found[i].ways[0], 0, nodes),
                                    self._way(found[i].ways[1], 1, nodes)) for i in range(count[0])],
                        int(others[0]), int(agreed[0]))

    def _nodes(self, side: int) -> npt.NDArray[np.void]:
        size = int(lib.ptm_tree_size(self._trees[side]))
        if not size:
            return np.zeros(0, NODE_DTYPE)
        buffer = ffi.buffer(lib.ptm_tree_nodes(self._trees[side]), size * NODE_DTYPE.itemsize)
        nodes: npt.NDArray[np.void] = np.frombuffer(buffer, NODE_DTYPE)
        return nodes

    def _way(self, way: Any, side: int, nodes: list[npt.NDArray[np.void]]) -> Way:
        names = self._codes[side].program.functions
        callees = tuple((names[way.callees[i]] or "?", int(way.calls[i])) for i in range(way.n_callees))
        block = _or_none(way.from_block)
        return Way(_or_none(way.seq), _or_none(way.block), _or_none(way.from_seq), block, _or_none(way.sync_seq),
                   int(way.blocks), int(way.instructions), callees, self._stack(side, way.stack, block, nodes[side]))

    def _stack(self, side: int, number: int, block: int | None, nodes: npt.NDArray[np.void]) -> tuple[Frame, ...]:
        names = self._codes[side].program.functions
        frames: list[Frame] = []
        while number != NONE and len(frames) < MAX_DEPTH:
            node = nodes[number]
            frames.append(Frame(names[int(node["function"])], block))
            block = None if node["block"] == NONE else int(node["block"])
            number = int(node["parent"])
        return tuple(frames)


class _Feed:
    """One side's flow on its way into the comparison."""

    def __init__(self, code: Code, flow: Flow, events: Events) -> None:
        self._code = code
        self._flow = flow
        self._events = events

    def give(self, compare: Any, side: int) -> int:
        """The next batch, or the end; returns how many rows."""
        batch = next(self._flow, None)
        seqs, paths = batch if batch else (np.empty(0, np.int64), np.empty(0, np.int32))
        seqs, paths = np.ascontiguousarray(seqs, np.int64), np.ascontiguousarray(paths, np.int32)
        upto = len(self._events)
        if len(seqs):
            after = self._code.program.after(int(seqs[-1]), int(paths[-1]))
            upto = int(np.searchsorted(self._events["seq"], after))
        events = np.ascontiguousarray(self._events[:upto])
        check(lib.ptm_compare_feed(
            compare, side, ffi.from_buffer("int64_t[]", seqs), ffi.from_buffer("int32_t[]", paths), len(seqs),
            ffi.from_buffer("struct ptm_event[]", events), len(events), batch is None), "flow")
        self._events = self._events[upto:]
        return len(seqs)


def _or_none(value: int) -> int | None:
    return None if value < 0 else int(value)


def correspond(a: U64, b: U64) -> I64:
    """For each element of `a` the index of the one of `b` it corresponds to, −1 none: in order, and as few left out as
    possible."""
    found = np.empty(len(a), np.int64)
    check(lib.ptm_correspond(ffi.from_buffer("uint64_t[]", np.ascontiguousarray(a)), len(a),
                             ffi.from_buffer("uint64_t[]", np.ascontiguousarray(b)), len(b),
                             ffi.from_buffer("int64_t[]", found)), "diff")
    return found
