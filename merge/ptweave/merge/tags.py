# SPDX-License-Identifier: MIT
"""Placing tags, hits of probes and of watchpoints: by time between the moments known in their threads' flows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ptweave.data.bundle import Bundle
from ptweave.data.schemas import DECODED_PROBES, DECODED_TAGS, DECODED_WATCHES, PROBES, TAGS, WATCHES, Table
from ptweave.data.table_writer import TableWriter
from ptweave.merge.moments import Moments
from ptweave.merge.place import Grouped, Places
from ptweave.merge.tables import I64, U64, numbers, open_parquet


@dataclass(frozen=True)
class Source:
    """What decoding left, and the table that becomes of it."""

    file: str
    decoded: pa.Schema
    table: Table


TAGGED = Source("tags.parquet", DECODED_TAGS, TAGS)
PROBED = Source("probes.parquet", DECODED_PROBES, PROBES)
WATCHED = Source("watches.parquet", DECODED_WATCHES, WATCHES)


class Tags:
    """The run's decoded tags (or hits) and where they are. All are in memory at once."""

    def __init__(self, bundle: Bundle, source: Source = TAGGED) -> None:
        with open_parquet(bundle.decoded / source.file, source.decoded):
            pass
        self._to = source.table
        self._table = pq.read_table(bundle.decoded / source.file, schema=source.decoded)
        self._thread = numbers(self._table, "thread", -1)
        self._t = numbers(self._table, "t", 0)
        self._rows = Grouped.by(self._thread, np.arange(len(self._table)))
        self.places = Places.nowhere(len(self._table))

    def place(self, thread: int, moments: Callable[[], Iterator[Moments]]) -> None:
        """Place a thread's tags at the last block known to have begun before them."""
        rows = self._rows.of(thread)
        if not len(rows):
            return
        seq = np.full(len(rows), -1, np.int64)
        for seqs, times in moments():
            at = np.searchsorted(times, self._t[rows], side="right") - 1
            seq = np.where(at >= 0, seqs[np.maximum(at, 0)], seq)
        self.places.put(rows, seq, np.zeros(len(rows), bool))

    def write(self, bundle: Bundle, functions: Callable[[I64, I64, U64], pa.DictionaryArray]) -> None:
        """Write the table. `functions(threads, times, return addresses)` names functions."""
        seq, placed = self.places.columns(slice(0, len(self._table)))
        stacks = self._table["stack"].combine_chunks()
        lengths = stacks.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        owner = np.repeat(np.arange(len(self._table)), lengths)
        addresses = stacks.flatten().to_numpy(zero_copy_only=False).astype(np.uint64)
        names = functions(self._thread[owner], self._t[owner], addresses).dictionary_decode()
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        table = self._table.append_column("seq", seq).append_column("placed", placed.cast(pa.string()))
        table = table.append_column("functions", pa.ListArray.from_arrays(pa.array(offsets), names))
        with TableWriter(bundle.tables, self._to) as writer:
            writer.write(table.select(self._to.schema.names).cast(self._to.schema))
