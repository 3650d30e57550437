# SPDX-License-Identifier: MIT
"""Aligning a thread's logged records with the places in its flow where they were made.

Records (system calls, thunks) and occurrences (system-call blocks, marker blocks) are two ordered sequences. Where
nothing is missing, the n-th record is the n-th occurrence. A gap hides an unknown number of occurrences, so behind
it every *run* of occurrences between two gaps matches some contiguous run of records: one unknown shift. It is
`exact` only if a single shift is possible, judged by conditions that always hold for the true one (the records'
own identity where both sides know it) and by some that hold for nearly all of its records (time, what the code looks
like), of which any other shift must break many more; otherwise the rows are placed by time.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ptweave.merge.tables import I64, Bools

NO_TIME = np.iinfo(np.int64).min
FAR = np.iinfo(np.int64).max

SLACK_NS = 100_000
"""How far a record's time may lie outside the moments around its occurrence (clocks are read a little apart)."""

_NEIGHBOURHOOD_NS = 1_000_000_000  # shifts are looked for this far around a run
_SCREEN = 64  # occurrences compared first
_PASSES = 4  # a certain run narrows what its neighbours can be
_CHUNK = 1 << 12  # shifts screened at a time
_PART = 1 << 16  # records compared at a time
_WORK = 1 << 24  # comparisons a run may cost before it is left to time
_ALONE = 5  # of a shift that no other one is an alternative to, this part may be wrong
_CLEARLY, _TIMES = 3, 4  # the next best shift is wrong for so many records more than so many times those of the best


@dataclass(frozen=True)
class Records:
    """Logged records in order: each was made at some moment in [begin, end] (ns)."""

    begin: I64
    end: I64

    def __len__(self) -> int:
        return len(self.begin)


class Occurrences:
    """Places in the flow in order; each was executed at some moment in [low, high] (NO_TIME, FAR: unknown)."""

    def __init__(self, seq: I64, times: Callable[[], tuple[I64, I64]]) -> None:
        """`times` gives low and high: it is asked only where there are gaps, or something does not fit."""
        self.seq = seq
        self._times = times

    @cached_property
    def _bounds(self) -> tuple[I64, I64]:
        return self._times()

    @property
    def low(self) -> I64:
        return self._bounds[0]

    @property
    def high(self) -> I64:
        return self._bounds[1]

    def __len__(self) -> int:
        return len(self.seq)


Match = Callable[[I64, I64], Bools]
"""match(records, occurrences): elementwise, False only where a record cannot belong to an occurrence."""


@dataclass
class Placement:
    """Where `records` records were made. `certain`: runs, ascending: first occurrence, first record, record after.
    `guessed`: others, ascending, and the occurrence of each."""

    records: int
    certain: list[tuple[int, int, int]] = field(default_factory=list)
    guessed: list[tuple[I64, I64]] = field(default_factory=list)

    def part(self, begin: int, end: int) -> tuple[I64, Bools]:
        """For each record of a part the occurrence it was made at (−1 none), and whether that is certain. There may be
        millions of records: of all together it takes hundreds of megabytes."""
        occurrence, exact = np.full(end - begin, -1, np.int64), np.zeros(end - begin, np.bool_)
        for at in range(bisect.bisect_left(self.guessed, begin, key=lambda run: int(run[0][-1])), len(self.guessed)):
            records, occurrences = self.guessed[at]
            some = slice(*np.searchsorted(records, [begin, end]).tolist())
            if some.start == some.stop:
                break
            occurrence[records[some] - begin] = occurrences[some]
        for at in range(bisect.bisect_right(self.certain, begin, key=lambda run: run[2]), len(self.certain)):
            occurred, first, last = self.certain[at]
            low, high = max(first, begin), min(last, end)
            if low >= high:
                break
            occurrence[low - begin:high - begin] = np.arange(occurred + low - first, occurred + high - first)
            exact[low - begin:high - begin] = True
        return occurrence, exact

    def all(self) -> tuple[I64, Bools]:
        """The same for every record."""
        return self.part(0, self.records)


@dataclass(frozen=True)
class _Run:
    """Occurrences [first, last) between two gaps."""

    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first


class Aligner:
    """Aligns one thread's records. `gaps` are ordinals at which the flow is broken, ascending.

    `match` must hold for every pair. `agree` may fail for a few (as time may). `trusted`: the first record is the
    first occurrence, unless a gap comes before it. `complete`: no record was lost.
    """

    def __init__(self, records: Records, occurrences: Occurrences, gaps: I64, match: Match, *,
                 agree: Match | None = None, trusted: bool = True, complete: bool = True) -> None:
        self._records = records
        self._occurrences = occurrences
        self._match = match
        self._agree = agree
        self._complete = complete
        self._trusted = trusted and complete and not (len(gaps) and gaps[0] <= 0)
        cuts = np.unique(np.searchsorted(occurrences.seq, gaps))
        edges = [0, *(int(cut) for cut in cuts if 0 < cut < len(occurrences)), len(occurrences)]
        self._runs = [_Run(a, b) for a, b in itertools.pairwise(edges) if b > a]
        self._broken = len(gaps) > 0
        self._starts_whole = self._trusted and not (len(cuts) and cuts[0] == 0)
        self._result = Placement(len(records))
        self._guessed = 0

    def run(self) -> Placement:
        """Place the records."""
        open_runs = self._runs
        if self._starts_whole and open_runs:
            open_runs = [*self._from_the_start(open_runs[0]), *open_runs[1:]]
        for _ in range(_PASSES):
            left = [run for run in open_runs if not self._anywhere(run)]
            if len(left) == len(open_runs):
                break
            open_runs = left
        for run in open_runs:
            self._by_time(run)
        return self._result

    def _claim(self, record: int, run: _Run) -> None:
        """Records from `record` on were made at the run's occurrences, certainly."""
        count = min(len(run), len(self._records) - record)
        bisect.insort(self._result.certain, (run.first, record, record + count))

    def _limits(self, run: _Run) -> tuple[int, int]:
        """Records between the certain ones of the runs before and after."""
        certain = self._result.certain
        after = bisect.bisect(certain, (run.first, 0, 0))
        return certain[after - 1][2] if after else 0, certain[after][1] if after < len(certain) else len(self._records)

    def _from_the_start(self, run: _Run) -> list[_Run]:
        """The first run of a thread recorded from its beginning: record by record, as long as they fit.

        Returns what is still to be aligned.
        """
        count = min(len(run), len(self._records))
        broken = wrong = 0
        while broken < count:  # a part after the other: there may be millions
            records = np.arange(broken, min(broken + _PART, count))
            fits = self._match(records, run.first + records)
            if not fits.all():
                broken += int(np.argmin(fits))
                break
            wrong += int(self._disagree(records, run.first + records).sum())
            broken += len(records)
        # without a gap both sides end together; one may be short by one: a thread killed while it logged
        ends_well = self._broken or abs(len(run) - len(self._records)) <= 1
        if broken == count and ends_well and wrong <= self._few(count):
            self._claim(0, run)
            return []
        # something is missing that no gap tells of: it may be missing before the first misfit, too
        parts = [_Run(run.first, run.first + broken), _Run(run.first + broken, run.last)]
        return [part for part in parts if len(part)]

    @staticmethod
    def _few(count: int) -> int:
        return max(1, count // 50)

    def _disagree(self, records: I64, places: I64) -> Bools:
        if self._agree is None:
            return np.zeros(len(records), np.bool_)
        return ~self._agree(records, places)

    def _anywhere(self, run: _Run) -> bool:
        """Claim the shift a run behind a gap must have; False when there is none, or another one is nearly as good."""
        best, least, second, compared = -1, FAR, FAR, 0
        for shift in self._shifts(run) if self._complete else ():
            compared += len(run)
            wrong = self._wrong(run, shift)
            if wrong < least:
                best, least, second = shift, wrong, least
            else:
                second = min(second, wrong)
            if second <= self._few(len(run)) or compared > 4 * _WORK:
                return False
        few = max(self._few(len(run)), len(run) // _ALONE if second == FAR else 0)
        if least > few or second < min(len(run), _CLEARLY + _TIMES * least):
            return False
        self._claim(best, run)
        return True

    def _shifts(self, run: _Run) -> Iterator[int]:
        """First records a run may begin with, few enough to try; nothing when there are too many."""
        records, occurrences = self._records, self._occurrences
        low, high = occurrences.low[run.first], occurrences.high[run.last - 1]
        first, last = self._limits(run)
        last -= len(run)
        if low > NO_TIME:
            first = max(first, int(np.searchsorted(records.end, low - _NEIGHBOURHOOD_NS)))
        if high < FAR - _NEIGHBOURHOOD_NS:
            last = min(last, int(np.searchsorted(records.begin, high + _NEIGHBOURHOOD_NS, side="right")) - len(run))
        count = last - first + 1
        if count <= 0 or count * min(len(run), _SCREEN) > _WORK:
            return
        sample = np.unique(np.linspace(0, len(run) - 1, _SCREEN).astype(np.int64))
        for begin in range(first, last + 1, _CHUNK):
            shifts = np.arange(begin, min(begin + _CHUNK, last + 1))
            fit = self._match((shifts[:, None] + sample).ravel(), np.tile(run.first + sample, len(shifts)))
            yield from shifts[fit.reshape(len(shifts), -1).all(axis=1)].tolist()

    def _wrong(self, run: _Run, shift: int) -> int:
        """For how many records time or `agree` speak against a shift; FAR: some cannot belong to their
        occurrences.

        A few may be: a thread can lose the processor between reading the clock and executing the block.
        """
        records = np.arange(shift, shift + len(run))
        places = np.arange(run.first, run.last)
        if not self._match(records, places).all():
            return FAR
        return int(((self._distance(records, places) > SLACK_NS) | self._disagree(records, places)).sum())

    def _distance(self, records: I64, places: I64) -> I64:
        """How far (ns) each record's time lies outside its occurrence's; 0 inside."""
        low, high = self._occurrences.low[places], self._occurrences.high[places]
        begin, end = self._records.begin[records], self._records.end[records]
        early = np.where(low > end, np.maximum(low, end) - end, 0)
        late = np.where(high < begin, begin - np.minimum(high, begin), 0)
        distance: I64 = np.maximum(early, late)
        return distance

    def _by_time(self, run: _Run) -> None:
        """Place what lies in the run's time at the occurrence whose time it is, in order; nothing is certain."""
        low, high = self._occurrences.low[run.first:run.last], self._occurrences.high[run.first:run.last]
        first, last = self._limits(run)
        first = max(first, self._guessed, int(np.searchsorted(self._records.end, low[0])))
        last = min(last, int(np.searchsorted(self._records.begin, high[-1], side="right")))
        if last <= first:
            return
        wanted = np.searchsorted(high, self._records.begin[first:last])
        order = _strictly_increasing(np.minimum(wanted, len(run) - 1), len(run))
        fits = order >= 0
        if fits.any():
            self._result.guessed.append((np.arange(first, last)[fits], run.first + order[fits]))
        self._guessed = last


def _strictly_increasing(wanted: I64, limit: int) -> I64:
    """The nearest strictly increasing sequence at or after `wanted`; −1 where it would reach `limit`."""
    index = np.arange(len(wanted))
    moved = np.maximum.accumulate(wanted - index) + index
    result: I64 = np.where(moved < limit, moved, -1)
    return result


def bounds(seqs: I64, anchors: Iterator[tuple[I64, I64]] | Sequence[tuple[I64, I64]]) -> tuple[I64, I64]:
    """Latest moment known before each block and earliest known after it. Ordinals and moments are sorted."""
    low = np.full(len(seqs), NO_TIME, np.int64)
    high = np.full(len(seqs), FAR, np.int64)
    done, latest = 0, NO_TIME
    for anchor_seqs, times in anchors:
        if not len(anchor_seqs):
            continue
        upto = int(np.searchsorted(seqs, anchor_seqs[-1]))  # these lie before the batch's last moment
        index = np.searchsorted(anchor_seqs, seqs[done:upto], side="right")
        low[done:upto] = np.where(index > 0, times[index - 1], latest)
        high[done:upto] = times[index]
        done, latest = max(done, upto), int(times[-1])
    low[done:] = latest
    return low, high
