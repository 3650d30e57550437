# SPDX-License-Identifier: MIT
"""The moments known in a thread's flow: its clock, and where its system calls were entered and left."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ptweave.merge.tables import I64, ThreadRows, numbers

Moments = tuple[I64, I64]
"""Block ordinals and times (ns): right before that block it was that time."""

COLUMNS = ["seq", "t"]

_LATEST = 1 << 62


def known_moments(clock: ThreadRows | None, thread: int) -> Iterator[Moments]:
    """A thread's clock rows, batch by batch."""
    if clock is None:
        return
    for batch in clock.batches(thread):
        valid = batch.column("t").is_valid().to_numpy(zero_copy_only=False)
        yield numbers(batch, "seq")[valid], numbers(batch, "t")[valid]


def joined(moments: Iterator[Moments], more: Moments) -> Iterator[Moments]:
    """Moments with some more put between them, sorted by ordinal, times that never go back.

    Where several times are known at one ordinal, all are kept: time passed there and no block ran.
    """
    order = np.lexsort((more[1], more[0]))
    seqs, times = more[0][order], more[1][order]
    taken, latest = 0, 0
    for batch_seqs, batch_times in moments:
        if not len(batch_seqs):
            continue
        upto = int(np.searchsorted(seqs, batch_seqs[-1], side="right"))
        batch = _sorted(np.concatenate([batch_seqs, seqs[taken:upto]]),
                        np.concatenate([batch_times, times[taken:upto]]), latest)
        taken, latest = upto, int(batch[1][-1])
        yield batch
    if taken < len(seqs):
        yield _sorted(seqs[taken:], times[taken:], latest)


def _sorted(seqs: I64, times: I64, latest: int) -> Moments:
    order = np.lexsort((times, seqs))
    clipped = np.clip(times[order], latest, _LATEST)
    return np.ascontiguousarray(seqs[order]), np.maximum.accumulate(clipped)


def behind(moments: Iterator[Moments], seq: int) -> Iterator[Moments]:
    """Moments from the last one before block `seq` on."""
    last: Moments | None = None
    for seqs, times in moments:
        begin = int(np.searchsorted(seqs, seq))  # sorted: see joined
        if begin:
            last = seqs[begin - 1:begin], times[begin - 1:begin]
        if begin == len(seqs):
            continue
        yield from [last] if last else []
        yield seqs[begin:], times[begin:]
        yield from moments
        return
    yield from [last] if last else []


class Window:
    """Moments as a walk consumes them: always at least one beyond the block it has reached, if there is one."""

    def __init__(self, moments: Iterator[Moments]) -> None:
        self._moments = moments
        self._ended = False
        self.seqs: I64 = np.empty(0, np.int64)
        self.times: I64 = np.empty(0, np.int64)

    def reach(self, seq: int) -> None:
        """Read on until a moment after block `seq` is there, or the end."""
        while not self._ended and (not len(self.seqs) or self.seqs[-1] <= seq):
            following = next(self._moments, None)
            if following is None:
                self._ended = True
            else:
                self.seqs = np.concatenate([self.seqs, following[0]])
                self.times = np.concatenate([self.times, following[1]])

    def drop(self, count: int) -> None:
        """Forget the first moments: the walk is past them."""
        self.seqs = np.ascontiguousarray(self.seqs[count:])
        self.times = np.ascontiguousarray(self.times[count:])
