# SPDX-License-Identifier: MIT
"""Joins the streams of a thread (one for each program it exec'd) to its trace and its log of system calls."""

from __future__ import annotations

import mmap
import os
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ptweave.data.ledger import Ledger
from ptweave.data.syslog import SYSLOG_DTYPE
from ptweave.wrapper.spool_format import BUFFER, ThreadState, read_at

PSB = b"\x02\x82" * 8
TSC_OPCODE = 0x19


@dataclass
class StreamFiles:
    """A stream: its files are `base` + `.pt` and `.sys`, and its buffer is in `buffers`. `places` are sideband rows about offsets in it; those
    about bytes that are not there end in `dropped`."""

    base: Path
    buffers: Path
    number: int
    thread: int
    tid: int
    state: ThreadState | None = None
    places: list[tuple[int, dict[str, object]]] = field(default_factory=list)
    dropped: list[dict[str, object]] = field(default_factory=list)
    lost_told: int = 0

    def file(self, suffix: str) -> Path:
        return self.base.with_name(self.base.name + suffix)


def join_streams(folder: Path, thread: int, streams: list[StreamFiles], ledger: Ledger) -> None:
    """Write `<thread>.pt`, `.sys` and `.psb`; give the rows of all places their offsets; account."""
    trace = folder / f"{thread}.pt"
    calls: list[np.ndarray[tuple[int], np.dtype[np.void]]] = []
    lost = calls_lost = 0
    for stream in streams:
        begin = trace.stat().st_size if trace.exists() else 0
        size = _append(trace, stream)
        _settle(stream, begin, size, last=stream is streams[-1])
        if stream.state is not None:
            lost += stream.state.stream_lost
            calls_lost += stream.state.syscalls_lost
        calls.append(_system_calls(stream, begin))
    trace.touch()
    joined = np.concatenate(calls) if calls else np.empty(0, SYSLOG_DTYPE)
    joined.tofile(folder / f"{thread}.sys")
    (folder / f"{thread}.psb").write_bytes(index_psbs(trace))
    ledger.add(f"trace/{thread}", "bytes", stored=trace.stat().st_size, lost={"disk full": lost})
    ledger.add("engine/syscalls", "calls", stored=len(joined) - calls_lost, lost={"disk full": calls_lost})


def _append(trace: Path, stream: StreamFiles) -> int:
    """Put the stream's packets behind the trace, cut to their exact end, and the branches pending there."""
    state = stream.state
    if state is None:
        return 0
    source = stream.file(".pt")
    there = source.stat().st_size if _is_plain(source) else 0
    stored = min(state.stored, there)
    if stored and not trace.exists():
        source.rename(trace)
        os.truncate(trace, stored)
    elif stored:
        with trace.open("ab") as out:
            _copy(source, stored, out)
    rest = b""
    if stored == state.stored:  # else the file was tampered with: what should follow does not
        tail = read_at(stream.buffers, state.buffer * BUFFER, state.buffered)
        rest = tail + state.pending if len(tail) == state.buffered else tail
    with trace.open("ab") as out:
        out.write(rest)
    return stored + len(rest)


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _copy(source: Path, size: int, out: BinaryIO) -> None:
    with source.open("rb") as data:
        while size > 0 and (part := data.read(min(size, 1 << 20))):
            out.write(part)
            size -= len(part)


def _settle(stream: StreamFiles, begin: int, size: int, *, last: bool) -> None:
    """Move rows by where the stream begins in the trace. A slice without packets and an end that is not the
    thread's are dropped."""
    for offset, row in stream.places:
        row["offset"] = begin + min(offset, size)
        empty_slice = row["kind"] == "slice" and offset >= size
        if empty_slice or (row["kind"] == "finish" and not last):
            stream.dropped.append(row)


def _system_calls(stream: StreamFiles, begin: int) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    count = stream.state.syscalls if stream.state else 0
    item = SYSLOG_DTYPE.itemsize
    data = read_at(stream.file(".sys"), 0, min(count, 1 << 40) * item) if count else b""
    calls = np.frombuffer(data[:len(data) // item * item], SYSLOG_DTYPE).copy()
    calls["stream"] += np.uint64(begin)
    return calls


def index_psbs(trace: Path) -> bytes:
    """Offset and TSC of each PSB in a trace: the contents of its .psb file."""
    size = trace.stat().st_size
    if size == 0:
        return b""
    index = bytearray()
    with trace.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        at = data.find(PSB)
        while at >= 0:
            behind = data[at + 16:at + 24]
            known = len(behind) == 8 and behind[0] == TSC_OPCODE
            index += struct.pack("<QQ", at, int.from_bytes(behind[1:], "little") if known else 0)
            at = data.find(PSB, at + 16)
    return bytes(index)
