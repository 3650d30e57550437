# SPDX-License-Identifier: MIT
"""The C half's columns as Arrow arrays: the memory is shared, not copied, and lives as long as the last array."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ptweave.data.manifest import Clocks
from ptweave.decode._ipt import ffi, lib


def array(owner: Any, pointer: Any, count: int, kind: pa.DataType, valid: Any = None) -> pa.Array:
    """An array of `count` values of type `kind` at `pointer`, which `owner` keeps alive; `valid` is a bitmap."""
    if count == 0:
        return pa.array([], kind)
    values = pa.foreign_buffer(_address(pointer), count * kind.bit_width // 8, base=owner)
    bitmap = None if valid is None else pa.foreign_buffer(_address(valid), (count + 7) // 8, base=owner)
    return pa.Array.from_buffers(kind, count, [bitmap, values])


def _address(pointer: Any) -> int:
    return int(ffi.cast("uintptr_t", pointer))


def coded(codes: pa.Array, names: tuple[str, ...]) -> pa.Array:
    """Small integers as the words they stand for."""
    return pa.DictionaryArray.from_arrays(codes, pa.array(names))


def times(tsc: pa.Array, clocks: Clocks) -> npt.NDArray[np.int64]:
    """ns on CLOCK_MONOTONIC of TSC values: `Clocks.to_ns` for a whole column."""
    ticks = tsc.to_numpy()
    result = np.empty(len(ticks), np.int64)
    lib.ptd_to_ns(ffi.from_buffer("uint64_t[]", ticks), len(ticks), clocks.tsc0, clocks.t0_ns,
                  clocks.tsc1 - clocks.tsc0, clocks.t1_ns - clocks.t0_ns,
                  ffi.from_buffer("int64_t[]", result, require_writable=True))
    return result
