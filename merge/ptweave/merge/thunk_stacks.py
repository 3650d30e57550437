# SPDX-License-Identifier: MIT
"""The call stacks of thunks: which of the logged ones each has, and what is found out about those.

The same return addresses are the same stack in one address space of one thread only, so a *kind* is a stack as one
thread logged it in one address space. There are few: everything is looked up once a kind.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ptweave.merge.addresses import Addresses
from ptweave.merge.distinct import Distinct, distinct
from ptweave.merge.recorded_stacks import RecordedStacks
from ptweave.merge.scratch import Scratch
from ptweave.merge.tables import BATCH_ROWS, I32, I64, U64, corrupt, within
from ptweave.merge.thunk_rows import STACKS_FILE, stack_batches

_WORDS = 1 << 20
"""Frames looked up at a time."""


class ThunkStacks:
    """`kind`: of each thunk, −1 without a stack. Of each kind: `site`, the innermost return address, and once they were
    numbered `number` in the table `stacks` and `caller`, its innermost function."""

    def __init__(self, scratch: Scratch, addresses: Addresses, threads: dict[int, slice], begin: I64,
                 stack: I32) -> None:
        """`threads`: the rows of each; `begin`: when thunks began; `stack`: their logged stacks, −1 none. Raises
        BadInput when there are no such stacks."""
        self._scratch = scratch
        self.kind: I32 = np.empty(len(stack), np.int32)
        self._of: dict[int, slice] = {}
        parts: list[tuple[I64, I64, I64]] = []
        kinds = 0
        for thread, rows in threads.items():
            found = kinds_of(stack[rows], addresses.spaces_at(thread, begin[rows]))
            first = found.first
            for at in range(rows.start, rows.stop, BATCH_ROWS):
                part = slice(at, min(at + BATCH_ROWS, rows.stop))
                kind = found.of(slice(at - rows.start, part.stop - rows.start))
                self.kind[part] = kind if not kinds else np.where(kind >= 0, kind + np.int32(kinds), -1)
            parts.append((np.full(len(first), thread, np.int64), stack[rows][first].astype(np.int64),
                          begin[rows][first]))
            self._of[thread] = slice(kinds, kinds + len(first))
            kinds += len(first)
        none: I64 = np.zeros(0, np.int64)
        parts.insert(0, (none, none, none))
        self._thread, self._code, self._t = (np.concatenate(some) for some in zip(*parts, strict=True))
        self._order = np.argsort(self._code, kind="stable")
        self.site: U64 = np.zeros(kinds, np.uint64)
        self.number: I32 = np.full(kinds, -1, np.int32)
        self.caller: I64 = np.zeros(kinds, np.int64)
        for here, offsets, words in self._batches():
            begins, there = offsets[:-1], np.diff(offsets) > 0
            self.site[here[there]] = words[begins[there]]

    def of(self, thread: int) -> slice:
        """The kinds of a thread."""
        return self._of.get(thread, slice(0, 0))

    def times(self, kinds: slice) -> I64:
        """When kinds came first."""
        found: I64 = self._t[kinds]
        return found

    def _batches(self) -> Iterator[tuple[I64, I64, U64]]:
        """Kinds, and their stacks' offsets and return addresses, innermost first."""
        sorted_, done = self._code[self._order], 0
        for offsets, words in stack_batches(self._scratch) if len(sorted_) else ():
            count = len(offsets) - 1
            part = slice(*np.searchsorted(sorted_, [done, done + count]).tolist())
            here, rows = self._order[part], sorted_[part] - done
            lengths = np.diff(offsets)[rows]
            cuts = np.searchsorted(np.cumsum(lengths), np.arange(_WORDS, int(lengths.sum()), _WORDS)).tolist()
            for first, last in zip([0, *cuts], [*cuts, len(here)], strict=True):
                some = lengths[first:last]
                yield (here[first:last], np.concatenate([[0], np.cumsum(some)]).astype(np.int64),
                       words[np.repeat(offsets[rows[first:last]], some) + within(some)])
            done += count
        if len(sorted_) and sorted_[-1] >= done:
            raise corrupt(self._scratch.folder / STACKS_FILE, "it lacks stacks that thunks have")

    def look_up(self, stacks: RecordedStacks) -> None:
        """Number the kinds."""
        for here, offsets, words in self._batches():
            threads = self._thread[here]
            for thread in np.unique(threads).tolist():
                mine = np.flatnonzero(threads == thread)
                lengths = np.diff(offsets)[mine]
                found = stacks.look_up(thread, self._t[here[mine]],
                                       np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
                                       words[np.repeat(offsets[mine], lengths) + within(lengths)])
                self.number[here[mine]] = found
                self.caller[here[mine[found >= 0]]] = stacks.innermost(found[found >= 0])


def kinds_of(numbers: I32, space: I64) -> Distinct:
    """A thread's thunks, by something they have that differs by address space."""
    if not space.any():
        return distinct(numbers)
    keys = np.where(numbers >= 0, numbers * (space.max() + 1) + space, -1)
    return distinct(np.unique(keys, return_inverse=True)[1].reshape(-1).astype(np.int32) - bool((keys < 0).any()))
