# SPDX-License-Identifier: MIT
"""Which of millions of numbers are alike, where there are few different ones."""

from __future__ import annotations

import numpy as np

from ptweave.merge._merge import ffi, lib
from ptweave.merge.tables import I32, I64


def distinct(keys: I32) -> tuple[I64, I32]:
    """Where each different number comes first, and the ordinal of each number among those; −1 for negative ones."""
    keys = np.ascontiguousarray(keys, np.int32)
    limit = int(keys.max()) + 1 if len(keys) else 0
    if limit > 4 * len(keys) + (1 << 16):
        return _sorted(keys)
    place, which = np.empty(max(limit, 0), np.int32), np.empty(len(keys), np.int32)
    first = np.empty(max(min(limit, len(keys)), 0), np.int64)
    count = lib.ptm_distinct(ffi.from_buffer("int32_t[]", keys), len(keys), ffi.from_buffer("int32_t[]", place),
                             len(place), ffi.from_buffer("int32_t[]", which), ffi.from_buffer("int64_t[]", first))
    assert count >= 0, "numbers are below the limit"
    return first[:count].copy(), which


def _sorted(keys: I32) -> tuple[I64, I32]:
    """The same of numbers that are too far apart to have a table of them."""
    values, first, which = np.unique(np.maximum(keys, -1), return_index=True, return_inverse=True)
    none = int(len(values) > 0 and values[0] < 0)
    order = np.argsort(first[none:])
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order))
    ordinals = np.concatenate([np.full(none, -1, np.int32), rank])
    return first[none:][order].astype(np.int64), ordinals[which.reshape(-1)]
