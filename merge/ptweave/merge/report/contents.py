# SPDX-License-Identifier: MIT
"""What a report shows of a run: the answers of the questions there are, cut to what fits on a page.

Every limit is one of the constants below. A part that cannot be made, because a stream is not in the bundle or a table
is broken, says so, and the others are made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ptweave.data.errors import PtweaveError
from ptweave.merge import neighbours, spans
from ptweave.merge import timeline as timelines
from ptweave.merge.facts import WARNINGS
from ptweave.merge.flame import Stacks, flame
from ptweave.merge.render import cell, safe
from ptweave.merge.report.figures import count, duration
from ptweave.merge.report.source import Listing, Sources
from ptweave.merge.result import Result
from ptweave.merge.run import NotMade, Run

THREADS = 200
"""Threads in the timeline: those that executed most."""
SPANS = 20_000
BINS = 1500
WAITS = 5_000
"""Waits whose holder the timeline knows, longest first."""
NODES = 3_000
"""Thunks in the explorer of dependences; of a longer run those that waited, raced, or are on the critical path."""
EDGES = 12_000
FRAMES = 4_000
FILES = 40
LINES = 50_000
"""Lines of source with counts."""
TEXT_BYTES = 2 << 20
"""Source text in the report."""
ROWS = 20
"""Rows of a table on the page."""

Json = dict[str, Any]

_ENDS = (("thread", "thunk"), ("holder_thread", "holder_thunk"), ("other_thread", "other_thunk"))


@dataclass
class Shown:
    """A table on the page: headings, which columns are numbers, rows of text; `more`: rows that were left out."""

    names: list[str]
    numeric: list[bool]
    rows: list[list[str]]
    more: bool = False


@dataclass
class Part:
    """A part of the page. `problem` says why it is not there: the run does not have it, or (`failed`) it cannot be had.
    `notes` say what is to be known about it."""

    key: str
    title: str
    doc: str
    command: str = ""
    table: Shown | None = None
    problem: str = ""
    failed: bool = False
    notes: list[str] = field(default_factory=list)


@dataclass
class Report:
    """All of a page: `facts` about the run, `cards` (name, figure), `parts` by key, and `data` for the pictures."""

    name: str
    command: str
    facts: list[tuple[str, str]]
    cards: list[tuple[str, str]]
    warnings: list[str]
    parts: dict[str, Part]
    data: Json

    @property
    def failures(self) -> list[str]:
        """Parts that could not be made of what the run has, and why."""
        return [f"{part.title}: {part.problem}" for part in self.parts.values() if part.failed]


class Strings:
    """Texts by number, each once, control characters escaped."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._numbers: dict[str, int] = {}

    def add(self, text: str | None) -> int:
        """A text's number; −1 for None."""
        if text is None:
            return -1
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = len(self.texts)
            self.texts.append(safe(text))
        return number

    def column(self, values: pa.ChunkedArray) -> list[int]:
        """Numbers of a column of texts."""
        return [self.add(value) for value in values.to_pylist()]


def _hex(value: int | None) -> str | None:
    return None if value is None else hex(value)


def _named(value: int | None, variable: str | None) -> str | None:
    """An object, with the variable it is, if that is known."""
    return f"{variable} {value:#x}" if value is not None and variable is not None else _hex(value)


def _shown(result: Result, columns: dict[str, tuple[str, Callable[[Any], str]]]) -> Shown:
    """The first rows of an answer: of these columns, under these headings, as these functions show them."""
    places = [result.columns.index(name) for name in columns]
    taken = list(islice(result, ROWS + 1))
    numeric = [result.numeric[place] for place in places]
    return Shown([heading for heading, _ in columns.values()], numeric,
                 [[show(row[place]) for place, (_, show) in zip(places, columns.values(), strict=True)]
                  for row in taken[:ROWS]], len(taken) > ROWS)


def _name(text: str | None) -> str:
    return "(unknown)" if text is None else safe(text)


def _yes(value: bool | None) -> str:
    return "yes" if value else ""


def _object(value: int | None) -> str:
    return _hex(value) or ""


class Collector:
    """Makes the report of a run. `folders`: where source files may be read from."""

    def __init__(self, run: Run, folders: list[Path]) -> None:
        self._run = run
        self._sources = Sources(folders, run.manifest.clocks.realtime_ns)
        self._strings = Strings()
        self._data: Json = {}
        self._parts: dict[str, Part] = {}
        self._begin, self._end = 0, 1
        self._threads: list[int] = []
        self._path: pa.Table | None = None
        self._waiting: list[Json] | None = None

    def report(self) -> Report:
        """The whole of it."""
        path = f"{self._run.path.name}"
        facts = [(name, text) for name, text in self._run.facts() if name not in WARNINGS]
        warnings = [f"{name}: {text}" for name, text in self._run.facts() if name in WARNINGS]
        for key, title, doc, command, make in (
                ("threads", "Threads", "what each executed", "query", self._thread_table),
                ("hot", "Hot functions", "where instructions were executed; time is the function's own", "hot",
                 self._hot),
                ("contention", "Waiting", "what threads waited for, longest first, and who held it", "contention",
                 self._contention),
                ("critical", "Critical path", "what the end of the run had to wait for", "critical-path",
                 self._critical),
                ("races", "Races", "conflicting accesses without an order, surest first", "races", self._races),
                ("syscalls", "System calls", "by the time they took", "query", self._syscalls),
                ("gaps", "Gaps", "where the record is known to be incomplete", "query", self._gaps),
                ("timeline", "Timeline", "threads over time", "timeline", self._timeline),
                ("flame", "Flame graph", "calls by function, outermost frame on top", "hot", self._flame),
                ("graph", "Dependences", "what a thunk depended on, and what depended on it", "lineage", self._graph),
                ("source", "Source", "how often each line ran", "hot --by line", self._source)):
            part = self._parts[key] = Part(key, title, doc, f"ptweave {command} {path}" if command != "query" else "")
            try:
                make(part)
            except NotMade as error:
                part.problem = safe(error.line())
            except PtweaveError as error:
                part.problem, part.failed = safe(error.line()), True
        self._data["strings"] = self._strings.texts
        manifest = self._run.manifest
        return Report(path, safe(" ".join(manifest.command)), [(name, safe(text)) for name, text in facts],
                      self._cards(), [safe(line) for line in warnings], self._parts, self._data)

    def _ask(self, sql: str) -> pa.Table:
        return self._run.ask(sql).arrow()

    # --- answers that several parts are made from ---------------------------------------------------------------------

    def _critical_path(self) -> pa.Table:
        """Its segments, longest first. Raises PtweaveError."""
        if self._path is None:
            self._path = self._run.critical_path().arrow().sort_by([("ns", "descending"), ("t_begin", "ascending")])
        return self._path

    def _longest_waits(self) -> list[Json]:
        """The WAITS longest. Raises PtweaveError."""
        if self._waiting is None:
            result = self._run.contention(each=True)
            self._waiting = [dict(zip(result.columns, row, strict=True)) for row in islice(result, WAITS)]
        return self._waiting

    # --- tables -------------------------------------------------------------------------------------------------------

    def _cards(self) -> list[tuple[str, str]]:
        counts = {table.name: table.rows for table in self._run.tables()}
        cards = []
        if self._end - self._begin > 1:
            cards.append(("time", duration(self._end - self._begin)))
        if "threads" not in self._run.missing:
            sums = self._run.ask("select count(*) filter (not own), sum(instructions)::bigint, sum(blocks)::bigint "
                                 "from threads").rows()[0]
            cards += [(name, count(number)) for name, number in
                      zip(("threads", "instructions", "blocks"), sums, strict=True)]
        for name, title in (("thunks", "thunks"), ("syscalls", "system calls"), ("races", "races"), ("gaps", "gaps")):
            if name not in self._run.missing:
                cards.append((title, count(counts[name])))
        return cards

    def _thread_table(self, part: Part) -> None:
        self._run.need("threads")
        bounds = self._run.ask("select min(t_start), max(coalesce(t_end, t_start)) from threads").rows()[0]
        clocks = self._run.manifest.clocks
        self._begin = bounds[0] if bounds[0] is not None else clocks.t0_ns
        self._end = max(bounds[1] if bounds[1] is not None else clocks.t1_ns, self._begin + 1)
        rows = self._run.ask("select thread, pid, tid, start_function, own, t_start, t_end from threads "
                             f"order by instructions desc nulls last, thread limit {THREADS}").rows()
        self._threads = sorted(row[0] for row in rows)
        self._data["threads"] = [
            {"thread": thread, "name": _name(start), "pid": pid, "tid": tid, "own": bool(own),
             "begin": None if t0 is None else t0 - self._begin, "end": None if t1 is None else t1 - self._begin}
            for thread, pid, tid, start, own, t0, t1 in sorted(rows, key=lambda row: row[0])]
        part.table = _shown(
            self._run.ask("select thread, start_function, tid, instructions, blocks, t_end - t_start as ns, gaps, own "
                          "from threads order by instructions desc nulls last, thread"),
            {"thread": ("thread", cell), "start_function": ("start function", _name), "tid": ("tid", cell),
             "instructions": ("instructions", count), "ns": ("lived", duration), "gaps": ("gaps", count),
             "own": ("", lambda own: "of ptweave's library" if own else "")})

    def _hot(self, part: Part) -> None:
        part.table = _shown(self._run.hot(), {
            "function": ("function", _name), "image": ("in", cell), "instructions": ("instructions", count),
            "percent": ("%", cell), "calls": ("calls", count), "ns": ("own time", duration)})

    def _contention(self, part: Part) -> None:
        part.table = _shown(self._run.contention(), {
            "object": ("object", _object), "variable": ("variable", cell), "operation": ("operation", cell),
            "contended": ("waits", count),
            "operations": ("of", count), "wait_ns": ("waited", duration), "longest_ns": ("longest", duration),
            "waiter": ("longest waiter", cell), "holder": ("holder", cell), "pid": ("process", cell)})

    def _critical(self, part: Part) -> None:
        path = self._critical_path()
        names = ["thread", "what", "operation", "function"]
        sums = path.group_by(names).aggregate([("ns", "sum"), ("ns", "count")]).sort_by(
            [("ns_sum", "descending"), *((name, "ascending") for name in names)])
        whole = max(sum(sums.column("ns_sum").to_pylist()), 1)
        part.table = Shown(
            ["thread", "what", "operation", "function", "segments", "time", "%"],
            [True, False, False, False, True, True, True],
            [[cell(row["thread"]), cell(row["what"]), cell(row["operation"]), _name(row["function"]),
              count(row["ns_count"]), duration(row["ns_sum"]), f"{100 * row['ns_sum'] / whole:.1f}"]
             for row in sums.slice(0, ROWS).to_pylist()], len(sums) > ROWS)
        self._data["critical"] = [[row["thread"], row["t_begin"] - self._begin, row["ns"]]
                                  for row in path.slice(0, WAITS).to_pylist()]

    def _races(self, part: Part) -> None:
        part.table = _shown(self._run.races(), {
            "overlap": ("same", cell), "pairs": ("pairs", count), "page": ("page", _object),
            "variable": ("variable", cell), "thread": ("thread", cell), "function": ("function", _name),
            "line": ("line", cell), "write": ("writes", _yes), "other_variable": ("other variable", cell),
            "other_thread": ("other thread", cell), "other_function": ("function", _name),
            "other_line": ("line", cell), "other_write": ("writes", _yes)})

    def _syscalls(self, part: Part) -> None:
        self._run.need("syscalls")
        part.table = _shown(self._run.ask(
            "select name, count(*) as calls, sum(t_exit - t_enter)::bigint as ns, max(t_exit - t_enter) as longest, "
            "count(errno) as failed from syscalls group by name order by ns desc nulls last, calls desc, name"), {
            "name": ("call", _name), "calls": ("calls", count), "failed": ("failed", count), "ns": ("time", duration),
            "longest": ("longest", duration)})

    def _gaps(self, part: Part) -> None:
        self._run.need("gaps")
        part.table = _shown(self._run.ask(
            "select thread, kind, count(*) as n, sum(bytes)::bigint as bytes from gaps group by all "
            "order by n desc, thread, kind"),
            {"thread": ("thread", cell), "kind": ("kind", cell), "n": ("gaps", count),
             "bytes": ("bytes not decoded", count)})

    # --- pictures -----------------------------------------------------------------------------------------------------

    def _timeline(self, part: Part) -> None:
        present = [name for name in timelines.PARTS if name not in self._run.missing]
        lacking = [name for name in timelines.PARTS if name in self._run.missing]
        part.notes += [f"without {name}, which {safe(self._run.missing[name])}" for name in lacking]
        if "threads" in self._run.missing:
            self._run.need("threads")
        stream = self._run.timeline(parts=present).stream()[1]
        found = spans.collect(stream, self._threads, self._begin, self._end, budget=SPANS, bins=BINS)
        table = found.table
        waited = self._waits(part)
        threads, thunks = table.column("thread").to_pylist(), table.column("thunk").to_pylist()
        kinds = table.column("kind").to_pylist()
        of_waits = [waited.get((thread, thunk), -1) if kind == 1 else -1
                    for thread, thunk, kind in zip(threads, thunks, kinds, strict=True)]
        self._data["timeline"] = {
            "begin": self._begin, "length": self._end - self._begin, "total": found.total, "complete": found.complete,
            "thread": threads, "kind": kinds, "thunk": thunks, "wait": of_waits,
            "at": [t - self._begin for t in table.column("t_begin").to_pylist()],
            "ns": table.column("ns").to_pylist(), "detail": self._strings.column(table.column("detail")),
            "object": [self._strings.add(_named(value, name)) for value, name in zip(
                table.column("object").to_pylist(), table.column("variable").to_pylist(), strict=True)],
            "function": self._strings.column(table.column("function")),
            "filled": [] if found.complete else np.rint(found.filled * 99).astype(int).tolist(),
            "run": self._run.path.name}
        (threads_known,), = self._run.ask("select count(*) from threads").rows()
        if threads_known > len(self._threads):
            part.notes.append(f"the {len(self._threads)} threads of {threads_known:,} that executed most")
        if not found.complete:
            part.notes.append(f"the longest {len(table):,} of {found.total:,} spans one by one, all others as how full "
                              "each moment was of them; zoom in and copy the command below for the rest")

    def _waits(self, part: Part) -> dict[tuple[int, int], int]:
        """Rows of `waits` by the thunk that the wait began."""
        try:
            rows = self._longest_waits()
        except PtweaveError as error:
            part.notes.append(f"which operations waited is not known: {safe(error.line())}")
            rows = []
        self._data["waits"] = [[row["holder_thread"], row["holder_thunk"],
                                None if row["released"] is None else row["released"] - self._begin,
                                self._strings.add(row["holder_function"])] for row in rows]
        return {(row["thread"], row["thunk"]): number for number, row in enumerate(rows)}

    def _flame(self, part: Part) -> None:
        self._run.need("profile", "stacks")
        trees, stacks = {}, Stacks(self._ask)
        for key, by_thread in (("together", False), ("threads", True)):
            tree = flame(self._ask, by_thread=by_thread, budget=FRAMES, stacks=stacks)
            trees[key] = {"parent": [-1 if one is None else one for one in tree.column("parent").to_pylist()],
                          "name": self._strings.column(tree.column("function")),
                          **{name: tree.column(name).to_pylist() for name in
                             ("depth", "thread", "instructions", "own_instructions", "time", "own_time", "calls")}}
        self._data["flame"] = trees
        part.notes.append("branches below 0.05 % of both instructions and time are in their callers")

    def _graph(self, part: Part) -> None:
        self._run.need("thunks", "edges")
        (thunks,), = self._run.ask("select count(*) from thunks where thread is not null").rows()
        chosen = None if thunks <= NODES else set(self._interesting())
        graph = neighbours.graph(self._ask, chosen, limit=EDGES)
        if chosen is not None:
            part.notes.append(f"{len(graph.thunks):,} of {thunks:,} thunks: those that waited longest and who held, on "
                              "the critical path, in races, that wrote last")
        if graph.cut:
            part.notes.append(f"the first {EDGES:,} edges: synchronisation, inputs and outputs, then the most pages")
        nodes, edges = graph.thunks, graph.edges
        missing = [-1] * len(edges)
        self._data["graph"] = {
            "nodes": {**{name: nodes.column(name).to_pylist() for name in ("thread", "thunk", "wait")},
                      "operation": self._strings.column(nodes.column("operation")),
                      "function": self._strings.column(nodes.column("function")),
                      "object": [self._strings.add(_hex(value)) for value in nodes.column("object").to_pylist()],
                      "at": [None if t is None else t - self._begin for t in nodes.column("t").to_pylist()],
                      "whole": [chosen is None or pair in graph.whole for pair in zip(
                          nodes.column("thread").to_pylist(), nodes.column("thunk").to_pylist(), strict=True)]},
            "edges": {**{name: edges.column(name).to_pylist() if name in edges.column_names else missing for name in (
                          "from_thread", "from_thunk", "from_until", "to_thread", "to_thunk", "to_until", "transfer",
                          "pages")},
                      "kind": self._strings.column(edges.column("kind")),
                      "object": [self._strings.add(_hex(value)) for value in edges.column("object").to_pylist()],
                      "page": [self._strings.add(_hex(value)) for value in edges.column("page").to_pylist()]},
            "transfers": {str(row["transfer"]): {
                "kind": row["kind"], "input": row["input"], "path": None if row["path"] is None else safe(row["path"]),
                "offset": row["offset"], "size": row["size"]} for row in graph.transfers.to_pylist()},
            "focus": self._focus(nodes)}
        if "accesses" in self._run.missing:
            part.notes.append(f"edges through memory are not known: accesses: {safe(self._run.missing['accesses'])}")

    def _interesting(self) -> list[neighbours.Thunk]:
        """Thunks worth looking at, the most so first."""
        sixth = NODES // 6
        found: list[neighbours.Thunk] = []
        asked: tuple[Callable[[], Iterable[Json]], ...] = (
            lambda: self._longest_waits()[:sixth],
            lambda: self._critical_path().slice(0, sixth).to_pylist(),
            lambda: _dicts(self._run.races(), sixth // 2),
            lambda: _dicts(self._run.ask("select thread, thunk from transfers where not input order by t desc"),
                           sixth // 2))
        for ask in asked:
            try:
                rows = list(ask())
            except PtweaveError:  # said where the question has a table of its own
                continue
            for row in rows:
                found += [(row[thread], row[thunk]) for thread, thunk in _ENDS
                          if row.get(thread) is not None and row.get(thunk) is not None]
        return found

    def _focus(self, nodes: pa.Table) -> list[int] | None:
        """The thunk that is shown first."""
        found = self._interesting()
        if not found and len(nodes):
            found = [(nodes.column("thread")[0].as_py(), nodes.column("thunk")[0].as_py())]
        return list(found[0]) if found else None

    # --- source -------------------------------------------------------------------------------------------------------

    def _source(self, part: Part) -> None:
        result = self._run.hot("line")
        file, line, instructions, times = (result.columns.index(name) for name in (
            "file", "line", "instructions", "times"))
        listings: dict[str, Listing] = {}
        lines = 0
        for row in result:
            if row[file] is None or row[line] is None:
                continue
            listing = listings.setdefault(row[file], Listing(row[file]))
            ran, executed = listing.counts.get(row[line], (0, 0))
            listing.counts[row[line]] = (ran + row[times], executed + row[instructions])
            lines += 1
            if lines == LINES:
                part.notes.append(f"the {LINES:,} lines that executed most")
                break
        room = TEXT_BYTES
        order = sorted(listings.values(), key=lambda listing: -listing.instructions)
        for listing in order:
            self._sources.fill(listing)
            size = sum(map(len, listing.text or ()))
            if size > room:
                listing.text, listing.note = None, f"is left out: the report has {TEXT_BYTES >> 20} MiB of source"
            room -= size if listing.text is not None else 0
        order.sort(key=lambda listing: (listing.text is None, -listing.instructions))
        if len(order) > FILES:
            part.notes.append(f"{FILES} of {len(order):,} files: with text first, then by instructions")
            order = order[:FILES]
        if not order:
            part.problem = "no line is known: compile with -g, and decode where the debug files are"
        self._data["source"] = [
            {"path": safe(listing.path), "note": safe(listing.note), "instructions": listing.instructions,
             "text": None if listing.text is None else [_tabs(text) for text in listing.text],
             "counts": [[line, ran, executed] for line, (ran, executed) in sorted(listing.counts.items())]}
            for listing in order]


def _dicts(result: Result, rows: int) -> list[Json]:
    return [dict(zip(result.columns, row, strict=True)) for row in islice(result, rows)]


def _tabs(text: str) -> str:
    return safe(text.expandtabs(8))
