# SPDX-License-Identifier: MIT
"""Records as the kernel writes them, about what was there before tracing began (perf record makes them up as well).

Layouts: linux/perf_event.h, `enum perf_event_type`. Each ends with the sample id that TRAILER describes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from ptweave.data.perf.format import CpuMode, Misc, RecordType, SampleType

TRAILER = SampleType.TID | SampleType.TIME | SampleType.CPU
"""`sample_type` of the recorder's events: the end of every record is pid, tid, time, cpu."""

_TEXT_MAX = 4096


@dataclass(frozen=True)
class Moment:
    """Of whom, and when (a perf time)."""

    pid: int
    tid: int
    time: int


def _record(kind: RecordType, misc: int, body: bytes, when: Moment) -> bytes:
    trailer = struct.pack("<iiQII", when.pid, when.tid, when.time, 0xFFFFFFFF, 0)
    return struct.pack("<IHH", kind, misc, 8 + len(body) + len(trailer)) + body + trailer


def _text(text: bytes) -> bytes:
    text = text[:_TEXT_MAX - 8]
    return text + b"\0" * (8 - len(text) % 8)


def mmap2(when: Moment, start: int, size: int, offset: int, device: tuple[int, int], inode: int, path: bytes) -> bytes:
    """Code is mapped."""
    body = struct.pack("<iiQQQIIQQII", when.pid, when.tid, start, size, offset, *device, inode, 0, 5, 2)
    return _record(RecordType.MMAP2, CpuMode.USER, body + _text(path), when)


def comm(when: Moment, name: bytes, *, execed: bool) -> bytes:
    """A task's name; `execed`: because it runs another program."""
    misc = CpuMode.USER | (Misc.COMM_EXEC if execed else 0)
    return _record(RecordType.COMM, misc, struct.pack("<ii", when.pid, when.tid) + _text(name[:15]), when)


def fork(when: Moment, parent_pid: int, parent_tid: int) -> bytes:
    """The task is another's child."""
    body = struct.pack("<iiiiQ", when.pid, parent_pid, when.tid, parent_tid, when.time)
    return _record(RecordType.FORK, 0, body, when)


def itrace_start(when: Moment) -> bytes:
    """Tracing of the task begins."""
    return _record(RecordType.ITRACE_START, 0, struct.pack("<ii", when.pid, when.tid), when)
