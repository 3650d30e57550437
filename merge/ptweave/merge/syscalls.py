# SPDX-License-Identifier: MIT
"""Placing system calls: the n-th one a thread made is its flow's n-th block that ends in one, checked by address."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ptweave.data.bundle import Bundle
from ptweave.data.ledger import Ledger
from ptweave.data.schemas import DECODED_SYSCALLS, SYSCALLS
from ptweave.data.table_writer import TableWriter
from ptweave.merge._merge import lib
from ptweave.merge.addresses import Addresses
from ptweave.merge.align import FAR, Aligner, Occurrences, Records, bounds
from ptweave.merge.events import Events, events_of
from ptweave.merge.in_order import in_order
from ptweave.merge.moments import Moments
from ptweave.merge.own_calls import Library, makes_between, signs_of
from ptweave.merge.place import Grouped, Places
from ptweave.merge.program import Program
from ptweave.merge.scratch import Queries
from ptweave.merge.tables import I32, I64, Bools, numbers, open_parquet

FILE = "syscalls.parquet"

RT_SIGRETURN = 15
EXEC = (59, 322)  # execve, execveat

EXIT = 60
EXIT_GROUP = 231

_COLUMNS = ["thread", "index", "t_enter", "t_exit", "number", "ip", "result", "pid", "args"]
_WRITTEN = pa.schema([field for field in DECODED_SYSCALLS if field.name != "index"])
_KERNEL = ("syscalls", "syscalls/kernel")  # accounts of the kernel's record


@dataclass(frozen=True)
class ThreadCalls:
    """What the walk of one thread learns from its placed calls."""

    moments: Moments  # when calls were entered and left, right behind their blocks
    events: Events  # exec and sigreturn


class SystemCalls:
    """The run's decoded system calls and where they belong.

    A call answered by the engine has an `index`: the n-th of its thread. Calls only the kernel saw (`index` null)
    are aligned among themselves, by address and time, in threads that have no others; where a thread has both,
    they are placed by time. `complete`: the kernel's record has no losses.
    """

    def __init__(self, bundle: Bundle, program: Program | None, addresses: Addresses | None, ledger: Ledger) -> None:
        self._program = program
        self._addresses = addresses
        self._complete = not any(name in _KERNEL and stream.total_lost for name, stream in ledger)
        with open_parquet(bundle.decoded / FILE, DECODED_SYSCALLS) as file:
            table = file.read(columns=_COLUMNS, use_threads=False)
        self._index = numbers(table, "index", -1)
        self._enter = numbers(table, "t_enter", 0)
        self._exit = numbers(table, "t_exit", -1)
        self._returned = table.column("t_exit").is_valid().to_numpy()
        self._number = numbers(table, "number", -1)
        self._ip = numbers(table, "ip").astype(np.uint64)
        self._has_ip = table.column("ip").is_valid().to_numpy()
        failed = numbers(table, "result", 0) < 0
        self._replaced = np.isin(self._number, EXEC) & ~failed
        self.exits = _exits(table, self._number == EXIT_GROUP)
        self._signs = signs_of(self._number, _first_args(table))
        self._thread = numbers(table, "thread", -1)
        self._rows = Grouped.by(self._thread, self._index, self._enter)
        self.places = Places.nowhere(len(table))
        self._own = np.zeros(len(table), np.bool_)

    def __len__(self) -> int:
        return len(self._index)

    @property
    def own(self) -> Bools:
        """Which rows are libtthread's own calls; known when all threads were placed."""
        return self._own

    def in_thread(self, thread: int) -> int:
        """How many calls a thread made."""
        return len(self._rows.of(thread))

    def place(self, thread: int, found: tuple[I64, I32], gaps: I64,
              clock: Callable[[], Iterator[Moments]]) -> ThreadCalls:
        """Place a thread's calls at the system-call blocks `found` in its flow (ordinals, block numbers)."""
        rows = self._rows.of(thread)
        indexed = rows[self._index[rows] >= 0]
        if self._program and self._addresses:
            self._own[rows] = self._of_library(thread, rows)
        align = indexed if len(indexed) else rows
        if len(align) and len(found[0]):
            self._align(thread, align, found, gaps, clock, trusted=bool(len(indexed)))
        others = rows[self.places.how[rows] == 0]
        if len(others) and not len(gaps):
            self._by_time(others, clock)
        return self._learn(rows, self._sigreturns(thread, rows, found))

    def _of_library(self, thread: int, rows: I64) -> Bools:
        """Calls of a thread that libtthread's code makes for itself, or has made for it."""
        own = self._library.makes(thread, self._enter[rows], self._ip[rows], self._number[rows])
        # where calls were lost, a sign may seem to belong to another
        return own | makes_between(own, self._signs[rows]) if self._complete else own

    def flag_own(self) -> None:
        """Tell the program which code is libtthread's own work: after the thunk markers were flagged."""
        if self._program and self._addresses:
            self._library = Library(self._program, self._addresses)

    def disown(self, thread: int) -> None:
        """A thread is libtthread's own: so are its calls."""
        self._own[self._rows.of(thread)] = True

    def disown_work(self, thread: int, visits: npt.NDArray[np.void]) -> None:
        """Calls made during libtthread's own work (VISIT_DTYPE) are its own, whoever made them for it."""
        rows = self._rows.of(thread)
        if self._program and len(rows):
            self._own[rows] |= self._library.during(visits, self.places.seq[rows])

    def _align(self, thread: int, rows: I64, found: tuple[I64, I32], gaps: I64,
               clock: Callable[[], Iterator[Moments]], *, trusted: bool) -> None:
        assert self._program is not None and self._addresses is not None
        seqs, numbers_ = found
        block = self._program.blocks[numbers_]
        at_ip, at_place = block["ip"] + block["last"], block["addr"] + block["last"]
        ip, known = self._ip[rows], self._has_ip[rows]
        place = self._addresses.locate(thread, self._enter[rows], ip)

        def match(records: I64, occurrences: I64) -> Bools:
            same = ip[records] == at_ip[occurrences]
            there = (place[records] != 0) & (place[records] == at_place[occurrences])
            fits: Bools = same | there | ~known[records]
            return fits

        end = np.where(self._returned[rows], self._exit[rows], FAR)
        placed = Aligner(
            Records(self._enter[rows], np.maximum(end, self._enter[rows])),
            Occurrences(seqs, lambda: bounds(seqs, clock())), gaps, match,
            trusted=trusted, complete=trusted or self._complete).run()
        occurrence, exact = placed.all()
        hit = occurrence >= 0
        self.places.put(rows[hit], seqs[occurrence[hit]], exact[hit])

    def _sigreturns(self, thread: int, rows: I64, found: tuple[I64, I32]) -> I64:
        """Ordinals of the blocks in `found` at whose instruction nothing but rt_sigreturn was ever called: known also
        where it is not known which of the calls each is."""
        if not self._program or not self._addresses or not len(rows):
            return np.empty(0, np.int64)
        seqs, numbers_ = found
        block = self._program.blocks[numbers_]
        place = self._addresses.locate(thread, self._enter[rows], self._ip[rows])
        returns = self._number[rows] == RT_SIGRETURN
        there = np.isin(block["addr"] + block["last"], np.setdiff1d(place[returns & (place != 0)], place[~returns]))
        return seqs[there]

    def _by_time(self, rows: I64, clock: Callable[[], Iterator[Moments]]) -> None:
        """Put rows at the block that ran when they were made, as far as the clock tells."""
        times = self._enter[rows]
        seqs = np.full(len(rows), -1, np.int64)
        last: tuple[int, int] | None = None
        for anchor_seqs, anchor_times in clock():
            if not len(anchor_seqs):
                continue
            if last:
                anchor_seqs = np.concatenate([[last[0]], anchor_seqs])
                anchor_times = np.concatenate([[last[1]], anchor_times])
            inside = (times >= anchor_times[0]) & (times <= anchor_times[-1]) & (seqs < 0)
            seqs[inside] = np.interp(times[inside], anchor_times, anchor_seqs).astype(np.int64)
            last = int(anchor_seqs[-1]), int(anchor_times[-1])
        self.places.put(rows, seqs, np.zeros(len(rows), np.bool_))

    def _learn(self, rows: I64, sigreturns: I64) -> ThreadCalls:
        exact = rows[self.places.how[rows] == 2]
        behind = self.places.seq[exact] + 1
        left = self._returned[exact]
        timed = self._number[exact] != EXIT  # a task whose thread goes on as another may take its time to end
        moments = (np.concatenate([behind[timed], behind[left]]),
                   np.concatenate([self._enter[exact][timed], self._exit[exact][left]]))
        went_on = behind[self._number[exact] == EXIT]  # a thread that goes on after it is another task
        events = np.concatenate([
            events_of(lib.PTM_MOVED, went_on),
            events_of(lib.PTM_SIGRETURN, np.union1d(behind[self._number[exact] == RT_SIGRETURN], sigreturns + 1)),
            events_of(lib.PTM_EXEC, behind[self._replaced[exact]])])
        return ThreadCalls(moments, events)

    def write(self, bundle: Bundle, scratch: Queries, programs: dict[int, int]) -> None:
        """Write the table, sorted by thread and place: the program's calls.

        `programs`: the process id each thread's program has.
        """
        rows = self._in_table()
        done = 0
        with TableWriter(bundle.tables, SYSCALLS) as writer:
            for batch in in_order(scratch, FILE, _WRITTEN, rows):
                part, done = rows[done:done + len(batch)], done + len(batch)
                seq, placed = self.places.columns(part)
                found = {name: batch.column(name) for name in _WRITTEN.names}
                found |= {"pid": _programs_of(self._thread[part], found["pid"], programs), "seq": seq, "placed": placed}
                writer.write(pa.table([found[name] for name in SYSCALLS.schema.names], SYSCALLS.schema.names)
                             .cast(SYSCALLS.schema))

    def _in_table(self) -> I64:
        """The program's calls, by thread and place: what has none comes last."""
        last = np.iinfo(np.int64).max
        thread, seq = (np.where(key < 0, last, key) for key in (self._thread.astype(np.int64), self.places.seq))
        order = np.lexsort((self._enter, seq, thread))
        rows: I64 = order[~self._own[order]]
        return rows

    def account(self, ledger: Ledger) -> None:
        """Count where they were placed, and those of libtthread."""
        self.places.account(ledger, "placed/syscalls")
        ledger.drop("syscalls/libtthread_own")
        if self._own.any():
            ledger.add("syscalls/libtthread_own", "calls", stored=int(self._own.sum()))


def _exits(table: pa.Table, here: Bools) -> dict[int, int]:
    """pid → what it gave exit_group."""
    last = table.select(["pid", "args"]).filter(pa.array(here)).to_pylist()
    return {row["pid"]: row["args"][0] for row in last if row["pid"] is not None and row["args"]}


def _first_args(table: pa.Table) -> I64:
    """The first argument of each call, 0 where there is none."""
    args = table.column("args").combine_chunks()
    values = np.append(args.values.fill_null(0).to_numpy(), np.uint64(0)).view(np.int64)
    offsets = args.offsets.to_numpy()
    return np.where(offsets[1:] > offsets[:-1], values[offsets[:-1]], 0)


def _programs_of(threads: I64, pids: pa.Array, programs: dict[int, int]) -> pa.Array:
    """The process ids of threads' programs: those of `programs`, else those that the calls were made with."""
    distinct, which = np.unique(threads, return_inverse=True)
    known = np.array([programs.get(thread, -1) for thread in distinct.tolist()], np.int32)[which]
    return pc.if_else(pa.array(known >= 0), pa.array(known), pids)
