# SPDX-License-Identifier: MIT
"""Which of millions of numbers are alike, where there are few different ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ptweave.merge._merge import ffi, lib
from ptweave.merge.tables import BATCH_ROWS, I32, I64


@dataclass(frozen=True)
class Distinct:
    """The different ones of some numbers, in the order they come in; negative ones are none.

    `first`: where each comes first. A number's ordinal is looked up when it is asked for: those of millions would take
    as much memory as the numbers."""

    first: I64
    _keys: I32
    _ordinals: I32

    def of(self, places: I64 | slice) -> I32:
        """The ordinals of the numbers at some places, −1 of negative ones."""
        found: I32 = self._ordinals[self._keys[places]]  # the last one is −1
        return found


def distinct(keys: I32) -> Distinct:
    """Tell numbers apart."""
    limit = max(int(keys.max()) + 1, 0) if len(keys) else 0
    if limit > 4 * len(keys) + (1 << 16):
        return distinct(_ranked(keys))
    ordinals = np.full(limit + 1, -1, np.int32)
    first = np.empty(min(limit, len(keys)), np.int64)
    count = 0
    for begin in range(0, len(keys), BATCH_ROWS):
        some = np.ascontiguousarray(keys[begin:begin + BATCH_ROWS], np.int32)
        count = lib.ptm_distinct(ffi.from_buffer("int32_t[]", some), len(some), begin, count,
                                 ffi.from_buffer("int32_t[]", ordinals), limit, ffi.from_buffer("int64_t[]", first))
        assert count >= 0, "numbers are below the limit"
    return Distinct(first[:count].copy(), np.maximum(keys, -1) if len(keys) and keys.min() < -1 else keys, ordinals)


def _ranked(keys: I32) -> I32:
    """The same of numbers that are too far apart to have a table of them: their ranks, −1 of negative ones."""
    values, which = np.unique(np.maximum(keys, -1), return_inverse=True)
    ranks: I32 = which.reshape(-1).astype(np.int32) - np.int32(len(values) > 0 and values[0] < 0)
    return ranks
