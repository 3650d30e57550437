# SPDX-License-Identifier: MIT
"""Lineage: all that something depended on, or all that it reached, through memory and through threads.

What a thread reads it may carry on, in its registers and on its own stack, which are not recorded: whatever it does
from then on may depend on it. So what is reached of a thread is all from some thunk on, and what something depended on
is all up to some thunk. What it carries it may give to a thread that it makes or that joins it, or put it into a
pipe, and it may at any time put it where another thread looks at its stack. With `memory` it is assumed that threads
carry nothing, and only what went through pages that both sides touched is followed, thunk by thunk: fewer thunks, and
perhaps too few.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pyarrow as pa

from ptweave.data import layout
from ptweave.data.errors import BadInput
from ptweave.merge.questions import thunk_number

PAGE = 4096

SCHEMA = pa.schema([
    ("what", pa.string()), ("thread", pa.int32()), ("first_thunk", pa.int32()), ("last_thunk", pa.int32()),
    ("transfer", pa.int32()), ("kind", pa.string()), ("path", pa.string()), ("offset", pa.int64()),
    ("size", pa.int64()), ("round", pa.int32())])
"""`what`: thunks, input or output. `round`: steps from thread to thread that it took to get there."""

_HANDED = """
handed as (
  select from_thread, from_until, to_thread, to_thunk from edges where kind = 'data'
  union all
  select from_thread, from_until, to_thread, to_thunk from edges
  join thunks on thunks.thread = to_thread and thunks.thunk = to_thunk
  where kind = 'sync' and operation in ('start', 'join')
  union all
  select thunks.thread, thunk, child.thread, 0
  from (from threads where not own and thread not in (
    select to_thread from edges where kind = 'sync' and to_thunk = 0)) as child
  asof join thunks on thunks.thread = child.parent and child.t_start >= thunks.t{more})
"""
"""What hands something over: through memory; with the argument of a new thread, or of a program that is executed by a
child of vfork, to which no edge leads; and the result of a thread that is joined."""

_PIPED = "select 1 from syscalls where files[1] like 'pipe:[%' limit 1"

_PIPES = """
piped as (
  select files[1] as pipe, input, transfers.thread, thunk, "offset" as first, "offset" + size as behind
  from transfers join syscalls on syscalls.thread = transfers.thread and syscalls.t_enter = transfers.t
  where files[1] like 'pipe:[%' and kind in ('read', 'write') and name in ('read', 'readv', 'write', 'writev')
    and "offset" is not null and thunk is not null),
puts as (from piped where not input),
takes as (from piped where input),
through as (
  select puts.thread as from_thread, puts.thunk as from_until, takes.thread as to_thread, takes.thunk as to_thunk
  from takes asof join puts on puts.pipe = takes.pipe and takes.first >= puts.first where takes.first < puts.behind
  union
  select puts.thread, puts.thunk, takes.thread, takes.thunk
  from puts asof join takes on puts.pipe = takes.pipe and puts.first >= takes.first where puts.first < takes.behind),
"""
"""Bytes that came out of a pipe are those that went in at the same place. Of a write and a read that have bytes in
common, the one begins within the other."""

_THROUGH_PIPES = """
  union all select from_thread, from_until, to_thread, to_thunk from through"""

_ON_STACKS = """
  union all select owner, sees, guest, thunk from lent where sees >= 0
  union all
  select told.guest, lent.thunk, told.owner, min(told.thunk)
  from told asof join (from lent where write) as lent
    on lent.guest = told.guest and lent.owner = told.owner and told.sees >= lent.thunk
  group by all"""

_STACKS = f"""
owners as (
  select pid, thread, case when object >= {layout.REGION} and object < {layout.HEAP}
                      then (object - {layout.REGION}) // {layout.STACK_AREA} else 0 end as slot
  from thunks join threads using (thread) where operation = 'start'),
visits as (
  select distinct accesses.thread as guest, owners.thread as owner, thunk, until_thunk, write
  from accesses join threads using (thread)
  join owners on owners.pid = threads.pid and owners.slot = (page - {layout.REGION}) // {layout.STACK_AREA}
  where region = 'stack' and owners.thread != accesses.thread),
lent as (
  select guest, owner, thunks.thunk, bool_or(write) as write,
         coalesce(any_value(clock[owner + 1]), 0)::integer - 1 as sees
  from visits join thunks on thunks.thread = guest and thunks.thunk between visits.thunk and until_thunk group by all),
told as (
  select guest, owner, min(thunks.thunk) as thunk, clock[guest + 1]::integer - 1 as sees
  from (select distinct guest, owner from visits where write) join thunks on thunks.thread = owner
  where clock[guest + 1] > 0 group by guest, owner, sees),
"""
"""Stacks that others look at. What their owners do there nobody sees: they may have written at any time before, and
read at any time after. The first thread's is the first; that of another holds its pthread_t, the object of its start.
"""

_APART = """
with there(thread, first, last, turn) as (values {there}),
outs as (
  select transfer, thread, thunk, address // 4096 * 4096 as low, address + size as high,
         (address + size + 4095) // 4096 - address // 4096 as pages
  from transfers where not input and kind != 'map' and address is not null and thunk is not null),
seen as (
  select transfer, pages from outs join accesses on accesses.thread = outs.thread and accesses.thunk <= outs.thunk
    and until_thunk >= outs.thunk and page >= low and page < high
  where region != 'stack' group by transfer, pages having count(distinct page) = pages),
known as (
  select transfer from outs semi join seen using (transfer)
  join (select distinct page from accesses where write) as written
    on page >= low and page < high group by transfer, pages having count(*) = pages),
own as (
  select transfer from outs join accesses on accesses.thread = outs.thread and accesses.thunk <= outs.thunk
    and page >= low and page < high
  join there on there.thread = accesses.thread and there.first <= least(until_thunk, outs.thunk)
    and there.last >= accesses.thunk where write),
fed as (
  select outs.transfer from outs join edges on to_thread = outs.thread and to_thunk <= outs.thunk
    and to_until >= outs.thunk and page >= low and page < high
  join there on there.thread = from_thread and there.first <= from_until and there.last >= from_thunk
  where kind = 'data')
select transfer from known where transfer not in (select transfer from own)
  and transfer not in (select transfer from fed)"""
"""Outputs of which every page's writers are known, none of them reached: whatever else their thunks know, not they.
What their thread did not open to read it (`seen`) lies on its own stack: nobody knows who wrote that."""

_WANTED = """
with wanted as (
  select transfer, kind, thread, thunk, ((address + begin) // 4096)::bigint as low,
         ((address + stop + 4095) // 4096)::bigint as high
  from (select *, case when "offset" is null then 0 else greatest({begin} - "offset", 0) end as begin,
               case when "offset" is null then size else least({end} - "offset", size) end as stop
        from transfers where {name} = ? and input = {input}
          and ("offset" is null or ("offset" < {end} and coalesce("offset" + size > {begin}, true)))))"""
"""Transfers of a node's bytes; numbers of the first page that these have in memory, and of the one behind the last."""

_OF_MAPS = """
select {side}_thread, {far} from wanted join edges using (transfer)
where wanted.kind = 'map' and edges.kind in ('input', 'output') and page >= low * 4096 and page < high * 4096
group by transfer, {side}_thread"""
_LAST = "max(least({side}_until, (select max(thunk) from thunks where thunks.thread = {side}_thread)))"

_BUFFERS = """,
buffers as (from wanted where kind != 'map' and thunk is not null),
pages as (select transfer, thread, thunk, unnest(range(low, high)) * 4096 as page from buffers)"""
"""Pages are joined by their equals: a range of them would be compared with every edge of the thread."""

_WRITTEN = _BUFFERS + """,
written as (
  select pages.transfer, from_thread as thread, max(from_until) as thunk
  from pages join edges on to_thread = pages.thread and edges.page = pages.page and to_thunk <= pages.thunk
    and to_until >= pages.thunk
  where kind = 'data' group by all),
own as (
  select pages.transfer, pages.thread, max(least(until_thunk, pages.thunk)) as thunk
  from pages join accesses on accesses.thread = pages.thread and accesses.page = pages.page
    and accesses.thunk <= pages.thunk
  where write group by all),
known as (
  select transfer, count(*) as pages from pages
  semi join (from accesses where write and region != 'stack') as written using (page) group by transfer)
select thread, thunk from written union select thread, thunk from own union
select thread, thunk from buffers left join known using (transfer)
where coalesce(pages, 0) < high - low
  or transfer not in (select transfer from written union all select transfer from own)"""
"""Who wrote what thunks sent, through its buffers' pages. What of a buffer is not known (it lies on a stack) is the
thunk's own."""

_READ = _BUFFERS + """,
reading as (
  select pages.transfer, to_thread as thread, min(to_thunk) as thunk
  from pages join edges on from_thread = pages.thread and edges.page = pages.page and from_thunk <= pages.thunk
    and from_until >= pages.thunk
  where kind = 'data' group by all)
select thread, thunk from reading union
select thread, thunk from buffers where {always} or transfer not in (select transfer from reading)"""
"""Who reads what thunks received, through its buffers' pages."""

Ask = Callable[..., list[tuple[Any, ...]]]
"""ask(sql, *params) gives rows."""


class Direction(StrEnum):
    """Which way dependences are followed."""

    TO = "to"  # what it depended on
    FROM = "from"  # what it reached


@dataclass(frozen=True)
class Node:
    """Where lineage begins: one of a thunk, a descriptor's or a file's bytes, or addresses. `end`: the byte after."""

    text: str
    thunk: tuple[int, int] | None = None
    descriptor: int | None = None
    path: str | None = None
    address: int | None = None
    begin: int = 0
    end: int = 1 << 62


_RANGE = re.compile(r"(?P<name>.*?)(@(?P<begin>[0-9]+)(-(?P<end>[0-9]+))?)?", re.DOTALL)
_FORMS = "file:PATH[@FROM[-TO]], fd:N[@FROM[-TO]], address:0xFROM[-0xTO] or thunk:THREAD.THUNK"


def node_of(text: str) -> Node:
    """A node as users write it; TO is the byte after the last. Raises BadInput for what is none."""
    kind, _, rest = text.partition(":")
    if kind == "thunk":
        return Node(text, thunk=thunk_number(rest))
    if kind == "address":
        found = re.fullmatch(r"0x([0-9a-fA-F]{1,16})(-0x([0-9a-fA-F]{1,16}))?", rest)
        if found:
            first = int(found[1], 16)
            return _bounded(Node(text, address=first, begin=first, end=int(found[3], 16) if found[3] else first + 1))
    match = _RANGE.fullmatch(rest)
    if kind in ("file", "fd") and match and match["name"] and (kind == "file" or match["name"].isdecimal()):
        begin = int(match["begin"] or 0)
        end = int(match["end"]) if match["end"] else begin + 1 if match["begin"] else 1 << 62
        if kind == "file":
            return _bounded(Node(text, path=_as_in_tables(match["name"]), begin=begin, end=end))
        return _bounded(Node(text, descriptor=int(match["name"]), begin=begin, end=end))
    raise BadInput("is no node", where=text, remedy=f"write {_FORMS}")


def _as_in_tables(path: str) -> str:
    r"""A path out of a command line as tables have it: bytes that are no UTF-8 as \xNN."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _bounded(node: Node) -> Node:
    """The same node. Raises BadInput when it has no bytes."""
    if node.end <= node.begin:
        raise BadInput("has no bytes", where=node.text, remedy="TO is the byte after the last, behind FROM")
    return node


@dataclass
class _Reached:
    """Of a thread: thunks `first` to `last`, found in a round."""

    first: int
    last: int
    round: int


class Lineage:
    """Follows dependences of one run. `ask` asks its tables."""

    def __init__(self, ask: Ask, direction: Direction, *, memory: bool) -> None:
        self._ask = ask
        self._back = direction is Direction.TO
        self._memory = memory
        self._handed = ""

    def of(self, node: Node) -> pa.Table:
        """Rows of SCHEMA: thunks, and the inputs (or outputs) at the end of the way. Raises BadInput for a node that is
        not in the run."""
        starts = self._starts(node)
        reached = self._through_memory(starts) if self._memory else self._through_threads(starts)
        rows = [{"what": "thunks", "thread": thread, "first_thunk": one.first, "last_thunk": one.last,
                 "round": one.round} for thread, parts in sorted(reached.items()) for one in parts]
        return pa.Table.from_pylist(rows + self._transfers(reached), SCHEMA)

    # --- where it begins ----------------------------------------------------------------------------------------------

    def _starts(self, node: Node) -> set[tuple[int, int]]:
        """Thunks that it begins with."""
        if node.thunk is not None:
            if not self._ask("select 1 from thunks where thread = ? and thunk = ?", *node.thunk):
                raise BadInput("is no thunk of this run", where=node.text, remedy="see the table thunks")
            return {node.thunk}
        if node.address is not None:
            return self._at_address(node)
        wanted = _WANTED.format(name="path" if node.path is not None else "descriptor",
                                input=not self._back, begin=node.begin, end=node.end)
        name = node.path if node.path is not None else node.descriptor
        if not self._ask(f"{wanted} select 1 from wanted limit 1", name):
            way = "written to" if self._back else "read from"
            raise BadInput(f"was not {way} in this run, as far as is known", where=node.text,
                           remedy='ptweave query RUN "select distinct path, descriptor from transfers" shows all')
        side = "from" if self._back else "to"
        maps = _OF_MAPS.format(side=side, far=_LAST.format(side=side) if self._back else f"min({side}_thunk)")
        buffers = _WRITTEN if self._back else _READ.format(always=not self._memory)
        return {(row[0], row[1]) for sql in (maps, buffers) for row in self._ask(f"{wanted}{sql}", name)}

    def _at_address(self, node: Node) -> set[tuple[int, int]]:
        low, high = node.begin // PAGE * PAGE, node.end
        rows = self._ask(
            "select thread, case when ? then max(least(until_thunk, "
            "(select max(thunk) from thunks where thunks.thread = accesses.thread))) else min(thunk) end from accesses "
            "where page >= ? and page < ? and (write or ?) group by thread", self._back, low, high, not self._back)
        if not rows:
            raise BadInput("no access of it is known", where=node.text,
                           remedy="see the table accesses; record with --threads process")
        return {(thread, thunk) for thread, thunk in rows}

    # --- the way ------------------------------------------------------------------------------------------------------

    def _through_threads(self, starts: set[tuple[int, int]]) -> dict[int, list[_Reached]]:
        """Of each thread all up to a thunk, or from one on: until no edge leads further."""
        better = max if self._back else min
        cut: dict[int, tuple[int, int]] = {}
        stacks = bool(self._ask("select 1 from accesses where region = 'stack' limit 1"))
        pipes = bool(self._ask(_PIPED))
        self._handed = (_PIPES if pipes else "") + (_STACKS if stacks else "") + _HANDED.format(
            more=(_THROUGH_PIPES if pipes else "") + (_ON_STACKS if stacks else ""))
        news = {thread: better(thunk for other, thunk in starts if other == thread) for thread, _ in starts}
        turn = 0
        while news:
            for thread, thunk in news.items():
                cut[thread] = (thunk, cut[thread][1] if thread in cut else turn)
            found = self._step(news)
            news = {thread: thunk for thread, thunk in found.items()
                    if thread not in cut or better(thunk, cut[thread][0]) != cut[thread][0]}
            turn += 1
        lasts: dict[int, int] = dict(self._ask("select thread, max(thunk) from thunks group by thread"))
        return {thread: [_Reached(0, thunk, found) if self._back else _Reached(thunk, lasts.get(thread, thunk), found)]
                for thread, (thunk, found) in cut.items()}

    def _step(self, cut: dict[int, int]) -> dict[int, int]:
        """How far the edges lead that begin within what is reached."""
        there = ", ".join(f"({thread}, {thunk})" for thread, thunk in cut.items())
        if self._back:
            sql = ("select from_thread, max(from_until) from handed join cut on to_thread = cut.thread "
                   "and to_thunk <= cut.thunk group by 1")
        else:
            sql = ("select to_thread, min(to_thunk) from handed join cut on from_thread = cut.thread "
                   "and from_until >= cut.thunk group by 1")
        rows = self._ask(f"with cut(thread, thunk) as (values {there}), {self._handed} {sql}")
        return {int(thread): int(thunk) for thread, thunk in rows}

    def _through_memory(self, starts: set[tuple[int, int]]) -> dict[int, list[_Reached]]:
        """Thunk by thunk, along data edges alone."""
        found: dict[tuple[int, int], int] = {}
        news, turn = set(starts), 0
        near, far = ("to", "from") if self._back else ("from", "to")
        while news:
            found.update(dict.fromkeys(news, turn))
            there = ", ".join(f"({thread}, {thunk})" for thread, thunk in sorted(news))
            rows = self._ask(
                f"select distinct {far}_thread, unnest(range({far}_thunk, {far}_until + 1)) from edges "
                f"join (values {there}) as new(thread, thunk) on {near}_thread = new.thread "
                f"and {near}_thunk <= new.thunk and {near}_until >= new.thunk where kind = 'data'")
            news = {(int(thread), int(thunk)) for thread, thunk in rows} - found.keys()
            turn += 1
        return _runs(found)

    # --- where it ends ------------------------------------------------------------------------------------------------

    def _transfers(self, reached: dict[int, list[_Reached]]) -> list[dict[str, Any]]:
        """Inputs that lead into what was reached, or outputs that lead out of it."""
        if not reached:
            return []
        kind, side = ("input", "to") if self._back else ("output", "from")
        there = ", ".join(f"({thread}, {one.first}, {one.last}, {one.round})" for thread, parts in reached.items()
                          for one in parts)
        apart = set() if self._back else {transfer for transfer, in self._ask(_APART.format(there=there))}
        rows = self._ask(f"""
            with there(thread, first, last, turn) as (values {there}),
            edge as (select transfer, {side}_thread as thread, {side}_thunk as first, {side}_until as last, page
                     from edges where kind = '{kind}'),
            met as (select transfer, page, min(turn) as turn, any_value(edge.thread) as thread,
                           min(edge.first) as first, max(edge.last) as last
                    from edge join there on edge.thread = there.thread and edge.first <= there.last
                      and edge.last >= there.first group by transfer, page),
            ranges as (
              select met.transfer, met.thread, met.first, met.last, turn,
                     coalesce("offset" + (met.page - address)::bigint, "offset") as begin,
                     case when met.page is null then size
                          else least({PAGE}, size - (met.page - address)::bigint) end as bytes,
                     met.page - {PAGE} * row_number() over (partition by met.transfer order by met.page) as island
              from met join transfers using (transfer))
            select ranges.transfer, any_value(ranges.thread), min(first), max(last), transfers.kind, path, min(begin),
                   sum(bytes)::bigint, min(turn)
            from ranges join transfers using (transfer) group by ranges.transfer, island, transfers.kind, path
            order by 1, 7""")
        names = ("transfer", "thread", "first_thunk", "last_thunk", "kind", "path", "offset", "size", "round")
        return [{"what": kind, **dict(zip(names, row, strict=True))} for row in rows if row[0] not in apart]


def _runs(found: dict[tuple[int, int], int]) -> dict[int, list[_Reached]]:
    """Thunks that follow each other, together."""
    runs: dict[int, list[_Reached]] = {}
    for (thread, thunk), turn in sorted(found.items()):
        mine = runs.setdefault(thread, [])
        if mine and mine[-1].last == thunk - 1:
            mine[-1].last, mine[-1].round = thunk, min(mine[-1].round, turn)
        else:
            mine.append(_Reached(thunk, thunk, turn))
    return runs
