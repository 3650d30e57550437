# SPDX-License-Identifier: MIT
"""Pictures of a run in one call, made with plotly: figures that can be zoomed into, and changed like any other of it.

plotly, because JupyterLab shows its figures without a network, and because it has what is needed here: bars with
patterns, heat maps, trees. Colours are those of Okabe and Ito, which people with any colour blindness can tell apart.
plotly takes some text for markup, so texts of the run are escaped.
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go

from ptweave.data.errors import BadInput, PtweaveError
from ptweave.merge import flame, spans
from ptweave.merge import timeline as timelines
from ptweave.merge.exports import nodes
from ptweave.merge.render import safe

if TYPE_CHECKING:
    from ptweave.merge.run import Run

BLUE, SKY, ORANGE, GREEN, VERMILLION, GREY = "#0072B2", "#56B4E9", "#E69F00", "#009E73", "#D55E00", "#777777"
_KINDS = (("running", BLUE, ""), ("operation", SKY, ""), ("system call", GREEN, ""), ("gap", VERMILLION, "x"),
          ("waited for another thread", ORANGE, "/"))
_WAITED = len(_KINDS) - 1
_EDGES = {"control": (GREY, "solid"), "sync": (BLUE, "solid"), "data": (VERMILLION, "dash"), "input": (GREEN, "dot"),
          "output": (GREEN, "dot")}
_WAITS = 100_000
_NODES = 2000
_MS = 1e6
_LOOKS = "plotly_white"


def text(value: object) -> str:
    """A value of the run as text that plotly shows as it is."""
    return "" if value is None else html.escape(safe(str(value)))


class Plots:
    """Pictures of one run. Each gives a plotly Figure; raises BadInput when the run lacks what it shows."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def timeline(self, *, thread: int | None = None, begin: int | None = None, end: int | None = None,
                 most: int = 4000) -> go.Figure:
        """Threads over time: running, operations, waits, system calls, gaps. `begin` and `end` in ns of
        CLOCK_MONOTONIC; of more than `most` spans the longest are shown: ask for a shorter time to see all."""
        names = self._thread_names(thread)
        start, last = self._extent()
        parts = [name for name in timelines.PARTS if name not in self._run.missing]
        if not parts:
            self._run.need("thunks")
        found = spans.collect(self._run.timeline(thread=thread, begin=begin, end=end, parts=parts).stream()[1],
                              sorted(names), start, last, budget=most, bins=1)
        waits = self._waits()
        groups: list[list[dict[str, Any]]] = [[] for _ in _KINDS]
        for row in found.table.to_pylist():
            waited = row["kind"] == 1 and (row["thread"], row["thunk"]) in waits
            groups[_WAITED if waited else row["kind"]].append(row)
        figure = go.Figure()
        for (name, colour, pattern), rows in zip(_KINDS, groups, strict=True):
            if rows:
                figure.add_bar(
                    name=name, orientation="h", y=[names[row["thread"]] for row in rows],
                    base=[(row["t_begin"] - start) / _MS for row in rows], x=[row["ns"] / _MS for row in rows],
                    marker={"color": colour, "pattern": {"shape": pattern, "fgcolor": "black", "size": 6},
                            "line": {"width": 1 if name == "gap" else 0, "color": colour}},
                    width=0.25 if name == "system call" else 0.8,
                    offset=0.45 if name == "system call" else -0.4,
                    hovertext=[self._said(row, waits) for row in rows], hoverinfo="text")
        more = "" if found.complete else f": the longest {len(found.table):,} of {found.total:,} spans"
        figure.update_layout(title=f"Timeline{more}", template=_LOOKS, barmode="overlay",
                             xaxis_title="ms since the run began",
                             yaxis={"autorange": "reversed", "type": "category"}, height=160 + 46 * len(names))
        return figure

    def contention(self, *, most: int = 20) -> go.Figure:
        """Objects by how long threads waited for them."""
        result = self._run.contention()
        rows = [row for row in (dict(zip(result.columns, row, strict=True)) for row in result.limit(most))
                if row["contended"]]
        several = len({row["pid"] for row in rows}) > 1
        figure = go.Figure(go.Bar(
            orientation="h", y=[f"{text(row['operation'])} {row['object']:#x}"
                                + (f" {text(row['variable'])}" if row["variable"] else "")
                                + (f" of {row['pid']}" if several else "") for row in rows],
            x=[row["wait_ns"] / _MS for row in rows],
            marker={"color": ORANGE, "pattern": {"shape": "/", "fgcolor": "black"}}, textposition="outside",
            cliponaxis=False, text=[f"{row['contended']:,} of {row['operations']:,}" for row in rows], hoverinfo="text",
            hovertext=[f"waited {row['wait_ns'] / _MS:,.3f} ms, longest {row['longest_ns'] / _MS:,.3f} ms<br>"
                       f"longest waiter: {text(row['waiter'])}<br>holder: {text(row['holder'])}" for row in rows]))
        figure.update_layout(title="Waiting, by what was waited for", template=_LOOKS,
                             xaxis_title="ms waited, all threads together",
                             yaxis={"autorange": "reversed", "type": "category"}, height=200 + 30 * len(rows))
        return figure

    def graph(self, node: str, *, hops: int = 1) -> go.Figure:
        """The provenance graph around a thunk named "THREAD.THUNK", up to so many edges away: threads over time."""
        self._run.need("thunks", "edges")
        chosen = nodes.around(self._run, node, hops)
        number = nodes.count(self._run, chosen)
        if number > _NODES:
            raise BadInput(f"has {number:,} thunks around it, more than are drawn ({_NODES:,})", where=node,
                           remedy="take fewer hops, or ptweave export dot")
        start, _ = self._extent()
        names = self._thread_names(None)
        at: dict[str, tuple[float, str]] = {}
        thunks = list(nodes.thunks(self._run, chosen))
        for one in thunks:
            at[one.name] = (((one.t or start) - start) / _MS, names.get(one.thread, str(one.thread)))
        transfers = {one.transfer: one for one in nodes.transfers(self._run, chosen)}
        for number_, transfer in transfers.items():
            at[f"transfer {number_}"] = (((transfer.t or start) - start) / _MS, "input" if transfer.input else "output")
        figure = go.Figure()
        self._add_edges(figure, nodes.edges(self._run, chosen), at)
        figure.add_scatter(
            name="thunk", mode="markers+text", x=[at[one.name][0] for one in thunks],
            y=[at[one.name][1] for one in thunks], text=[one.name for one in thunks], textposition="top center",
            hoverinfo="text",
            hovertext=[f"{one.name} {text(one.operation)}<br>{text(one.function)}" for one in thunks],
            marker={"size": [16 if one.name == node else 10 for one in thunks], "line": {"width": 1, "color": "black"},
                    "color": [ORANGE if one.name == node else SKY for one in thunks]})
        if transfers:
            figure.add_scatter(
                name="input or output", mode="markers", marker={"symbol": "square", "size": 10, "color": GREEN},
                x=[at[f"transfer {one}"][0] for one in transfers], y=[at[f"transfer {one}"][1] for one in transfers],
                hoverinfo="text", hovertext=[f"{text(one.kind)} {text(one.path)}<br>{one.size or 0:,} bytes"
                                             for one in transfers.values()])
        lanes = {lane for _, lane in at.values()}
        figure.update_layout(title=f"What {node} depended on, and what depended on it",
                             xaxis_title="ms since the run began", template=_LOOKS,
                             yaxis={"autorange": "reversed", "type": "category"}, height=240 + 60 * len(lanes))
        return figure

    def _add_edges(self, figure: go.Figure, edges: Iterable[nodes.Edge], at: dict[str, tuple[float, str]]) -> None:
        """A line for each, a trace for each kind; what an edge is stands at its middle."""
        lines: dict[str, tuple[list[float | None], list[str | None], list[str | None]]] = {}
        for edge in edges:
            ends = (edge.source or f"transfer {edge.transfer}", edge.target or f"transfer {edge.transfer}")
            if ends[0] not in at or ends[1] not in at:
                continue
            xs, ys, said = lines.setdefault(edge.kind, ([], [], []))
            (x0, y0), (x1, y1) = at[ends[0]], at[ends[1]]
            what = f"{edge.kind}: {ends[0]} → {ends[1]}"
            what += f", {edge.pages:,} pages" if edge.kind == "data" else f", {edge.object:#x}" if edge.object else ""
            xs += [x0, x1, None]
            ys += [y0, y1, None]
            said += [what, what, None]
        for kind, (xs, ys, said) in lines.items():
            colour, dash = _EDGES.get(kind, (GREY, "solid"))
            figure.add_scatter(name=kind, mode="lines", x=xs, y=ys, hoverinfo="text", hovertext=said,
                               line={"color": colour, "dash": dash, "width": 2})

    def pages(self, *, most: int = 60, bins: int = 120, write: bool | None = None) -> go.Figure:
        """Which pages were accessed when: those of most threads, then accesses, and how often in each of so many equal
        times; with `write` only what was written (True) or read (False)."""
        self._run.need("accesses")
        start, last = self._extent()
        width = max(last - start, 1) / bins
        rows = self._run.ask(
            """with wanted as (select page, thread, t, region from accesses where $1 is null or write = $1),
            top as (select page, count(*) as n, count(distinct thread) as threads, any_value(region) as region
                    from wanted group by page order by threads desc, n desc, page limit $2)
            select page, greatest(least(floor((t - $3) / $4), $5 - 1), 0)::integer as bin, count(*) as n,
                   any_value(top.region), any_value(top.threads)
            from wanted join top using (page) where t is not null group by page, bin order by all""",
            write, most, start, width, bins).rows()
        order = sorted({row[0] for row in rows})
        place = {page: number for number, page in enumerate(order)}
        counts: list[list[int | None]] = [[None] * bins for _ in order]
        labels = [""] * len(order)
        for page, bin_, n, region, threads in rows:
            counts[place[page]][bin_] = n
            labels[place[page]] = f"{page:#x} {text(region)}, {threads} thread{'' if threads == 1 else 's'}"
        figure = go.Figure(go.Heatmap(z=counts, y=labels, x=[(bin_ + 0.5) * width / _MS for bin_ in range(bins)],
                                      colorscale="Cividis", colorbar={"title": "accesses"}, hoverongaps=False))
        figure.update_layout(title="Pages over time", template=_LOOKS, xaxis_title="ms since the run began",
                             yaxis={"type": "category"},
                             height=200 + 16 * len(order))
        return figure

    def flame(self, *, by: str = "instructions", by_thread: bool = False, most: int = 2000) -> go.Figure:
        """Calls by function, outermost on top, as wide as their instructions or their time (`by`)."""
        if by not in ("instructions", "time"):
            raise BadInput("is neither instructions nor time", where=by)
        self._run.need("profile", "stacks")
        rows = flame.flame(lambda sql: self._run.ask(sql).arrow(), by_thread=by_thread, budget=most).to_pylist()
        names = self._thread_names(None) if by_thread else {}
        labels = ["all" if row["parent"] is None else names.get(row["thread"]) or text(row["function"] or "(unknown)")
                  for row in rows]
        figure = go.Figure(go.Icicle(
            ids=[str(row["node"]) for row in rows], labels=labels, branchvalues="total", sort=True,
            parents=["" if row["parent"] is None else str(row["parent"]) for row in rows],
            values=[row[by] for row in rows], tiling={"orientation": "v"}, root={"color": "#eeeeee"},
            marker={"colors": [("#f3c98b", "#e8ad5c")[row["depth"] % 2] for row in rows]},
            hovertext=[f"{label}<br>{row['instructions']:,} instructions, own {row['own_instructions']:,}<br>"
                       f"{row['time'] / _MS:,.3f} ms, own {row['own_time'] / _MS:,.3f} ms<br>{row['calls']:,} calls"
                       for label, row in zip(labels, rows, strict=True)], hoverinfo="text"))
        figure.update_layout(title=f"Calls by {by}", template=_LOOKS,
                             height=120 + 24 * (1 + max(row["depth"] for row in rows)))
        return figure

    # --- what several need --------------------------------------------------------------------------------------------

    def _thread_names(self, thread: int | None) -> dict[int, str]:
        """How threads are called in pictures."""
        self._run.need("threads")
        return {number: f"{number} {text(start)}" for number, start in self._run.ask(
            "select thread, start_function from threads where not own and (? is null or thread = ?) order by thread",
            thread, thread)}

    def _extent(self) -> tuple[int, int]:
        """When the run began and ended, ns."""
        (start, last), = self._run.ask("select min(t_start), max(coalesce(t_end, t_start)) from threads").rows()
        clocks = self._run.manifest.clocks
        return (start if start is not None else clocks.t0_ns), (last if last is not None else clocks.t1_ns)

    def _waits(self) -> dict[tuple[int, int], dict[str, Any]]:
        """Waits by the thunk that each began; none where they are not known."""
        try:
            result = self._run.contention(each=True).limit(_WAITS)
        except PtweaveError:
            return {}
        return {(row["thread"], row["thunk"]): row
                for row in (dict(zip(result.columns, values, strict=True)) for values in result)}

    @staticmethod
    def _said(row: dict[str, Any], waits: dict[tuple[int, int], dict[str, Any]]) -> str:
        said = f"{text(row['what'])} {text(row['detail'])} {row['ns'] / _MS:,.3f} ms"
        if row["thunk"] is not None:
            said += f"<br>thunk {row['thread']}.{row['thunk']} {text(row['function'])}"
        if row["kind"] == 1 and row["object"] is not None:
            said += f"<br>object {text(row['variable'])} {row['object']:#x}"
        wait = waits.get((row["thread"], row["thunk"])) if row["kind"] == 1 else None
        if wait:
            said += f"<br>held by thread {wait['holder_thread']} {text(wait['holder_function'])}"
        return said
