# SPDX-License-Identifier: MIT
"""Event attributes (`struct perf_event_attr`), and which one a record belongs to."""

from __future__ import annotations

from dataclasses import dataclass, field

from ptweave.data.perf.cursor import Cursor, Short
from ptweave.data.perf.format import AttrFlag, ReadFormat, SampleType

ATTR_SIZE_MIN = 64
"""PERF_ATTR_SIZE_VER0."""

ATTR_SIZE_MAX = 4096


# Numbers, for what is asked for each record: operations of enums are Python functions.
_SAMPLE_ID_ALL = int(AttrFlag.SAMPLE_ID_ALL)
_IN_TRAILERS = int(SampleType.TID | SampleType.TIME | SampleType.ID | SampleType.STREAM_ID | SampleType.CPU |
                   SampleType.IDENTIFIER)


@dataclass
class Attr:
    """One event that was opened, and the ids of its instances."""

    type: int
    size: int
    config: int
    sample_type: int
    read_format: int
    flags: int
    branch_sample_type: int = 0
    regs_user: int = 0
    regs_intr: int = 0
    name: str = ""
    ids: list[int] = field(default_factory=list)

    @property
    def sample_id_all(self) -> bool:
        return bool(self.flags & _SAMPLE_ID_ALL)

    @property
    def has_kernel(self) -> bool:
        return not self.flags & AttrFlag.EXCLUDE_KERNEL

    def has(self, bit: SampleType) -> bool:
        return bool(self.sample_type & bit)

    @property
    def has_read_lost(self) -> bool:
        return bool(self.read_format & ReadFormat.LOST)

    @property
    def trailer(self) -> int:
        """Bytes of the sample-id trailer of records that are no samples."""
        if not self.sample_id_all:
            return 0
        return 8 * (self.sample_type & _IN_TRAILERS).bit_count()


def parse_attr(cursor: Cursor) -> Attr:
    """The attribute at the cursor, which moves behind it. Raises Short for one that is too small or too large."""
    start = cursor.at
    kind, size = cursor.u32(), cursor.u32()
    size = size or ATTR_SIZE_MIN
    if not ATTR_SIZE_MIN <= size <= ATTR_SIZE_MAX or size > cursor.end - start:
        raise Short(f"an attribute of {size} bytes")
    config = cursor.u64()
    cursor.skip(8)  # sample_period
    sample_type, read_format, flags = cursor.u64(), cursor.u64(), cursor.u64()
    attr = Attr(kind, size, config, sample_type, read_format, flags)
    rest = Cursor(cursor.data, start + 72, start + size)
    if rest.left >= 16:
        attr.branch_sample_type, attr.regs_user = rest.u64(), rest.u64()
    if rest.left >= 16:
        rest.skip(8)  # sample_stack_user, clockid
        attr.regs_intr = rest.u64()
    cursor.at = start + size
    return attr


class Attrs:
    """All attributes of a file; finds the one of a record by the id in it."""

    def __init__(self) -> None:
        self.list: list[Attr] = []
        self._by_id: dict[int, Attr] = {}

    def add(self, attr: Attr) -> None:
        self.list.append(attr)
        for number in attr.ids:
            self._by_id[number] = attr

    def by_id(self, number: int) -> Attr | None:
        return self._by_id.get(number)

    def _same(self) -> bool:
        """One layout for all: it does not matter which event a record is of."""
        first = self.list[0]
        return all(attr.sample_type == first.sample_type and attr.flags & AttrFlag.SAMPLE_ID_ALL ==
                   first.flags & AttrFlag.SAMPLE_ID_ALL and attr.read_format == first.read_format
                   for attr in self.list)

    def of_trailer(self, data: bytes | memoryview, end: int) -> Attr | None:
        """The attribute of a record that is no sample and ends at `end` in `data`."""
        if not self.list:
            return None
        first = self.list[0]
        if len(self.list) > 1 and end >= 8:
            behind = _id_behind(first)
            if behind and end >= behind:
                number = int.from_bytes(data[end - behind:end - behind + 8], "little")
                found = self._by_id.get(number)
                if found is not None:
                    return found
        return first

    def of_sample(self, data: bytes | memoryview, start: int, end: int) -> Attr | None:
        """The attribute of a sample whose fields begin at `start` in `data`."""
        if not self.list:
            return None
        first = self.list[0]
        if len(self.list) == 1:
            return first
        before = _id_before(first)
        if before is not None and start + before + 8 <= end:
            number = int.from_bytes(data[start + before:start + before + 8], "little")
            found = self._by_id.get(number)
            if found is not None:
                return found
        return first if self._same() else None


def _id_behind(attr: Attr) -> int:
    """How far before the end of a trailer the id begins; 0: there is none."""
    if attr.has(SampleType.IDENTIFIER):
        return 8
    if not attr.has(SampleType.ID):
        return 0
    return 8 * (1 + attr.has(SampleType.CPU) + attr.has(SampleType.STREAM_ID))


def _id_before(attr: Attr) -> int | None:
    """How far behind the beginning of a sample the id is; None: there is none."""
    if attr.has(SampleType.IDENTIFIER):
        return 0
    if not attr.has(SampleType.ID):
        return None
    bits = (SampleType.IP, SampleType.TID, SampleType.TIME, SampleType.ADDR)
    return 8 * sum(attr.has(bit) for bit in bits)
