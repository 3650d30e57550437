# SPDX-License-Identifier: MIT
"""Placing accesses of memory, and the table of them.

libtthread executes a marker function for every record of an access, so the n-th execution of that marker is where the
n-th record was made; thunks' markers, which have call stacks to tell them apart, are the thread's as well, in the order
of the records. A fault's record is made in its signal handler: the access itself is the instruction at which
execution goes on when the handler returns, and the block that begins there is its place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ptweave.data import layout
from ptweave.data.bundle import Bundle
from ptweave.data.ledger import Ledger
from ptweave.data.schemas import ACCESSES, ALLOCATIONS, BLOCKS, DECODED_ACCESSES, Table
from ptweave.data.table_writer import ROW_GROUP, TableWriter, write_table
from ptweave.merge._merge import lib
from ptweave.merge.access_files import FILE, AccessFiles
from ptweave.merge.addresses import Addresses
from ptweave.merge.align import FAR, Aligner, Occurrences, Records, bounds
from ptweave.merge.allocations import Allocations
from ptweave.merge.moments import Moments
from ptweave.merge.place import Places
from ptweave.merge.program import IMAGE_SHIFT, Program
from ptweave.merge.recorded_stacks import RecordedStacks
from ptweave.merge.tables import BATCH_ROWS, I64, U64, Bools, corrupt, numbers, open_parquet, optional, read_table
from ptweave.merge.variables import Variables

MARKER = "ptweave_mark_access"
WIDE_ROWS = ROW_GROUP // 8
"""Rows in a row group: the table has many columns."""

_ONE = np.uint64(1)


class Accesses:
    """The run's decoded accesses. `places` has a row for each record, those of one thread beside each other."""

    def __init__(self, bundle: Bundle, files: AccessFiles, ledger: Ledger) -> None:
        with open_parquet(bundle.decoded / FILE, DECODED_ACCESSES) as file:
            records = _per_thread(file, bundle.decoded / FILE)
        self.files = files
        self._ledger = ledger
        self._threads: I64 = np.array(list(records), np.int64)
        self._starts: I64 = np.cumsum([0, *records.values()], dtype=np.int64)
        self.places = Places.nowhere(int(self._starts[-1]))
        self._stack = np.full(len(self), -1, np.int32)
        self._complete = True

    def __len__(self) -> int:
        return int(self._starts[-1])

    def flag_markers(self, program: Program) -> None:
        """Tell the program which blocks are markers: after the thunks' were flagged, and before it is compiled."""
        blocks = program.blocks
        images = blocks["addr"] >> np.uint64(IMAGE_SHIFT)
        library = np.isin(images, images[blocks["flags"] & lib.PTM_MARKER != 0])
        named = np.array([name == MARKER for name in program.functions])[blocks["function"]]
        blocks["flags"][named & library & (blocks["flags"] & lib.PTM_ENTRY != 0)] |= lib.PTM_ACCESS

    def place(self, thread: int, visits: npt.NDArray[np.void], gaps: I64, clock: Callable[[], Iterator[Moments]],
              program: Program, thunks: Callable[[], tuple[I64 | None, I64]]) -> None:
        """Place a thread's records at the executed markers (VISIT_DTYPE). `thunks` gives the numbers of those whose
        begin is certain (None: 0, 1, … of all), and the ordinals where they begin."""
        at = int(np.searchsorted(self._threads, thread))
        visits = visits[visits["kind"] != lib.PTM_VISIT_OWN]
        markers = np.flatnonzero(visits["kind"] == lib.PTM_VISIT_ACCESS)
        if at == len(self._threads) or self._threads[at] != thread or not len(markers):
            return
        records = _Records.of(self.files.records(thread))
        found = _Occurrences.find(visits, markers, gaps, program)

        def agree(rows: I64, places: I64) -> Bools:
            fits: Bools = records.elsewhere[rows] | (found.resumed[places] < 0) | (found.ip[places] == records.ip[rows])
            return fits

        seqs = visits["seq"][markers]
        first, last = thunks_at(seqs, *thunks())

        def match(rows: I64, places: I64) -> Bools:
            fits: Bools = (records.thunk[rows] >= first[places]) & (records.thunk[rows] <= last[places])
            return fits

        placed = Aligner(Records(records.t, records.t), Occurrences(seqs, lambda: bounds(seqs, clock())), gaps,
                         match, agree=agree, complete=not self._lost(thread)).run()
        occurrence, exact = placed.all()
        hit = np.flatnonzero(occurrence >= 0)
        occurrence = occurrence[hit]
        fault = ~records.elsewhere[hit] & (found.resumed[occurrence] >= 0) & (found.ip[occurrence] == records.ip[hit])
        hidden = found.cut[occurrence] & ~fault & ~records.elsewhere[hit]
        self.places.put(self._starts[at] + hit, np.where(fault, found.resumed[occurrence], seqs[occurrence]),
                        exact[hit] & ~hidden)

    def _lost(self, thread: int) -> bool:
        name = f"dependence/{thread}"
        return name in self._ledger and self._ledger[name].total_lost > 0

    def number_stacks(self, stacks: RecordedStacks) -> None:
        """Find the stacks' numbers: while the tree of stacks can still grow."""
        done = 0
        for batch in self.files.stacks():
            self._stack[done:done + len(batch)] = stacks.numbers(batch)
            done += len(batch)

    def write(self, bundle: Bundle, lines: Lines, variables: Variables, pool: Executor) -> None:
        """Write the table."""
        allocations = self._write_allocations(bundle, lines)
        with TableWriter(bundle.tables, ACCESSES, row_group=WIDE_ROWS, pool=pool) as writer:
            for batch in self.files.pages():
                writer.write(_of_schema(self._rows(pa.table(batch), lines, variables, allocations), ACCESSES))
        self._ledger.drop("accesses/pages")
        self._ledger.add("accesses/pages", "pages", stored=writer.rows)

    def _write_allocations(self, bundle: Bundle, lines: Lines) -> Allocations:
        found = self.files.allocations()
        where = self._columns(found, self._index(found), lines)
        number = pa.array(np.arange(len(found), dtype=np.int32))
        table = _with(found.drop_columns(["record", "ip"]), {"allocation": number, **where})
        write_table(bundle.tables, ALLOCATIONS, _of_schema(table, ALLOCATIONS))
        return Allocations(found)

    def _index(self, table: pa.Table) -> I64:
        """Which records, of all, the columns thread and record name."""
        index: I64 = self._starts[np.searchsorted(self._threads, numbers(table, "thread"))] + numbers(table, "record")
        return index

    def _columns(self, table: pa.Table, index: I64, lines: Lines) -> dict[str, Any]:
        """What is known of the places of records: columns stack, seq, placed, ip, function, file, line."""
        seq, placed = self.places.columns(index)
        stack = self._stack[index]
        return {"stack": optional(stack, stack < 0), "seq": seq, "placed": placed.cast(pa.string()),
                **lines.columns(numbers(table, "thread"), numbers(table, "t"), table.column("ip").combine_chunks())}

    def _rows(self, table: pa.Table, lines: Lines, variables: Variables, allocations: Allocations) -> pa.Table:
        index = self._index(table)
        page, address = numbers(table, "page").astype(np.uint64), numbers(table, "address").astype(np.uint64)
        behind = ((page - address // np.uint64(layout.PAGE) * np.uint64(layout.PAGE)) // np.uint64(layout.PAGE))
        times = numbers(table, "t").astype(np.int64)
        allocation = allocations.of(page, times)
        columns = {
            "window": pa.array(behind.astype(np.int32)), "region": regions(page),
            "address": optional(address, behind != 0),
            "variable": variables.of(numbers(table, "thread").astype(np.int64), times,
                                     np.where(behind == 0, address, np.uint64(0))),
            "allocation": optional(allocation, allocation < 0),
            **self._columns(table, index, lines)}
        return _with(table.drop_columns(["address", "record", "ip"]), columns)


def _per_thread(file: pq.ParquetFile, path: Path) -> dict[int, int]:
    """How many records each thread has, by its number, ascending. Raises BadInput when the file is corrupt."""
    found: Counter[int] = Counter()
    try:
        for batch in file.iter_batches(BATCH_ROWS, columns=["thread"], use_threads=False):
            threads, counts = np.unique(numbers(batch, "thread", -1), return_counts=True)
            found.update(dict(zip(threads.tolist(), counts.tolist(), strict=True)))
    except (OSError, pa.ArrowException, ValueError) as error:
        raise corrupt(path, error) from error
    return dict(sorted(found.items()))


def _with(table: pa.Table, columns: dict[str, Any]) -> pa.Table:
    for name, column in columns.items():
        table = table.append_column(name, column)
    return table


def _of_schema(table: pa.Table, like: Table) -> pa.Table:
    """The columns in a table's order and types."""
    return table.select(like.schema.names).cast(like.schema)


@dataclass(frozen=True)
class _Records:
    """A thread's records in order. `ip`: of the access, 0 unknown."""

    t: I64
    thunk: I64
    ip: U64
    elsewhere: Bools  # no access by an instruction: pages were closed, or bytes committed

    @classmethod
    def of(cls, table: pa.Table) -> _Records:
        return cls(numbers(table, "t").astype(np.int64), numbers(table, "thunk").astype(np.int64),
                   numbers(table, "ip").astype(np.uint64), table.column("elsewhere").to_numpy(zero_copy_only=False))


@dataclass(frozen=True)
class _Occurrences:
    """For each executed marker, the block at which its handler returned to the program: its ordinal (−1 none) and the
    address it begins at.

    An instruction that first reads and then writes may fault twice, without a block in between: both accesses are at
    the block where it ran at last. `cut`: a gap comes before anything else is known: a handler may have returned in
    it.
    """

    resumed: I64
    ip: U64
    cut: Bools

    @classmethod
    def find(cls, visits: npt.NDArray[np.void], markers: I64, gaps: I64, program: Program) -> _Occurrences:
        following = np.minimum(markers + 1, len(visits) - 1)
        until = np.where(following > markers, visits["seq"][following], FAR)
        cut: Bools = (np.searchsorted(gaps, until, side="right")
                      > np.searchsorted(gaps, visits["seq"][markers], side="right"))
        there = (visits["kind"][following] == lib.PTM_VISIT_RESUMED) & (following > markers) & ~cut
        blocks = program.blocks
        image = blocks["addr"] >> np.uint64(IMAGE_SHIFT)
        again = there & (image[visits["block"][following]] == image[visits["block"][markers]])
        resumed = np.where(there & ~again, visits["seq"][following], -1)
        ip = np.where(there & ~again, blocks["ip"][visits["block"][following]], 0).astype(np.uint64)
        for at in np.flatnonzero(again[:-1])[::-1]:
            resumed[at], ip[at], cut[at] = resumed[at + 1], ip[at + 1], cut[at + 1]
        return cls(resumed, ip, cut)


def thunks_at(seqs: I64, numbers_: I64 | None, begins: I64) -> tuple[I64, I64]:
    """The first and the last thunk that a block may lie in, by those whose begin is certain (None: 0, 1, …)."""
    after = np.searchsorted(begins, seqs, side="right")
    inside, before = after < len(begins), after > 0
    first, last = after - 1, after.copy()
    if numbers_ is not None:
        first[before], last[inside] = numbers_[first[before]], numbers_[after[inside]]
    last[~inside] = FAR
    return first, last - 1


def regions(page: U64) -> pa.Array:
    """What lies at addresses."""
    codes = np.full(len(page), 3, np.int8)
    codes[(page >= layout.REGION) & (page < layout.HEAP)] = 0
    codes[(page >= layout.HEAP) & (page < layout.REGION_END)] = 1
    codes[(page >= layout.FILES) & (page < layout.FILES_END)] = 2
    return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(["stack", "heap", "file", "data"])).cast(
        pa.string())


class Lines:
    """Functions and lines of instructions: of the block that begins with one, or (a call) that ends with it."""

    def __init__(self, bundle: Bundle, program: Program, addresses: Addresses) -> None:
        table = read_table(bundle, BLOCKS, ["block", "file", "line", "last_file", "last_line"], ["file", "last_file"])
        order = np.argsort(numbers(table, "block"), kind="stable")
        self._table = table.take(pa.array(order))
        self._program = program
        self._addresses = addresses

    def columns(self, threads: I64, times: I64, ips: pa.Array) -> dict[str, Any]:
        """The columns ip, function, file and line."""
        ip = numbers(pa.table({"ip": ips}), "ip").astype(np.uint64)
        keys = np.zeros(len(ip), np.dtype([("thread", "<i8"), ("ip", "<u8")]))
        keys["thread"], keys["ip"] = threads, ip
        distinct, first, back = np.unique(keys, return_index=True, return_inverse=True)
        block = np.full(len(distinct), -1, np.int64)
        begin = np.zeros(len(distinct), np.bool_)
        function = np.zeros(len(distinct), np.int64)
        for thread in np.unique(distinct["thread"]):
            here = np.flatnonzero(distinct["thread"] == thread)
            place = self._addresses.locate(int(thread), times[first[here]], distinct["ip"][here])
            begins = self._addresses.blocks_at(place, distinct["ip"][here])
            block[here] = np.where(begins >= 0, begins, self._addresses.blocks_before(np.where(place, place + _ONE, 0)))
            begin[here] = begins >= 0
            function[here] = self._addresses.functions_at(place)
        known = block >= 0
        function[known] = self._program.blocks["function"][block[known]]
        back = back.reshape(-1)
        firsts, lasts = (pa.array(block[back], mask=~which[back]) for which in (begin, known & ~begin))
        at = self._table
        named = {name: pc.coalesce(_plain(at[name].take(firsts)), _plain(at[f"last_{name}"].take(lasts)))
                 for name in ("file", "line")}
        return {"ip": ips, "function": self._program.names(function[back]), **named}

    def places(self, threads: I64, times: I64, ips: U64) -> U64:
        """Packed places of instructions; 0 where unknown."""
        found = np.zeros(len(ips), np.uint64)
        for thread in np.unique(threads):
            here = np.flatnonzero(threads == thread)
            found[here] = self._addresses.locate(int(thread), times[here], ips[here])
        return found


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column
