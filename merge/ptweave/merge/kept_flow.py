# SPDX-License-Identifier: MIT
"""A thread's flow, read once and gone over twice: kept in memory where it is short enough, or read again.

Decompressing a row of flow takes longer than most of what is done with it. Where paths follow each other without a
hole, an ordinal is the one before and its path's length: only the first one is kept, and paths' numbers, in two or four
bytes a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ptweave.merge.program import Program
from ptweave.merge.tables import I32, I64

KEPT_BYTES = 1 << 26
"""Memory for what is kept of a thread."""

_SHORT = 1 << 16
_FAR = 1 << 62  # no flow gets there: what lies is read as it is
_FEW = 16  # bytes of two ordinals

_NEW_PATHS = 6 << 20
"""Divided by the distinct paths of a thread: the rows that are walked in the time that a path takes when it comes
first. That one takes much the same everywhere (1.4 µs in gcc, 2.9 in python3); a row takes longer the more there is to
remember (48 ns in gcc, which has 170,000 paths, 8 in python3, which has 29,000)."""
_NEW_PATH_MOST = 512
"""What few paths there are may come at the beginning alone."""

Batch = tuple[I64, I32]
"""Executed paths: their ordinals and numbers."""


class Batches(Iterator[Batch], Protocol):
    """What is read, until it is closed."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class Following:
    """Ordinals of paths that follow each other without a hole: that of the first, and the one behind the last."""

    first: int
    end: int


@dataclass(frozen=True)
class Cut:
    """A place between two batches: so many batches and rows come before it, the last of them with this ordinal and path
    (-1: there is none)."""

    batches: int = 0
    rows: int = 0
    last: int = 0
    before: int = -1


class KeptFlow:
    """Batches (ordinals, paths) of one thread's flow.

    `read` reads them, without the first so many rows. The first going over keeps them, up to `limit` bytes; a thread
    with more is read again. `divided`: `cuts` will be asked for.
    """

    def __init__(self, read: Callable[[int], Batches], program: Program,
                 limit: int | None = None, *, divided: bool = False) -> None:
        self._read = read
        self._program = program
        self._limit = self._room = KEPT_BYTES if limit is None else limit
        self._kept: list[tuple[I64 | Following, npt.NDArray[np.uint16] | I32]] | None = []
        self._cuts = [Cut()]
        self._met = np.zeros((program.path_count if divided else 0, 2), np.uint32)

    def first(self) -> Iterator[Batch]:
        """All batches, to be gone over to the end; where that was given up, once more from the start."""
        self._room, self._kept, self._cuts = self._limit, [], [Cut()]
        self._met[:] = 0
        for seqs, paths in self._read(0):
            self._keep(seqs, paths)
            before = self._cuts[-1]
            last = (int(seqs[-1]), int(paths[-1])) if len(seqs) else (before.last, before.before)
            self._cuts.append(Cut(before.batches + 1, before.rows + len(seqs), *last))
            if len(self._met):
                self._program.meet(paths, len(self._cuts) - 1, self._met)
            yield seqs, paths

    @property
    def end(self) -> Cut:
        """Where the flow ends, after `first`."""
        return self._cuts[-1]

    def cuts(self, count: int) -> list[Cut]:
        """Where the flow falls into about so many parts that take equally long: where each but the first one begins.

        Who begins in the middle knows no path: each takes its time in every part from the one it comes in first to the
        one it comes in last.
        """
        rows = np.array([cut.rows for cut in self._cuts])
        begun, over = (np.cumsum(np.bincount(batches[batches > 0], minlength=len(rows))) for batches in self._met.T)
        new_path = min(_NEW_PATHS // max(1, int(begun[-1])), _NEW_PATH_MOST)
        until, since = rows + new_path * begun, rows + new_path * over

        def places(longest: int) -> list[int]:
            found = [0]
            for _ in range(1, count):
                found.append(int(np.searchsorted(until, since[found[-1]] + longest, side="right")) - 1)
            return found

        low, high = 0, int(until[-1])
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if until[-1] - since[places(middle)[-1]] <= middle else (middle + 1, high)
        return [self._cuts[place] for place in np.unique(places(low)) if 0 < place < len(rows) - 1]

    def seq(self, cut: Cut) -> int:
        """The ordinal of the block behind what comes before a place. Raises BadInput for a path that does not exist."""
        return self._program.after(cut.last, cut.before) if cut.rows else 0

    def again(self, begin: Cut | None = None, end: Cut | None = None) -> Iterator[tuple[I64 | Following, I32]]:
        """The same batches, or those between two places, after `first`."""
        begin, end = begin or self._cuts[0], end or self._cuts[-1]
        if self._kept is None:
            with closing(self._read(begin.rows)) as rows:
                yield from islice(rows, end.batches - begin.batches)
            return
        for seqs, kept in self._kept[begin.batches:end.batches]:
            yield seqs, kept.astype(np.int32, copy=False)

    def drop(self) -> None:
        """Keep nothing any more: who goes over it again reads it again."""
        self._kept = None

    def _keep(self, seqs: I64, paths: I32) -> None:
        if self._kept is None:
            return
        # what the batch lies in is read into again
        follow = len(seqs) > 0 and 0 <= seqs[0] <= seqs[-1] < _FAR and self._program.follow(seqs, paths)
        begins = Following(int(seqs[0]), self._program.after(int(seqs[-1]), int(paths[-1]))) if follow else seqs.copy()
        short = len(paths) and int(paths.min()) >= 0 and int(paths.max()) < _SHORT
        kept = paths.astype(np.uint16) if short else paths.copy()
        self._room -= (_FEW if isinstance(begins, Following) else begins.nbytes) + kept.nbytes
        if self._room < 0:
            self._kept = None
        else:
            self._kept.append((begins, kept))
