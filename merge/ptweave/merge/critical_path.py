# SPDX-License-Identifier: MIT
"""The critical path: what the program's end had to wait for, followed backwards through sync edges and system calls.

From the last thing done: as long as a thread ran, it was its own running that mattered; where an operation waited for
what another thread released later than the operation began, or a system call for what another thread did later than it
was entered (call_waits.py), it was what that thread did up to then. A process that no edge leads to was begun by the
thread that made it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ptweave.merge import call_waits
from ptweave.merge.path_calls import FOR_EVER, Calls, CallWait, CallWaits
from ptweave.merge.tables import I64, Bools, numbers

COLUMNS = ["t_begin", "t_end", "ns", "thread", "thunk", "what", "operation", "object", "variable", "function"]
"""`what`: run (between the others), operation (one that did not wait), system call (one that may wait, and that no
thread of the run is known to have ended), woken (from the release to where it went on)."""

THUNKS = ("select thread, thunk, t, coalesce(wait, 0) as wait, operation::{names} as operation, object, "
          "variable::{names} as variable, caller::{names} as function from thunks "
          "where thread is not null order by thread, thunk")
"""With an enumeration of the texts of TEXTS: dictionaries are sorted and taken from in a fraction of the time."""

TEXTS = ("thunks", "syscalls")
"""What `timeline.names` is asked for."""

EDGES = ("select to_thread, to_thunk, from_thread, from_thunk, coalesce(release.t, last.t) as released from edges "
         "join thunks as last on last.thread = from_thread and last.thunk = from_thunk "
         "left join thunks as release on release.thread = from_thread and release.thunk = from_thunk + 1 "
         "where kind = 'sync'")
"""A release begins the thunk after the one it publishes; a thread's end has none after it."""

BEGINNINGS = """
select thread, parent, least(t_start, first.t) as t from threads
left join (select thread, min(t) as t from thunks group by thread) as first using (thread)
where t_start is not null and not own and (parent is not null or first.t is null)
  and thread not in (select to_thread from edges where kind = 'sync' and to_thunk = 0) order by thread"""
"""Threads that no edge leads to: their first thunk is not what they began with, if they have any."""

CALLS = f"""select thread, t_enter, coalesce(t_exit, {FOR_EVER}) as t_exit, name::{{names}} as name from syscalls
  where thread is not null and {call_waits.MAY_WAIT} order by thread, t_enter"""

ENDS = ("select thread, t_end from threads left join (select thread, max(t) as done from thunks "
        "where operation = 'exit' group by thread) using (thread) where t_end is not null and not own "
        "qualify done is null or done >= max(done) over (partition by pid)")
"""Not of threads that were done before another of their program: where threads are processes, a main thread that called
pthread_exit stays until they all end."""

WHAT = ["run", "operation", "woken", "system call"]
RUN, OPERATION, WOKEN, CALL = range(4)


@dataclass
class _Thunks:
    """All thunks by thread and place in it: those of a thread follow each other from `first` on. A thread in `ahead`
    has one row more, without a number, before them."""

    table: pa.Table
    ahead: dict[int, int]
    first: dict[int, int]
    count: dict[int, int]
    begin: I64
    end: I64
    relock: Bools
    """The mutex of a condition wait is taken again."""

    @classmethod
    def of(cls, table: pa.Table, beginnings: pa.Table) -> _Thunks:
        if beginnings.num_rows:
            table = pa.concat_tables([_unnumbered(beginnings, table.schema), table]).unify_dictionaries()
            table = table.take(np.lexsort((numbers(table, "thunk", -1), numbers(table, "thread"))))
        thread = numbers(table, "thread")
        distinct, first, count = np.unique(thread, return_index=True, return_counts=True)
        begin = numbers(table, "t").astype(np.int64)
        return cls(table, dict.fromkeys(beginnings["thread"].to_pylist(), 1),
                   dict(zip(distinct.tolist(), first.tolist(), strict=True)),
                   dict(zip(distinct.tolist(), count.tolist(), strict=True)), begin,
                   begin + np.maximum(numbers(table, "wait").astype(np.int64), 0),
                   _are(table["operation"], "cond_relock"))

    def last(self, ends: dict[int, int]) -> tuple[int, int, int] | None:
        """Thread, place and time of the last thing done."""
        best: tuple[int, int, int] | None = None
        for thread, count in self.count.items():
            end = max(int(self.end[self.first[thread] + count - 1]), ends.get(thread, 0))
            if best is None or end > best[2]:
                best = (thread, count - 1, end)
        return best

    def running(self, thread: int, times: I64) -> I64:
        """Places in a thread in which it ran at some times; -1: before its first, or in an operation."""
        place = self.at(thread, times)
        ran = (place >= 0) & (times >= self.end[self.first.get(thread, 0) + np.maximum(place, 0)])
        return np.where(ran, place, -1)

    def at(self, thread: int, times: I64) -> I64:
        """Places in a thread at some times; -1: before its first."""
        first = self.first.get(thread, 0)
        began = np.maximum.accumulate(self.begin[first:first + self.count.get(thread, 0)])
        return np.searchsorted(began, times, side="right").astype(np.int64) - 1

    def place(self, thread: int, time: int) -> int:
        """As `at`, of one time."""
        return int(self.at(thread, np.array([time]))[0])


def _unnumbered(beginnings: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows of the table of thunks for what threads did before their first one."""
    rows = beginnings.num_rows
    known = {"thread": beginnings["thread"], "t": beginnings["t"], "wait": pa.chunked_array([np.zeros(rows, np.int64)])}
    return pa.table([known[column.name].cast(column.type) if column.name in known else pa.nulls(rows, column.type)
                     for column in schema], schema=schema)


@dataclass
class _Waits:
    """Acquires that the latest release before them was later than the beginning of, by thread: the place that each
    begins at, and when, by which thread and at the end of which place was released."""

    thunk: dict[int, I64]
    released: dict[int, I64]
    by: dict[int, I64]
    last: dict[int, I64]

    @classmethod
    def of(cls, edges: pa.Table, beginnings: pa.Table, thunks: _Thunks) -> _Waits:
        names = ("to_thread", "to_thunk", "released", "from_thread", "from_thunk")
        columns = [numbers(edges, name).astype(np.int64) for name in names]
        for thread in thunks.ahead:
            columns[1][columns[0] == thread] += 1
            columns[4][columns[3] == thread] += 1
        begun = np.array([(row["thread"], 0, row["t"], row["parent"], thunks.place(row["parent"], row["t"]))
                          for row in beginnings.to_pylist() if row["parent"] is not None], np.int64).reshape(-1, 5)
        columns = [np.concatenate([column, more]) for column, more in zip(columns, begun.T, strict=True)]
        order = np.lexsort(columns[::-1])
        to, thunk, released, by, last = (column[order] for column in columns)
        latest = np.concatenate([(to[1:] != to[:-1]) | (thunk[1:] != thunk[:-1]), np.ones(min(len(to), 1), np.bool_)])
        waits = cls({}, {}, {}, {})
        for thread, first in thunks.first.items():
            here = latest & (to == thread) & (thunk >= 0) & (thunk < thunks.count[thread])
            found = np.flatnonzero(here)
            begin = _called(thunks, first, thunk[found], released[found])
            late = (thunk[found] == 0) | (released[found] > begin)
            found = found[late]
            waits.thunk[thread], waits.released[thread] = thunk[found], released[found]
            waits.by[thread], waits.last[thread] = by[found], last[found]
        return waits


def _are(names: pa.ChunkedArray, wanted: str) -> Bools:
    """Which rows of a column of texts, or of numbers of texts, are one text. Of numbers no texts are made."""
    found = [np.zeros(0, np.bool_)]
    for chunk in names.chunks:
        plain = not pa.types.is_dictionary(chunk.type)
        asked, value = (chunk, wanted) if plain else (chunk.indices, chunk.dictionary.index(wanted).as_py())
        found.append(pc.fill_null(pc.equal(asked, value), False).to_numpy(zero_copy_only=False))
    return np.concatenate(found)


def _called(thunks: _Thunks, first: int, thunk: I64, released: I64) -> I64:
    """When acquires began, from the thunks that they begin and what was released. After a condition wait, the mutex is
    waited for from the signal on."""
    begin = thunks.begin[first + thunk]
    after = 1 + np.flatnonzero(thunks.relock[first + thunk[1:]] & (np.diff(thunk) == 1))
    begin[after] = np.minimum(begin[after], released[after - 1])
    return begin


@dataclass
class _Segments:
    """Segments of the path: rows of the table of thunks, what they are, from when to when; `name`: of the system call
    that one is in or was woken in, -1 none."""

    place: I64
    what: I64
    begin: I64
    end: I64
    name: I64


NO_BEGINNINGS = pa.table({name: pa.array([], pa.int64()) for name in ("thread", "parent", "t")})


def critical_path(thunks: pa.Table, edges: pa.Table, ends: pa.Table, beginnings: pa.Table = NO_BEGINNINGS,
                  calls: pa.Table | None = None, waits: pa.Table | None = None) -> pa.Table:
    """The path's segments (COLUMNS) in order of time, without overlap, from THUNKS, EDGES, ENDS, BEGINNINGS, CALLS and
    call_waits.WAITS."""
    known = _Thunks.of(thunks, beginnings)
    acquired = _Waits.of(edges, beginnings, known)
    named = Calls.of(calls)
    called = CallWaits.of(waits, known.running)
    at = known.last({row["thread"]: row["t_end"] for row in ends.to_pylist()})
    parts: list[_Segments] = []
    seen: set[tuple[int, int]] = set()
    while at is not None:
        thread, thunk, until = at
        waited = int(np.searchsorted(acquired.thunk[thread], thunk, side="right")) - 1
        first = int(acquired.thunk[thread][waited]) if waited >= 0 else 0
        call = called.last(thread, since=first, until=until)
        if call is not None:
            part = _stretch(known, thread, min(call.place, thunk), thunk, until)
            parts.append(_from_call(part, call, named.number(call.name)))
            begun = known.place(call.by, call.released)
            at = (call.by, begun, call.released) if begun >= 0 else None
            continue
        part = _stretch(known, thread, first, thunk, until)
        parts.append(part)
        at = None
        if waited >= 0 and (thread, first) not in seen:
            seen.add((thread, first))
            released = min(int(acquired.released[thread][waited]), int(part.end[0]))
            part.what[0], part.begin[0] = WOKEN, released
            holder, last = int(acquired.by[thread][waited]), int(acquired.last[thread][waited])
            if 0 <= last < known.count.get(holder, 0):
                at = (holder, last, released)
    return _table(known, parts[::-1], named)


def _stretch(known: _Thunks, thread: int, first: int, last: int, until: int) -> _Segments:
    """What a thread did from its thunk `first` to `last`, up to a time: each thunk's operation, then its running. None
    goes on beyond where the next one begins."""
    rows = np.arange(known.first[thread] + first, known.first[thread] + last + 1)
    edges = np.minimum.accumulate(np.append(known.begin[rows], until)[::-1])[::-1]
    middle = np.minimum(known.end[rows], edges[1:])
    return _Segments(np.repeat(rows, 2), np.tile([OPERATION, RUN], len(rows)),
                     np.stack([edges[:-1], middle], 1).ravel(), np.stack([middle, edges[1:]], 1).ravel(),
                     np.full(2 * len(rows), -1))


def _from_call(part: _Segments, call: CallWait, name: int) -> _Segments:
    """What a thread did since a system call's wait was ended: instead of its first thunk's operation it was woken."""
    leave = min(max(call.leave, call.released), int(part.end[1]))
    part.what[0], part.name[0] = WOKEN, name
    part.begin[0], part.end[0], part.begin[1] = min(call.released, leave), leave, leave
    return part


def _joined(parts: list[_Segments]) -> _Segments:
    return _Segments(*(np.concatenate([np.zeros(0, np.int64), *(getattr(part, column) for part in parts)])
                       for column in ("place", "what", "begin", "end", "name")))


def _with_calls(known: _Thunks, path: _Segments, calls: Calls) -> _Segments:
    """The path with the time in system calls told from running."""
    thread = numbers(known.table, "thread")[path.place]
    parts = [path]
    for one in np.unique(thread).tolist():
        runs = np.flatnonzero((thread == one) & (path.what == RUN) & (path.end > path.begin))
        cut = calls.within(one, path.begin[runs], path.end[runs])
        if cut is not None:
            rows = runs[cut.row]
            parts.append(_Segments(path.place[rows], np.where(cut.name < 0, RUN, CALL), cut.begin, cut.end, cut.name))
            path.end[rows] = path.begin[rows]
    every = _joined(parts)
    order = np.argsort(every.begin, kind="stable")
    return _Segments(*(column[order] for column in vars(every).values()))


def _table(known: _Thunks, parts: list[_Segments], calls: Calls) -> pa.Table:
    path = _joined(parts)
    if calls.names:
        path = _with_calls(known, path, calls)
    lasts = path.end > path.begin
    place, what, begin, end, name = (column[lasts] for column in vars(path).values())
    rows = known.table.take(pa.array(place)).select(["thread", "thunk", "operation", "object", "variable", "function"])
    if (name >= 0).any():
        rows = _named(rows, name, calls.names)
    kinds = pa.DictionaryArray.from_arrays(pa.array(what.astype(np.int8)), pa.array(WHAT))
    return pa.table({"t_begin": begin, "t_end": end, "ns": end - begin, "what": kinds, **{
        column: rows[column] for column in rows.column_names}}).select(COLUMNS)


def _named(rows: pa.Table, name: I64, names: list[str]) -> pa.Table:
    """Rows of thunks, those of system calls with their names: of them object, variable and function are not known."""
    called = pa.array(name >= 0)
    others = {"operation": pa.array(names).take(pa.array(name, mask=name < 0)), "object": pa.scalar(None, pa.uint64()),
              **{text: pa.scalar(None, pa.string()) for text in ("variable", "function")}}
    for column, other in others.items():
        rows = rows.set_column(rows.schema.get_field_index(column), column, pc.if_else(
            called, other, rows[column].cast(other.type)))
    return rows


def folded(path: pa.Table, resolution: int) -> pa.Table:
    """The path with segments shorter than `resolution` (ns) put together: those of a thread and kind that begin
    in the same stretch of that length are one row, from the first one's begin to the last one's end, with the sum of
    their ns, without thunk, operation, object, variable and function. A column more, `spans`: how many a row is."""
    path = path.set_column(COLUMNS.index("what"), "what", path["what"].cast(pa.string()))
    short = pc.less(path["ns"], resolution)
    few = path.filter(short)
    sums = few.append_column("stretch", pc.divide(few["t_begin"], resolution)).group_by(
        ["thread", "what", "stretch"]).aggregate([("t_begin", "min"), ("t_end", "max"), ("ns", "sum"), ("ns", "count")])
    known = {"t_begin": "t_begin_min", "t_end": "t_end_max", "ns": "ns_sum", "thread": "thread", "what": "what",
             "spans": "ns_count"}
    whole = path.filter(pc.invert(short))
    whole = whole.append_column("spans", pa.array(np.ones(whole.num_rows, np.int64)))
    rows = pa.table([sums[known[field.name]].cast(field.type) if field.name in known else pa.nulls(
        sums.num_rows, field.type) for field in whole.schema], schema=whole.schema)
    return pa.concat_tables([whole, rows]).sort_by([(name, "ascending") for name in ("t_begin", "t_end", "what")])
