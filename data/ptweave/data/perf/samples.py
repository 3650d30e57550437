# SPDX-License-Identifier: MIT
"""Samples, and the sample-id trailer of the other records."""

from __future__ import annotations

from dataclasses import dataclass

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


# Numbers, for what is asked for each record: operations of enums are Python functions.
_TID, _TIME, _ID, _STREAM_ID, _CPU, _IDENTIFIER = (int(bit) for bit in (
    SampleType.TID, SampleType.TIME, SampleType.ID, SampleType.STREAM_ID, SampleType.CPU, SampleType.IDENTIFIER))


def trailer_of(attr: Attr | None, data: bytes | memoryview, end: int) -> SampleId:
    """The trailer of a record that ends at `end` in `data`. Raises Short when it does not fit."""
    found = SampleId()
    size = 0 if attr is None else attr.trailer
    if attr is None or not size:
        return found
    if end < size:
        raise Short("no room for the sample id")
    cursor = Cursor(data, end - size, end)
    kinds = attr.sample_type
    if kinds & _TID:
        found.pid, found.tid = cursor.i32(), cursor.i32()
    if kinds & _TIME:
        found.time = cursor.u64()
    if kinds & _ID:
        found.id = cursor.u64()
    if kinds & _STREAM_ID:
        cursor.skip(8)
    if kinds & _CPU:
        found.cpu = cursor.i32()
        cursor.skip(4)
    if kinds & _IDENTIFIER:
        found.id = cursor.u64()
    return found


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
