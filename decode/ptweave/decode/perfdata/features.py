# SPDX-License-Identifier: MIT
"""The header's features: what `perf record` knew of the machine and the command."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ptweave.data.perf.attrs import Attrs, parse_attr
from ptweave.data.perf.cursor import Cursor, Short
from ptweave.data.perf.format import Feature, Misc
from ptweave.data.perf.records import BUILD_ID_MAX

SCHED_SWITCH = re.compile(rb"name: sched_switch\nID: (\d{1,9})\n")
"""How the tracepoint introduces itself in the tracing data."""

MAX_ENTRIES = 1 << 20


@dataclass(frozen=True)
class BuildId:
    """A file `perf record` saw code of, and its build id in hex. `misc` says whether the kernel's."""

    path: str
    build_id: str
    pid: int
    misc: int


@dataclass
class Features:
    """What the header says; empty where it does not."""

    hostname: str = ""
    release: str = ""
    version: str = ""
    arch: str = ""
    cpuid: str = ""
    cpus: int = 0
    command: list[str] = field(default_factory=list)
    build_ids: list[BuildId] = field(default_factory=list)
    clock: tuple[int, int] | None = None  # wall clock ns, clock ns at the same moment
    sched_switch: set[int] = field(default_factory=set)  # `attr.config` of that tracepoint
    malformed: list[str] = field(default_factory=list)

    def read(self, kind: int, data: memoryview | bytes, attrs: Attrs) -> None:
        """Take a feature's section. What does not fit its form is noted in `malformed` and left out."""
        try:
            self._read(kind, Cursor(data), attrs)
        except Short:
            self.malformed.append(Feature(kind).name if kind in list(Feature) else str(kind))

    def _read(self, kind: int, cursor: Cursor, attrs: Attrs) -> None:
        if kind == Feature.HOSTNAME:
            self.hostname = cursor.string()
        elif kind == Feature.OSRELEASE:
            self.release = cursor.string()
        elif kind == Feature.VERSION:
            self.version = cursor.string()
        elif kind == Feature.ARCH:
            self.arch = cursor.string()
        elif kind == Feature.CPUID:
            self.cpuid = cursor.string()
        elif kind == Feature.NRCPUS:
            self.cpus = cursor.u32()
        elif kind == Feature.CMDLINE:
            count = cursor.u32()
            self.command = [cursor.string() for _ in range(min(count, MAX_ENTRIES))]
        elif kind == Feature.BUILD_ID:
            self._build_ids(cursor)
        elif kind == Feature.EVENT_DESC:
            _event_desc(cursor, attrs)
        elif kind == Feature.CLOCK_DATA:
            cursor.skip(8)
            self.clock = cursor.u64(), cursor.u64()
        elif kind == Feature.TRACING_DATA:
            self.tracing_data(cursor.data)

    def _build_ids(self, cursor: Cursor) -> None:
        while cursor.left >= 8:
            start = cursor.at
            cursor.skip(4)
            misc, size = cursor.u16(), cursor.u16()
            if size < 8 or start + size > cursor.end:
                raise Short("a build id entry")
            self.add_build_id(misc, Cursor(cursor.data, cursor.at, start + size))
            cursor.at = start + size

    def add_build_id(self, misc: int, cursor: Cursor) -> None:
        """A BUILD_ID record, or one entry of the feature."""
        pid = cursor.i32()
        value = cursor.bytes(24)
        size = value[BUILD_ID_MAX] if misc & Misc.BUILD_ID_SIZE else BUILD_ID_MAX
        if size > BUILD_ID_MAX:
            raise Short("a build id entry")
        self.build_ids.append(BuildId(cursor.text(), value[:size].hex(), pid, misc))

    def tracing_data(self, data: memoryview | bytes) -> None:
        """Find the number of sched_switch in what the kernel says of its tracepoints."""
        self.sched_switch |= {int(found[1]) for found in SCHED_SWITCH.finditer(data)}


def _event_desc(cursor: Cursor, attrs: Attrs) -> None:
    """Names of the events: for each, an attribute, ids, a name."""
    count, size = cursor.u32(), cursor.u32()
    for _ in range(min(count, MAX_ENTRIES)):
        start = cursor.at
        parse_attr(Cursor(cursor.data, start, min(cursor.end, start + size)))
        cursor.skip(size)
        ids = cursor.u32()
        name = cursor.string()
        for number in cursor.u64s(ids):
            attr = attrs.by_id(number)
            if attr is not None and not attr.name:
                attr.name = name
