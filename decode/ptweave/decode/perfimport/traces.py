# SPDX-License-Identifier: MIT
"""The AUX area data of a recording, buffer by buffer, put together into one trace per CPU or per thread.

A full trace is its buffers one after the other. Snapshots and samples are copies of a ring buffer: two of them may
hold the same packets, which then are written once, or leave out what was overwritten between them; nothing may be
decoded across such a place.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ptweave.data.perf.format import NO_TASK, AuxFlag
from ptweave.data.perf.packets import PSB, tracing_is_off
from ptweave.data.perf.records import Aux

CHUNK = 1 << 20
PADDING_MAX = 7
"""perf record fills its AUXTRACE records up to a multiple of eight bytes."""

TRIES_MAX = 64
"""Places in a buffer that look like the beginning of the next and are compared in full."""

PREFIX = 48


@dataclass
class Buffer:
    """Bytes of AUX data: `size` at `at` of the file, or `data`. `offset`: of its first byte in the AUX area."""

    size: int
    at: int = -1
    data: bytes | None = None
    offset: int | None = None
    missing: int = 0  # bytes the file was to have and has not

    def bytes(self, file: memoryview, start: int = 0, end: int | None = None) -> bytes:
        end = self.size if end is None else min(end, self.size)
        if self.data is not None:
            return self.data[start:end]
        return bytes(file[self.at + start:self.at + end])


@dataclass(frozen=True)
class Break:
    """Packets are missing before `offset` of a trace. `clean`: tracing was off there, nothing is cut in two."""

    offset: int
    size: int
    detail: str
    clean: bool = False


@dataclass
class Queue:
    """Everything of one trace. `cpu` −1: it is a thread's own."""

    cpu: int
    tid: int
    buffers: list[Buffer] = field(default_factory=list)
    breaks: list[Break] = field(default_factory=list)
    written: int = 0
    repeated: int = 0
    lost: int = 0
    produced: int = 0
    starts: list[tuple[int, int, int]] = field(default_factory=list)  # AUX offset, size, offset in the trace

    def write(self, path: Path, file: memoryview, *, may_overlap: bool) -> None:
        """Write the trace, and note where it is broken."""
        before: Buffer | None = None
        with path.open("wb") as out:
            for buffer in self.buffers:
                self.produced += buffer.size + buffer.missing
                self.lost += buffer.missing
                skip = self._join(before, buffer, file) if may_overlap else self._follow(before, buffer)
                self.repeated += skip
                if buffer.offset is not None:
                    self.starts.append((buffer.offset + skip, buffer.size - skip, self.written))
                for chunk in _chunks(buffer, file, skip):
                    out.write(chunk)
                self.written += buffer.size - skip
                if buffer.missing:
                    self.breaks.append(Break(self.written, buffer.missing, "the perf.data file is cut here"))
                before = buffer

    def _follow(self, before: Buffer | None, buffer: Buffer) -> int:
        """A full trace: notes what the offsets say is missing between two buffers."""
        if before is None or before.offset is None or buffer.offset is None:
            return 0
        gap = buffer.offset - (before.offset + before.size)
        if gap > 0:
            self.breaks.append(Break(self.written, gap, "the recorder left out bytes of the AUX area"))
        return 0

    def _join(self, before: Buffer | None, buffer: Buffer, file: memoryview) -> int:
        """Copies of a ring: bytes of `buffer` that `before` has too."""
        if before is None:
            return 0
        skip = overlap(before.bytes(file), buffer.bytes(file))
        if not skip:
            self.breaks.append(Break(self.written, 0, "what was traced between two copies of the ring buffer"))
        return skip

    def note(self, record: Aux, path: Path) -> None:
        """Take what the kernel says about a part of the AUX area."""
        words = [flag.name for flag in (AuxFlag.TRUNCATED, AuxFlag.PARTIAL, AuxFlag.COLLISION)
                 if record.flags & flag and flag.name]
        if not words:
            return
        place = self._place(record.offset + record.size)
        detail = f"the kernel marked the trace {' and '.join(words)} here"
        self.breaks.append(Break(place, 0, detail, tracing_is_off(path, place)))

    def _place(self, offset: int) -> int:
        """Where in the trace an offset of the AUX area is."""
        index = bisect_right(self.starts, offset, key=lambda start: start[0]) - 1
        if index < 0:
            return 0
        start, size, at = self.starts[index]
        return at + min(offset - start, size)


def _chunks(buffer: Buffer, file: memoryview, skip: int) -> Iterator[bytes]:
    for start in range(skip, buffer.size, CHUNK):
        yield buffer.bytes(file, start, start + CHUNK)


def overlap(before: bytes, after: bytes) -> int:
    """Bytes at the beginning of `after` that are the end of `before`; 0: none. Found by the first PSB in `after`;
    what `before` was padded with does not count."""
    psb = after.find(PSB)
    if psb < 0:
        return 0
    padding = min(len(before) - len(before.rstrip(b"\0")), PADDING_MAX)
    tries, at = 0, before.find(PSB)
    while at >= 0 and tries < TRIES_MAX:
        rest = len(before) - at
        sure = min(PREFIX, rest - padding)
        if after.startswith(before[at:at + sure], psb):
            tries += 1
            for cut in range(padding + 1):
                if rest - cut > len(PSB) and after.startswith(before[at:len(before) - cut], psb):
                    return psb + rest - cut
        at = before.find(PSB, at + 1)
    return 0


def queue_of(queues: dict[tuple[int, int], Queue], cpu: int, tid: int) -> Queue:
    """The queue of a CPU, or of a thread where there is no CPU."""
    key = (cpu, NO_TASK) if cpu >= 0 else (NO_TASK, tid)
    return queues.setdefault(key, Queue(cpu, tid))
