# SPDX-License-Identifier: MIT
"""The critical path: what the program's end had to wait for, followed backwards through sync edges.

From the last thing done: as long as a thread ran, it was its own running that mattered; where an operation waited for
what another thread released later than the operation began, it was what that thread did up to then.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ptweave.merge.tables import I64, Bools, numbers

COLUMNS = ["t_begin", "t_end", "ns", "thread", "thunk", "what", "operation", "object", "function"]
"""`what`: run (between operations), operation (one that did not wait), woken (from the release to where it went on)."""

THUNKS = ("select thread, thunk, t, coalesce(wait, 0) as wait, operation::{names} as operation, object, "
          "caller::{names} as function from thunks where thread is not null order by thread, thunk")
"""With an enumeration of the texts: dictionaries are sorted and taken from in a fraction of the time."""

EDGES = ("select to_thread, to_thunk, from_thread, from_thunk, coalesce(release.t, last.t) as released from edges "
         "join thunks as last on last.thread = from_thread and last.thunk = from_thunk "
         "left join thunks as release on release.thread = from_thread and release.thunk = from_thunk + 1 "
         "where kind = 'sync'")
"""A release begins the thunk after the one it publishes; a thread's end has none after it."""

ENDS = ("select thread, t_end from threads left join (select thread, max(t) as done from thunks "
        "where operation = 'exit' group by thread) using (thread) where t_end is not null and not own "
        "qualify done is null or done >= max(done) over (partition by pid)")
"""Not of threads that were done before another of their program: where threads are processes, a main thread that called
pthread_exit stays until they all end."""

WHAT = ["run", "operation", "woken"]
RUN, OPERATION, WOKEN = range(3)


@dataclass
class _Thunks:
    """All thunks by thread and number: those of a thread follow each other from `first` on."""

    table: pa.Table
    first: dict[int, int]
    count: dict[int, int]
    begin: I64
    end: I64
    relock: Bools
    """The mutex of a condition wait is taken again."""

    @classmethod
    def of(cls, table: pa.Table) -> _Thunks:
        thread = numbers(table, "thread")
        distinct, first, count = np.unique(thread, return_index=True, return_counts=True)
        begin = numbers(table, "t").astype(np.int64)
        return cls(table, dict(zip(distinct.tolist(), first.tolist(), strict=True)),
                   dict(zip(distinct.tolist(), count.tolist(), strict=True)), begin,
                   begin + np.maximum(numbers(table, "wait").astype(np.int64), 0),
                   _are(table["operation"], "cond_relock"))

    def last(self, ends: dict[int, int]) -> tuple[int, int, int] | None:
        """Thread, thunk and time of the last thing done."""
        best: tuple[int, int, int] | None = None
        for thread, count in self.count.items():
            end = max(int(self.end[self.first[thread] + count - 1]), ends.get(thread, 0))
            if best is None or end > best[2]:
                best = (thread, count - 1, end)
        return best


@dataclass
class _Waits:
    """Acquires that the latest release before them was later than the beginning of, by thread: the thunk that each
    begins, and when, by which thread and at the end of which thunk was released."""

    thunk: dict[int, I64]
    released: dict[int, I64]
    by: dict[int, I64]
    last: dict[int, I64]

    @classmethod
    def of(cls, edges: pa.Table, thunks: _Thunks) -> _Waits:
        names = ("to_thread", "to_thunk", "released", "from_thread", "from_thunk")
        columns = [numbers(edges, name).astype(np.int64) for name in names]
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
    """Segments of the path: rows of the table of thunks, what they are, from when to when."""

    place: I64
    what: I64
    begin: I64
    end: I64


def critical_path(thunks: pa.Table, edges: pa.Table, ends: pa.Table) -> pa.Table:
    """The path's segments (COLUMNS) in order of time, without overlap, from THUNKS, EDGES and ENDS."""
    known = _Thunks.of(thunks)
    waits = _Waits.of(edges, known)
    at = known.last({row["thread"]: row["t_end"] for row in ends.to_pylist()})
    parts: list[_Segments] = []
    seen: set[tuple[int, int]] = set()
    while at is not None:
        thread, thunk, until = at
        waited = int(np.searchsorted(waits.thunk[thread], thunk, side="right")) - 1
        first = int(waits.thunk[thread][waited]) if waited >= 0 else 0
        part = _stretch(known, thread, first, thunk, until)
        parts.append(part)
        at = None
        if waited >= 0 and (thread, first) not in seen:
            seen.add((thread, first))
            released = min(int(waits.released[thread][waited]), int(part.end[0]))
            part.what[0], part.begin[0] = WOKEN, released
            holder, last = int(waits.by[thread][waited]), int(waits.last[thread][waited])
            if 0 <= last < known.count.get(holder, 0):
                at = (holder, last, released)
    return _table(known, parts[::-1])


def _stretch(known: _Thunks, thread: int, first: int, last: int, until: int) -> _Segments:
    """What a thread did from its thunk `first` to `last`, up to a time: each thunk's operation, then its running. None
    goes on beyond where the next one begins."""
    rows = np.arange(known.first[thread] + first, known.first[thread] + last + 1)
    edges = np.minimum.accumulate(np.append(known.begin[rows], until)[::-1])[::-1]
    middle = np.minimum(known.end[rows], edges[1:])
    return _Segments(np.repeat(rows, 2), np.tile([OPERATION, RUN], len(rows)),
                     np.stack([edges[:-1], middle], 1).ravel(), np.stack([middle, edges[1:]], 1).ravel())


def _table(known: _Thunks, parts: list[_Segments]) -> pa.Table:
    columns = {name: np.concatenate([np.zeros(0, np.int64), *(getattr(part, name) for part in parts)])
               for name in ("place", "what", "begin", "end")}
    lasts = columns["end"] > columns["begin"]
    place, what, begin, end = (column[lasts] for column in columns.values())
    rows = known.table.take(pa.array(place))
    kinds = pa.DictionaryArray.from_arrays(pa.array(what.astype(np.int8)), pa.array(WHAT))
    return pa.table({"t_begin": begin, "t_end": end, "ns": end - begin, "what": kinds, **{
        name: rows[name] for name in ("thread", "thunk", "operation", "object", "function")}}).select(COLUMNS)
