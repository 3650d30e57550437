# SPDX-License-Identifier: MIT
"""The C half's columns as Arrow arrays.

Large columns are shared, not copied: their memory lives as long as the last array. It is that of the whole batch, so
a few rows are copied instead: they may wait long in a writer, and must not keep a batch of millions waiting with them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ptweave.data.manifest import Clocks
from ptweave.decode._ipt import ffi, lib


def array(owner: Any, pointer: Any, count: int, kind: pa.DataType, valid: Any = None) -> pa.Array:
    """An array of `count` values of type `kind` at `pointer`, `valid` a bitmap.

    The memory is shared and `owner` keeps it alive; it is copied when `owner` is None.
    """
    if count == 0:
        return pa.nulls(0, kind)
    values = _buffer(owner, pointer, count * kind.bit_width // 8)
    bitmap = None if valid is None else _buffer(owner, valid, (count + 7) // 8)
    return pa.Array.from_buffers(kind, count, [bitmap, values])


def _buffer(owner: Any, pointer: Any, size: int) -> pa.Buffer:
    if owner is None:
        return pa.py_buffer(bytes(ffi.buffer(pointer, size)))
    return pa.foreign_buffer(int(ffi.cast("uintptr_t", pointer)), size, base=owner)


def coded(codes: pa.Array, names: tuple[str, ...]) -> pa.Array:
    """Small integers as the words they stand for."""
    return pa.DictionaryArray.from_arrays(codes, pa.array(names))


def times(tsc: pa.Array, clocks: Clocks) -> npt.NDArray[np.int64]:
    """ns on CLOCK_MONOTONIC of TSC values: `Clocks.to_ns` for a whole column."""
    ticks = tsc.to_numpy()
    result = np.empty(len(ticks), np.int64)
    lib.ptd_to_ns(ffi.from_buffer("uint64_t[]", ticks), len(ticks), clocks.tsc0, clocks.t0_ns,
                  max(clocks.tsc1 - clocks.tsc0, 0), clocks.t1_ns - clocks.t0_ns,
                  ffi.from_buffer("int64_t[]", result, require_writable=True))
    return result
