# SPDX-License-Identifier: MIT
"""Part of the graph of a run: chosen thunks, the transfers that lead into them or out of them, and the edges between.

A thunk is chosen by a lineage, by being near another, or by the user's own SQL; all of them are SQL here, so nothing of
a run is held. An edge whose ends are known as ranges only (`--access held`) is drawn from the last chosen thunk it may
lead from to the first it may lead to: whatever may depend on something can be reached from it in the drawing, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ptweave.data.errors import BadInput
from ptweave.merge.questions import thunk_number
from ptweave.merge.run import Run

MAX_HOPS = 1000

_ALL = "select thread, thunk from thunks where thread is not null"

_THUNKS = """
with chosen as ({chosen})
select thunks.thread, thunks.thunk, operation, object, t, wait, seq, caller as function
from thunks join chosen on chosen.thread = thunks.thread and chosen.thunk = thunks.thunk
order by thunks.thread, thunks.thunk"""

_ENDS = """
with chosen as ({chosen}),
within as (
  select edges.*, leaving.thunk as leaves, coming.thunk as comes
  from edges
  asof left join chosen as leaving on leaving.thread = edges.from_thread and edges.from_until >= leaving.thunk
  asof left join chosen as coming on coming.thread = edges.to_thread and edges.to_thunk <= coming.thunk),
met as (
  select kind, from_thread, leaves, to_thread, comes, transfer, object, page, bytes,
         leaves is not null and leaves >= from_thunk as left_side,
         comes is not null and comes <= to_until as right_side from within)"""

_EDGES = _ENDS + """
select kind, from_thread, leaves, to_thread, comes, transfer, any_value(object) as object,
       count(distinct page) as pages,
       sum(list_sum(list_transform(bytes, lambda run: run.length)))::bigint as bytes
from met where case kind when 'input' then right_side when 'output' then left_side
                         else left_side and right_side and (from_thread, leaves) <> (to_thread, comes) end
group by kind, from_thread, leaves, to_thread, comes, transfer order by all"""

_TRANSFERS = _ENDS + """
select transfers.transfer, kind, input, thread, thunk, path, descriptor, "offset", size, t from transfers
where transfer in (select transfer from met
                   where (kind = 'input' and right_side) or (kind = 'output' and left_side))
order by transfer"""


@dataclass(frozen=True)
class Chosen:
    """Thunks, as SQL that gives `thread` and `thunk`, each once."""

    sql: str = _ALL


@dataclass(frozen=True)
class Thunk:
    """A thunk; as a row of `thunks`."""

    thread: int
    thunk: int
    operation: str | None
    object: int | None
    t: int | None
    wait: int | None
    seq: int | None
    function: str | None

    @property
    def name(self) -> str:
        return f"{self.thread}.{self.thunk}"


@dataclass(frozen=True)
class Transfer:
    """Data that came in or went out; as a row of `transfers`."""

    transfer: int
    kind: str | None
    input: bool
    thread: int | None
    thunk: int | None
    path: str | None
    descriptor: int | None
    offset: int | None
    size: int | None
    t: int | None


@dataclass(frozen=True)
class Edge:
    """An edge between chosen thunks (`source`, `target`: THREAD.THUNK), or a transfer and one of them. `pages`: how
    many of them it is known by; `bytes`: how many bytes of these, None where that is not known."""

    kind: str
    source: str | None
    target: str | None
    transfer: int | None
    object: int | None
    pages: int
    bytes: int | None


def everything() -> Chosen:
    """All thunks."""
    return Chosen()


def by_lineage(run: Run, *, to: str | None = None, from_: str | None = None, memory: bool = False) -> Chosen:
    """What a node depended on, or reached (`Run.lineage`). Raises BadInput for a node that is not in the run."""
    found = run.lineage(to=to, from_=from_, memory=memory).arrow().to_pylist()
    return _within([(row["thread"], row["first_thunk"], row["last_thunk"]) for row in found
                    if row["what"] == "thunks"])


def by_query(run: Run, sql: str) -> Chosen:
    """What a query of the user's gives. Raises BadInput when it is wrong, or has no columns thread and thunk."""
    body = sql.strip().rstrip(";")
    columns = run.ask(body).columns
    if not {"thread", "thunk"} <= set(columns):
        raise BadInput("gives no columns thread and thunk", where="--query",
                       remedy='write it like "select thread, thunk from thunks where t > 1000"')
    return Chosen(f"select distinct thread::integer as thread, thunk::integer as thunk from (\n{body}\n)")


def around(run: Run, name: str, hops: int) -> Chosen:
    """A thunk, and what is at most `hops` edges away from it, either way. Raises BadInput for one that is not there."""
    if not 0 <= hops <= MAX_HOPS:
        raise BadInput(f"is no number from 0 to {MAX_HOPS}", where="--hops", remedy="choose another")
    centre = thunk_number(name)
    if not run.ask("select 1 from thunks where thread = ? and thunk = ?", *centre).rows():
        raise BadInput("is no thunk of this run", where=name, remedy="see the table thunks")
    found, news = {centre}, {centre}
    for _ in range(hops if "edges" not in run.missing else 0):
        news = _neighbours(run, news) - found
        if not news:
            break
        found |= news
    return _within([(thread, thunk, thunk) for thread, thunk in sorted(found)])


def _neighbours(run: Run, nodes: set[tuple[int, int]]) -> set[tuple[int, int]]:
    there = ", ".join(f"({thread}, {thunk})" for thread, thunk in sorted(nodes))
    rows = run.ask(f"""
        with near(thread, thunk) as (values {there})
        select from_thread, least(from_until, (select max(thunk) from thunks where thread = from_thread))
        from edges join near on near.thread = to_thread and near.thunk between to_thunk and to_until
        where kind in ('control', 'sync', 'data')
        union select to_thread, to_thunk
        from edges join near on near.thread = from_thread and near.thunk between from_thunk and from_until
        where kind in ('control', 'sync', 'data')""")
    return {(int(thread), int(thunk)) for thread, thunk in rows if thread is not None and thunk is not None}


def _within(parts: list[tuple[int, int, int]]) -> Chosen:
    """Thunks `first` to `last` of threads."""
    if not parts:
        return Chosen(_ALL + " and false")
    listed = ", ".join(f"({thread}, {first}, {last})" for thread, first, last in parts)
    return Chosen(f"select distinct thunks.thread, thunks.thunk from thunks "
                  f"join (values {listed}) as part(thread, first, last) on part.thread = thunks.thread "
                  f"and thunks.thunk between part.first and part.last")


def count(run: Run, chosen: Chosen) -> int:
    """How many there are."""
    (number,), = run.ask(f"select count(*) from ({chosen.sql})")
    return int(number)


def thunks(run: Run, chosen: Chosen) -> Iterator[Thunk]:
    """The thunks, by thread and number."""
    for row in run.ask(_THUNKS.format(chosen=chosen.sql)):
        yield Thunk(*row)


def transfers(run: Run, chosen: Chosen) -> Iterator[Transfer]:
    """The transfers that an edge ties to a chosen thunk, by number."""
    if "edges" not in run.missing and "transfers" not in run.missing:
        for row in run.ask(_TRANSFERS.format(chosen=chosen.sql)):
            yield Transfer(*row)


def edges(run: Run, chosen: Chosen) -> Iterator[Edge]:
    """The edges between all these, one for each kind and pair."""
    if "edges" in run.missing:
        return
    for kind, from_thread, leaves, to_thread, comes, transfer, object_, pages, size in run.ask(
            _EDGES.format(chosen=chosen.sql)):
        if transfer is not None and "transfers" in run.missing:
            continue
        yield Edge(kind, None if kind == "input" else f"{from_thread}.{leaves}",
                   None if kind == "output" else f"{to_thread}.{comes}", transfer, object_, pages, size)


def known(values: dict[str, Any]) -> dict[str, Any]:
    """Those that are known."""
    return {name: value for name, value in values.items() if value is not None}
