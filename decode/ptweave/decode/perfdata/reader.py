# SPDX-License-Identifier: MIT
"""One perf.data file: attributes, features, and what its records say, in file order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from ptweave.data.perf.attrs import Attrs, parse_attr
from ptweave.data.perf.cursor import Cursor, Short
from ptweave.data.perf.format import FIRST_USER_TYPE, INTEL_PT, RecordType, SampleType
from ptweave.data.perf.records import (
    AuxSample,
    IntelPt,
    Raw,
    Record,
    intel_pt_info,
    parse,
    parse_kernel_record,
    sched_switch,
)
from ptweave.data.perf.samples import Sample, parse_sample
from ptweave.decode.perfdata.features import Features
from ptweave.decode.perfdata.source import Source

TRACEPOINT = 2
"""PERF_TYPE_TRACEPOINT."""

KNOWN = frozenset(int(kind) for kind in RecordType)


class PerfData:
    """A perf.data file. `records` must have been read to its end before the rest is complete.

    `skipped` counts the records of each type that say nothing about the trace, or of no known type; `malformed`
    those whose fields do not fit their size.
    """

    def __init__(self, path: Path) -> None:
        """Open the file. Raises BadInput for what is no perf.data file."""
        self.source = Source(path)
        self.attrs = Attrs()
        self.features = Features()
        self.info: IntelPt | None = None
        self.other_trace: int | None = None  # type of an AUXTRACE_INFO that is not Intel PT's
        self.skipped: Counter[int] = Counter()
        self.malformed: Counter[int] = Counter()
        self.time_conv: tuple[int, int, int] | None = None
        if not self.source.header.pipe:
            self._attrs()
            for kind, section in self.source.header.features.items():
                self.features.read(kind, self.source.section(section), self.attrs)

    def close(self) -> None:
        self.source.close()

    def _attrs(self) -> None:
        header = self.source.header
        section, size = header.attrs, header.attr_size
        if size < 64 + 16 or section.size % size or section.offset + section.size > self.source.size:
            raise self.source.bad("has attributes that do not fit the file")
        for at in range(section.offset, section.offset + section.size, size):
            try:
                attr = parse_attr(Cursor(self.source.data, at, at + size - 16))
                ids = Cursor(self.source.data, at + size - 16)
                offset, length = ids.u64(), ids.u64()
                attr.ids = list(Cursor(self.source.data, offset).u64s(length // 8))
            except Short as error:
                raise self.source.bad(f"has attributes that do not fit the file ({error})") from error
            self.attrs.add(attr)

    # --- records

    def records(self) -> Iterator[Record]:
        """What the records say. One that does not fit its size is counted as malformed and left out."""
        for raw in self.source.records():
            try:
                record = self._record(raw)
            except Short:
                self.malformed[raw.type] += 1
                continue
            if record is not None:
                yield record

    def _record(self, raw: Raw) -> Record | None:
        if raw.type >= FIRST_USER_TYPE:
            return self._user(raw)
        if raw.type == RecordType.SAMPLE:
            return self._sample(raw)
        record = parse_kernel_record(raw, self.attrs.of_trailer(raw.data, raw.end))
        if record is None:
            self.skipped[raw.type] += 1
        return record

    def _sample(self, raw: Raw) -> Record | None:
        attr = self.attrs.of_sample(raw.data, raw.start, raw.end)
        if attr is None:
            raise Short("a sample of no known event")
        switch = attr.type == TRACEPOINT and (
            attr.config in self.features.sched_switch or attr.name == "sched:sched_switch")
        if not switch and not attr.has(SampleType.AUX):
            self.skipped[raw.type] += 1
            return None
        sample = parse_sample(attr, raw.cursor())
        if switch:
            return sched_switch(raw, sample)
        return self._aux_sample(raw, sample)

    def _aux_sample(self, raw: Raw, sample: Sample) -> Record | None:
        if sample.aux is None or not sample.aux[1]:
            self.skipped[raw.type] += 1
            return None
        at, size = sample.aux
        if raw.at < 0:
            return AuxSample(raw.type, raw.misc, sample, raw.order, size=size, data=bytes(raw.data[at:at + size]))
        return AuxSample(raw.type, raw.misc, sample, raw.order, at=at, size=size)

    def _user(self, raw: Raw) -> Record | None:
        cursor = raw.cursor()
        if raw.type == RecordType.HEADER_ATTR:
            attr = parse_attr(cursor)
            attr.ids = list(cursor.u64s(cursor.left // 8))
            self.attrs.add(attr)
        elif raw.type == RecordType.HEADER_FEATURE:
            kind = cursor.u64()
            self.features.read(kind, bytes(cursor.data[cursor.at:cursor.end]), self.attrs)
        elif raw.type == RecordType.EVENT_UPDATE:
            self._update(cursor)
        elif raw.type == RecordType.TRACING_DATA:
            size = cursor.u32()
            self.features.tracing_data(bytes(raw.data[raw.end:raw.end + size]))
        elif raw.type == RecordType.BUILD_ID:
            self.features.add_build_id(raw.misc, cursor)
        elif raw.type == RecordType.TIME_CONV:
            self.time_conv = cursor.u64(), cursor.u64(), cursor.u64()
        elif raw.type == RecordType.AUXTRACE_INFO:
            kind = cursor.u32()
            cursor.skip(4)
            if kind == INTEL_PT:
                self.info = intel_pt_info(cursor)
            else:
                self.other_trace = kind
        elif raw.type in (RecordType.AUXTRACE, RecordType.AUXTRACE_ERROR):
            return parse(raw)
        elif raw.type not in KNOWN:
            self.skipped[raw.type] += 1
        return None

    def _update(self, cursor: Cursor) -> None:
        """EVENT_UPDATE: an event's name (type 2)."""
        kind, number = cursor.u64(), cursor.u64()
        attr = self.attrs.by_id(number)
        if kind == 2 and attr is not None:
            attr.name = cursor.text()
