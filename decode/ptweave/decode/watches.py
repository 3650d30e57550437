# SPDX-License-Identifier: MIT
"""Hits of watchpoints out of the run's files of events, and what was watched (`watches/watches.json`, which the
recorder wrote): `decoded/watches.parquet` (`ptweave.data.schemas.DECODED_WATCHES`) and the table `watch_sites`."""

from __future__ import annotations

from collections import Counter, defaultdict
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ptweave.data import Bundle, Ledger
from ptweave.data.schemas import DECODED_WATCHES, WATCH_SITES
from ptweave.data.table_writer import TableWriter
from ptweave.decode.probes import ordered
from ptweave.decode.recorded_json import is_number, is_text, load_json
from ptweave.decode.tasks_of_events import ThreadsByTask
from ptweave.decode.vector import Kind

FILE = "watches.parquet"
LIST, COUNTS = Path("watches/watches.json"), Path("watches/counts.json")
_KIND = "watch"
_FIELDS = {"watch", "access", "ip", "next", "old", "new", "stack", "registers", "late"}
_TEXTS = ("spec", "mode", "path", "type")
_LIST_MAX = 1 << 20
_NUMBER_BYTES = 8


class Access(IntEnum):
    """What libtthread says of a hit (preload/src/watch_format.h)."""

    TOUCH = 0
    READ = 1
    WRITE = 2
    READ_WRITE = 3
    NOT_ASKED_FOR = 4
    BY_LIBTTHREAD = 5


_SHOWN = (Access.TOUCH, Access.READ, Access.WRITE, Access.READ_WRITE)


def is_watch(kind: Kind) -> bool:
    """Of the kind that libtthread's watchpoints log (preload/src/watch_hit.c)."""
    return kind.name == _KIND and {one.name for one in kind.fields} >= _FIELDS


class Watches:
    """Collects the hits of a run. Those of watchpoints that the list does not have are counted in `lost`."""

    def __init__(self, bundle: Bundle, threads: ThreadsByTask) -> None:
        self.lost: dict[str, int] = defaultdict(int)
        self._bundle = bundle
        self._threads = threads
        self._rows = _listed(bundle)
        self._told = 0
        self._other: Counter[tuple[int, int]] = Counter()
        self._parts: list[pa.Table] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """A batch of events of the kind."""
        sites = pc.fill_null(batch.column("watch"), len(self._rows)).to_numpy(zero_copy_only=False)
        access = pc.fill_null(batch.column("access"), 1 << 32).to_numpy(zero_copy_only=False)
        known = (sites < len(self._rows)) & np.isin(access, [int(one) for one in Access])
        shown = known & np.isin(access, [int(one) for one in _SHOWN])
        self._told += batch.num_rows
        self.lost["of an unknown watchpoint"] += int(len(known) - known.sum())
        for site, how in zip(sites[known & ~shown].tolist(), access[known & ~shown].tolist(), strict=True):
            self._other[int(site), int(how)] += 1
        batch, sites, access = batch.filter(pa.array(shown)), sites[shown], access[shown]
        columns = {name: batch.column(name) for name in ("ip", "next", "t", "stack", "registers")}
        columns["thread"] = self._threads.column(batch)
        columns["site"] = pa.array(sites.astype(np.int32))
        columns["spec"] = pa.array([self._rows[int(site)]["spec"] for site in sites], pa.string())
        columns["access"] = pa.array([Access(int(how)).name.lower() for how in access], pa.string())
        columns["late"] = pc.fill_null(pc.not_equal(batch.column("late"), 0), False)
        for name in ("old", "new"):
            columns[f"{name}_bytes"] = batch.column(name).cast(pa.binary())
            columns[name] = pa.array([_number(one) for one in batch.column(name).to_pylist()], pa.uint64())
        columns["hit"] = pa.nulls(batch.num_rows, pa.int32())
        self._parts.append(pa.table(columns).select(DECODED_WATCHES.names).cast(DECODED_WATCHES))

    def write(self, ledger: Ledger) -> int:
        """Write both, and account for the hits (`watches`); returns their number. Without a list nothing is written."""
        (self._bundle.decoded / FILE).unlink(missing_ok=True)
        if not self._rows:
            return 0
        table = ordered(pa.concat_tables([DECODED_WATCHES.empty_table(), *self._parts]), "hit")
        pq.write_table(table, self._bundle.decoded / FILE, compression="zstd", compression_level=1)
        counts = {one["values"]: one["counts"] for one in pc.value_counts(table["site"]).to_pylist()}
        columns: dict[str, list[Any]] = {name: [row[name] for row in self._rows]
                                         for name in (*_TEXTS, "address", "length")}
        numbers = range(len(self._rows))
        columns["site"] = list(numbers)
        columns["hits"] = [counts.get(number, 0) for number in numbers]
        columns["skipped"] = [self._other[number, Access.NOT_ASKED_FOR] for number in numbers]
        columns["own"] = [self._other[number, Access.BY_LIBTTHREAD] for number in numbers]
        with TableWriter(self._bundle.tables, WATCH_SITES) as writer:
            writer.write(pa.table({name: pa.array(columns[name], WATCH_SITES.schema.field(name).type)
                                   for name in WATCH_SITES.schema.names}))
        hits = _counted(self._bundle)
        if hits is not None:  # several while SIGTRAP is blocked are told as one; some find no room
            self.lost["not told one by one"] += max(0, hits - self._told)
        ledger.add("watches", "hits", stored=self._told - self.lost["of an unknown watchpoint"], lost=self.lost)
        return int(table.num_rows)


def _number(data: bytes | None) -> int | None:
    return None if data is None or len(data) > _NUMBER_BYTES else int.from_bytes(data, "little")


def _listed(bundle: Bundle) -> list[dict[str, Any]]:
    """The rows of the list, checked; none where there is no list."""
    rows = load_json(bundle.path, LIST, _LIST_MAX)
    good = isinstance(rows, list) and all(
        isinstance(row, dict) and all(is_text(row.get(name)) for name in _TEXTS)
        and is_number(row.get("address"), 1 << 64) and is_number(row.get("length"), 1 << 31) and row["length"] > 0
        for row in rows)
    return rows if good else []


def _counted(bundle: Bundle) -> int | None:
    """What the processor counted; None where it was not it that watched."""
    found = load_json(bundle.path, COUNTS, _LIST_MAX)
    hits = found.get("hits") if isinstance(found, dict) else None
    return int(hits) if hits is not None and is_number(hits, 1 << 63) else None
