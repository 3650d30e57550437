# SPDX-License-Identifier: MIT
"""Ranges that lie in one another, as functions and variables do: which is the innermost around a place.

Symbol tables are hostile: as many ranges may be in one another as there are symbols. For n of them nothing here takes
longer than n log n; what most files have, few ranges with others in them, costs next to nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Places = npt.NDArray[Any]
"""Integers of one kind: signed, or as wide as addresses are."""

Numbers = npt.NDArray[np.int64]


class Nested:
    """Ranges [start, end) sorted by start; one that ends before it starts has nothing in it.

    Innermost of those around a place is the one that begins last; of those with one start, the last.
    """

    def __init__(self, starts: Places, ends: Places) -> None:
        self._starts, self._ends = starts, ends
        outer = np.flatnonzero(ends[:-1] > starts[1:])  # others begin in them
        self._bounds = np.unique(np.concatenate([starts[outer], ends[outer]]))
        self._between = _last_over(np.searchsorted(self._bounds, starts[outer]),
                                   np.searchsorted(self._bounds, ends[outer]), outer, len(self._bounds))

    def find(self, places: Places) -> Numbers:
        """Number of the innermost range around each place, −1 none."""
        if not len(self._starts):
            return np.full(len(places), -1, np.int64)
        found: Numbers = np.searchsorted(self._starts, places, side="right") - 1
        behind = np.flatnonzero((found < 0) | (places >= self._ends[found]))  # the last that began is over
        found[behind] = self._between[np.searchsorted(self._bounds, places[behind], side="right")]
        return found


def _last_over(first: Numbers, last: Numbers, numbers: Numbers, bounds: int) -> Numbers:
    """Of the stretches before, between and behind bounds: the largest of the numbers of ranges each is in, −1 none.
    Ranges go from their `first` bound to their `last` one.

    A range is two that overlap, each as many stretches long as the largest power of two in its length. From the longest
    on such are halved, and of those at one place the largest number is kept.
    """
    over = np.full(bounds + 1, -1, np.int64)
    level = np.frexp(last - first)[1] - 1
    for power in range(int(level.max(initial=-1)), -1, -1):
        size = 1 << power
        over[size:] = np.maximum(over[size:], over[:-size])
        here = level == power
        for begin in (first[here] + 1, last[here] + 1 - size):
            np.maximum.at(over, begin, numbers[here])
    return over
