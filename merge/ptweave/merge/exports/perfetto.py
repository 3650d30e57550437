# SPDX-License-Identifier: MIT
"""A run as a Perfetto trace: `perfetto.protos.Trace`, for ui.perfetto.dev and trace_processor.

A track a thread holds its operations and what it ran between them; below it one its system calls, and one its calls
where these are asked for. A release and the acquires that saw it are tied by flows. Times are CLOCK_MONOTONIC, which
the trace says. Field numbers are those of protos/perfetto/trace/perfetto_trace.proto.
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from typing import IO

from ptweave.merge.exports.protobuf import chunk, fixed64, number, text
from ptweave.merge.exports.spans import THUNK, Extent, Span, Thread, calls, lacking, processes, spans, threads
from ptweave.merge.render import safe
from ptweave.merge.run import Run

REALTIME, MONOTONIC = 1, 3
"""Clocks of `perfetto.protos.BuiltinClock`."""

_SEQUENCE = 1
_OF_SEQUENCE = number(10, _SEQUENCE)
_KEPT = 1 << 14  # parts of events, so many of each kind
_CLEARED = 1  # TracePacket.SEQ_INCREMENTAL_STATE_CLEARED


class _Track(IntEnum):
    """The tracks of a thread; a track's uuid is made of both."""

    MAIN = 1
    SYSTEM_CALLS = 2
    CALLS = 3


class _Type(IntEnum):
    """perfetto.protos.TrackEvent.Type."""

    BEGIN = 1
    END = 2
    INSTANT = 3


def _uuid(thread: int, track: _Track) -> int:
    return thread + 1 << 8 | track


def _process(pid: int) -> int:
    return 1 << 62 | pid


def _packet(body: bytes) -> bytes:
    """Trace.packet"""
    return chunk(1, body + _OF_SEQUENCE)


def _event(t: int, kind: _Type, track: int, body: bytes = b"") -> bytes:
    return _packet(number(8, t) + chunk(11, _on(kind, track) + body))


# Most of an event is what others have as well: it is made once.


@lru_cache(_KEPT)
def _on(kind: _Type, track: int) -> bytes:
    return number(9, kind) + number(11, track)


@lru_cache(_KEPT)
def _named(what: str, name: str) -> bytes:
    return text(22, what) + text(23, safe(name))


def _own_fact(name: str, value: str) -> bytes:
    """DebugAnnotation: 10 name, 6 string_value"""
    return chunk(4, text(10, name) + text(6, safe(value)))


_fact = lru_cache(_KEPT)(_own_fact)


def _described(body: bytes) -> bytes:
    return _packet(chunk(60, body))


def export(run: Run, out: IO[bytes], extent: Extent | None = None, *, with_calls: bool = False) -> list[str]:
    """Write the trace to `out`; returns what the run lacks for it. `with_calls` needs a run merged with calls.

    Raises BadInput for a table that cannot be read.
    """
    extent = extent or Extent()
    clocks = run.manifest.clocks
    found = threads(run, extent)
    _begin(run, out, clocks.t0_ns, clocks.realtime_ns)
    for process in processes(run, found):
        out.write(_described(number(1, _process(process.pid)) + chunk(3, number(1, process.pid)
                                                                      + text(6, safe(process.name)))))
    for thread in found:
        _describe(out, thread, with_calls)
    for span in spans(run, extent):
        _write(out, span)
    if with_calls:
        for thread in found:
            track = _uuid(thread.number, _Track.CALLS)
            for edge in calls(run, thread.number, extent):
                out.write(_event(edge.t, _Type.END, track) if edge.function is None else
                          _event(edge.t, _Type.BEGIN, track, text(23, safe(edge.function))))
    return lacking(run, "threads", "thunks", "edges", "syscalls", *(["calls"] if with_calls else []))


def _begin(run: Run, out: IO[bytes], t0: int, realtime: int) -> None:
    """Clocks, and what holds for all that follows."""
    known = chunk(1, number(1, MONOTONIC) + number(2, t0))
    if realtime:
        known += chunk(1, number(1, REALTIME) + number(2, realtime))
    out.write(_packet(chunk(6, known + number(2, MONOTONIC))))
    out.write(_packet(number(13, _CLEARED) + chunk(59, number(58, MONOTONIC))))


def _describe(out: IO[bytes], thread: Thread, with_calls: bool) -> None:
    main = _uuid(thread.number, _Track.MAIN)
    out.write(_described(number(1, main) + number(5, _process(thread.pid)) + chunk(
        4, number(1, thread.pid) + number(2, thread.tid) + text(5, safe(thread.name)))))
    below = [(_Track.SYSTEM_CALLS, "system calls"), *([(_Track.CALLS, "calls")] if with_calls else [])]
    for track, name in below:
        out.write(_described(number(1, _uuid(thread.number, track)) + number(5, main) + text(2, name)))


def _write(out: IO[bytes], span: Span) -> None:
    track = _uuid(span.thread, _Track.SYSTEM_CALLS if span.what == "system call" else _Track.MAIN)
    body = _named(span.what, span.name)
    for name, value in span.facts:
        body += _own_fact(name, value) if name == THUNK else _fact(name, value)
    for flow in (*span.leaving, *span.coming):
        body += fixed64(47, flow)
    if span.what == "gap":
        out.write(_event(span.begin, _Type.INSTANT, track, body))
        return
    out.write(_event(span.begin, _Type.BEGIN, track, body))
    out.write(_event(span.end, _Type.END, track))
