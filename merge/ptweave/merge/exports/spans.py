# SPDX-License-Identifier: MIT
"""What timelines are made of: threads with their names, spans in order of time, and calls as they open and close."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ptweave.merge import timeline as timelines
from ptweave.merge.run import Run

UNKNOWN = "[unknown]"
"""The name of a function that has none."""

_SPANS = """
with spans as ({timeline}),
ids as (select row_number() over () as id, from_thread, from_thunk, to_thread, to_thunk from edges where {sync}),
leaving as (select from_thread as thread, from_thunk as thunk, list(id) as ids from ids group by all),
coming as (select to_thread as thread, to_thunk as thunk, list(id) as ids from ids group by all)
select t_begin, t_end, spans.thread, what, detail, spans.thunk, object, function,
       case when what = 'run' then leaving.ids end, case when what = 'run' then coming.ids end
from spans left join leaving on leaving.thread = spans.thread and leaving.thunk = spans.thunk
left join coming on coming.thread = spans.thread and coming.thunk = spans.thunk
where spans.thread is not null and t_begin is not null order by t_begin, spans.thread, t_end desc"""

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
            yield "thunk", f"{self.thread}.{self.thunk}"
        if self.object is not None:
            yield "object", f"{self.object:#x}"
        if self.function is not None:
            yield "function", self.function


@dataclass(frozen=True)
class Edge:
    """A call that opens (`function`) or the last one that is open closes (None), at `t`."""

    t: int
    function: str | None


def threads(run: Run, extent: Extent) -> list[Thread]:
    """The threads that have anything to show, by number."""
    rows = run.sql("""
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
    names = dict(run.sql("select pid, arg_max(exe, space) from processes where exe is not null group by pid").rows())
    return [Process(pid, str(names.get(pid, pid))) for pid in sorted({thread.pid for thread in known})]


def spans(run: Run, extent: Extent) -> Iterator[Span]:
    """Operations, running, system calls and gaps in order of time."""
    question = timelines.question(run.names_of(timelines.names()), thread=extent.thread, begin=extent.begin,
                                 end=extent.end)
    sync = "false" if "edges" in run.missing else "kind = 'sync'"
    for begin, end, thread, what, detail, thunk, object_, function, leaving, coming in run.sql(
            _SPANS.format(timeline=question.sql, sync=sync), *question.params):
        yield Span(begin, max(begin, end if end is not None else begin), thread, what, detail, thunk, object_, function,
                   tuple(leaving or ()), tuple(coming or ()))


def calls(run: Run, thread: int, extent: Extent) -> Iterator[Edge]:
    """A thread's calls as they open and close, in order, each within the one it was made in.

    Memory is that of the calls open at a time.
    """
    still_open: list[tuple[int, int]] = []  # depth and end
    now = 0
    for _, depth, function, enter, leave in run.sql(_CALLS, thread, extent.begin, extent.begin, extent.end,
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
