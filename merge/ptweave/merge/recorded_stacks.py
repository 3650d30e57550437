# SPDX-License-Identifier: MIT
"""Call stacks that libtthread logged, as numbers in the table `stacks`, which they share with the walked ones."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ptweave.data.table_writer import TableWriter
from ptweave.merge.addresses import Addresses
from ptweave.merge.tables import I32, I64, U64, numbers
from ptweave.merge.walk import NO_BLOCK, Walker

KNOWN_MAX = 1 << 20
"""Distinct stacks of accesses remembered; others are looked up again each time."""


class RecordedStacks:
    """Looks stacks up, while the walker's tree of them can still grow."""

    def __init__(self, walker: Walker, addresses: Addresses) -> None:
        self._walker = walker
        self._addresses = addresses
        self._known: dict[tuple[int, int, bytes], int] = {}
        self._used: list[I32] = []

    def look_up(self, thread: int, times: I64, offsets: I64, words: U64) -> I32:
        """Numbers of a thread's stacks, at given times: return addresses, innermost first, those of stack i at
        offsets[i] to offsets[i + 1]. −1 of an empty one."""
        frames = np.repeat(times, np.diff(offsets))
        # a return address lies behind the instruction that was left
        places = self._addresses.locate(thread, frames, words - np.uint64(1))
        functions = self._addresses.functions_at(places)
        callers = self._addresses.blocks_before(np.where(places != 0, places + np.uint64(1), np.uint64(0)))
        blocks = np.full(len(words), NO_BLOCK, np.uint32)
        blocks[:-1] = np.where(callers[1:] >= 0, callers[1:], NO_BLOCK)
        blocks[offsets[1:][np.diff(offsets) > 0] - 1] = NO_BLOCK  # who called the outermost function was not logged
        found = self._walker.stacks(functions.astype(np.uint32), blocks, offsets)
        self._used.append(np.unique(found))
        return found

    def numbers(self, batch: pa.RecordBatch) -> I32:
        """Numbers of a batch's stacks (columns thread, t, stack), −1 where there is none."""
        threads, times = numbers(batch, "thread"), numbers(batch, "t").astype(np.int64)
        found = np.full(len(batch), -1, np.int32)
        column = batch.column("stack")
        for thread in np.unique(threads).tolist():
            rows = np.flatnonzero(threads == thread)
            part = column.take(pa.array(rows)) if len(rows) < len(batch) else column
            encoded = _as_bytes(part).dictionary_encode()
            codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
            spaces = self._addresses.spaces_at(thread, times[rows])
            keys, first, which = np.unique(spaces * len(encoded.dictionary) + codes, return_index=True,
                                           return_inverse=True)
            values = encoded.dictionary.take(pa.array(keys % max(len(encoded.dictionary), 1))).to_pylist()
            found[rows] = self._distinct(thread, spaces[first], times[rows[first]], values)[which.reshape(-1)]
        return found

    def _distinct(self, thread: int, spaces: I64, times: I64, stacks: list[bytes]) -> I32:
        """Numbers of different stacks of a thread, each in an address space at a time."""
        keys = [(thread, space, stack) for space, stack in zip(spaces.tolist(), stacks, strict=True)]
        found = np.array([self._known.get(key, -1) for key in keys], np.int32)
        new = [i for i, number in enumerate(found.tolist()) if number < 0 and stacks[i]]
        if new:
            offsets: I64 = np.cumsum([0, *(len(stacks[i]) // 8 for i in new)], dtype=np.int64)
            words = np.frombuffer(b"".join(stacks[i] for i in new), "<u8")
            found[new] = self.look_up(thread, times[new], offsets, words)
            if len(self._known) + len(new) <= KNOWN_MAX:
                self._known |= {keys[i]: int(found[i]) for i in new}
        return found

    def innermost(self, stacks: I32) -> I64:
        """Numbers of stacks' innermost functions."""
        return self._walker.functions_of(stacks).astype(np.int64)

    def write(self, writer: TableWriter) -> None:
        """The table `call_stacks`: of all stacks that were looked up."""
        used = np.unique(np.concatenate([np.zeros(0, np.int32), *self._used]))
        self._walker.write_call_stacks(used[used >= 0], writer)


def _as_bytes(lists: pa.ListArray) -> pa.Array:
    """Lists of words as strings of bytes, which can be told apart quickly."""
    lengths = lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64) * 8
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    values: npt.NDArray[np.uint64] = np.ascontiguousarray(lists.flatten().to_numpy(zero_copy_only=False), "<u8")
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(lists), [None, pa.py_buffer(offsets.tobytes()),
                                                                          pa.py_buffer(values.tobytes())])
