# SPDX-License-Identifier: MIT
"""Makes truths and accesses for tests of the checker: rows chosen by the test, and accesses as a perfect recorder
would log them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from support.truth import PAGE
from support.truth_check import Accesses, Placed


def bits(offsets: Iterable[int]) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """A page's bit for each of these bytes."""
    flags = np.zeros(PAGE, np.uint8)
    flags[list(offsets)] = 1
    return np.packbits(flags, bitorder="little")


@dataclass
class TruthMaker:
    """Adds rows one by one; each takes one tick of time unless told otherwise."""

    rows: list[tuple[int, int, int, set[int], set[int], int]] = field(default_factory=list)

    def add(self, thread: int, thunk: int, page: int, *, read: Iterable[int] = (), write: Iterable[int] = (),
            at: int | None = None) -> TruthMaker:
        self.rows.append((thread, thunk, page, set(read), set(write), len(self.rows) * 10 if at is None else at))
        return self

    def placed(self) -> Placed:
        threads, thunks, pages, reads, writes, times = zip(*self.rows, strict=True)
        times_ = np.array(times, "<u8")
        writes_ = np.stack([bits(one) for one in writes])
        return Placed(np.array(threads, "<i4"), np.array(thunks, "<i8"), np.array(thunks, "<i8"),
                      np.array(pages, "<u8"), np.stack([bits(one) for one in reads]), writes_, writes_, times_,
                      times_ + 5, np.zeros(len(threads), bool))


def perfect(truth: Placed) -> Accesses:
    """What a recorder that misses nothing and adds nothing logs: a row for each thunk, page and kind of access."""
    rows = [(row, False) for row in np.flatnonzero(truth.read.any(axis=1))]
    rows += [(row, True) for row in np.flatnonzero(truth.write.any(axis=1))]
    index, write = np.array([row for row, _ in rows], int), np.array([kind for _, kind in rows], bool)
    return Accesses(truth.thread[index], truth.first[index], truth.last[index], truth.page[index], write,
                    np.where(write[:, None], truth.changed[index], 0).astype(np.uint8))


def held(truth: Placed) -> Accesses:
    """The same as one row from a thread's first access of a page to its last, for each kind."""
    rows = perfect(truth)
    keys = np.stack([rows.thread.astype("<u8"), rows.page, rows.write.astype("<u8")], 1)
    groups, which = np.unique(keys, axis=0, return_inverse=True)
    which = which.reshape(-1)
    first = np.array([rows.thunk[which == one].min() for one in range(len(groups))], "<i8")
    last = np.array([rows.until[which == one].max() for one in range(len(groups))], "<i8")
    return Accesses(groups[:, 0].astype("<i4"), first, last, groups[:, 1], groups[:, 2].astype(bool))
