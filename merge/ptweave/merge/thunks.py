# SPDX-License-Identifier: MIT
"""Placing thunks: libtthread executes a marker function for every record it logs, so the n-th execution of the
marker in a thread's flow is where its n-th thunk begins; checked against the logged call stack."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ptweave.data.bundle import Bundle
from ptweave.data.evl import Operation
from ptweave.data.ledger import Ledger
from ptweave.data.parts_writer import PartsWriter
from ptweave.data.schemas import DECODED_THUNKS, THUNKS
from ptweave.data.table_writer import ENCODED, ROW_GROUP, TableWriter
from ptweave.merge._merge import lib
from ptweave.merge.addresses import Addresses
from ptweave.merge.align import Aligner, Occurrences, Placement, Records, bounds
from ptweave.merge.beside import Beside
from ptweave.merge.distinct import distinct
from ptweave.merge.moments import Moments
from ptweave.merge.place import Places
from ptweave.merge.program import Program
from ptweave.merge.recorded_stacks import RecordedStacks
from ptweave.merge.scratch import Scratch
from ptweave.merge.tables import BATCH_ROWS, I32, I64, U64, Bools, numbers, optional
from ptweave.merge.thunk_rows import FILE as FILE
from ptweave.merge.thunk_rows import ThunkRows
from ptweave.merge.thunk_stacks import ThunkStacks, kinds_of
from ptweave.merge.variables import Variables

_NOWHERE = slice(0, 0)
_GROUP_BATCHES = 8
"""Of rows with their clocks in a row group, where not all that one has are read at a time: 64 MiB of clocks."""
_FILE_ROWS = ROW_GROUP // 2
_COMPARED = 16
"""Values that rows are compared with one after the other: beyond, sorting them takes no longer."""
_PAIRS = 1 << 22
"""Call stacks times lists of callers that are compared before any thunk is."""


class Thunks:
    """The run's decoded thunks, in (thread, thunk) order, and where they begin. Until they are given the code, they
    know what was recorded."""

    def __init__(self, scratch: Scratch, ledger: Ledger, beside: Beside) -> None:
        self.rows = ThunkRows(scratch, beside)
        self._ledger = ledger
        self._begin, self._end = self.rows.column(np.int64), self.rows.column(np.int64)
        self._marker, self._stack = self.rows.column(np.int32), self.rows.column(np.int32)
        markers: dict[int, int] = {}

        def put(rows: slice, batch: pa.RecordBatch) -> None:
            self._stack[rows] = numbers(batch, "stack", -1)
            begin = self._begin[rows] = numbers(batch, "t", 0)
            np.add(begin, np.maximum(numbers(batch, "wait", 0), 0), out=self._end[rows])
            self._marker[rows] = _codes(numbers(batch, "marker").astype(np.uint64, copy=False), markers)

        self.rows.load(["thread", "thunk", "t", "wait", "marker", "stack"], put)
        self._rows = self.rows.threads
        self._markers: U64 = np.array(list(markers), np.uint64)
        self.places = Places.nowhere(self.rows.count)
        self._flow_end: dict[int, int] = {}

    def __len__(self) -> int:
        return self.rows.count

    def in_thread(self, thread: int) -> int:
        rows = self._rows.get(thread, _NOWHERE)
        return int(rows.stop - rows.start)

    def end(self, thread: int) -> int:
        """When the last operation of a thread that returned did so."""
        rows = self._rows.get(thread, _NOWHERE)
        return int(self._end[rows].max(initial=0))

    def know(self, scratch: Scratch, program: Program, addresses: Addresses) -> None:
        """Look up their call stacks, and tell the program which blocks are markers: before it is compiled."""
        self._stacks = ThunkStacks(scratch, addresses, self._rows, self._begin, self._stack)
        del self._stack
        self._flag_markers(program, addresses)

    def _flag_markers(self, program: Program, addresses: Addresses) -> None:
        for thread, rows in self._rows.items():
            first = kinds_of(self._marker[rows], addresses.spaces_at(thread, self._begin[rows])).first
            markers = self._markers[self._marker[rows][first]]
            places = addresses.locate(thread, self._begin[rows][first], markers)
            for marker, place in zip(markers, places, strict=True):
                there = program.blocks["addr"] == place if place else program.blocks["ip"] == marker
                if marker:
                    program.blocks["flags"][there] |= lib.PTM_MARKER

    def place(self, thread: int, marks: npt.NDArray[np.void], callers: npt.NDArray[np.void], gaps: I64, end: int,
              clock: Callable[[], Iterator[Moments]], program: Program, addresses: Addresses) -> None:
        """Place a thread's thunks at the executed markers (MARK_DTYPE, RETURNS_DTYPE); its flow ends at `end`."""
        rows = self._rows.get(thread, _NOWHERE)
        if rows.stop == rows.start or not len(marks):
            return
        placed = Aligner(Records(self._begin[rows], self._end[rows]),
                         Occurrences(marks["seq"], lambda: bounds(marks["seq"], clock())), gaps,
                         self._match(thread, rows, marks, program, addresses),
                         agree=self._agree(thread, rows, marks, callers, addresses),
                         complete=not self._lost(thread)).run()
        self._put(rows.start, placed, marks["seq"])
        if not len(gaps) or gaps[-1] < end:
            self._flow_end[thread] = end

    def _put(self, start: int, placed: Placement, seqs: I64) -> None:
        """Note where a thread's thunks are, the first of which is row `start`."""
        if not placed.guessed:
            for occurred, first, last in placed.certain:
                self.places.put_exactly(slice(start + first, start + last), seqs[occurred:occurred + last - first])
            return
        for first in range(0, placed.records, BATCH_ROWS):
            occurrence, exact = placed.part(first, min(first + BATCH_ROWS, placed.records))
            hit = np.flatnonzero(occurrence >= 0)
            self.places.put(start + first + hit, seqs[occurrence[hit]], exact[hit])

    def _match(self, thread: int, rows: slice, marks: npt.NDArray[np.void], program: Program,
               addresses: Addresses) -> Callable[[I64, I64], Bools]:
        """Whether thunks' marker functions are those executed."""
        which = kinds_of(self._marker[rows], addresses.spaces_at(thread, self._begin[rows]))
        executed = distinct(marks["block"])
        marker = self._markers[self._marker[rows][which.first]]
        wanted = addresses.locate(thread, self._begin[rows][which.first], marker)
        block = program.blocks[marks["block"][executed.first]]
        fit = np.where(wanted[:, None] != 0, wanted[:, None] == block["addr"], marker[:, None] == block["ip"])

        if fit.all():  # there is one marker
            return lambda records, places: np.ones(len(records), np.bool_)

        def match(records: I64, places: I64) -> Bools:
            found: Bools = fit[which.of(records), executed.of(places)]
            return found

        return match

    def _agree(self, thread: int, rows: slice, marks: npt.NDArray[np.void], callers: npt.NDArray[np.void],
               addresses: Addresses) -> Callable[[I64, I64], Bools]:
        """Whether thunks' innermost return addresses are among those of the executed markers."""
        kinds = self._stacks.of(thread)
        site = addresses.locate(thread, self._stacks.times(kinds), self._stacks.site[kinds])
        site, at = np.unique(np.append(site, np.uint64(0)), return_inverse=True)  # 0: of what has no stack
        at = at.reshape(-1)
        kind, first = self._stacks.kind[rows], np.int32(kinds.start)
        caller = distinct(marks["callers"].view(np.int32))
        few = callers[marks["callers"][caller.first]]

        def compared(wanted: U64, executed: I32) -> Bools:
            fits: Bools = (wanted == 0) | _among(wanted, few[executed])
            return fits

        if len(site) * len(few) <= _PAIRS:
            every = np.arange(len(few), dtype=np.int32)
            fit = np.concatenate([compared(np.full(len(few), one, np.uint64), every) for one in site])
            row = at * len(few)
            return lambda records, places: fit[row[np.maximum(kind[records] - first, -1)] + caller.of(places)]

        def agree(records: I64, places: I64) -> Bools:
            fits: Bools = np.empty(len(records), np.bool_)
            for begin in range(0, len(records), BATCH_ROWS):  # a copy of all marks would be hundreds of megabytes
                part = slice(begin, begin + BATCH_ROWS)
                fits[part] = compared(site[at[np.maximum(kind[records[part]] - first, -1)]], caller.of(places[part]))
            return fits

        return agree

    def _lost(self, thread: int) -> bool:
        name = f"dependence/{thread}"
        return name in self._ledger and self._ledger[name].total_lost > 0

    def _ends(self, rows: slice) -> I64:
        """Where thunks end: a thunk where the next one begins; a thread's last one where its flow ends, if nothing is
        missing there. −1 unknown."""
        seq = self.places.seq[rows]
        ends = np.full(len(seq), -1, np.int64)
        following = self.places.seq[rows.start + 1:rows.stop + 1]
        ends[:len(following)] = following
        for thread, own in self._rows.items():
            if rows.start < own.stop <= rows.stop:
                ends[own.stop - 1 - rows.start] = self._flow_end.get(thread, -1)
        ends[(seq < 0) | (ends < seq)] = -1
        return ends

    def around(self, threads: I64, seqs: I64, times: I64) -> I64:
        """The thunks that places of threads lie in: by ordinal where that is known, else by time; −1 none."""
        found = np.full(len(threads), -1, np.int64)
        for thread in np.unique(threads):
            rows, here = self._rows.get(int(thread), _NOWHERE), np.flatnonzero(threads == thread)
            if rows.stop == rows.start:
                continue
            begins, known = self._end[rows], self.places.how[rows] == 2
            found[here] = np.searchsorted(begins, times[here], side="right") - 1
            exact = here[(seqs[here] >= 0) & bool(known.all())]
            found[exact] = np.searchsorted(self.places.seq[rows], seqs[exact], side="right") - 1
        return found

    def begins(self, thread: int) -> tuple[I64 | None, I64]:
        """A thread's thunks that are exact: their numbers (None: 0, 1, …, all of them), and the ordinals of the blocks
        they begin with."""
        rows = self._rows.get(thread, _NOWHERE)
        seq = self.places.seq[rows]
        exact = (self.places.how[rows] == 2) & (seq >= 0)
        return (None, seq) if exact.all() else (np.flatnonzero(exact), seq[exact])

    def number_stacks(self, stacks: RecordedStacks) -> None:
        """Find the stacks' numbers: while the tree of stacks can still grow."""
        self._stacks.look_up(stacks)

    def _writer(self, bundle: Bundle, encoded: list[str], beside: Beside) -> PartsWriter | TableWriter:
        """Several files, of which two are written at a time; where clocks are long, one, a few rows at a time."""
        if self.rows.with_clock < BATCH_ROWS:
            return TableWriter(bundle.tables, THUNKS, row_group=_GROUP_BATCHES * self.rows.with_clock, encoded=encoded,
                               pool=beside.pool)
        return PartsWriter(bundle.tables, THUNKS, _FILE_ROWS, encoded=encoded, pool=beside.pool)

    def write(self, bundle: Bundle, program: Program, variables: Variables, beside: Beside) -> None:
        """Write the table."""
        columns = [name for name in DECODED_THUNKS.names if name not in ("tsc", "marker", "stack")]
        callers = program.encoded_names(self._stacks.caller)
        operations: dict[str | None, int] = {operation.name.lower(): at for at, operation in enumerate(Operation)}
        done = 0
        with self._writer(bundle, ["caller", "operation", "placed", "variable"], beside) as writer:
            for batch in self.rows.ahead(columns):
                rows = slice(done, done + len(batch))
                seq, placed = self.places.columns(rows)
                end, kind = self._ends(rows), self._stacks.kind[rows]
                none = kind < 0
                found = {name: batch.column(name) for name in columns} | {
                    "operation": _encoded(batch.column("operation"), operations), "seq": seq,
                    "variable": variables.of(numbers(batch, "thread", -1).astype(np.int64), numbers(batch, "t"),
                                             numbers(batch, "object").astype(np.uint64)),
                    "placed": placed.cast(ENCODED), "seq_end": optional(end, end < 0),
                    "stack": _of_kind(self._stacks.number, kind, none), "site": _of_kind(self._stacks.site, kind, none),
                    "caller": callers.take(optional(kind, none))}
                writer.write(pa.table({name: found[name] for name in THUNKS.schema.names}))
                done += len(batch)


def _codes(values: U64, known: dict[int, int]) -> I32:
    """Numbers of values, of which there are few, by a dictionary that grows."""
    codes = np.full(len(values), -1, np.int32)
    for value, code in itertools.islice(known.items(), _COMPARED):
        codes[values == value] = code
    rest = np.flatnonzero(codes < 0)
    if len(rest):
        different, which = np.unique(values[rest], return_inverse=True)
        numbers_ = np.array([known.setdefault(int(value), len(known)) for value in different.tolist()], np.int32)
        codes[rest] = numbers_[which.reshape(-1)]
    return codes


def _encoded(text: pa.Array, known: dict[str | None, int]) -> pa.DictionaryArray:
    """Text by one dictionary for all batches, which grows: what is written then is not looked up again."""
    if not pa.types.is_dictionary(text.type):
        text = text.dictionary_encode()
    codes = pa.array(np.array([known.setdefault(value, len(known)) for value in text.dictionary.to_pylist()], np.int32))
    return pa.DictionaryArray.from_arrays(codes.take(text.indices), pa.array(known, pa.string()))


def _of_kind(values: npt.NDArray[Any], kind: I32, none: Bools) -> pa.Array:
    """What is known of kinds (negative, or 0 of addresses: nothing), for each row."""
    if not len(values):
        return pa.nulls(len(kind), pa.from_numpy_dtype(values.dtype))
    found = values[kind]
    return optional(found, none | (found <= 0 if values.dtype == np.uint64 else found < 0))


def _among(wanted: U64, callers: npt.NDArray[Any]) -> Bools:
    """Whether a return address is among a marker's innermost ones, or could be further out than is known."""
    depth = callers["returns"].shape[1]
    seen = (callers["returns"] == wanted[:, None]) & (np.arange(depth) < callers["known"][:, None])
    found: Bools = seen.any(axis=1) | (callers["known"] < 2)
    return found
