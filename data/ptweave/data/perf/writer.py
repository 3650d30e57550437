# SPDX-License-Identifier: MIT
"""Writes a perf.data file with Intel PT: file mode, two events (intel_pt and a dummy that carries the records).

Layouts: tools/perf/Documentation/perf.data-file-format.txt and linux/perf_event.h. The traces come first, then the
records by time: perf has all packets before it replays the first record.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from ptweave.data.perf.format import (
    INTEL_PT,
    AttrFlag,
    AuxFlag,
    CpuMode,
    Feature,
    Misc,
    ReadFormat,
    RecordType,
    SampleType,
)

PMU_TYPE = 8
"""What number intel_pt has in the file: any, as long as AUXTRACE_INFO and the event say the same."""
PT, CYC, MTC, TSC, NORETCOMP, BRANCH = 1 << 0, 1 << 1, 1 << 9, 1 << 10, 1 << 11, 1 << 13
MTC_PERIOD = 0xF << 14
_SAMPLE = SampleType.IP | SampleType.TID | SampleType.TIME | SampleType.CPU | SampleType.IDENTIFIER
_PT_ID, _DUMMY_ID = 1, 2
_ATTR_SIZE = 128
_SOFTWARE, _DUMMY = 1, 9
_MMAP, _COMM, _TASK, _MMAP2, _COMM_EXEC = 1 << 8, 1 << 9, 1 << 13, 1 << 23, 1 << 24
_HEAD = struct.Struct("<8sQQQQQQQQ4Q")
_TEXT_MAX = 4095
_REFERENCE = 1  # perf passes buffers over whose reference is 0
_NONE = 0xFFFFFFFF
SWITCHES = 2
"""`have_sched_switch`: switches are told by SWITCH records."""


@dataclass(frozen=True)
class Moment:
    """The sample id of a record: of whom, when (perf's nanoseconds), where (`cpu` −1: not said)."""

    pid: int
    tid: int
    time: int
    cpu: int = -1


@dataclass(frozen=True)
class Machine:
    """What the file says of where it was recorded. `time`: mult, shift and zero of perf's conversion."""

    hostname: str
    release: str
    version: str
    cpuid: str
    cpus: int
    command: list[str]
    time: tuple[int, int, int] | None
    ratio: tuple[int, int] = (0, 0)
    max_nonturbo_ratio: int = 0
    mtc_period: int = 0
    per_cpu: bool = False
    filters: str = ""


@dataclass
class PerfWriter:
    """Collects records and traces; `write` makes the file."""

    machine: Machine
    _records: list[tuple[int, int, bytes]] = field(default_factory=list)
    _traces: list[tuple[bytes, Path, int]] = field(default_factory=list)

    # --- records, each at its time ---

    def comm(self, when: Moment, name: bytes, *, execed: bool) -> None:
        self._add(RecordType.COMM, Misc.COMM_EXEC if execed else 0,
                  struct.pack("<ii", when.pid, when.tid) + _text(name[:15]), when)

    def fork(self, when: Moment, parent_pid: int, parent_tid: int) -> None:
        self._task(RecordType.FORK, when, parent_pid, parent_tid)

    def exit(self, when: Moment) -> None:
        self._task(RecordType.EXIT, when, when.pid, when.tid)

    def _task(self, kind: RecordType, when: Moment, parent_pid: int, parent_tid: int) -> None:
        body = struct.pack("<iiiiQ", when.pid, parent_pid, when.tid, parent_tid, when.time)
        self._add(kind, 0, body, when)

    def itrace_start(self, when: Moment) -> None:
        self._add(RecordType.ITRACE_START, 0, struct.pack("<ii", when.pid, when.tid), when, _PT_ID)

    def mmap(self, when: Moment, start: int, size: int, offset: int, path: bytes, build_id: bytes = b"") -> None:
        """Executable code of a file is mapped (MMAP2)."""
        misc, which = int(CpuMode.USER), bytes(24)
        if 0 < len(build_id) <= 20:
            misc |= Misc.MMAP_BUILD_ID
            which = bytes([len(build_id), 0, 0, 0]) + build_id.ljust(20, b"\0")
        body = struct.pack("<iiQQQ", when.pid, when.tid, start, size, offset) + which + struct.pack("<II", 5, 2)
        self._add(RecordType.MMAP2, misc, body + _text(path), when)

    def switch(self, when: Moment) -> None:
        """The task takes the processor."""
        self._add(RecordType.SWITCH, 0, b"", when)

    def aux(self, when: Moment, offset: int, size: int, *, truncated: bool = False) -> None:
        """So many bytes of a trace; `truncated`: packets are missing behind them."""
        body = struct.pack("<QQQ", offset, size, AuxFlag.TRUNCATED if truncated else 0)
        self._add(RecordType.AUX, 0, body, when, _PT_ID)

    def _add(self, kind: RecordType, misc: int, body: bytes, when: Moment, which: int = _DUMMY_ID) -> None:
        body += struct.pack("<iiQIIQ", when.pid, when.tid, when.time, when.cpu & _NONE, 0, which)
        self._records.append((when.time, len(self._records), _record(kind, misc, body)))

    # --- traces ---

    def trace(self, path: Path, size: int, *, tid: int = -1, cpu: int = -1) -> None:
        """The first `size` bytes of a file, as one AUXTRACE record."""
        padded = size + -size % 8
        body = struct.pack("<QQQIiiI", padded, 0, _REFERENCE, len(self._traces), tid, cpu, 0)
        self._traces.append((_record(RecordType.AUXTRACE, 0, body), path, size))

    # --- the file ---

    def write(self, out: IO[bytes]) -> None:
        """Raises OSError."""
        attrs = [_attr(PMU_TYPE, self._config(), 0), _attr(
            _SOFTWARE, _DUMMY, _MMAP | _COMM | _TASK | _MMAP2 | _COMM_EXEC |
            (AttrFlag.CONTEXT_SWITCH if self.machine.per_cpu else 0))]
        ids = struct.pack("<QQ", _PT_ID, _DUMMY_ID)
        table_at = _HEAD.size + len(ids)
        table = b"".join(attr + struct.pack("<QQ", _HEAD.size + 8 * index, 8) for index, attr in enumerate(attrs))
        records = b"".join(record for _, _, record in sorted(self._records))
        info = self._info()
        size = len(info) + len(records) + sum(len(head) + length + -length % 8 for head, _, length in self._traces)
        data_at = table_at + len(table)
        features = self._features(attrs)
        bits = [sum(1 << number - 64 * word for number in features if number // 64 == word) for word in range(4)]
        out.write(_HEAD.pack(b"PERFILE2", _HEAD.size, _ATTR_SIZE + 16, table_at, len(table), data_at, size, 0, 0,
                             *bits))
        out.write(ids + table + info)
        for head, path, length in self._traces:
            out.write(head)
            with path.open("rb") as source:
                shutil.copyfileobj(_Part(source, length), out, 1 << 20)
            out.write(bytes(-length % 8))
        out.write(records)
        at = data_at + size + 16 * len(features)
        for blob in features.values():
            out.write(struct.pack("<QQ", at, len(blob)))
            at += len(blob)
        out.write(b"".join(features.values()))

    def _config(self) -> int:
        config = PT | TSC | BRANCH
        if self.machine.ratio[1]:
            config |= MTC | self.machine.mtc_period << 14 & MTC_PERIOD
        return config

    def _info(self) -> bytes:
        machine = self.machine
        mult, shift, zero = machine.time or (0, 0, 0)
        text = machine.filters.encode("utf-8", "replace")
        words = [PMU_TYPE, shift, mult, zero & (1 << 64) - 1, int(machine.time is not None), TSC, NORETCOMP,
                 SWITCHES if machine.per_cpu else 0, 0, int(machine.per_cpu), MTC, MTC_PERIOD, *machine.ratio, CYC,
                 machine.max_nonturbo_ratio, len(text)]
        body = struct.pack("<II", INTEL_PT, 0) + struct.pack(f"<{len(words)}Q", *words)
        return _record(RecordType.AUXTRACE_INFO, 0, body + (_text(text) if text else b""))

    def _features(self, attrs: list[bytes]) -> dict[int, bytes]:
        machine = self.machine
        described = b"".join(attr + struct.pack("<I", 1) + _string(name) + struct.pack("<Q", number)
                             for attr, name, number in zip(attrs, ("intel_pt//u", "dummy:u"), (_PT_ID, _DUMMY_ID),
                                                           strict=True))
        return {
            Feature.HOSTNAME: _string(machine.hostname), Feature.OSRELEASE: _string(machine.release),
            Feature.VERSION: _string(machine.version), Feature.ARCH: _string("x86_64"),
            Feature.NRCPUS: struct.pack("<II", machine.cpus, machine.cpus), Feature.CPUID: _string(machine.cpuid),
            Feature.CMDLINE: struct.pack("<I", len(machine.command)) + b"".join(map(_string, machine.command)),
            Feature.EVENT_DESC: struct.pack("<II", len(attrs), len(attrs[0])) + described,
            Feature.AUXTRACE: struct.pack("<Q", 0)}


class _Part:
    """The first bytes of a file; zeros where it is shorter than it was."""

    def __init__(self, file: IO[bytes], left: int) -> None:
        self._file = file
        self._left = left

    def read(self, size: int = 0, /) -> bytes:
        wanted = min(size, self._left)
        data = self._file.read(wanted)
        self._left -= wanted
        return data.ljust(wanted, b"\0")


def symbolic_filters(ranges: Iterable[tuple[int, int, str]]) -> str:
    """As perf's --filter has them: offset, size and file of what alone was traced."""
    return ",".join(f"filter {offset:#x}/{size:#x}@{path}" for offset, size, path in ranges)


def _record(kind: RecordType, misc: int, body: bytes) -> bytes:
    return struct.pack("<IHH", kind, misc, 8 + len(body)) + body


def _text(text: bytes) -> bytes:
    text = text.split(b"\0")[0][:_TEXT_MAX]
    return text + bytes(8 - len(text) % 8)


def _string(text: str) -> bytes:
    data = text.encode("utf-8", "surrogateescape").split(b"\0")[0] + b"\0"
    data += bytes(-len(data) % 64)
    return struct.pack("<I", len(data)) + data


def _attr(kind: int, config: int, more: int) -> bytes:
    flags = AttrFlag.SAMPLE_ID_ALL | AttrFlag.INHERIT | AttrFlag.EXCLUDE_KERNEL | more
    head = struct.pack("<IIQQQQQ", kind, _ATTR_SIZE, config, 1, _SAMPLE, ReadFormat.ID, flags)
    return head.ljust(_ATTR_SIZE, b"\0")
