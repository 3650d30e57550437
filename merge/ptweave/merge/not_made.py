# SPDX-License-Identifier: MIT
"""Why a run has not got a table, and what to do about it."""

from __future__ import annotations

from ptweave.data.bundle import Bundle
from ptweave.data.event_schemas import EVENT_TABLES
from ptweave.data.manifest import Manifest
from ptweave.data.notices import NoticeKind
from ptweave.data.schemas import ACCESSES, FLOW, THREADS, Table
from ptweave.merge.tables import table_files

_MERGE = "merge the run: ptweave merge RUN"
_DECODE = "decode the run: ptweave decode RUN"
_REMEDIES = {
    "tags": "have the program say them (ptweave/tag.h, docs/tracing-points.md)",
    "calls": "merge the run with calls: ptweave merge --calls RUN",
    **dict.fromkeys(("probes", "probe_sites"), "record with probes: ptweave wrap --probe"),
    **dict.fromkeys(("watches", "watch_sites"), "record with watchpoints: ptweave wrap --watch"),
    **dict.fromkeys((table.name for table in EVENT_TABLES), "record them: ptweave events")}
ON_REQUEST = _REMEDIES.keys()
"""Tables that are made only when they are asked for."""

_BY_DECODE = {"images", "maps", "blocks", "paths", "flow", "clock", "pt_events", "gaps"}
_BY_PROCESSES = {"accesses", "allocations", "races"}
"""Only there where accesses were recorded."""
_RECORDED = {
    **dict.fromkeys(("thunks", "edges", *_BY_PROCESSES), "thunks"),
    **dict.fromkeys(("syscalls", "transfers"), "system calls")}
"""What has to be recorded for a table."""
_PROCESSES = "record with --threads process a program that makes threads, and merge"


def why_not_made(bundle: Bundle, table: Table) -> str:
    """In words: what the run lacks, where it is known that it lacks it; otherwise what would make the table."""
    if table.name in _REMEDIES:
        return _REMEDIES[table.name]
    if table.name in _BY_DECODE:
        return _DECODE
    if not table_files(bundle, THREADS):
        return _MERGE if table.name not in _BY_PROCESSES or _may_have_accesses(bundle) else _PROCESSES
    what = _RECORDED.get(table.name)
    lacking = _lacking(bundle.manifest, what) if what else []
    if lacking:
        return f"the run lacks {'; '.join(lacking)}"
    if table.name not in _BY_PROCESSES:
        return _MERGE
    kept = [notice.text for notice in bundle.manifest.notices if notice.kind is NoticeKind.FALLBACK]
    return kept[0] if kept else _PROCESSES


def _may_have_accesses(bundle: Bundle) -> bool:
    """Of a run that is not merged: whether accesses were decoded or, before that, asked for."""
    if table_files(bundle, FLOW):
        return (bundle.decoded / f"{ACCESSES.name}.parquet").exists()
    return bundle.manifest.threads_mode == "process"


def _lacking(manifest: Manifest, what: str) -> list[str]:
    """The manifest's lines about that, the recorder's before the merge's."""
    found = [line for line in manifest.lacks if line.startswith(what)]
    return found or [f"decoded {what}" for line in manifest.lacks if line == f"merge: no decoded {what}"]
