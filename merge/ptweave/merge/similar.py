# SPDX-License-Identifier: MIT
"""Which nodes of a run are like a given one: to find, in a normal run, what corresponds to a thunk that was stuck.

A node is a thunk, or what a thread did between two moments. It is normalised to the set of its distinct events: how
often each happened does not matter, nor do addresses, thread numbers and times. Objects are named by where they lie in
an image, else by the functions that use them; other threads by their start routine. Events that few nodes have weigh
more. What tells a normal node from a stuck one, times and results, is not compared but shown beside it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from math import log
from typing import Any

import pyarrow as pa

from ptweave.data.errors import BadInput
from ptweave.merge.questions import thunk_number

Ask = Callable[..., list[tuple[Any, ...]]]
"""ask(sql, *params) gives rows."""

SCHEMA = pa.schema([
    ("rank", pa.int32()), ("thread", pa.int32()), ("thunk", pa.int32()), ("t_begin", pa.int64()),
    ("t_end", pa.int64()), ("similarity", pa.float64()), ("contains", pa.bool_()), ("common", pa.int32()),
    ("lacks", pa.list_(pa.string())), ("more", pa.list_(pa.string())), ("operation", pa.string()),
    ("function", pa.string()), ("wait_ns", pa.int64()), ("node_wait_ns", pa.int64()), ("run_ns", pa.int64()),
    ("node_run_ns", pa.int64()), ("results", pa.list_(pa.string()))])
"""`contains`: one of the two has all distinct events of the other; `lacks`: what it has not, `more`: what only it has.
Columns `node_…` are the node's own. `results`: of the same operations and calls, where they are not the node's."""

FOUND = 20
"""Nodes answered when nothing else is asked for."""

NEAR = 64
"""Nodes whose executed functions are looked at, too."""

_SHOWN = 20  # events listed of a node
_NOBODY = (-1, -1)

_EVENTS = """
with roles as (select thread, coalesce(start_function, '?') as role from threads),
code as (
  select images.image, regexp_replace(images.path, '.*/', '') as name, min(maps.start) as low,
         min(maps.start) + any_value(images.size) + 1048576 as high
  from maps join images using (image) where images.size is not null and images.path is not null group by 1, 2),
used as (
  select object, array_to_string(list_sort(list(distinct coalesce(caller, '?')))[:6], ', ') as site
  from thunks where object is not null and object != 0 and operation not in ('start', 'create', 'join', 'exit')
  group by object),
objects as (
  select object, site || ' #' || row_number() over (partition by site order by object) as site,
         (select name || '+0x' || to_hex(object - low) from code where object >= low and object < high
          order by low desc limit 1) as place from used),
events as (
  select thread, t, 'operation ' || operation || ' in ' || coalesce(caller, '?') || ' < '
         || coalesce(functions[2], '?') || ' < ' || coalesce(functions[3], '?') as event, operation as name,
         result from thunks left join call_stacks using (stack)
  union all
  select thread, thunks.t, 'object ' || coalesce(place, objects.site), null, null
  from thunks join objects using (object)
  union all
  select thread, t_enter, 'system call ' || name || coalesce(' ' || regexp_replace(coalesce(paths[1], files[1]),
         '(\\[[0-9]+\\])|(^/proc/[0-9]+)', '', 'g'), ''), name, result from syscalls where name != 'futex'
  union all
  select thread, t, 'tag ' || text, null, null from tags
  union all
  select to_thread, taken.t, 'after ' || role || coalesce(' in ' || given.caller, ''), null, null
  from edges join roles on roles.thread = from_thread
  join thunks as taken on taken.thread = to_thread and taken.thunk = to_thunk
  left join thunks as given on given.thread = from_thread and given.thunk = from_thunk + 1
  where kind = 'sync'
  union all
  select from_thread, given.t, 'before ' || role || coalesce(' in ' || taken.caller, ''), null, null
  from edges join roles on roles.thread = to_thread
  join thunks as given on given.thread = from_thread and given.thunk = from_thunk + 1
  left join thunks as taken on taken.thread = to_thread and taken.thunk = to_thunk
  where kind = 'sync')
"""
"""events: thread, t, event; name and result of what returned something."""

_THUNKS = """
bounds as (
  select thread, thunk, t, coalesce(wait, 0) as wait, operation, caller as function, seq, seq_end,
         lead(t) over (partition by thread order by thunk) as t_end,
         lead(operation || ' in ' || coalesce(caller, '?')) over (partition by thread order by thunk) as last
  from thunks),
nodes as (
  select bounds.thread, bounds.thunk, t, coalesce(bounds.t_end, threads.t_end, t + wait) as t_end, wait, operation,
         function, last, seq, seq_end
  from bounds left join threads using (thread))
"""

_OF_THUNKS = f"""{_EVENTS}, {_THUNKS},
inside as (
  select nodes.thread, thunk, event from events asof join nodes on events.thread = nodes.thread and events.t >= nodes.t
  union all select thread, thunk, 'role ' || role from nodes join roles using (thread)
  union all select thread, thunk, 'ends with ' || last from nodes where last is not null)
"""

_OF_SPANS = f"""{_EVENTS},
starts as (select distinct thread, t from events where event = ? and not (thread = ? and t = ?)),
ends as (select distinct thread, t from events where event = ?),
spans as (
  select starts.thread, starts.t, ends.t as t_end from starts asof join ends
    on starts.thread = ends.thread and starts.t < ends.t),
nodes as (
  select thread, (row_number() over (order by thread, t))::integer as thunk, t, t_end, 0::bigint as wait,
         null::varchar as operation, null::varchar as function, null::varchar as last, null::bigint as seq,
         null::bigint as seq_end from spans),
inside as (
  select nodes.thread, thunk, event from nodes join events on events.thread = nodes.thread and events.t >= nodes.t
    and events.t <= nodes.t_end
  union all select thread, thunk, 'role ' || role from nodes join roles using (thread))
"""

_SCORED = """
, sets as materialized (select distinct thread, thunk, event from inside),
total as (select greatest(count(*), 1) as n from nodes),
weights as (select event, ln(1 + n / count(*)) as weight from sets, total group by event, n),
wanted as (
  select unnest(?::varchar[]) as event
  union all select event from sets where thread = ? and thunk = ?),
target as (select event, coalesce(weight, ln(1 + n)) as weight from wanted left join weights using (event), total),
scores as (
  select thread, thunk, sum(weights.weight) as own,
         coalesce(sum(weights.weight) filter (wanted.event is not null), 0) as common
  from sets join weights using (event) left join wanted using (event) group by thread, thunk),
whole as (select sum(weight) as weight from target),
best as (
  select thread, thunk, t, t_end, wait, operation, function, seq, seq_end,
         row_number() over (order by (thread = ? and thunk = ?) desc,
           round(common / whole.weight + common / (own + whole.weight - common), 9) desc, abs(thunk - ?),
           thread, thunk) as place
  from scores join nodes using (thread, thunk), whole where common > 0
  qualify place <= ?)
select best.*, list(event) from best join sets using (thread, thunk) group by all order by place
"""
"""Parameters: events that are looked for; thread and thunk of a node whose events are, too; the same again, as it comes
first however alike others are; its place in its thread, of equals the nearest are taken; how many. `sets` is most of
the work, and made once."""

_FUNCTIONS = """
select distinct blocks.function from block_counts_in(?, ?, ?) join blocks using (block) join images using (image)
where blocks.function is not null and not regexp_matches(
  coalesce(images.path, ''), '/(libtthread|libc|libpthread|ld-linux[^/]*|ld)[.-][^/]*$')"""
"""Not how the C library and libtthread wait."""


@dataclass
class _Node:
    """A node with its events. `run` is what of its time it did not wait in its first operation."""

    thread: int
    thunk: int | None
    t: int
    t_end: int
    wait: int
    operation: str | None
    function: str | None
    seq: int | None
    seq_end: int | None
    events: set[str] = field(default_factory=set)
    results: dict[str, set[int]] = field(default_factory=dict)

    @property
    def run(self) -> int:
        return max(self.t_end - self.t - self.wait, 0)


@dataclass(frozen=True)
class _Wanted:
    """A node as users write it."""

    text: str
    thread: int
    thunk: int | None
    begin: int = 0
    end: int = 0


def _wanted(text: str) -> _Wanted:
    """THREAD.THUNK or THREAD@FROM-TO, in ns. Raises BadInput for what is neither."""
    span = re.fullmatch(r"(\d{1,9})@(\d{1,18})-(\d{1,18})", text)
    if span:
        return _Wanted(text, int(span[1]), None, int(span[2]), int(span[3]))
    if "@" in text:
        raise BadInput("is no node", where=text,
                       remedy="write THREAD.THUNK, or THREAD@FROM-TO in ns as timeline has it")
    return _Wanted(text, *thunk_number(text.removeprefix("thunk:")))


class Similar:
    """Looks for nodes of one run (`there`) that are like a node of another (`here`), or of the same."""

    def __init__(self, here: Ask, there: Ask, *, same: bool, flow: tuple[bool, bool]) -> None:
        self._here = here
        self._there = there
        self._same = same
        self._flow = all(flow)

    def of(self, text: str, most: int = FOUND) -> pa.Table:
        """The nodes most like it, best first: rows of SCHEMA. Raises BadInput for a node that is not in the run."""
        wanted = _wanted(text)
        node, edges = self._find(wanted)
        near = node.thunk or 0
        if edges is None and self._same:
            found = self._like(_OF_THUNKS, [], (node.thread, node.thunk), near, NEAR + 1)
            if found and (found[0].thread, found[0].thunk) == (node.thread, node.thunk):
                node.events = found[0].events
            found = [one for one in found if (one.thread, one.t) != (node.thread, node.t)]
        elif edges is None:
            found = self._like(_OF_THUNKS, sorted(node.events), _NOBODY, near, NEAR)
        else:
            own = (node.thread, node.t) if self._same else _NOBODY
            found = self._like(_OF_SPANS, sorted(node.events), _NOBODY, near, NEAR,
                               before=(edges[0], *own, edges[1]))
        for one in found:
            one.results = _results(self._there, one)
        if self._flow and node.seq is not None:
            for one, ask in ((node, self._here), *((one, self._there) for one in found)):
                _add_functions(one, ask)
        order = self._order(node, found)
        return pa.Table.from_pylist(
            [_row(rank, score, node, one, spans=edges is not None) for rank, (score, one) in
             enumerate(order[:most], 1)], SCHEMA)

    # --- the node ---------------------------------------------------------------------------------------------------

    def _find(self, wanted: _Wanted) -> tuple[_Node, tuple[str, str] | None]:
        """The node with its events, but for a thunk of the run that is searched; of a span the first and last one."""
        if wanted.thunk is None:
            return self._find_span(wanted)
        rows = self._here(f"with {_THUNKS} select thread, thunk, t, t_end, wait, operation, function, seq, seq_end "
                          "from nodes where thread = ? and thunk = ?", wanted.thread, wanted.thunk)
        if not rows:
            raise BadInput("is no thunk of this run", where=wanted.text, remedy='ptweave query RUN "select thread, '
                           'max(thunk) from thunks group by thread" shows which there are')
        node = _Node(*rows[0])
        if not self._same:
            node.events = {event for event, in self._here(
                f"{_OF_THUNKS} select distinct event from inside where thread = ? and thunk = ?", wanted.thread,
                wanted.thunk)}
        node.results = _results(self._here, node)
        return node, None

    def _extent(self, thread: int) -> str:
        """Which times a thread's events have, in words."""
        begin, end = self._here(f"{_EVENTS} select min(t), max(t) from events where thread = ? and name is not null",
                                thread)[0]
        return "which has none" if begin is None else f"which has them from {begin} to {end}"

    def _find_span(self, wanted: _Wanted) -> tuple[_Node, tuple[str, str]]:
        rows = self._here(f"{_EVENTS} select t, event from events where thread = ? and t >= ? and t <= ? "
                          "and name is not null order by t", wanted.thread, wanted.begin, wanted.end)
        if len(rows) < 2:
            raise BadInput(f"has not two events of that thread in it, {self._extent(wanted.thread)}", where=wanted.text,
                           remedy="ptweave timeline RUN --thread N shows operations and system calls with their times")
        node = _Node(wanted.thread, None, rows[0][0], rows[-1][0], 0, None, None, None, None)
        node.events = {event for event, in self._here(
            f"{_EVENTS} select event from events where thread = ? and t >= ? and t <= ? "
            "union all select 'role ' || role from roles where thread = ?", wanted.thread, node.t, node.t_end,
            wanted.thread)}
        node.results = _results(self._here, node)
        return node, (rows[0][1], rows[-1][1])

    # --- the others -------------------------------------------------------------------------------------------------

    def _like(self, inside: str, events: list[str], of: tuple[int, int | None], near: int, most: int, *,
              before: tuple[Any, ...] = ()) -> list[_Node]:
        """The nodes with the most of these events, and of those of the node `of`, which comes first; with their own.
        Of equals those as far into their thread as `near`. `before`: parameters of `inside`."""
        found = []
        for row in self._there(f"{inside}{_SCORED}", *before, events, *of, *of, near, most):
            found.append(_Node(*row[:9]))
            found[-1].events = set(row[10])
        return found

    def _order(self, node: _Node, found: list[_Node]) -> list[tuple[float, _Node]]:
        """Best first. Events that few of those found have weigh more; of equals, the one as far into its thread."""
        count = len(found) + 1
        have: dict[str, int] = {}
        for one in found:
            for event in one.events:
                have[event] = have.get(event, 0) + 1

        def weight(events: set[str]) -> float:
            return sum(log(1 + count / (have.get(event, 0) + 1)) for event in events)

        whole = weight(node.events) or 1.0
        scored = []
        for one in found:
            common = weight(one.events & node.events)
            score = (common / whole + common / (weight(one.events | node.events) or 1.0)) / 2
            far = abs((one.thunk or 0) - (node.thunk or 0))
            scored.append((-round(score, 9), far, one.thread, one.t, one))
        scored.sort(key=lambda row: row[:4])
        return [(-row[0], row[4]) for row in scored]


def _results(ask: Ask, node: _Node) -> dict[str, set[int]]:
    """What its operations and system calls returned, by name."""
    found: dict[str, set[int]] = {}
    for name, result in ask(
            "select operation, result from thunks where thread = ? and t >= ? and t < ? union all "
            "select name, result from syscalls where thread = ? and t_enter >= ? and t_enter < ?",
            *2 * (node.thread, node.t, max(node.t_end, node.t + 1))):
        if result is not None:
            found.setdefault(name, set()).add(result)
    return found


def _add_functions(node: _Node, ask: Ask) -> None:
    if node.seq is not None and node.seq_end is not None:
        node.events |= {f"function {name}" for name, in ask(_FUNCTIONS, node.thread, node.seq, node.seq_end)}


def _row(rank: int, score: float, node: _Node, one: _Node, *, spans: bool) -> dict[str, Any]:
    lacks, more = sorted(node.events - one.events), sorted(one.events - node.events)
    results = [f"{name} = {_few(one.results[name])}, not {_few(node.results[name])}"
               for name in sorted(one.results.keys() & node.results.keys()) if one.results[name] != node.results[name]]
    return {"rank": rank, "thread": one.thread, "thunk": None if spans else one.thunk, "t_begin": one.t,
            "t_end": one.t_end, "similarity": round(score, 4), "contains": not lacks or not more,
            "common": len(node.events & one.events), "lacks": lacks[:_SHOWN], "more": more[:_SHOWN],
            "operation": one.operation, "function": one.function, "wait_ns": one.wait, "node_wait_ns": node.wait,
            "run_ns": one.run, "node_run_ns": node.run, "results": results}


def _few(values: set[int]) -> str:
    shown = sorted(values)[:4]
    return " ".join(map(str, shown)) + (" …" if len(values) > len(shown) else "")
