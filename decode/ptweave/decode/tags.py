# SPDX-License-Identifier: MIT
"""Tags and hits of probes and watchpoints out of the run's files of events: `dependence/vector-*.ptv` →
`decoded/tags.parquet` (`ptweave.data.schemas.DECODED_TAGS`), `decoded/probes.parquet`, `decoded/watches.parquet`."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ptweave.data import BadInput, Bundle
from ptweave.data.schemas import DECODED_TAGS
from ptweave.decode.probes import Probes, is_probe, ordered
from ptweave.decode.tasks_of_events import ThreadsByTask
from ptweave.decode.thunks import VECTOR_NAME, lists_of
from ptweave.decode.vector import EventFile, Kind
from ptweave.decode.watches import Watches, is_watch

FILE = "tags.parquet"
TAG = "tag"
"""The kind of libtthread's tags (preload/src/tag.c)."""
_FIELDS = {"text", "stack"}


def decode_tags(bundle: Bundle) -> int:
    """Write `decoded/tags.parquet` and `decoded/probes.parquet` when the run has files of events, and account for them
    (`tags`, `probes`, `watches`); returns the number of tags. A file that cannot be read, or events that contradict
    themselves, cost themselves only."""
    bundle.decoded.mkdir(mode=0o700, exist_ok=True)
    (bundle.decoded / FILE).unlink(missing_ok=True)
    ledger = bundle.ledger()
    ledger.drop("tags")
    ledger.drop("probes")
    ledger.drop("watches")
    files = sorted(path for path in bundle.dependence.iterdir() if VECTOR_NAME.fullmatch(path.name)) \
        if bundle.dependence.is_dir() else []
    probes = Probes(bundle, ThreadsByTask.of(lists_of(bundle)[0].values()))
    watches = Watches(bundle, ThreadsByTask.of(lists_of(bundle)[0].values()))
    if not files:
        probes.write()
        watches.write(ledger)
        bundle.save_ledger(ledger)
        return 0
    threads = ThreadsByTask.of(lists_of(bundle)[0].values())
    parts: list[pa.Table] = []
    lost: dict[str, int] = defaultdict(int)
    for path in files:
        _read(path, bundle, threads, parts, lost, probes, watches)
    table = ordered(pa.concat_tables([DECODED_TAGS.empty_table(), *parts]), "tag")
    pq.write_table(table, bundle.decoded / FILE, compression="zstd", compression_level=1)
    ledger.add("tags", "tags", stored=table.num_rows, lost=lost)
    hits = probes.write()
    if hits or any(probes.lost.values()):
        ledger.add("probes", "hits", stored=hits, lost=probes.lost)
    watches.write(ledger)
    bundle.save_ledger(ledger)
    return int(table.num_rows)


def _read(path: Path, bundle: Bundle, threads: ThreadsByTask, parts: list[pa.Table], lost: dict[str, int],
          probes: Probes, watches: Watches) -> None:
    try:
        with EventFile(path, bundle.manifest.clocks if bundle.manifest.cpu.tsc_hz else None) as file:
            for kind, batch in file.batches():
                if is_probe(kind):
                    probes.add(batch)
                elif is_watch(kind):
                    watches.add(batch)
                elif _is_tag(kind):
                    parts.append(_tags(batch, threads))
                else:
                    lost["of an unknown kind"] += batch.num_rows
            account = file.account()
    except BadInput:
        lost["unreadable file"] += 1
        return
    lost["corrupt"] += account.corrupt
    lost["unreadable"] += 1 if account.unread else 0


def _is_tag(kind: Kind) -> bool:
    return kind.name == TAG and {one.name for one in kind.fields} >= _FIELDS


def _tags(batch: pa.RecordBatch, threads: ThreadsByTask) -> pa.Table:
    columns = {name: batch.column(name) for name in ("text", "data", "truncated", "t", "stack")}
    columns["thread"] = threads.column(batch)
    columns["tag"] = pa.nulls(batch.num_rows, pa.int32())
    return pa.table(columns).select(DECODED_TAGS.names).cast(DECODED_TAGS)
