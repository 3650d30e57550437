# SPDX-License-Identifier: MIT
"""Two runs of one program: what differs between them, and apart from that what only took another time.

Threads are put beside each other, then their flows (`compare`), system calls and thunks. A row is a place where they
differ, told by where it is in both, how often, and with both call stacks at the first time. First come differences in
functions whose code is not the same, then those in the program's own code, then in libraries, then before `main`; in
each of these groups in the order of time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ptweave.data.bundle import Bundle
from ptweave.data.errors import BadInput
from ptweave.data.schemas import CLOCK, FLOW, GAPS, PT_EVENTS
from ptweave.merge import events as event_streams
from ptweave.merge import moments as moment_streams
from ptweave.merge._merge import lib
from ptweave.merge.addresses import Addresses
from ptweave.merge.compare import Apart, Comparer, Difference, Frame, Way
from ptweave.merge.diff_records import Group, Records, compare_records, timing_rows
from ptweave.merge.events import Events, events_of, interruptions, merge_events
from ptweave.merge.pairs import Pairs, Thread, match_threads
from ptweave.merge.places import Places, match_places
from ptweave.merge.run_code import Code
from ptweave.merge.syscalls import EXEC, EXIT, RT_SIGRETURN
from ptweave.merge.tables import I32, I64, ThreadRows, numbers
from ptweave.merge.tasks import load_tasks

if TYPE_CHECKING:
    from ptweave.merge.run import Run

SCHEMA = pa.schema([
    ("rank", pa.int32()), ("kind", pa.string()), ("thread", pa.int32()), ("other_thread", pa.int32()),
    ("function", pa.string()), ("file", pa.string()), ("line", pa.int32()), ("what", pa.string()),
    ("times", pa.int64()), ("value", pa.string()), ("other_value", pa.string()), ("blocks", pa.int64()),
    ("other_blocks", pa.int64()), ("calls", pa.list_(pa.string())), ("other_calls", pa.list_(pa.string())),
    ("t", pa.int64()), ("seq", pa.int64()), ("other_seq", pa.int64()), ("stack", pa.list_(pa.string())),
    ("other_stack", pa.list_(pa.string()))])
"""`kind`: flow, code, gap, end, system call, thunk, thread. Columns `other_…` are the other run's."""

TIMING = pa.schema([
    ("kind", pa.string()), ("thread", pa.int32()), ("other_thread", pa.int32()), ("detail", pa.string()),
    ("function", pa.string()), ("times", pa.int64()), ("ns", pa.int64()), ("other_ns", pa.int64()),
    ("more_ns", pa.int64()), ("thunk", pa.int32()), ("other_thunk", pa.int32())])
"""`kind`: wait, system call, running, order. `ns`: in all; `thunk`: where they differed most."""

THREADS = pa.schema([
    ("thread", pa.int32()), ("other_thread", pa.int32()), ("start_function", pa.string()),
    ("agreed_blocks", pa.int64()), ("places", pa.int64()), ("more_places", pa.int64())])
"""Threads beside each other; `places` where their flows differ."""


@dataclass
class Comparison:
    """What comparing two runs gave: Arrow tables of SCHEMA, TIMING and THREADS; `notes` say what was not compared."""

    differences: pa.Table
    timing: pa.Table
    threads: pa.Table
    notes: list[str] = field(default_factory=list)


OTHER_CODE = "the code is not the same"

Progress = Callable[[int, int], None]


def compare_runs(a: Run, b: Run, progress: Progress | None = None) -> Comparison:
    """Compare two runs. What cannot be compared is left out and noted. Raises BadInput for two runs of different
    programs, and for runs that were not merged. `progress(done, total)` counts rows of flow."""
    return _Diff(a, b, progress).run()


class _Diff:
    """One comparison."""

    def __init__(self, a: Run, b: Run, progress: Progress | None) -> None:
        self._runs = (a, b)
        self._bundles = (Bundle.open(a.path), Bundle.open(b.path))
        self._progress = progress
        self._notes: list[str] = []

    def _have(self, *tables: str) -> bool:
        """Whether both runs have these tables; what one alone lacks, or cannot be read, is noted."""
        lacks = [[name for name in tables if name in run.missing] for run in self._runs]
        for run, names, others in zip(self._runs, lacks, reversed(lacks), strict=True):
            for name in names:
                if name not in others or "was not made" not in run.missing[name]:
                    self._note(f"{run.path}: table {name}: {run.missing[name]}")
        return not any(lacks)

    def _note(self, line: str) -> None:
        if line not in self._notes:
            self._notes.append(line)

    def run(self) -> Comparison:
        for run in self._runs:
            if "threads" in run.missing:
                raise BadInput(f"table threads: {run.missing['threads']}", where=str(run.path))
        asks = [lambda sql, *params, run=run: run.ask(sql, *params).rows() for run in self._runs]
        pairs = match_threads(asks[0], asks[1], shapes=self._have("profile", "stacks", "images"))
        rows = [_thread_row(thread, here=True) for thread in pairs.only_a]
        rows += [_thread_row(thread, here=False) for thread in pairs.only_b]
        agreed: dict[int, tuple[int, int, int]] = {}
        rows += self._flows(pairs, agreed)
        records = Records(self._runs, pairs)
        timing: list[dict[str, Any]] = []
        for part, tables in (("system calls", ("syscalls",)), ("thunks", ("thunks",))):
            if self._have(*tables):
                try:
                    found, times = compare_records(records, part)
                except BadInput as error:
                    self._note(error.line())
                    continue
                rows += found
                timing += times
        if self._have("profile", "stacks"):
            timing += timing_rows(records)
        return Comparison(_ranked(rows), _by_difference(timing), _thread_table(pairs, agreed), self._notes)

    # --- flows --------------------------------------------------------------------------------------------------------

    def _flows(self, pairs: Pairs, agreed: dict[int, tuple[int, int, int]]) -> list[dict[str, Any]]:
        if not self._have("flow", "paths", "blocks", "images"):
            return []
        rows: list[dict[str, Any]] = []
        sides: list[_Side] = []
        try:
            sides = [_Side(bundle, run) for bundle, run in zip(self._bundles, self._runs, strict=True)]
            places = match_places(sides[0].code, sides[1].code)
            total = sum(side.flow.rows for side in sides)
            done = 0

            def advance(count: int) -> None:
                nonlocal done
                done += count
                if self._progress:
                    self._progress(done, total)

            with Comparer(sides[0].code, sides[1].code, places) as comparer:
                for one, other in pairs.pairs:
                    found = comparer.threads(
                        (sides[0].paths(one.number), sides[1].paths(other.number)),
                        (sides[0].events(one.number), sides[1].events(other.number)), advance)
                    agreed[one.number] = (found.agreed, len(found.differences), found.others)
                    rows += _flow_rows(found.differences, (one, other), sides, places)
                    if found.others:
                        self._note(f"thread {one.number}: {found.others} more differences, at places beyond the first "
                                   f"{len(found.differences)}")
            rows += _code_rows(sides, places, {(row["function"], row["line"]) for row in rows})
        finally:
            for side in sides:
                side.close()
        return rows


class _Side:
    """One run's flow and code."""

    def __init__(self, bundle: Bundle, run: Run) -> None:
        self.run = run
        self.code = Code(bundle)
        self.flow = ThreadRows(bundle, FLOW, ["seq", "path"])
        self._gaps = ThreadRows(bundle, GAPS, ["seq"])
        self._events = ThreadRows(bundle, PT_EVENTS, event_streams.COLUMNS)
        self._clock = ThreadRows(bundle, CLOCK, moment_streams.COLUMNS)
        self._addresses = Addresses(bundle, self.code.program, load_tasks(bundle))

    def close(self) -> None:
        for rows in (self.flow, self._gaps, self._events, self._clock):
            rows.close()
        self.code.close()

    def paths(self, thread: int) -> Iterator[tuple[I64, I32]]:
        """A thread's flow."""
        for batch in self.flow.batches(thread):
            yield numbers(batch, "seq", -1), numbers(batch, "path", -1)  # type: ignore[misc]

    def events(self, thread: int) -> Events:
        """What happened between its blocks, as merging had it."""
        gaps = [numbers(batch, "seq") for batch in self._gaps.batches(thread)]
        jumps = interruptions(self._events, thread, self._clock, self._addresses, self.code.program)
        calls = [] if "syscalls" in self.run.missing else self.run.ask(
            f"select seq, number, result from syscalls where thread = ? and placed = 'exact' and number in "
            f"({RT_SIGRETURN}, {EXIT}, {', '.join(map(str, EXEC))})", thread).rows()
        behind = {kind: np.array([seq + 1 for seq, number, result in calls if number in which and (result or 0) >= 0],
                                 np.int64)
                  for kind, which in ((lib.PTM_SIGRETURN, (RT_SIGRETURN,)), (lib.PTM_MOVED, (EXIT,)),
                                      (lib.PTM_EXEC, EXEC))}
        return merge_events([events_of(lib.PTM_GAP, np.unique(np.concatenate([np.empty(0, np.int64), *gaps]))), jumps,
                             *(events_of(kind, seqs) for kind, seqs in behind.items())])

    def when(self, thread: int, seqs: list[int]) -> dict[int, int]:
        """The last moments known before blocks."""
        known = list(moment_streams.known_moments(self._clock, thread))
        at = np.concatenate([np.empty(0, np.int64), *(one[0] for one in known)])
        times = np.concatenate([np.empty(0, np.int64), *(one[1] for one in known)])
        index = np.searchsorted(at, seqs, side="right") - 1
        return {seq: int(times[i]) for seq, i in zip(seqs, index.tolist(), strict=True) if i >= 0}

    def frames(self, stack: tuple[Frame, ...]) -> list[str]:
        """A call stack as texts, innermost first."""
        return [self.frame(frame) for frame in stack]

    def frame(self, frame: Frame) -> str:
        """A frame, and the line it was left on."""
        _, file, line = self.code.where_last(-1 if frame.block is None else frame.block)
        name = frame.function or "?"
        return name if file is None or line is None else f"{name} ({file}:{line})"


def _flow_rows(differences: list[Difference], threads: tuple[Thread, Thread], sides: list[_Side],
               places: Places) -> list[dict[str, Any]]:
    """Rows of flow differences; places in one line that go to the same lines are one."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    seqs = [one.a.from_seq if one.a.from_seq is not None else one.a.seq or 0 for one in differences]
    when = sides[0].when(threads[0].number, seqs)
    for one, at in zip(differences, seqs, strict=True):
        other_code = _is_other_code(one, sides, places)
        sure = one.a.block if one.a.from_block is None or other_code else one.a.from_block
        function, file, line = sides[0].code.where_last(-1 if sure is None else sure)
        ways = [_target(way, side) for way, side in zip((one.a, one.b), sides, strict=True)]
        key = (one.kind, function, file, line, *ways)
        if key in rows:
            rows[key]["times"] += one.times
            rows[key]["blocks"] += one.a.blocks
            rows[key]["other_blocks"] += one.b.blocks
            continue
        rows[key] = {
            "kind": one.kind.value, "thread": threads[0].number, "other_thread": threads[1].number,
            "function": function, "file": file, "line": line, "what": _what(one, sides, other_code), "times": one.times,
            "value": ways[0], "other_value": ways[1], "blocks": one.a.blocks, "other_blocks": one.b.blocks,
            "calls": _calls(one.a, one.b), "other_calls": _calls(one.b, one.a), "t": when.get(at), "seq": at,
            "other_seq": one.b.from_seq if one.b.from_seq is not None else one.b.seq,
            "stack": sides[0].frames(one.a.stack), "other_stack": sides[1].frames(one.b.stack),
            "group": (Group.CODE if other_code and _is_same_line(one, sides)
                      else _group(one, sides[0], places, function))}
    return list(rows.values())


def _code_rows(sides: list[_Side], places: Places, known: set[tuple[str | None, int | None]]) -> list[dict[str, Any]]:
    """Rows of code that both runs executed and that is not the same: of each function of the program the first line,
    unless that is known for a difference."""
    rows: dict[str | None, dict[str, Any]] = {}
    code = sides[0].code
    for one in sorted(places.unlike.values(), key=lambda one: int(code.offset[one.block])):
        function, file, line = code.where_instruction(one.block, one.at)
        if int(code.image[one.block]) not in places.own:
            continue
        row = rows.setdefault(function, {
            "kind": "code", "function": function, "file": file, "line": line, "what": OTHER_CODE, "times": 0,
            "value": one.text, "other_value": one.other_text, "group": Group.CODE})
        row["times"] += 1
    return [row for row in rows.values() if (row["function"], row["line"]) not in known]


def _target(way: Way, side: _Side) -> str:
    """Where a side went."""
    if way.block is None:
        return "ended"
    function, file, line = side.code.where(way.block)
    place = f"{function or '?'}" + ("" if line is None else f":{line}")
    return place if file is not None or function else f"block {way.block}"


_WHAT = {lib.PTM_COND_JUMP: "a branch went another way", lib.PTM_IND_JUMP: "a jump went elsewhere",
         lib.PTM_IND_CALL: "another function was called", lib.PTM_CALL: "another function was called",
         lib.PTM_RETURN: "a return went elsewhere", lib.PTM_SYSCALL: "another way on from a system call"}


def _is_other_code(one: Difference, sides: list[_Side], places: Places) -> bool:
    """Whether both went the same way from the last block that both executed: what follows there is other code."""
    came, went = one.a.from_block, one.a.block
    if came is None or went is None or one.b.from_block is None or one.b.block is None:
        return False
    if any(way.from_seq is None or way.seq != way.from_seq + 1 for way in (one.a, one.b)):
        return False  # something was between: the block they are at is not where the branch went, or its last part
    ends = int(sides[0].code.program.blocks["cls"][came])
    if ends == lib.PTM_COND_JUMP:
        return came not in places.unlike and sides[0].code.follows(came, went) == sides[1].code.follows(
            one.b.from_block, one.b.block)
    within = sides[0].code.where(went)[0] == sides[0].code.where(came)[0]
    return within and ends in (lib.PTM_JUMP, lib.PTM_OTHER)


def _is_same_line(one: Difference, sides: list[_Side]) -> bool:
    """Whether all that both executed until they agreed again was one block of the same line."""
    if one.a.block is None or one.b.block is None or not one.a.blocks == one.b.blocks == one.times:
        return False
    ours, theirs = ((side.code.where(block)[2], side.code.where_last(block)[2])
                    for side, block in zip(sides, (one.a.block, one.b.block), strict=True))
    return ours == theirs and None not in ours


def _what(one: Difference, sides: list[_Side], other_code: bool) -> str:
    if one.kind is Apart.END:
        return "this run's thread went on" if one.b.block is None else "the other run's thread went on"
    if one.kind is Apart.GAP:
        return "a hole in the record of one of them"
    if one.a.from_block is None:
        return "they begin in different places"
    if other_code:
        return OTHER_CODE
    return _WHAT.get(int(sides[0].code.program.blocks["cls"][one.a.from_block]), "another way was gone")


def _calls(own: Way, other: Way) -> list[str]:
    """Functions that one side called more often than the other, the first time."""
    theirs = dict(other.callees)
    more = [(name, count - theirs.get(name, 0)) for name, count in own.callees if not name.endswith("@plt")]
    return [name if count == 1 else f"{name} × {count}" for name, count in more if count > 0]


def _group(one: Difference, side: _Side, places: Places, function: str | None) -> Group:
    if (function or "").endswith("@plt"):
        return Group.LOADER  # the first call through it, wherever that is, has the loader find the function
    names = [frame.function for frame in one.a.stack]
    image = side.code.image[one.a.from_block] if one.a.from_block is not None else -1
    own = int(image) in places.own
    if function in places.changed and own:
        return Group.CHANGED
    began = "main" in names or side.code.main < 0 or own
    if not began and len(names) > 1 and any(name in _LOADING for name in names):
        return Group.LOADER
    return Group.PROGRAM if own else Group.LIBRARY


_LOADING = {"_dl_start", "_dl_start_user", "_dl_sysdep_start", "dl_main", "_dl_init", "_dl_fini", "_dl_relocate_object"}


# --- rows -------------------------------------------------------------------------------------------------------------


def _thread_row(thread: Thread, *, here: bool) -> dict[str, Any]:
    return {"kind": "thread", "thread" if here else "other_thread": thread.number, "function": thread.start,
            "what": "the other run has no such thread" if here else "only the other run has such a thread",
            "times": 1, "group": Group.PROGRAM}


def _ranked(rows: list[dict[str, Any]]) -> pa.Table:
    latest = 1 << 62
    rows.sort(key=lambda row: (row["group"], row["t"] if row.get("t") is not None else latest,
                               row.get("thread") if row.get("thread") is not None else latest,
                               row["seq"] if row.get("seq") is not None else latest))
    return pa.Table.from_pylist([{**row, "rank": rank} for rank, row in enumerate(rows, 1)], SCHEMA)


def _by_difference(rows: list[dict[str, Any]]) -> pa.Table:
    rows.sort(key=lambda row: -abs(row["more_ns"] or 0))
    return pa.Table.from_pylist(rows, TIMING)


def _thread_table(pairs: Pairs, agreed: dict[int, tuple[int, int, int]]) -> pa.Table:
    rows: list[dict[str, Any]] = []
    for one, other in pairs.pairs:
        blocks, places, more = agreed.get(one.number, (None, None, None))
        rows.append({"thread": one.number, "other_thread": other.number, "start_function": one.start,
                     "agreed_blocks": blocks, "places": places, "more_places": more})
    rows += [{"thread": one.number, "start_function": one.start} for one in pairs.only_a]
    rows += [{"other_thread": one.number, "start_function": one.start} for one in pairs.only_b]
    return pa.Table.from_pylist(rows, THREADS)
