# SPDX-License-Identifier: MIT
"""What timelines are made of: threads with their names, spans in order of time, and calls as they open and close."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ptweave.merge import timeline as timelines
from ptweave.merge.run import Run
from ptweave.merge.tables import I64, numbers

UNKNOWN = "[unknown]"
"""The name of a function that has none."""

THUNK = "thunk"
"""The fact of a span that no other one has."""

_NO_RUN = -2
"""Where the thread and the thunk of what ran are wanted; edges have -1 where they have none."""

_ROWS = 1 << 12  # that are Python objects at a time

_SYNC = "select from_thread, from_thunk, to_thread, to_thunk from edges where kind = 'sync'"

_CALLS = """
select "call", depth, function, t_enter, t_exit from calls
where thread = ? and t_enter is not null and t_exit is not null
  and (? is null or t_exit >= ?) and (? is null or t_enter <= ?) order by "call" """


@dataclass(frozen=True)
class Extent:
    """What is to be exported: one thread or all, from `begin` to `end` (ns) or throughout."""

    thread: int | None = None
    begin: int | None = None
    end: int | None = None


@dataclass(frozen=True)
class Thread:
    """A thread with the name it is shown by. `pid` and `tid`: the kernel's; its own number where they are unknown."""

    number: int
    pid: int
    tid: int
    name: str


@dataclass(frozen=True)
class Process:
    """A process id and the program it ran, the last one where it ran several."""

    pid: int
    name: str


@dataclass(frozen=True)
class Span:
    """Something a thread did from `begin` to `end` (ns). `what` as `Run.timeline` has it. `leaving` and `coming` are
    the ids of the releases of it that others acquired, and of those it acquired itself."""

    begin: int
    end: int
    thread: int
    what: str
    detail: str | None
    thunk: int | None
    object: int | None
    variable: str | None
    function: str | None
    leaving: tuple[int, ...] = ()
    coming: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """What it is shown as."""
        return self.detail if self.detail is not None else self.what

    @property
    def facts(self) -> Iterator[tuple[str, str]]:
        """What else is known of it."""
        if self.thunk is not None:
            yield THUNK, f"{self.thread}.{self.thunk}"
        if self.object is not None:
            yield "object", f"{self.object:#x}"
        if self.variable is not None:
            yield "variable", self.variable
        if self.function is not None:
            yield "function", self.function


@dataclass(frozen=True)
class Edge:
    """A call that opens (`function`) or the last one that is open closes (None), at `t`."""

    t: int
    function: str | None


def threads(run: Run, extent: Extent) -> list[Thread]:
    """The threads that have anything to show, by number."""
    rows = run.ask("""
        with all_threads as (
          select thread, pid, tid, start_function from threads
          union all by name
          (select distinct thread from thunks union select distinct thread from syscalls
           union select distinct thread from profile))
        select thread, any_value(pid), any_value(tid), any_value(start_function) from all_threads
        where thread is not null and (? is null or thread = ?) group by thread order by thread""",
                   extent.thread, extent.thread)
    return [Thread(number, pid if pid is not None else tid if tid is not None else number,
                   tid if tid is not None else number, f"{number} {function}" if function else str(number))
            for number, pid, tid, function in rows]


def processes(run: Run, known: list[Thread]) -> list[Process]:
    """The processes of these threads, by id."""
    names = dict(run.ask("select pid, arg_max(exe, space) from processes where exe is not null group by pid").rows())
    return [Process(pid, str(names.get(pid, pid))) for pid in sorted({thread.pid for thread in known})]


class _Ends:
    """One end of each synchronisation: which have theirs in a thunk. Memory: 16 bytes each."""

    def __init__(self, thread: I64, thunk: I64) -> None:
        keys = _key(thread, thunk)
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]

    def of(self, thread: I64, thunk: I64) -> list[tuple[int, ...]]:
        """Ids of those of each thunk."""
        keys = _key(thread, thunk)
        first, after = np.searchsorted(self._keys, keys), np.searchsorted(self._keys, keys, "right")
        found: list[tuple[int, ...]] = [()] * len(keys)
        for at in np.flatnonzero(after > first).tolist():
            found[at] = tuple((self._order[first[at]:after[at]] + 1).tolist())
        return found


def _key(thread: I64, thunk: I64) -> I64:
    """One number of both; thunks of each thread are numbered in 31 bits."""
    return thread << 31 | thunk


def spans(run: Run, extent: Extent) -> Iterator[Span]:
    """Operations, running, system calls and gaps in order of time."""
    question = timelines.question(run.names_of(timelines.names()), thread=extent.thread, begin=extent.begin,
                                  end=extent.end)
    leaving, coming = _synchronised(run)
    _, batches = run.ask(question.sql, *question.params).stream(_ROWS)
    for batch in batches:
        kept = batch.filter(pc.and_(pc.is_valid(batch["thread"]), pc.is_valid(batch["t_begin"])))
        rows = kept.select(["t_begin", "t_end", "thread", "what", "detail", "thunk", "object", "variable", "function"])
        runs = pc.and_(pc.equal(kept["what"], "run"), pc.is_valid(kept["thunk"]))
        thread, thunk = (pc.if_else(runs, kept[name].cast(pa.int64()), _NO_RUN).to_numpy(zero_copy_only=False)
                         for name in ("thread", "thunk"))
        columns = [column.to_pylist() for column in rows.columns]
        for begin, end, *others, left, came in zip(
                *columns, leaving.of(thread, thunk), coming.of(thread, thunk), strict=True):
            number, what, detail, of, object_, variable, function = others
            yield Span(begin, max(begin, end if end is not None else begin), number, what, detail, of, object_,
                       variable, function, left, came)


def _synchronised(run: Run) -> tuple[_Ends, _Ends]:
    """The releases of synchronisation edges, and the acquires."""
    if "edges" in run.missing:
        nothing = np.zeros(0, np.int64)
        return _Ends(nothing, nothing), _Ends(nothing, nothing)
    table = run.ask(_SYNC).arrow()
    by, released, to, acquired = (numbers(table, name, -1).astype(np.int64) for name in table.column_names)
    return _Ends(by, released), _Ends(to, acquired)


def calls(run: Run, thread: int, extent: Extent) -> Iterator[Edge]:
    """A thread's calls as they open and close, in order, each within the one it was made in.

    Memory is that of the calls open at a time.
    """
    still_open: list[tuple[int, int]] = []  # depth and end
    now = 0
    for _, depth, function, enter, leave in run.ask(_CALLS, thread, extent.begin, extent.begin, extent.end,
                                                    extent.end):
        while still_open and still_open[-1][0] >= depth:
            now = max(now, still_open.pop()[1])
            yield Edge(now, None)
        now = max(now, enter)
        yield Edge(now, function if function is not None else UNKNOWN)
        still_open.append((depth, leave))
    while still_open:
        now = max(now, still_open.pop()[1])
        yield Edge(now, None)


def lacking(run: Run, *tables: str) -> list[str]:
    """What of these tables is not there, in words."""
    return [f"{table}: {run.missing[table]}" for table in tables if table in run.missing]
