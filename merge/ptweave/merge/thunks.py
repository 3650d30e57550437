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
from ptweave.merge.addresses import MAX_SPACES, Addresses
from ptweave.merge.align import Aligner, Occurrences, Records, bounds
from ptweave.merge.moments import Moments
from ptweave.merge.place import Grouped, Places
from ptweave.merge.program import Program
from ptweave.merge.scratch import Scratch
from ptweave.merge.tables import BATCH_ROWS, I64, U64, Bools, numbers
from ptweave.merge.thunk_rows import FILE as FILE
from ptweave.merge.thunk_rows import Stacks, ThunkRows, encoded, innermost, words

_ROW_GROUP = 1 << 18


class Thunks:
    """The run's decoded thunks, in (thread, thunk) order, and where they begin."""

    def __init__(self, bundle: Bundle, scratch: Scratch, ledger: Ledger) -> None:
        self._file = ThunkRows(scratch)
        self._ledger = ledger
        self._stacks = Stacks()
        parts: list[tuple[npt.NDArray[Any], ...]] = [(np.zeros(0, np.int32), np.zeros(0, np.int64),
                                                      np.zeros(0, np.int64), np.zeros(0, np.uint64),
                                                      np.zeros(0, np.uint64))]
        for batch in self._file.batches(["thread", "t", "wait", "marker", "stack"]):
            begin = numbers(batch, "t", 0)
            parts.append((numbers(batch, "thread", -1), begin, begin + np.maximum(numbers(batch, "wait", 0), 0),
                          numbers(batch, "marker").astype(np.uint64), innermost(batch.column("stack"))))
            self._stacks.add(batch.column("stack"))
        self._stacks.close()
        self._thread, self._begin, self._end, self._marker, self._site = (
            np.concatenate(columns) for columns in zip(*parts, strict=True))
        del parts
        self._rows = Grouped.by(self._thread, np.arange(len(self._thread)))
        self.places = Places.nowhere(len(self._thread))
        self._seq_end = np.full(len(self._thread), -1, np.int64)

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

    def place(self, thread: int, marks: npt.NDArray[np.void], callers: npt.NDArray[np.void], gaps: I64, end: int,
              clock: Callable[[], Iterator[Moments]], program: Program, addresses: Addresses) -> None:
        """Place a thread's thunks at the executed markers (MARK_DTYPE, RETURNS_DTYPE); its flow ends at `end`."""
        rows = self._rows.of(thread)
        if not len(rows) or not len(marks):
            return
        block = program.blocks
        marker, site = self._marker[rows], self._site[rows]
        times = self._begin[rows]
        marker_place = addresses.locate(thread, times, marker)
        site_place = addresses.locate(thread, times, site)

        def match(records: I64, places: I64) -> Bools:
            here: Bools = np.empty(len(records), np.bool_)
            for first in range(0, len(records), BATCH_ROWS):  # as in agree
                part = slice(first, first + BATCH_ROWS)
                number, wanted = marks["block"][places[part]], marker_place[records[part]]
                here[part] = np.where(wanted != 0, wanted == block["addr"][number],
                                      marker[records[part]] == block["ip"][number])
            return here

        def agree(records: I64, places: I64) -> Bools:
            fits: Bools = np.empty(len(records), np.bool_)
            for first in range(0, len(records), BATCH_ROWS):  # a copy of all marks would be hundreds of megabytes
                part = slice(first, first + BATCH_ROWS)
                wanted = site_place[records[part]]
                fits[part] = (wanted == 0) | _among(wanted, callers[marks["callers"][places[part]]])
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

    def begins(self, thread: int) -> tuple[I64, I64]:
        """A thread's thunks that are exact: their numbers, and the ordinals of the blocks they begin with."""
        rows = self._rows.of(thread)
        exact = np.flatnonzero((self.places.how[rows] == 2) & (self.places.seq[rows] >= 0))
        return exact, self.places.seq[rows[exact]]

    def write(self, bundle: Bundle, addresses: Addresses,
              functions: Callable[[I64, I64, U64], pa.DictionaryArray]) -> None:
        """Write the table. `functions(threads, times, return addresses)` names functions."""
        columns = [name for name in DECODED_THUNKS.names
                   if name not in ("tsc", "marker") and not (name == "stack" and self._stacks.whole)]
        done = 0
        # stacks make these rows long: of more of them, hundreds of megabytes would wait to be written
        with TableWriter(bundle.tables, THUNKS, row_group=_ROW_GROUP, encoded=["caller", "functions"]) as writer:
            for batch in self._file.batches(columns):
                rows = slice(done, done + len(batch))
                seq, placed = self.places.columns(rows)
                end = self._seq_end[rows]
                stack, names, callers = self._named(batch, rows, addresses, functions)
                found = {name: batch.column(name) for name in columns} | {
                    "seq": seq, "placed": placed.cast(pa.string()), "seq_end": pa.array(end, mask=end < 0),
                    "stack": stack, "functions": names, "caller": callers}
                writer.write(pa.table({name: found[name] for name in THUNKS.schema.names}))
                done += len(batch)

    def _named(self, batch: pa.RecordBatch, rows: slice, addresses: Addresses,
               functions: Callable[[I64, I64, U64], pa.DictionaryArray],
               ) -> tuple[pa.ListArray, pa.ListArray, pa.DictionaryArray]:
        """Rows' stacks, the names of their functions, and of the innermost ones, which called: a thread's stack is
        named once in each address space."""
        if self._stacks.whole:
            codes, kept = self._stacks.codes[rows], self._stacks.distinct
        else:
            codes, kept = encoded(batch.column("stack"))
        keys = codes.astype(np.int64)
        for thread in np.unique(self._thread[rows]):
            here = self._thread[rows] == thread
            spaces = addresses.spaces_at(int(thread), self._begin[rows][here]).astype(np.int64)
            keys[here] += (spaces + (int(thread) + 1) * MAX_SPACES) * len(kept)
        _, first, which = np.unique(keys, return_index=True, return_inverse=True)
        stacks = words(kept.take(pa.array(codes[first])))
        lengths = stacks.value_lengths().to_numpy(zero_copy_only=False)
        owner = np.repeat(first + rows.start, lengths)
        names = functions(self._thread[owner], self._begin[owner], stacks.flatten().to_numpy(zero_copy_only=False))
        order = pa.array(which.reshape(-1).astype(np.int32))
        callers = names.take(pa.array(stacks.offsets.to_numpy()[:-1], mask=lengths == 0))
        return stacks.take(order), pa.ListArray.from_arrays(stacks.offsets, names).take(order), callers.take(order)


def _among(wanted: U64, callers: npt.NDArray[Any]) -> Bools:
    """Whether a return address is among a marker's innermost ones, or could be further out than is known."""
    depth = callers["returns"].shape[1]
    seen = (callers["returns"] == wanted[:, None]) & (np.arange(depth) < callers["known"][:, None])
    found: Bools = seen.any(axis=1) | (callers["known"] < 2)
    return found
