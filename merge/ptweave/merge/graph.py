# SPDX-License-Identifier: MIT
"""The concurrent provenance graph: the tables `edges` and `races`.

Nodes are thunks, and transfers of data from and to outside. What a thread did before it may always know (control); what
an acquire saw a release publish (sync); what it reads on a page that others wrote before (data). docs/merge.md says
what each edge promises. Clocks and pages are read once, in order, so memory does not grow with the run, but for the
spans of the one page that most is known of.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ptweave.data import layout
from ptweave.data.bundle import Bundle
from ptweave.data.manifest import Manifest
from ptweave.data.schemas import BYTES, EDGES, RACES
from ptweave.data.table_writer import TableWriter
from ptweave.merge import access_files
from ptweave.merge._merge import ffi, lib
from ptweave.merge.access_files import AccessFiles, Batches
from ptweave.merge.accesses import Lines
from ptweave.merge.clocks import Clocks
from ptweave.merge.program import check
from ptweave.merge.race_sites import RaceSites
from ptweave.merge.scratch import Scratch
from ptweave.merge.tables import BATCH_ROWS, numbers, within
from ptweave.merge.tasks import Tasks
from ptweave.merge.thunk_rows import ThunkRows
from ptweave.merge.variables import Variables

SPAN_DTYPE = np.dtype([
    ("page", "<u8"), ("address", "<u8"), ("site", "<u8"), ("run", "<i8"), ("runs", "<u4"), ("flags", "<u4"),
    ("program", "<i4"), ("thread", "<i4"), ("first", "<i4"), ("until", "<i4")])
EDGE_DTYPE = np.dtype([
    ("page", "<u8"), ("run", "<i8"), ("runs", "<u4"), ("program", "<i4"), ("from_thread", "<i4"),
    ("from_thunk", "<i4"), ("from_until", "<i4"), ("to_thread", "<i4"), ("to_thunk", "<i4"), ("to_until", "<i4")])
RACE_DTYPE = np.dtype([
    ("page", "<u8"), ("site", "<u8", (2,)), ("address", "<u8", (2,)), ("thread", "<i4", (2,)), ("thunk", "<i4", (2,)),
    ("wrote", "<u4", (2,)), ("count", "<i8"), ("program", "<i4"), ("overlap", "<i4")])
for _name, _dtype in (("span", SPAN_DTYPE), ("edge", EDGE_DTYPE), ("race", RACE_DTYPE)):
    assert ffi.sizeof(f"struct ptm_{_name}") == _dtype.itemsize

OVERLAPS = ["page", "address", "bytes", "atomic"]
"""Codes of `struct ptm_race.overlap`, and what is the last two's where both instructions are atomic."""

Found = npt.NDArray[np.void]


def programs(tasks: Tasks, threads: int) -> pa.Table:
    """Whose memory each thread's addresses are in, and since when: a row a thread and process image."""
    rows = []
    for thread in range(threads):
        pid = tasks.program(thread)
        images = [image for image in tasks.processes if image.pid == pid and image.began_by != "thread"]
        rows.append({"thread": thread, "since": -(1 << 62), "program": int(images[0].space) if images else 0})
        rows += [{"thread": thread, "since": image.t_start or 0, "program": int(image.space)} for image in images[1:]]
    return pa.Table.from_pylist(rows, pa.schema([("thread", pa.int32()), ("since", pa.int64()),
                                                 ("program", pa.int32())]))


class Graph:
    """Makes edges and races. Use as a context manager; the clocks must outlive it."""

    def __init__(self, clocks: Clocks, where: str) -> None:
        self._clocks = clocks
        self._where = where
        made = ffi.new("struct ptm_graph **")
        check(lib.ptm_graph_create(clocks.raw, made), where)
        self._graph = made[0]

    def close(self) -> None:
        lib.ptm_graph_destroy(self._graph)
        self._graph = ffi.NULL

    def __enter__(self) -> Graph:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def sync(self, thread: int, acquire: npt.NDArray[np.uint8], first: int) -> Found:
        """Edges into a thread's thunks from `first` on, those that acquire (EDGE_DTYPE)."""
        check(lib.ptm_graph_sync(self._graph, thread, ffi.from_buffer("uint8_t[]", acquire), first, len(acquire)),
              self._where)
        return self._edges()[0]

    def pages(self, spans: Found, runs: npt.NDArray[np.uint32]) -> tuple[Found, npt.NDArray[np.uint32], Found]:
        """Edges (EDGE_DTYPE), their runs, and races (RACE_DTYPE) of whole pages (SPAN_DTYPE)."""
        check(lib.ptm_graph_pages(self._graph, ffi.from_buffer("struct ptm_span[]", spans), len(spans),
                                  ffi.from_buffer("uint32_t[]", runs), len(runs)), self._where)
        edges, made = self._edges()
        count = ffi.new("size_t *")
        found = lib.ptm_graph_races(self._graph, count)
        return edges, made, _copy(found, count[0], RACE_DTYPE)

    def _edges(self) -> tuple[Found, npt.NDArray[np.uint32]]:
        count, n_runs, runs = ffi.new("size_t *"), ffi.new("size_t *"), ffi.new("uint32_t **")
        found = lib.ptm_graph_edges(self._graph, count, runs, n_runs)
        return _copy(found, count[0], EDGE_DTYPE), _copy(runs[0], n_runs[0], np.dtype("<u4"))


def _copy(pointer: Any, count: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    if not count:
        return np.zeros(0, dtype)
    found: npt.NDArray[Any] = np.frombuffer(ffi.buffer(pointer, count * dtype.itemsize), dtype).copy()
    return found


@dataclass(frozen=True)
class Paged:
    """Accesses to pages that data edges and races were made of, and those in thunks that there are not."""

    stored: int
    lost: int


class GraphTables:
    """Writes `edges` and `races`: what the order of thunks says, which needs nothing but decoded thunks, and then what
    pages say, which needs names. To be closed."""

    def __init__(self, bundle: Bundle, scratch: Scratch, rows: ThunkRows) -> None:
        self._bundle = bundle
        self._scratch = scratch
        self._rows = rows
        self._open = ExitStack()
        self._clocks: Clocks | None = None
        self._graph: Graph | None = None

    def close(self) -> None:
        self._open.close()

    def order(self, pool: Executor) -> None:
        """Write control and sync edges: once, before `data`. May run in another thread where the rows are sorted.

        Raises BadInput when thunks contradict each other."""
        self._clocks = self._open.enter_context(Clocks(self._scratch, self._rows))
        self._graph = self._open.enter_context(Graph(self._clocks, str(self._bundle.decoded / access_files.PAGES)))
        with TableWriter(self._bundle.tables, EDGES, "0.parquet", encoded=["kind"], pool=pool) as writer:
            for table in _order(self._rows, self._graph):
                writer.write(table)

    def data(self, files: AccessFiles, tasks: Tasks, lines: Lines, variables: Variables, pool: Executor) -> Paged:
        """Write data edges and `races`: where accesses were recorded. May run in another thread, too."""
        assert self._clocks and self._graph
        clocks, graph = self._clocks, self._graph
        stored = lost = 0
        begun = {int(image.space): image.t_start or 0 for image in tasks.processes}
        tables = self._bundle.tables
        with TableWriter(tables, EDGES, "1.parquet", encoded=["kind"], pool=pool) as edges, \
                TableWriter(tables, RACES) as races, RaceSites(self._bundle) as sites:
            for spans, runs in _spans(files.spans(programs(tasks, clocks.threads)), self._bundle.manifest):
                good = clocks.has(spans["thread"], spans["first"]) & (spans["until"] >= spans["first"])
                stored, lost = stored + int(good.sum()), lost + int((~good).sum())
                found, made, conflicts = graph.pages(spans[good], runs)
                edges.write(data_table(found, made))
                if len(conflicts):
                    races.write(race_table(conflicts, lines, variables, sites, begun))
        return Paged(stored, lost)


# --- control and synchronisation --------------------------------------------------------------------------------------


def _order(rows: ThunkRows, graph: Graph) -> Iterator[pa.Table]:
    """What the order of thunks says: control and sync edges, by the thunk they lead to."""
    for batch in rows.batches(["thread", "thunk", "acquire", "object"], placed=True):
        threads = numbers(batch, "thread")
        edges = np.flatnonzero(np.diff(threads)) + 1
        for first, end in zip([0, *edges.tolist()], [*edges.tolist(), len(threads)], strict=True):
            if end > first:
                yield from _order_of(batch.slice(first, end - first), int(threads[first]), graph)


def _order_of(batch: pa.RecordBatch, thread: int, graph: Graph) -> Iterator[pa.Table]:
    thunk = numbers(batch, "thunk").astype(np.int32)
    acquire = np.ascontiguousarray(batch.column("acquire").fill_null(False).to_numpy(zero_copy_only=False), np.uint8)
    found = graph.sync(thread, acquire, int(thunk[0]))
    yield control_table(thread, thunk[thunk > 0])
    yield sync_table(found, batch.column("object").take(pa.array(found["to_thunk"] - thunk[0])))


def control_table(thread: int, thunk: npt.NDArray[np.int32]) -> pa.Table:
    """Edges into these thunks of a thread from the ones before them."""
    of_thread, before, here = (pa.array(values) for values in (np.full(len(thunk), thread, np.int32), thunk - 1, thunk))
    return _table(len(thunk), "control", from_thread=of_thread, from_thunk=before, from_until=before,
                  to_thread=of_thread, to_thunk=here, to_until=here)


def sync_table(found: Found, objects: pa.Array) -> pa.Table:
    """Edges of synchronisation, with the objects acquired."""
    return _table(len(found), "sync", object=objects, **_ends(found))


def _ends(found: Found) -> dict[str, Any]:
    return {name: found[name] for name in ("from_thread", "from_thunk", "from_until", "to_thread", "to_thunk",
                                           "to_until")}


_KINDS = ["control", "sync", "data"]
"""One dictionary for all: a file with several would have the names in each row."""


def _table(rows: int, kind: str, **columns: Any) -> pa.Table:
    """Rows of `edges`, whose kind is encoded: what is not given is null."""
    kinds = pa.DictionaryArray.from_arrays(pa.array(np.full(rows, _KINDS.index(kind), np.int32)), pa.array(_KINDS))
    given = {"kind": kinds, **columns}
    return pa.table([_column(given[field.name], field.type) if field.name in given else _nothing(rows, field.type)
                     for field in EDGES.schema], names=EDGES.schema.names)


@cache
def _nulls(kind: pa.DataType) -> pa.Array:
    return pa.nulls(BATCH_ROWS, kind)


def _nothing(rows: int, kind: pa.DataType) -> pa.Array:
    """As many nulls: millions of rows have the same ones."""
    return _nulls(kind).slice(0, rows) if rows <= BATCH_ROWS else pa.nulls(rows, kind)


def _column(values: Any, kind: pa.DataType) -> pa.Array:
    return values if isinstance(values, pa.Array) else pa.array(values, kind)


# --- data -------------------------------------------------------------------------------------------------------------


def _spans(pages: Batches, manifest: Manifest) -> Iterator[tuple[Found, npt.NDArray[np.uint32]]]:
    """Accesses as spans, whole pages at a time, and the runs they refer to."""
    left: list[tuple[Found, npt.NDArray[np.uint32]]] = []
    for batch in pages:
        left.append(span_array(batch, private=manifest.view == "private"))
        spans, runs = _joined(left)
        new = np.flatnonzero((spans["page"][1:] != spans["page"][:-1])
                             | (spans["program"][1:] != spans["program"][:-1]))
        if len(new):
            cut = int(new[-1]) + 1
            yield spans[:cut], runs
            left = [_from(spans, runs, cut)]
        else:
            left = [(spans, runs)]
    if left:
        yield _joined(left)


def _joined(parts: list[tuple[Found, npt.NDArray[np.uint32]]]) -> tuple[Found, npt.NDArray[np.uint32]]:
    if len(parts) == 1:
        return parts[0]
    before = 0
    for spans, runs in parts:
        spans["run"] += before
        before += len(runs)
    return np.concatenate([spans for spans, _ in parts]), np.concatenate([runs for _, runs in parts])


def _from(spans: Found, runs: npt.NDArray[np.uint32], cut: int) -> tuple[Found, npt.NDArray[np.uint32]]:
    """The spans from `cut` on, and their runs alone."""
    rest = spans[cut:].copy()
    first = int(rest["run"].min())
    rest["run"] -= first
    return rest, runs[first:]


def span_array(batch: pa.RecordBatch, *, private: bool) -> tuple[Found, npt.NDArray[np.uint32]]:
    """Rows of the query as SPAN_DTYPE. In the private view a page that is open for writing is written where commits say
    so, unless it is passed through."""
    spans = np.zeros(len(batch), SPAN_DTYPE)
    for name in ("page", "address", "site", "program", "thread", "first", "until"):
        spans[name] = numbers(batch, name)
    lists = batch.column("bytes")
    lengths = lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    parts = lists.flatten()
    runs = (parts.field("offset").to_numpy(zero_copy_only=False).astype(np.uint32)
            | parts.field("length").to_numpy(zero_copy_only=False).astype(np.uint32) << np.uint32(16))
    spans["run"], spans["runs"] = np.cumsum(lengths) - lengths, lengths
    write = batch.column("write").to_numpy(zero_copy_only=False)
    writes = write & batch.column("shared").fill_null(False).to_numpy(zero_copy_only=False) if private else write
    behind = spans["page"] - spans["address"] // np.uint64(layout.PAGE) * np.uint64(layout.PAGE)
    known = (behind == 0) & (spans["site"] != 0) & (lengths == 0)
    spans["flags"] = (np.where(writes & (lengths == 0), lib.PTM_SPAN_WRITES, 0) | np.where(known, lib.PTM_SPAN_KNOWN, 0)
                      | np.where(write, lib.PTM_SPAN_WROTE, 0))
    spans["address"][~known] = 0
    return spans, runs


def data_table(found: Found, runs: npt.NDArray[np.uint32]) -> pa.Table:
    """Data edges as rows of `edges`."""
    order = np.repeat(found["run"], found["runs"]) + within(found["runs"].astype(np.int64))
    mine = runs[order] if len(order) else np.zeros(0, np.uint32)
    offsets = np.concatenate([[0], np.cumsum(found["runs"])]).astype(np.int32)
    pairs = pa.StructArray.from_arrays([pa.array((mine & 0xFFFF).astype(np.int32)),
                                        pa.array((mine >> 16).astype(np.int32))], ["offset", "length"])
    lists = pa.ListArray.from_arrays(pa.array(offsets), pairs, type=BYTES, mask=pa.array(found["runs"] == 0))
    return _table(len(found), "data", page=found["page"], bytes=lists, **_ends(found))


# --- races ------------------------------------------------------------------------------------------------------------


def race_table(found: Found, lines: Lines, variables: Variables, sites: RaceSites,
               begun: dict[int, int]) -> pa.Table:
    """Rows of `races`, without what libraries order unseen. `begun`: when each process image began, in which
    instructions have the names they have."""
    times = np.array([begun.get(program, 0) for program in found["program"].tolist()], np.int64)
    places = [lines.places(found["thread"][:, side].astype(np.int64), times, found["site"][:, side].astype(np.uint64))
              for side in range(2)]
    others = ~(sites.are_ordered_unseen(places[0]) | sites.are_ordered_unseen(places[1]))
    found, times, places = found[others], times[others], [side[others] for side in places]
    close = np.flatnonzero(found["overlap"] != lib.PTM_OVERLAP_PAGE)  # of the others it makes no difference
    atomic = close[sites.are_atomic(places[0][close]) & sites.are_atomic(places[1][close])]
    found["overlap"][atomic] = OVERLAPS.index("atomic")
    columns: dict[str, Any] = {
        "overlap": pa.DictionaryArray.from_arrays(pa.array(found["overlap"]), pa.array(OVERLAPS)).cast(pa.string()),
        "pairs": found["count"], "page": found["page"]}
    for side, prefix in ((0, ""), (1, "other_")):
        site, address, thread = found["site"][:, side], found["address"][:, side], found["thread"][:, side]
        named = lines.columns(thread.astype(np.int64), times, pa.array(site, mask=site == 0))
        columns |= {f"{prefix}thread": thread, f"{prefix}thunk": found["thunk"][:, side],
                    f"{prefix}write": found["wrote"][:, side] != 0,
                    f"{prefix}address": pa.array(address, mask=address == 0),
                    f"{prefix}variable": variables.of(thread.astype(np.int64), times, address.astype(np.uint64)),
                    **{prefix + name: column for name, column in named.items()}}
    return pa.table(columns).select(RACES.schema.names).cast(RACES.schema)
