# SPDX-License-Identifier: MIT
"""A thread's flow, read once and gone over twice: kept in memory where it is short enough, or read again.

Decompressing a row of flow takes longer than most of what is done with it. Where paths follow each other without a
hole, an ordinal is the one before and its path's length: only the first one is kept, and paths' numbers, in two or four
bytes a row. Whether they do is told by the first and the last ordinal of a stretch and the lengths of its paths; a file
in which ordinals miss as much at one place as they have too much at another is taken at that, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ptweave.merge.flow_rows import FlowStretch
from ptweave.merge.program import Program, Survey
from ptweave.merge.tables import BATCH_ROWS, I32, I64

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


class Stretches(Iterator[FlowStretch], Protocol):
    """What is read, until it is closed. Who takes a stretch may keep it."""

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
    """One thread's flow, in batches.

    `read` reads it, without the first so many rows. The first going over keeps it, up to `limit` bytes; a thread with
    more is read again. `divided`: `cuts` will be asked for.
    """

    def __init__(self, read: Callable[[int], Stretches], program: Program,
                 limit: int | None = None, *, divided: bool = False) -> None:
        self._read = read
        self._program = program
        self._limit = self._room = KEPT_BYTES if limit is None else limit
        self._begins: list[Following | None] = []  # of batches; None: there are holes in it
        self._kept: list[tuple[I64 | None, npt.NDArray[np.uint16] | I32]] | None = []
        self._cuts = [Cut()]
        self._met = np.zeros((program.path_count, 2), np.uint32) if divided else None

    def first(self) -> Iterator[Survey]:
        """What is found in each batch, to be gone over to the end; where that was given up, once more from the start.
        Raises BadInput for paths that do not exist."""
        self._room, self._begins, self._kept, self._cuts = self._limit, [], [], [Cut()]
        if self._met is not None:
            self._met[:] = 0
        for stretch in self._read(0):
            yield from self._go_over(stretch)

    def _go_over(self, stretch: FlowStretch) -> list[Survey]:
        """What is found in a stretch."""
        parts = list(_parts(len(stretch.paths)))
        found = self._follow(stretch, parts)
        seqs = None if found else stretch.ordinals()
        if seqs is not None:
            found = [self._survey(seqs[part], stretch.paths[part], number) for number, part in enumerate(parts)]
        short = bool(parts) and int(stretch.paths.max()) < _SHORT  # all of it: a part would hold the whole in memory
        for survey, part in zip(found, parts, strict=True):
            self._keep(survey, None if seqs is None else seqs[part], stretch.paths[part], short=short)
        return found

    def _follow(self, stretch: FlowStretch, parts: list[slice]) -> list[Survey]:
        """The same if its paths follow each other without a hole, without reading their ordinals; [] if not."""
        if stretch.span is None or not 0 <= stretch.span[0] <= stretch.span[1] < _FAR:
            return []
        found: list[Survey] = []
        for number, part in enumerate(parts):
            first = found[-1].end if found else stretch.span[0]
            found.append(self._survey(first, stretch.paths[part], number))
        return found if found and found[-1].last == stretch.span[1] else []

    def _survey(self, seqs: I64 | int, paths: I32, number: int) -> Survey:
        """Of a batch, so many behind those that are kept."""
        return self._program.survey(seqs, paths, len(self._cuts) + number, self._met)

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
        met = np.zeros((0, 2), np.uint32) if self._met is None else self._met
        begun, over = (np.cumsum(np.bincount(batches[batches > 0], minlength=len(rows))) for batches in met.T)
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
        """Paths' ordinals and numbers, in the same batches, or those between two places, after `first`."""
        begin, end = begin or self._cuts[0], end or self._cuts[-1]
        begins = self._begins[begin.batches:end.batches]
        if self._kept is None:
            yield from self._read_again(begin.rows, begins)
            return
        for follow, (seqs, kept) in zip(begins, self._kept[begin.batches:end.batches], strict=True):
            known = follow or seqs
            assert known is not None, "what does not follow is kept"
            yield known, kept.astype(np.int32, copy=False)

    def _read_again(self, skip: int, begins: list[Following | None]) -> Iterator[tuple[I64 | Following, I32]]:
        left = iter(begins)
        with closing(self._read(skip)) as stretches:
            for stretch in stretches:
                seqs: I64 | None = None
                for part, follow in zip(_parts(len(stretch.paths)), left, strict=False):
                    if not follow and seqs is None:
                        seqs = stretch.ordinals()
                    known = follow or (None if seqs is None else seqs[part])
                    assert known is not None, "what does not follow was read"
                    yield known, stretch.paths[part]

    def drop(self) -> None:
        """Keep nothing any more: who goes over it again reads it again."""
        self._kept = None

    def _keep(self, survey: Survey, seqs: I64 | None, paths: I32, *, short: bool) -> None:
        """The next batch. `seqs`: where they had to be read. `short`: two bytes have room for a path's number."""
        follow = survey.follows and 0 <= survey.first <= survey.last < _FAR
        before = self._cuts[-1]
        self._cuts.append(Cut(before.batches + 1, before.rows + len(paths), survey.last, int(paths[-1])))
        self._begins.append(Following(survey.first, survey.end) if follow else None)
        if self._kept is None:
            return
        kept = paths.astype(np.uint16) if short else paths
        left = None if follow else seqs
        self._room -= (_FEW if left is None else left.nbytes) + kept.nbytes
        if self._room < 0:
            self._kept = None
        else:
            self._kept.append((left, kept))


def _parts(rows: int) -> Iterator[slice]:
    """Batches of a stretch of so many rows."""
    return (slice(begin, begin + BATCH_ROWS) for begin in range(0, rows, BATCH_ROWS))
