# SPDX-License-Identifier: MIT
"""The merge: from decoded streams to answers.

For each thread its flow is gone over twice: once to find where its system calls are, so that their times become known
moments, and once to walk it with a shadow call stack, which also finds the executed thunk markers. Several threads are
walked at a time.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa

from ptweave.data.bundle import Bundle
from ptweave.data.errors import BadInput
from ptweave.data.ledger import Ledger
from ptweave.data.parquet_writer import ParquetWriter
from ptweave.data.schemas import (
    ACCESSES,
    ALLOCATIONS,
    CALL_STACKS,
    CALLS,
    CLOCK,
    EDGES,
    FLOW,
    GAPS,
    PROBES,
    PROCESSES,
    PROFILE,
    PT_EVENTS,
    RACES,
    STACKS,
    SYSCALLS,
    TAGS,
    THREADS,
    THUNKS,
    TRANSFERS,
    WATCHES,
    Table,
)
from ptweave.data.table_writer import TableWriter, write_table
from ptweave.data.written import Written
from ptweave.merge import access_files, syscalls, thunks
from ptweave.merge import events as event_streams
from ptweave.merge import moments as moment_streams
from ptweave.merge._merge import lib
from ptweave.merge.access_files import Queried, another, open_access_files
from ptweave.merge.accesses import Accesses, Lines
from ptweave.merge.addresses import Addresses
from ptweave.merge.beside import Ahead, Beside
from ptweave.merge.events import Events, events_of, interruptions, merge_events
from ptweave.merge.flow_rows import FlowRows, FlowStretch
from ptweave.merge.graph import GraphTables, Paged
from ptweave.merge.kept_flow import Cut, KeptFlow, Stretches
from ptweave.merge.moments import Moments, joined, known_moments
from ptweave.merge.parts import walk_in_parts
from ptweave.merge.program import Program
from ptweave.merge.recorded_stacks import RecordedStacks
from ptweave.merge.scratch import Scratch
from ptweave.merge.syscalls import SystemCalls, ThreadCalls
from ptweave.merge.tables import I32, I64, U64, ThreadRows, numbers, table_files
from ptweave.merge.tags import PROBED, TAGGED, WATCHED, Tags
from ptweave.merge.tasks import Tasks, load_tasks
from ptweave.merge.threads import forking_functions, start_routines, thread_table
from ptweave.merge.thunks import Thunks
from ptweave.merge.transfers import Transfers
from ptweave.merge.variables import Variables
from ptweave.merge.walk import Folds, Marks, Stretch, Walked, Walker
from ptweave.merge.walks import MOST_WALKS, Walk, Walks

_MADE_HERE = (THREADS, PROCESSES, SYSCALLS, THUNKS, ACCESSES, ALLOCATIONS, TRANSFERS, EDGES, RACES, TAGS, PROBES,
              WATCHES, PROFILE, STACKS, CALL_STACKS, CALLS)
_LACKS = "merge: "
_CALLS_FILE = "calls.parquet"
_FEW_ROWS = 1 << 17  # of flow
_PART_ROWS = 1 << 18
_SOON = 9
"""Stretches of flow: row groups, 36 MiB. Memory that is new takes longer than what it would save."""
_FIRST = 2
"""Threads whose flows were gone over once and are not walked yet, where one is walked at a time: all but one are short
then."""
_NONE: I64 = np.empty(0, np.int64)


def merge_run(bundle: Bundle, *, calls: bool = False, progress: Callable[[int, int], None] | None = None,
              jobs: int = 1, paths: Written | None = None) -> None:
    """Make the tables threads, processes, syscalls, thunks, accesses, allocations, transfers, edges, races, tags,
    probes, watches, profile, stacks, call_stacks, and calls when asked for.

    Reads `tables/` and `decoded/` as decoding left them; whatever is missing there leaves its tables out, and
    `manifest.lacks` says so. Running it again replaces what it made. `progress(done, total)` counts rows of flow,
    twice; it may be called by any thread, one at a time. The flows of up to `jobs` threads are walked at a time, of one
    where `calls` are asked for; the tables are the same however many. `paths`: see `Program`. The ledger
    gets `placed/syscalls`, `placed/thunks`, `placed/accesses`, `accesses/pages`, `edges/pages` and `profile`.
    Raises BadInput for a table that is corrupt, MachineLacks when memory or disk run out.
    """
    merge = _Merge(bundle, calls=calls, progress=progress, jobs=jobs, paths=paths)
    try:
        merge.run()
    finally:
        merge.close()


@dataclass
class _Thread:
    """A thread, and what is known of it when it is walked: its flow, where that has blocks that are system calls (None:
    it was not gone over yet), the ordinal it ends at, its gaps, its system calls."""

    number: int
    flow: KeptFlow
    found: tuple[I64, I32] | None = None
    gaps: I64 = field(default_factory=lambda: _NONE)
    end: int = 0
    calls: ThreadCalls | None = None


class _Merge:
    """One merge of one bundle."""

    def __init__(self, bundle: Bundle, *, calls: bool, progress: Callable[[int, int], None] | None, jobs: int,
                 paths: Written | None) -> None:
        self._bundle = bundle
        self._want_calls = calls
        self._jobs = jobs
        self._paths_written = paths
        self._progress = progress
        self._reporting = Lock()
        self._done = 0
        self._total = 0
        self._open = ExitStack()
        self._stop = ExitStack()
        self._beside = Beside()
        self._ledger: Ledger = bundle.ledger()

    def close(self) -> None:
        self._stop.close()
        self._beside.close()  # it reads what is closed next
        self._open.close()
        (self._bundle.decoded / _CALLS_FILE).unlink(missing_ok=True)

    def run(self) -> None:
        self._forget()
        self._have_syscalls = (self._bundle.decoded / syscalls.FILE).exists()
        self._tasks: Tasks = load_tasks(self._bundle)
        program = self._beside.start(self._load_program)
        code = self._beside.start(partial(self._load_code, program))
        self._scratch = self._open.enter_context(Scratch(self._bundle.decoded, self._beside))
        self._flow = FlowRows(self._bundle)
        self._open.callback(self._flow.close)
        self._threads, self._sizes = self._flow.threads(), self._flow.sizes()
        self._clock = self._rows(CLOCK, moment_streams.COLUMNS)
        self._pt_events = self._rows(PT_EVENTS, event_streams.COLUMNS)
        self._gap_rows = self._rows(GAPS, ["seq"])
        self._soon = self._read_soon()
        self._total = 2 * self._flow.rows
        self._together = self._at_a_time()
        self._begun = self._begin_soon(program)
        self._thunks = self._load_thunks()
        code.result()
        if self._thunks is not None:
            self._thunks.know(self._scratch, self._program, self._addresses)
        self._accesses = self._load_accesses()
        self._tags = [Tags(self._bundle, source) for source in (TAGGED, PROBED, WATCHED)
                      if (self._bundle.decoded / source.file).exists()]
        if self._syscalls:
            self._syscalls.flag_own()
        self._program.compile()
        if self._accesses and isinstance(self._accesses.files, Queried):
            self._scratch.begin()  # all that walks wait for comes first
        self._graph = self._begin_graph()
        with ExitStack() as written:
            self._walk_threads(written)
            self._write()
        self._account()

    # --- inputs ---------------------------------------------------------------------------------------------------

    def _forget(self) -> None:
        """Remove what an earlier merge made: in the bundle's own folders, not where a link leads."""
        for folder in (self._bundle.tables, self._bundle.decoded):
            if folder.is_symlink():
                raise BadInput("is a link", where=str(folder), remedy="put the folder itself there")
        for table in _MADE_HERE:
            folder = self._bundle.tables / table.name
            if folder.is_symlink():
                folder.unlink()
            elif folder.exists():
                shutil.rmtree(folder)
        self._ledger.drop("placed/")
        self._ledger.drop("profile")
        self._bundle.save_ledger(self._ledger)

    def _rows(self, table: Table, columns: list[str]) -> ThreadRows:
        rows = ThreadRows(self._bundle, table, columns)
        self._open.callback(rows.close)
        return rows

    def _read_soon(self) -> dict[int, Ahead[FlowStretch]]:
        """The flow of the thread that has most, if that is much: the first of it is read while all else is loaded."""
        longest = max(self._sizes, key=lambda thread: self._sizes[thread], default=None)
        if longest is None or self._jobs == 1 or self._sizes[longest] < _FEW_ROWS:
            return {}
        soon = self._beside.soon(self._flow.stretches(longest), _SOON)
        self._stop.callback(soon.close)
        return {longest: soon}

    def _load_program(self) -> None:
        """What was executed."""
        self._program = Program(self._bundle, self._paths_written)
        self._paths_written = None
        self._open.callback(self._program.close)

    def _load_code(self, program: Future[None]) -> None:
        """Where that was, and the system calls made there."""
        program.result()
        self._addresses = Addresses(self._bundle, self._program, self._tasks)
        self._syscalls = (SystemCalls(self._bundle, self._program, self._addresses, self._ledger)
                          if self._have_syscalls else None)

    def _begin_soon(self, program: Future[None]) -> Ahead[_Thread] | None:
        """The threads, gone over for the first time while all else is loaded, and while those before them are walked:
        where it is one that is walked at a time, and a processor is left for it."""
        if self._together > 1 or self._want_calls or self._jobs == 1:
            return None

        def gone_over() -> Iterator[_Thread]:
            program.result()
            for thread in self._threads:
                one = self._begin(thread)
                self._find_system_calls(one)
                yield one

        begun = self._beside.soon(gone_over(), _FIRST)
        self._stop.callback(begun.close)
        return begun

    def _load_thunks(self) -> Thunks | None:
        if not (self._bundle.decoded / thunks.FILE).exists():
            return None
        return Thunks(self._scratch, self._ledger, self._beside)

    def _begin_graph(self) -> Callable[[], Paged | None] | None:
        """The order of thunks, and what they accessed: found beside the walk, or by who asks for it, if that reads with
        `scratch`."""
        if not self._thunks:
            return None
        graph = GraphTables(self._bundle, self._scratch, self._thunks.rows)
        self._open.callback(graph.close)

        def made() -> Paged | None:
            graph.order(self._beside.pool)
            if not self._accesses:
                return None
            lines = Lines(self._bundle, self._program, self._addresses)
            variables = Variables(self._bundle, self._addresses)
            with another(self._accesses.files, self._scratch) as files:
                return graph.data(files, self._tasks, lines, variables, self._beside.pool)

        return self._beside.start(made).result if self._thunks.rows.sorted else made

    def _load_accesses(self) -> Accesses | None:
        """Nothing when none were recorded: only threads that run as processes have them."""
        if not (self._bundle.decoded / access_files.FILE).exists():
            return None
        found = Accesses(self._bundle, open_access_files(self._scratch), self._ledger)
        found.flag_markers(self._program)
        return found

    # --- the walk -------------------------------------------------------------------------------------------------

    def _report(self, rows: int) -> None:
        with self._reporting:
            self._done += rows
            if self._progress:
                self._progress(min(self._done, self._total), self._total)  # some is walked again: see walks.py

    def _gaps(self, thread: int) -> I64:
        parts = [numbers(batch, "seq") for batch in self._gap_rows.batches(thread)]
        return np.unique(np.concatenate([np.empty(0, np.int64), *parts]))

    def _walk_threads(self, written: ExitStack) -> None:
        """`written`: tables whose last rows are still compressed when this is over."""
        folds = Folds()
        with ExitStack() as files:
            walker = files.enter_context(self._walker())
            walks = files.enter_context(Walks(walker, self._helper, self._together))
            profile = written.enter_context(TableWriter(self._bundle.tables, PROFILE, pool=self._beside.pool))
            sink = None
            if self._want_calls:
                sink = files.enter_context(ParquetWriter(
                    str(self._bundle.decoded / _CALLS_FILE), CALLS.schema, compression="lz4"))
            for one, walked in walks.of(self._work(thread, sink) for thread in self._threads):
                self._place(one, walked.marks)
                folds += walked.folds
                for rows in walked.counted.profile(one.number):
                    profile.write(rows)
            profile.end()
            self._number_stacks(RecordedStacks(walker, self._addresses))
            stacks = written.enter_context(TableWriter(self._bundle.tables, STACKS, encoded=["function"],
                                                       pool=self._beside.pool))
            walker.write_stacks(stacks)
            stacks.end()
            self._folds = folds

    def _helper(self) -> Walker:
        return self._walker(helps=True)

    def _walker(self, *, helps: bool = False) -> Walker:
        return Walker(self._program, calls=self._want_calls, where=str(self._bundle.tables / FLOW.name), helps=helps)

    def _at_a_time(self) -> int:
        """How many threads are walked at a time: one where calls are asked for, which are numbered as they are met, and
        where the others together have so little that it takes longer to put the trees of stacks together."""
        largest = max(self._sizes.values(), default=0)
        if self._want_calls or self._flow.rows - largest < max(_FEW_ROWS, largest // 4):
            return 1
        return min(self._jobs, len(self._threads), MOST_WALKS)

    def _number_stacks(self, recorded: RecordedStacks) -> None:
        """Stacks that were logged, in the same table as the walked ones."""
        if self._thunks:
            self._thunks.number_stacks(recorded)
        if self._accesses:
            self._accesses.number_stacks(recorded)
        with TableWriter(self._bundle.tables, CALL_STACKS, encoded=["functions"]) as writer:
            recorded.write(writer)

    def _begin(self, thread: int) -> _Thread:
        def read(skip: int) -> Stretches:
            soon = None if skip else self._soon.pop(thread, None)
            return soon or self._beside.ahead(self._flow.stretches(thread, skip))

        divided = self._parts(self._sizes.get(thread, 0)) > 1
        return _Thread(thread, KeptFlow(read, self._program, divided=divided))

    def _work(self, thread: int, sink: Any) -> tuple[_Thread, Walk]:
        """A thread, and what goes over its flow for the first and the second time. Several threads' may be gone over at
        a time: but for what each reads of the tables, nothing that is changed is common to them."""
        one = next(self._begun) if self._begun else self._begin(thread)

        def walk(walker: Walker) -> Walked:
            if not one.found:
                self._find_system_calls(one, walker.go_on)
            calls = one.calls or self._place_system_calls(one)

            def emit(rows: Any) -> None:
                sink.write_table(walker.calls(one.number, rows))

            stretches = self._stretches(one, calls)
            walker.begin(stretches[0].markers)
            if len(stretches) > 1:
                walk_in_parts(walker, stretches, self._helper, self._report)
            else:
                walker.go(stretches[0], emit if sink else None, self._report)
            one.flow.drop()
            return walker.walked()

        return one, walk

    def _parts(self, rows: int) -> int:
        """In how many parts a thread of so many rows is walked: one where others are walked beside it, too."""
        if self._together > 1 or self._want_calls:
            return 1
        return max(1, min(self._jobs, rows // _PART_ROWS, MOST_WALKS))

    def _stretches(self, one: _Thread, calls: ThreadCalls) -> list[Stretch]:
        """A thread's flow, in parts that are walked at a time where it is long."""
        flow = one.flow
        cuts = [Cut(), *flow.cuts(self._parts(flow.end.rows)), flow.end]
        seqs = [flow.seq(cut) for cut in cuts[:-1]]
        events = self._events(one.number, one.gaps, calls)
        of_each = np.split(events, np.searchsorted(events["seq"], seqs[1:]))
        moments = partial(self._moments, one.number, calls, one.end)
        markers = self._thunks.in_thread(one.number) if self._thunks else 0
        return [Stretch(partial(flow.again, begin, end), moments, some, seq, begin.before, end is flow.end, markers)
                for (begin, end), seq, some in zip(pairwise(cuts), seqs, of_each, strict=True)]

    def _place_system_calls(self, one: _Thread) -> ThreadCalls:
        """After the first going over."""
        assert one.found, "it was gone over"
        one.gaps = self._gaps(one.number)
        one.end = one.flow.seq(one.flow.end)
        one.calls = ThreadCalls((_NONE, _NONE), merge_events([]))
        if self._syscalls and self._syscalls.in_thread(one.number):
            one.calls = self._syscalls.place(one.number, one.found, one.gaps,
                                             lambda: known_moments(self._clock, one.number))
        return one.calls

    def _place(self, one: _Thread, marks: Marks) -> None:
        """What was recorded of a thread, where it was executed."""
        thread, gaps, end, calls = one.number, one.gaps, one.end, one.calls
        assert calls is not None, "it was walked"

        def moments() -> Iterator[Moments]:
            return self._moments(thread, calls, end)

        if self._syscalls:
            self._syscalls.disown_work(thread, marks.visits)
        if self._thunks:
            self._thunks.place(thread, marks.thunks, marks.callers, gaps, end, moments, self._program, self._addresses)
        if self._accesses:
            self._accesses.place(thread, marks.visits, gaps, moments, self._program,
                                 lambda: self._thunks.begins(thread) if self._thunks else (_NONE, _NONE))
        for some in self._tags:
            some.place(thread, moments)

    def _find_system_calls(self, one: _Thread, go_on: Callable[[], None] = lambda: None) -> None:
        """The first going over. `go_on` may raise."""
        found: list[tuple[I64, I32]] = [(_NONE, np.empty(0, np.int32))]
        for survey in one.flow.first():
            go_on()
            if self._have_syscalls:
                found.append((survey.seqs, survey.blocks))
            self._report(survey.rows)
        seqs, blocks = (np.concatenate(parts) for parts in zip(*found, strict=True))
        one.found = seqs, blocks

    def _events(self, thread: int, gaps: I64, calls: ThreadCalls) -> Events:
        jumps = interruptions(self._pt_events, thread, self._clock, self._addresses, self._program)
        return merge_events([events_of(lib.PTM_GAP, gaps), calls.events, jumps])

    def _moments(self, thread: int, calls: ThreadCalls, end: int) -> Iterator[Moments]:
        """Everything known of time in a thread's flow, from the thread's begin to its end."""
        task = self._tasks.threads.get(thread)
        edges = [(seq, t) for seq, t in ((0, task.t_start), (end, task.t_end)) if t is not None] if task else []
        more = (np.concatenate([calls.moments[0], np.array([seq for seq, _ in edges], np.int64)]),
                np.concatenate([calls.moments[1], np.array([t for _, t in edges], np.int64)]))
        for batch in joined(known_moments(self._clock, thread), more):
            self._tasks.lived(thread, int(batch[1][-1]))
            yield batch

    # --- outputs --------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        bundle = self._bundle
        starts = start_routines(bundle, self._tasks, self._program, self._addresses)
        if self._thunks:
            for thread in self._tasks.threads:
                self._tasks.lived(thread, self._thunks.end(thread))
        if self._syscalls:
            for task in self._tasks.threads.values():
                if task.own:
                    self._syscalls.disown(task.thread)
            self._tasks.learn_exits(self._syscalls.exits)
        if bundle.sideband.exists():
            write_table(bundle.tables, PROCESSES, self._tasks.process_table())
        beside = [self._beside.start(write) for write, of in ((self._write_calls, self._syscalls),
                                                              (self._write_accesses, self._accesses)) if of]
        if self._thunks:
            self._thunks.write(bundle, self._program, Variables(bundle, self._addresses), self._beside)
            starts = forking_functions(bundle, self._tasks) | starts
        write_table(bundle.tables, THREADS, thread_table(bundle, self._tasks, self._program, starts))
        for written in beside:
            written.result()
        if self._graph:
            self._account_pages(self._graph())
        for some in self._tags:
            some.write(bundle, self._functions)
        if self._want_calls:
            with TableWriter(bundle.tables, CALLS, pool=self._beside.pool) as writer:
                columns = ", ".join(f'"{name}"' for name in CALLS.schema.names)
                for batch in self._scratch.batches(_CALLS_FILE, f"select {columns} from source order by thread, call"):
                    writer.write(pa.table(batch).cast(CALLS.schema))

    def _write_calls(self) -> None:
        """System calls and what they moved: beside the rest."""
        assert self._syscalls
        with self._scratch.another() as scratch:
            self._syscalls.write(self._bundle, scratch, self._programs())
            Transfers(self._tasks, self._syscalls, self._thunks).write(self._bundle, scratch)

    def _write_accesses(self) -> None:
        assert self._accesses
        self._accesses.write(self._bundle, Lines(self._bundle, self._program, self._addresses),
                             Variables(self._bundle, self._addresses), self._beside.pool)

    def _account_pages(self, paged: Paged | None) -> None:
        self._ledger.drop("edges/pages")
        if paged:
            self._ledger.add("edges/pages", "pages", stored=paged.stored, lost={"of no thunk": paged.lost})

    def _programs(self) -> dict[int, int]:
        """Process ids of threads' programs, where these are not the threads' own."""
        found = {thread: self._tasks.program(thread) for thread in self._tasks.threads}
        return {thread: pid for thread, pid in found.items()
                if pid is not None and pid != self._tasks.threads[thread].pid}

    def _functions(self, threads: I64, times: I64, addresses: U64) -> pa.DictionaryArray:
        """Functions of return addresses: of the instruction before each."""
        found = np.zeros(len(addresses), np.int64)
        for thread in np.unique(threads):
            here = threads == thread
            places = self._addresses.locate(int(thread), times[here], addresses[here] - np.uint64(1))
            found[here] = self._addresses.functions_at(places)
        return self._program.encoded_names(found)

    def _account(self) -> None:
        if self._syscalls:
            self._syscalls.account(self._ledger)
        if self._thunks:
            self._thunks.places.account(self._ledger, "placed/thunks")
        if self._accesses:
            self._accesses.places.account(self._ledger, "placed/accesses")
        if self._flow.rows:
            self._ledger.add("profile", "calls", stored=self._folds.whole,
                             lost={"stack too deep": self._folds.deep, "too many stacks": self._folds.many})
        self._bundle.save_ledger(self._ledger)
        manifest = self._bundle.manifest
        missing = {"no flow was decoded: no profile, and nothing is placed": not self._flow.rows,
                   "no decoded system calls": self._syscalls is None, "no decoded thunks": self._thunks is None}
        manifest.lacks = [line for line in manifest.lacks if not line.startswith(_LACKS)]
        manifest.lacks += [_LACKS + line for line, lacks in missing.items() if lacks]
        self._bundle.save_manifest()


def is_merged(bundle: Bundle) -> bool:
    """Whether a bundle was merged."""
    return bool(table_files(bundle, THREADS))


