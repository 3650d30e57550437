# SPDX-License-Identifier: MIT
"""Placing thunks: libtthread executes a marker function for every record it logs, so the n-th execution of the
marker in a thread's flow is where its n-th thunk begins; checked against the logged call stack."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ptweave.data.bundle import Bundle
from ptweave.data.ledger import Ledger
from ptweave.data.schemas import DECODED_THUNKS, THUNKS, TableWriter
from ptweave.merge._merge import lib
from ptweave.merge.addresses import Addresses
from ptweave.merge.align import Aligner, Occurrences, Records, bounds
from ptweave.merge.moments import Moments
from ptweave.merge.place import Grouped, Places
from ptweave.merge.program import Program
from ptweave.merge.scratch import Scratch
from ptweave.merge.tables import BATCH_ROWS, I64, U64, Bools, numbers, open_parquet

FILE = "thunks.parquet"

_ORDER = "order by thread nulls last, thunk, file_row_number"


class Thunks:
    """The run's decoded thunks, in (thread, thunk) order, and where they begin."""

    def __init__(self, bundle: Bundle, scratch: Scratch, ledger: Ledger) -> None:
        with open_parquet(bundle.decoded / FILE, DECODED_THUNKS):
            pass
        table = scratch.table(FILE, f"select thread, t, wait, marker, stack[1] as site from source {_ORDER}")
        self._ledger = ledger
        self._thread = numbers(table, "thread", -1)
        self._begin = numbers(table, "t", 0)
        self._end = self._begin + np.maximum(numbers(table, "wait", 0), 0)
        self._marker = numbers(table, "marker").astype(np.uint64)
        self._site = numbers(table, "site").astype(np.uint64)
        self._rows = Grouped.by(self._thread, np.arange(len(table)))
        self.places = Places.nowhere(len(table))
        self._seq_end = np.full(len(table), -1, np.int64)

    def __len__(self) -> int:
        return len(self._thread)

    def in_thread(self, thread: int) -> int:
        return len(self._rows.of(thread))

    def flag_markers(self, program: Program, addresses: Addresses) -> None:
        """Tell the program which blocks are markers. Must come before it is compiled."""
        for thread in self._rows.starts:
            rows = self._rows.of(thread)
            markers, first = np.unique(self._marker[rows], return_index=True)
            places = addresses.locate(thread, self._begin[rows][first], markers)
            for marker, place in zip(markers, places, strict=True):
                there = program.blocks["addr"] == place if place else program.blocks["ip"] == marker
                if marker:
                    program.blocks["flags"][there] |= lib.PTM_MARKER

    def place(self, thread: int, marks: npt.NDArray[np.void], gaps: I64, end: int,
              clock: Callable[[], Iterator[Moments]], program: Program, addresses: Addresses) -> None:
        """Place a thread's thunks at the executed markers (MARK_DTYPE); its flow ends at ordinal `end`."""
        rows = self._rows.of(thread)
        if not len(rows) or not len(marks):
            return
        address, ip = (program.blocks[name][marks["block"]] for name in ("addr", "ip"))
        marker, site = self._marker[rows], self._site[rows]
        times = self._begin[rows]
        marker_place = addresses.locate(thread, times, marker)
        site_place = addresses.locate(thread, times, site)

        def match(records: I64, places: I64) -> Bools:
            here: Bools = np.where(marker_place[records] != 0, marker_place[records] == address[places],
                                   marker[records] == ip[places])
            return here

        def agree(records: I64, places: I64) -> Bools:
            fits: Bools = np.empty(len(records), np.bool_)
            for first in range(0, len(records), BATCH_ROWS):  # a copy of all marks would be hundreds of megabytes
                part = slice(first, first + BATCH_ROWS)
                wanted = site_place[records[part]]
                fits[part] = (wanted == 0) | _among(wanted, marks[places[part]])
            return fits

        low, high = bounds(marks["seq"], clock())
        placed = Aligner(Records(times, self._end[rows]), Occurrences(marks["seq"], low, high), gaps, match,
                         agree=agree, complete=not self._lost(thread)).run()
        hit = placed.occurrence >= 0
        self.places.put(rows[hit], marks["seq"][placed.occurrence[hit]], placed.exact[hit])
        self._close(rows, gaps, end)

    def _lost(self, thread: int) -> bool:
        name = f"dependence/{thread}"
        return name in self._ledger and self._ledger[name].total_lost > 0

    def _close(self, rows: I64, gaps: I64, end: int) -> None:
        """A thunk ends where the next one begins; the last one where the flow ends, if nothing is missing there."""
        seq = self.places.seq[rows]
        following = np.concatenate([seq[1:], [end if not len(gaps) or gaps[-1] < end else -1]])
        self._seq_end[rows] = np.where((seq >= 0) & (following >= seq), following, -1)

    def around(self, threads: I64, seqs: I64, times: I64) -> I64:
        """The thunks that places of threads lie in: by ordinal where that is known, else by time; −1 none."""
        found = np.full(len(threads), -1, np.int64)
        for thread in np.unique(threads):
            rows, here = self._rows.of(int(thread)), np.flatnonzero(threads == thread)
            if not len(rows):
                continue
            begins, known = self._end[rows], self.places.how[rows] == 2
            found[here] = np.searchsorted(begins, times[here], side="right") - 1
            exact = here[(seqs[here] >= 0) & bool(known.all())]
            found[exact] = np.searchsorted(self.places.seq[rows], seqs[exact], side="right") - 1
        return found

    def write(self, bundle: Bundle, scratch: Scratch, functions: Callable[[I64, I64, U64], pa.Array]) -> None:
        """Write the table. `functions(threads, times, return addresses)` names functions."""
        columns = ", ".join(f'"{name}"' for name in DECODED_THUNKS.names if name not in ("tsc", "marker"))
        done = 0
        with TableWriter(bundle.tables, THUNKS) as writer:
            for batch in scratch.batches(FILE, f"select {columns} from source {_ORDER}"):
                rows = slice(done, done + len(batch))
                seq, placed = self.places.columns(rows)
                end = self._seq_end[rows]
                table = pa.table(batch).append_column("seq", seq).append_column("placed", placed.cast(pa.string()))
                table = table.append_column("seq_end", pa.array(end, mask=end < 0))
                table = table.append_column("functions", self._functions(batch, rows, functions))
                writer.write(table.select(THUNKS.schema.names).cast(THUNKS.schema))
                done += len(batch)

    def _functions(self, batch: pa.RecordBatch, rows: slice,
                   functions: Callable[[I64, I64, U64], pa.Array]) -> pa.Array:
        stacks = batch.column("stack")
        lengths = stacks.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        owner = np.repeat(np.arange(rows.start, rows.stop), lengths)
        addresses = stacks.flatten().to_numpy(zero_copy_only=False).astype(np.uint64)
        names = functions(self._thread[owner], self._begin[owner], addresses)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), names)


def _among(wanted: U64, marks: npt.NDArray[Any]) -> Bools:
    """Whether a return address is among a marker's innermost ones, or could be further out than is known."""
    depth = marks["returns"].shape[1]
    seen = (marks["returns"] == wanted[:, None]) & (np.arange(depth) < marks["known"][:, None])
    found: Bools = seen.any(axis=1) | (marks["known"] < 2)
    return found
