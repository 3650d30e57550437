# SPDX-License-Identifier: MIT
"""Hits of probes out of the run's files of events, and the places they were at (`probes/probes.json`, which the
recorder wrote): `decoded/probes.parquet` (`ptweave.data.schemas.DECODED_PROBES`) and the table `probe_sites`."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ptweave.data import Bundle
from ptweave.data.schemas import DECODED_PROBES, PROBE_SITES
from ptweave.data.table_writer import TableWriter
from ptweave.decode.recorded_json import is_number, is_text, load_json
from ptweave.decode.tasks_of_events import ThreadsByTask
from ptweave.decode.vector import Kind

FILE = "probes.parquet"
LIST = Path("probes/probes.json")
_KINDS = {"probe": {"hit"}, "probe call": {"hit", "args", "stack", "result", "ticks"}}
_LIST_MAX = 1 << 30
_TEXTS = ("spec", "handler", "path", "function", "reason")


def is_probe(kind: Kind) -> bool:
    """Of those that libtthread's probes log (preload/src/probe_hit.c)."""
    return kind.name in _KINDS and {one.name for one in kind.fields} >= _KINDS[kind.name]


class Probes:
    """Collects the hits of a run. Sites that the list does not have cost their hits, which `lost` counts."""

    def __init__(self, bundle: Bundle, threads: ThreadsByTask) -> None:
        self.lost: dict[str, int] = defaultdict(int)
        self._bundle = bundle
        self._threads = threads
        self._rows = _listed(bundle)
        self._sites = {row["hit"]: row for row in self._rows if row["hit"] is not None}
        self._parts: list[pa.Table] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """A batch of events of one of the kinds."""
        hits = batch.column("hit").to_numpy(zero_copy_only=False)
        known = np.isin(hits, np.fromiter(self._sites, np.int64, len(self._sites)))
        self.lost["of an unknown place"] += int(len(known) - known.sum())
        batch = batch.filter(pa.array(known))
        columns = {name: batch.column(name) for name in ("data", "truncated", "t")}
        columns["site"] = batch.column("hit").cast(pa.int32())
        columns["thread"] = self._threads.column(batch)
        for name in ("args", "stack", "result"):
            columns[name] = batch.column(name) if name in batch.schema.names else _nothing(name, batch.num_rows)
        columns["elapsed"] = self._elapsed(batch)
        for name in ("function", "handler"):
            columns[name] = self._named(name, columns["site"])
        columns["probe"] = pa.nulls(batch.num_rows, pa.int32())
        self._parts.append(pa.table(columns).select(DECODED_PROBES.names).cast(DECODED_PROBES))

    def _elapsed(self, batch: pa.RecordBatch) -> pa.Array:
        hz = self._bundle.manifest.cpu.tsc_hz
        if "ticks" not in batch.schema.names or not hz:
            return pa.nulls(batch.num_rows, pa.int64())
        ticks = batch.column("ticks")
        ns = pc.fill_null(ticks, 0).to_numpy(zero_copy_only=False).astype(np.float64) * 1e9 / hz
        return pa.array(np.rint(np.minimum(ns, 2.0**62)).astype(np.int64), mask=pc.is_null(ticks).to_numpy(
            zero_copy_only=False))

    def _named(self, column: str, sites: pa.Array) -> pa.Array:
        numbers = sorted(self._sites)
        names = pa.array([self._sites[number][column] for number in numbers], pa.string())
        return names.take(pa.array(np.searchsorted(numbers, sites.to_numpy(zero_copy_only=False)))) \
            if numbers else pa.nulls(len(sites), pa.string())

    def write(self) -> int:
        """Write both; returns the number of hits. Without a list nothing is written."""
        (self._bundle.decoded / FILE).unlink(missing_ok=True)
        if not self._rows:
            return 0
        table = ordered(pa.concat_tables([DECODED_PROBES.empty_table(), *self._parts]), "probe")
        pq.write_table(table, self._bundle.decoded / FILE, compression="zstd", compression_level=1)
        counts = pc.value_counts(table["site"]).to_pylist()
        hits = {one["values"]: one["counts"] for one in counts}
        columns: dict[str, list[Any]] = {name: [row[name] for row in self._rows] for name in (*_TEXTS, "address")}
        columns["site"] = [row["hit"] for row in self._rows]
        columns["hits"] = [hits.get(row["hit"], 0) for row in self._rows]
        with TableWriter(self._bundle.tables, PROBE_SITES) as writer:
            writer.write(pa.table({name: pa.array(columns[name], PROBE_SITES.schema.field(name).type)
                                   for name in PROBE_SITES.schema.names}))
        return int(table.num_rows)


def _nothing(name: str, rows: int) -> pa.Array:
    return pa.nulls(rows, DECODED_PROBES.field(name).type)


def _listed(bundle: Bundle) -> list[dict[str, Any]]:
    """The rows of the list, checked; none where there is no list."""
    rows = load_json(bundle.path, LIST, _LIST_MAX)
    good = isinstance(rows, list) and all(
        isinstance(row, dict) and all(is_text(row.get(name)) for name in _TEXTS)
        and is_number(row.get("address"), 1 << 64)
        and (row.get("hit", "") is None or is_number(row.get("hit"), 1 << 31))
        for row in rows)
    return rows if good else []


def ordered(table: pa.Table, ordinal: str) -> pa.Table:
    """By thread and time, and numbered in the column `ordinal`."""
    table = table.take(pc.sort_indices(table, [("thread", "ascending"), ("t", "ascending")]))
    thread = pc.fill_null(table["thread"], -1).to_numpy()
    known = thread[thread >= 0]
    numbers = np.concatenate([np.arange(len(known)) - np.searchsorted(known, known),
                              np.arange(len(thread) - len(known))])  # unknown threads come last
    return table.set_column(table.schema.get_field_index(ordinal), ordinal, pa.array(numbers, pa.int32()))
