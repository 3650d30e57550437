# SPDX-License-Identifier: MIT
"""A perf.data file's bytes as records: file mode, pipe mode, and what is compressed inside them."""

from __future__ import annotations

import mmap
import os
import stat
import struct
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from ptweave.data.errors import BadInput
from ptweave.data.perf.cursor import Cursor, Short
from ptweave.data.perf.format import FEATURE_BITS, RecordType
from ptweave.data.perf.records import Raw

MAGIC, MAGIC_SWAPPED, MAGIC_OLD = b"PERFILE2", b"2ELIFREP", b"PERFFILE"
FILE_HEADER = 104
PIPE_HEADER = 16
RECORD_HEADER = struct.Struct("<IHH")

EXPANDED_MAX = 1 << 33
"""Compressed records that come to more than this are not believed."""

COMPRESSED = (RecordType.COMPRESSED, RecordType.COMPRESSED2)


@dataclass(frozen=True)
class Section:
    """`perf_file_section`."""

    offset: int
    size: int


@dataclass
class Damage:
    """Where the file stops making sense: nothing behind it is read. `at`: offset in the file."""

    at: int
    size: int
    what: str


@dataclass
class Header:
    """The file header; in pipe mode there is only the data."""

    pipe: bool
    data: Section
    attrs: Section = Section(0, 0)
    attr_size: int = 0
    features: dict[int, Section] = field(default_factory=dict)


class Source:
    """An open perf.data file. Offsets are checked against its size once, here."""

    def __init__(self, path: Path) -> None:
        """Map the file and read its header. Raises BadInput for what is no perf.data file."""
        self.path = path
        self.damage: Damage | None = None
        self.map: mmap.mmap | None = None
        self.data = self._open(path)
        self.size = len(self.data)
        self.header = self._header()

    def close(self) -> None:
        self.data.release()
        if self.map is not None:
            self.map.close()

    def bad(self, what: str, remedy: str = "record it again with perf record -e intel_pt//") -> BadInput:
        return BadInput(what, where=str(self.path), remedy=remedy)

    def _open(self, path: Path) -> memoryview:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (OSError, ValueError) as error:
            text = error.strerror if isinstance(error, OSError) else str(error)
            raise self.bad(f"cannot be read ({text})", "give the path of a perf.data file") from error
        try:
            status = os.fstat(fd)
            if stat.S_ISDIR(status.st_mode):
                raise self.bad("is a folder (perf record --threads writes those)", "record into a single file")
            if not stat.S_ISREG(status.st_mode):
                raise self.bad("is not a regular file", "put what perf record wrote into a file first")
            if status.st_size < PIPE_HEADER:
                raise self.bad("is empty or cut short: it is no perf.data file")
            self.map = mmap.mmap(fd, status.st_size, access=mmap.ACCESS_READ)
            return memoryview(self.map)
        finally:
            os.close(fd)

    def _header(self) -> Header:
        magic = bytes(self.data[:8])
        if magic == MAGIC_SWAPPED:
            raise self.bad("was written on a big-endian machine: there is no Intel PT there")
        if magic == MAGIC_OLD:
            raise self.bad("is of the format before Linux 3.0, which had no Intel PT")
        if magic != MAGIC:
            raise self.bad("is no perf.data file", "give a file that perf record wrote")
        size = int.from_bytes(self.data[8:16], "little")
        if size == PIPE_HEADER:
            return Header(True, Section(PIPE_HEADER, self.size - PIPE_HEADER))
        if size < FILE_HEADER or self.size < FILE_HEADER:
            raise self.bad(f"has a header of {size} bytes, which is cut or of no known kind")
        cursor = Cursor(self.data, 16)
        attr_size = cursor.u64()
        attrs, data = Section(cursor.u64(), cursor.u64()), Section(cursor.u64(), cursor.u64())
        cursor.skip(16)
        words = cursor.u64s(FEATURE_BITS // 64)
        if data.offset < FILE_HEADER or data.offset > self.size:
            raise self.bad(f"says that its records begin at byte {data.offset}, outside of it")
        header = Header(False, data, attrs, attr_size)
        if not data.size:  # perf record was killed: it writes the size last
            header.data = Section(data.offset, self.size - data.offset)
            self.damage = Damage(data.offset, 0, "perf record did not finish the file")
        elif data.offset + data.size > self.size:
            missing = data.offset + data.size - self.size
            header.data = Section(data.offset, self.size - data.offset)
            self.damage = Damage(self.size, missing, f"the file is cut: {missing} bytes of records are missing")
        else:
            bits = [bit for bit in range(FEATURE_BITS) if words[bit // 64] >> bit % 64 & 1]
            header.features = self._features(data.offset + data.size, bits)
        return header

    def _features(self, at: int, bits: list[int]) -> dict[int, Section]:
        found: dict[int, Section] = {}
        cursor = Cursor(self.data, at)
        for bit in bits:
            if cursor.left < 16:
                self.damage = Damage(at, 0, "the table of header features is cut")
                break
            section = Section(cursor.u64(), cursor.u64())
            if section.offset + section.size <= self.size:
                found[bit] = section
            else:
                self.damage = Damage(at, 0, f"header feature {bit} lies outside the file")
        return found

    def section(self, section: Section) -> memoryview:
        return self.data[section.offset:section.offset + section.size]

    # --- records

    def records(self) -> Iterator[Raw]:
        """Every record in file order, those that were compressed in place of the record that held them.

        Ends at the first one that does not fit; `damage` says where then. The sample id is not split off yet.
        """
        for order, raw in enumerate(Inflater(self, self._walk()).records()):
            raw.order = order
            yield raw

    def _walk(self) -> Iterator[Raw]:
        """The records as they stand in the file."""
        at, end = self.header.data.offset, self.header.data.offset + self.header.data.size
        while at < end:
            if end - at < RECORD_HEADER.size:
                self.damaged(at, end, "the last record is cut")
                return
            kind, misc, size = RECORD_HEADER.unpack_from(self.data, at)
            if size < RECORD_HEADER.size:
                self.damaged(at, end, f"a record of type {kind} says it is {size} bytes long")
                return
            if at + size > end:
                self.damaged(at, end, f"a record of type {kind} is cut")
                return
            raw = Raw(kind, misc, self.data, at + RECORD_HEADER.size, at + size, 0)
            more = self._payload(raw)
            if at + size + more > end:
                if kind == RecordType.AUXTRACE:  # the beginning of its data is there
                    yield raw
                self.damaged(at, end, f"the data of a record of type {kind} is cut")
                return
            yield raw
            at += size + more

    def _payload(self, raw: Raw) -> int:
        """Bytes that follow a record without being counted in its size."""
        try:
            if raw.type == RecordType.AUXTRACE:
                return raw.cursor().u64()
            if raw.type == RecordType.TRACING_DATA:
                return raw.cursor().u32() + 7 & ~7
        except Short:
            return 0
        return 0

    def damaged(self, at: int, end: int, what: str) -> None:
        """Note what is wrong, if nothing was before."""
        if self.damage is None:
            self.damage = Damage(at, end - at, what)


class Inflater:
    """COMPRESSED and COMPRESSED2 records: one zstd stream runs through all of them, a record in it may begin in one
    and end in the next, and perf never ends the stream.

    The stream reads from this object (`read`), which walks on through the file for more; what it meets on the way is
    handed out in its turn.
    """

    closed = False

    def __init__(self, source: Source, walk: Iterator[Raw]) -> None:
        self._source = source
        self._walk = walk
        self._met: deque[Raw] = deque()  # walked over while the stream wanted more
        self._given = b""
        self._total = 0
        self._at = 0  # of the compressed record last walked over

    def records(self) -> Iterator[Raw]:
        """All records, compressed or not, in order."""
        for raw in self._walk:
            if raw.type not in COMPRESSED:
                yield raw
                continue
            self._take(raw)
            yield from self._inner()
            yield from self._met
            return  # the stream read on to the end of the file, or is broken

    def _take(self, raw: Raw) -> None:
        cursor = raw.cursor()
        self._at = raw.start - RECORD_HEADER.size
        try:
            size = cursor.u64() if raw.type == RecordType.COMPRESSED2 else cursor.left
            self._given = cursor.bytes(size)
        except Short:
            self._source.damaged(self._at, self._source.size, "a compressed record is malformed")
            self._given = b""

    def _inner(self) -> Iterator[Raw]:
        stream = pa.CompressedInputStream(pa.PythonFile(self, mode="r"), "zstd")
        try:
            while True:
                head = stream.read(RECORD_HEADER.size)
                while self._met:
                    yield self._met.popleft()
                if len(head) < RECORD_HEADER.size:
                    break
                kind, misc, size = RECORD_HEADER.unpack(head)
                self._total += size
                if size < RECORD_HEADER.size or self._total > EXPANDED_MAX:
                    raise Short(f"a record of type {kind} says it is {size} bytes long")
                body = stream.read(size - RECORD_HEADER.size)
                if len(body) < size - RECORD_HEADER.size:
                    raise Short(f"a record of type {kind} is cut")
                yield Raw(kind, misc, body, 0, len(body), -1)
        except (OSError, Short, pa.ArrowException) as error:
            if "runcated" not in str(error):  # the stream's own end: perf leaves it open
                self._source.damaged(self._at, self._source.size, f"compressed records do not unpack ({error})")

    # --- a file, for the stream

    def read(self, size: int = -1) -> bytes:
        while not self._given:
            raw = next(self._walk, None)
            if raw is None:
                return b""
            if raw.type in COMPRESSED:
                self._take(raw)
            else:
                self._met.append(raw)
        size = len(self._given) if size is None or size < 0 else size
        part, self._given = self._given[:size], self._given[size:]
        return part

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def flush(self) -> None:
        """Nothing is written here."""

    def close(self) -> None:
        self.closed = True
