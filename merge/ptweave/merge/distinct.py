# SPDX-License-Identifier: MIT
"""Which of millions of numbers are alike, where there are few different ones; and numbers in their order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ptweave.merge._merge import ffi, lib
from ptweave.merge.tables import BATCH_ROWS, I32, I64

_SPARSE = 64
"""Of so many numbers that there might be one is there: it is not worth looking at all."""


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


def values_of(keys: I64) -> tuple[I64, I64]:
    """The different numbers, ascending, and which of them each is: as np.unique says, which sorts all of them."""
    encoded = pa.array(keys).dictionary_encode()
    values = encoded.dictionary.to_numpy()
    order = np.argsort(values)
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    return values[order], ranks[encoded.indices.to_numpy()]


def ascending(numbers: npt.NDArray[np.uint32], limit: int) -> npt.NDArray[np.uint32]:
    """Different numbers below a limit, in their order; where they are not few of these, without comparing them."""
    if len(numbers) < limit // _SPARSE:
        return np.sort(numbers)
    there = np.zeros(limit, np.bool_)
    there[numbers] = True
    return np.flatnonzero(there).astype(np.uint32)
