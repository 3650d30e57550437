# SPDX-License-Identifier: MIT
"""Call stacks that libtthread logged, as numbers in the table `stacks`, which they share with the walked ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ptweave.merge.addresses import Addresses
from ptweave.merge.tables import numbers
from ptweave.merge.walk import NO_BLOCK, Walker

KNOWN_MAX = 1 << 20
"""Distinct stacks remembered; others are looked up again each time."""


class RecordedStacks:
    """Looks up stacks, each once for a thread."""

    def __init__(self, walker: Walker, addresses: Addresses) -> None:
        self._walker = walker
        self._addresses = addresses
        self._known: dict[tuple[int, bytes], int] = {}

    def numbers(self, batch: pa.RecordBatch) -> npt.NDArray[np.int32]:
        """Numbers of a batch's stacks (columns thread, t, stack), −1 where there is none."""
        threads, times = numbers(batch, "thread"), numbers(batch, "t")
        found = np.full(len(batch), -1, np.int32)
        column = batch.column("stack")
        for thread in np.unique(threads):
            rows = np.flatnonzero(threads == thread)
            part = column.take(pa.array(rows)) if len(rows) < len(batch) else column
            encoded = as_bytes(part).dictionary_encode()
            codes = encoded.indices.to_numpy(zero_copy_only=False)
            distinct, first = np.unique(codes, return_index=True)
            values = [self._number(int(thread), int(times[rows[at]]), encoded.dictionary[int(code)].as_py())
                      for code, at in zip(distinct, first, strict=True)]
            found[rows] = np.array(values, np.int32)[np.searchsorted(distinct, codes)] if values else -1
        return found

    def _number(self, thread: int, t: int, stack: bytes) -> int:
        if not stack:
            return -1
        key = (thread, stack)
        number = self._known.get(key)
        if number is None:
            number = self._look_up(thread, t, np.frombuffer(stack, "<u8"))
            if len(self._known) < KNOWN_MAX:
                self._known[key] = number
        return number

    def _look_up(self, thread: int, t: int, stack: npt.NDArray[Any]) -> int:
        """Return addresses, innermost first: each lies behind the instruction that was left."""
        places = self._addresses.locate(thread, np.full(len(stack), t, np.int64), stack - np.uint64(1))
        functions = self._addresses.functions_at(places)
        callers = self._addresses.blocks_before(np.where(places != 0, places + np.uint64(1), np.uint64(0)))
        blocks = np.where(callers[1:] >= 0, callers[1:], NO_BLOCK)
        return self._walker.stack(np.ascontiguousarray(functions[::-1], np.uint32),
                                  np.ascontiguousarray([NO_BLOCK, *blocks[::-1]], np.uint32))


def as_bytes(lists: pa.ListArray) -> pa.Array:
    """Lists of words as strings of bytes, which can be told apart quickly."""
    lengths = lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64) * 8
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    values = np.ascontiguousarray(lists.flatten().to_numpy(zero_copy_only=False), "<u8")
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(lists), [None, pa.py_buffer(offsets.tobytes()),
                                                                          pa.py_buffer(values.tobytes())])
