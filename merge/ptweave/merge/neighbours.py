# SPDX-License-Identifier: MIT
"""Parts of the provenance graph small enough to look at: what leads into some thunks, and what leads out of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pyarrow as pa

Thunk = tuple[int, int]
"""A thread and the number of a thunk in it."""

Ask = Callable[[str], pa.Table]

THUNKS = ("select thread, thunk, operation, object, t, coalesce(wait, 0) as wait, caller as function "
          "from thunks {where} order by thread, thunk")
TRANSFERS = ('select transfer, kind, input, path, "offset", size, thread, thunk, t from transfers {where} '
             "order by transfer")
_ORDER = "kind, from_thread, from_thunk, from_until, to_thread, to_thunk, to_until, transfer"
_EDGES = """
with touched as (
  select edges.* from edges {from_there} where kind != 'control'
  union
  select edges.* from edges {to_there} where kind != 'control')
select kind, from_thread, from_thunk, from_until, to_thread, to_thunk, to_until, transfer,
       any_value(object) as object, count(page) as pages, min(page) as page
from touched group by kind, from_thread, from_thunk, from_until, to_thread, to_thunk, to_until, transfer
order by kind = 'data', pages desc, {order} limit {limit}"""
_ALL = """
select kind, from_thread, from_thunk, from_until, to_thread, to_thunk, to_until, transfer,
       any_value(object) as object, count(page) as pages, min(page) as page
from edges where kind != 'control' group by kind, from_thread, from_thunk, from_until, to_thread, to_thunk, to_until,
  transfer order by kind = 'data', pages desc, {order} limit {limit}"""


@dataclass(frozen=True)
class Graph:
    """Thunks (THUNKS), transfers (TRANSFERS) and edges between them, edges of pages from one thunk to another as one
    row with how many. Edges of kind control are not in it: they lead from each thunk to its thread's next.

    `whole` are the thunks of which all edges are in it; `cut` says that there are more edges than were asked for.
    """

    thunks: pa.Table
    transfers: pa.Table
    edges: pa.Table
    whole: set[Thunk]
    cut: bool


def _listed(thunks: Iterable[Thunk]) -> str:
    return ", ".join(f"({int(thread)}, {int(thunk)})" for thread, thunk in sorted(thunks))


def edges_of(ask: Ask, thunks: set[Thunk], limit: int) -> pa.Table:
    """Edges that lead from or to these thunks, sync ones first."""
    if not thunks:
        return ask(_ALL.format(order=_ORDER, limit=0))
    there = f"join (values {_listed(thunks)}) as there(thread, thunk) on "
    sides = {f"{side}_there": f"{there} {side}_thread = there.thread and {side}_thunk <= there.thunk "
             f"and {side}_until >= there.thunk" for side in ("from", "to")}
    return ask(_EDGES.format(limit=limit, order=_ORDER, **sides))


def graph(ask: Ask, thunks: set[Thunk] | None, *, limit: int = 12_000) -> Graph:
    """These thunks (None: all of the run) with what they depend on, and what depends on them."""
    edges = ask(_ALL.format(order=_ORDER, limit=limit + 1)) if thunks is None else edges_of(ask, thunks, limit + 1)
    cut = len(edges) > limit
    edges = edges.slice(0, limit)
    if thunks is None:
        rows = ask(THUNKS.format(where=""))
        whole = set(zip(rows.column("thread").to_pylist(), rows.column("thunk").to_pylist(), strict=True))
    else:
        wanted = thunks | ends(edges)
        where = f"join (values {_listed(wanted)}) as there(thread, thunk) using (thread, thunk)" if wanted else (
            "where false")
        rows, whole = ask(THUNKS.format(where=where)), set(thunks)
    numbers = sorted({number for number in edges.column("transfer").to_pylist() if number is not None})
    listed = ", ".join(map(str, numbers)) or "null"
    return Graph(rows, ask(TRANSFERS.format(where=f"where transfer in ({listed})")), edges, whole, cut)


def ends(edges: pa.Table) -> set[Thunk]:
    """The thunks that edges begin and end at."""
    found: set[Thunk] = set()
    for side in ("from", "to"):
        pairs = zip(edges.column(f"{side}_thread").to_pylist(), edges.column(f"{side}_thunk").to_pylist(), strict=True)
        found |= {(thread, thunk) for thread, thunk in pairs if thread is not None and thunk is not None}
    return found
