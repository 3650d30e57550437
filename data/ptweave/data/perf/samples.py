# SPDX-License-Identifier: MIT
"""Samples, and the sample-id trailer of the other records."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter

from ptweave.data.perf.attrs import Attr
from ptweave.data.perf.cursor import Cursor, Short
from ptweave.data.perf.format import NO_TASK, ReadFormat, SampleType

BRANCH_HW_INDEX = 1 << 17
"""PERF_SAMPLE_BRANCH_HW_INDEX."""

BRANCH_COUNTERS = 1 << 19
"""PERF_SAMPLE_BRANCH_COUNTERS."""


@dataclass(slots=True)
class SampleId:
    """Who, when and where. `pid`, `tid`, `cpu`: −1 unknown; `time` 0: before everything (`perf record` made it up)."""

    pid: int = NO_TASK
    tid: int = NO_TASK
    time: int = 0
    cpu: int = NO_TASK
    id: int = 0


@dataclass(slots=True)
class Sample(SampleId):
    """A sample; `raw` are a tracepoint's bytes, `aux` the Intel PT bytes it carries, as a place in its record."""

    raw: bytes | None = None
    aux: tuple[int, int] | None = None  # offset in the record's data, size


_FIELDS = ((SampleType.TID, "ii", ("pid", "tid")), (SampleType.TIME, "Q", ("time",)), (SampleType.ID, "Q", ("id",)),
           (SampleType.STREAM_ID, "8x", ()), (SampleType.CPU, "i4x", ("cpu",)), (SampleType.IDENTIFIER, "Q", ("id",)))
"""What a trailer has, in its order; of two ids the last one is meant."""
_UNKNOWN = {"pid": NO_TASK, "tid": NO_TASK, "time": 0, "cpu": NO_TASK, "id": 0}


@lru_cache(maxsize=256)
def _layout(kinds: int) -> tuple[struct.Struct, tuple[int, ...], Callable[[tuple[int, ...]], tuple[int, ...]]]:
    """How a trailer with these fields is read: its bytes, what is said of the fields it lacks, and what makes a
    SampleId's of the two, one behind the other. It is for one record after the other of millions."""
    there = [(form, names) for bit, form, names in _FIELDS if kinds & bit]
    names = [name for _, some in there for name in some]
    lacks = [name for name in _UNKNOWN if name not in names]
    place = {name: number for number, name in enumerate(names + lacks)}
    form = struct.Struct("<" + "".join(form for form, _ in there))
    return form, tuple(_UNKNOWN[name] for name in lacks), itemgetter(*(place[name] for name in _UNKNOWN))


def trailer_of(attr: Attr | None, data: bytes | memoryview, end: int) -> SampleId:
    """The trailer of a record that ends at `end` in `data`. Raises Short when it does not fit."""
    size = 0 if attr is None else attr.trailer
    if attr is None or not size:
        return SampleId()
    if not size <= end <= len(data):
        raise Short("no room for the sample id")
    form, unknown, fields = _layout(attr.sample_type)
    return SampleId(*fields(form.unpack_from(data, end - size) + unknown))


def parse_sample(attr: Attr, cursor: Cursor) -> Sample:
    """The sample at the cursor. Raises Short when its fields do not fit."""
    found = Sample()
    _head(attr, cursor, found)
    kinds = attr.sample_type
    if kinds & SampleType.READ:
        _skip_read(attr, cursor)
    if kinds & SampleType.CALLCHAIN:
        _skip_entries(cursor, cursor.u64(), 8)
    if kinds & SampleType.RAW:
        size = cursor.u32()
        found.raw = cursor.bytes(size)
    if kinds & SampleType.BRANCH_STACK:
        count = cursor.u64()
        if attr.branch_sample_type & BRANCH_HW_INDEX:
            cursor.skip(8)
        _skip_entries(cursor, count, 24)
        if attr.branch_sample_type & BRANCH_COUNTERS:
            _skip_entries(cursor, count, 8)
    if kinds & SampleType.AUX:
        _tail(attr, cursor, found)
    return found


def _head(attr: Attr, cursor: Cursor, found: Sample) -> None:
    kinds = attr.sample_type
    if kinds & SampleType.IDENTIFIER:
        found.id = cursor.u64()
    if kinds & SampleType.IP:
        cursor.skip(8)
    if kinds & SampleType.TID:
        found.pid, found.tid = cursor.i32(), cursor.i32()
    if kinds & SampleType.TIME:
        found.time = cursor.u64()
    if kinds & SampleType.ADDR:
        cursor.skip(8)
    if kinds & SampleType.ID:
        found.id = cursor.u64()
    if kinds & SampleType.STREAM_ID:
        cursor.skip(8)
    if kinds & SampleType.CPU:
        found.cpu = cursor.i32()
        cursor.skip(4)
    if kinds & SampleType.PERIOD:
        cursor.skip(8)


def _tail(attr: Attr, cursor: Cursor, found: Sample) -> None:
    """The fields from the user registers on: walked through only to get at the Intel PT bytes behind them."""
    kinds = attr.sample_type
    if kinds & SampleType.REGS_USER and cursor.u64():
        _skip_entries(cursor, attr.regs_user.bit_count(), 8)
    if kinds & SampleType.STACK_USER:
        size = cursor.u64()
        _skip_entries(cursor, size, 1)
        if size:
            cursor.skip(8)  # how much of it is meant
    if kinds & (SampleType.WEIGHT | SampleType.WEIGHT_STRUCT):
        cursor.skip(8)
    if kinds & SampleType.DATA_SRC:
        cursor.skip(8)
    if kinds & SampleType.TRANSACTION:
        cursor.skip(8)
    if kinds & SampleType.REGS_INTR and cursor.u64():
        _skip_entries(cursor, attr.regs_intr.bit_count(), 8)
    for bit in (SampleType.PHYS_ADDR, SampleType.CGROUP, SampleType.DATA_PAGE_SIZE, SampleType.CODE_PAGE_SIZE):
        if kinds & bit:
            cursor.skip(8)
    size = cursor.u64()
    found.aux = (cursor.at, size)
    _skip_entries(cursor, size, 1)


def _skip_entries(cursor: Cursor, count: int, size: int) -> None:
    cursor.skip(count * size)


def _skip_read(attr: Attr, cursor: Cursor) -> None:
    form = attr.read_format
    group = bool(form & ReadFormat.GROUP)
    count = cursor.u64()  # without a group: the value
    for bit in (ReadFormat.TOTAL_TIME_ENABLED, ReadFormat.TOTAL_TIME_RUNNING):
        if form & bit:
            cursor.skip(8)
    more = 8 * (bool(form & ReadFormat.ID) + bool(form & ReadFormat.LOST))
    _skip_entries(cursor, count if group else 1, more + 8 if group else more)
