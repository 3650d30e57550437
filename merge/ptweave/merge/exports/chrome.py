# SPDX-License-Identifier: MIT
"""A run as a trace in Chrome's JSON format (Trace Event Format): for chrome://tracing, ui.perfetto.dev and others.

Operations and running are complete events of their thread, system calls asynchronous ones with rows of their own;
gaps are instants, releases and the acquires that saw them are tied by flows. Times are µs since the run's beginning.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any

from ptweave.merge.exports.json_text import dumps, items
from ptweave.merge.exports.spans import Extent, Span, Thread, lacking, processes, spans, threads
from ptweave.merge.run import Run


def export(run: Run, out: IO[bytes], extent: Extent | None = None) -> list[str]:
    """Write the trace to `out`; returns what the run lacks for it. Raises BadInput for a table that cannot be read."""
    extent = extent or Extent()
    start = run.manifest.clocks.t0_ns
    other = {"command": " ".join(run.manifest.command), "clock": "CLOCK_MONOTONIC", "t0_ns": start}
    out.write(b'{"displayTimeUnit":"ns","otherData":' + dumps(other) + b',"traceEvents":[')
    items(out, _events(run, extent, start))
    out.write(b"\n]}\n")
    return lacking(run, "threads", "thunks", "edges", "syscalls")


def _events(run: Run, extent: Extent, start: int) -> Iterator[bytes]:
    found = {thread.number: thread for thread in threads(run, extent)}
    for process in processes(run, list(found.values())):
        yield dumps({"ph": "M", "name": "process_name", "pid": process.pid, "args": {"name": process.name}})
    for thread in found.values():
        yield dumps({"ph": "M", "name": "thread_name", "pid": thread.pid, "tid": thread.tid,
                     "args": {"name": thread.name}})
    for number, span in enumerate(spans(run, extent)):
        thread = found.get(span.thread) or Thread(span.thread, span.thread, span.thread, str(span.thread))
        where = {"pid": thread.pid, "tid": thread.tid}
        if span.what == "system call":
            shown = {"cat": span.what, "name": span.name, "id": number, **where}
            yield _timed({"ph": "b", **shown}, span.begin - start)
            yield _timed({"ph": "e", **shown}, span.end - start)
        elif span.what == "gap":
            yield _timed({"ph": "i", "s": "t", "cat": span.what, "name": span.name, **where}, span.begin - start)
        else:
            yield from _running(span, where, start)


def _running(span: Span, where: dict[str, Any], start: int) -> Iterator[bytes]:
    """An operation, or what ran after it, and the flows that leave it or come to it."""
    yield _timed({"ph": "X", "cat": span.what, "name": span.name, **where, "args": dict(span.facts)},
                 span.begin - start, span.end - span.begin)
    for kind, ids in (("s", span.leaving), ("f", span.coming)):
        for flow in ids:
            yield _timed({"ph": kind, "cat": "sync", "name": "sync", "id": flow, "bp": "e", **where},
                         span.begin - start)


def _timed(event: dict[str, Any], t: int, lasts: int | None = None) -> bytes:
    """An event with its time, exact to the ns: JSON numbers are decimal."""
    end = b"" if lasts is None else b',"dur":' + _micro(lasts)
    return dumps(event)[:-1] + b',"ts":' + _micro(t) + end + b"}"


def _micro(ns: int) -> bytes:
    whole, rest = divmod(abs(ns), 1000)
    return f"{'-' * (ns < 0)}{whole}.{rest:03}".encode()
