# SPDX-License-Identifier: MIT
"""The files that the soft engine leaves in its spool folder, as wrapper/engine/format.h describes them.

The engine runs inside the target, so nothing read here is believed: every length and offset is checked against the
file it came from.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

PAGE = 4096
BUFFER = 1 << 18
PROCESS_MAGIC = b"PWTPSOP1"
THREAD_MAGIC = b"PWTPSOT1"
SYSCALL_SIZE = 96
PATH_MAX = 4096
OFFSET_MAX = (1 << 63) - 1


class Began(IntEnum):
    STARTED = 1
    FORKED = 2
    WENT_ON = 3


class Ended(IntEnum):
    RUNNING = 0
    EXECING = 1
    FINISHED = 2
    UNRECORDED = 3  # EXECING, and what was executed has no file, or may have none


class Hold(IntEnum):
    WRITING = 0
    STORED = 1
    VOID = 2


class Kind(IntEnum):
    MAP = 1
    CODE = 2
    UNMAP = 3
    SLICE = 4
    THREAD = 5
    THREAD_EXIT = 6
    LOST = 7
    COMM = 8
    UNTRACED = 9


PROCESS = struct.Struct("<8s6I9Q1024s")
"""magic; pid, tid, parent pid, parent tid, began, ended; tsc begin, tsc end, bytes of records, bytes of code,
records lost, bytes of code lost, streams, streams lost, children lost; path of the executable"""

THREAD = struct.Struct("<8s4I8Q2IQ24x6Q")
"""magic; stream, tid, creator, state; tsc begin, tsc end, end, lost, syscalls, syscalls lost, instructions, hash;
hold, logging; buffer; encoder: tnt, pos, tnt_pos, ret_at, start, window"""

RECORD = struct.Struct("<IHHQ8Q")
"""size, kind, bytes of text; tsc; values"""


@dataclass(frozen=True)
class ProcessState:
    """Page 0 of a state file."""

    pid: int
    tid: int
    parent_pid: int
    parent_tid: int
    began: int
    ended: int
    tsc_begin: int
    tsc_end: int
    records: int
    code: int
    records_lost: int
    code_lost: int
    streams: int
    streams_lost: int
    children_lost: int
    exe: str

    @classmethod
    def parse(cls, page: bytes) -> ProcessState | None:
        """None: the page is not (yet) whole."""
        if len(page) < PROCESS.size:
            return None
        magic, *rest = PROCESS.unpack_from(page)
        numbers: list[int] = rest[:-1]
        if magic != PROCESS_MAGIC or max(numbers[:4]) >> 31:
            return None
        values: list[Any] = [*numbers, os.fsdecode(rest[-1].split(b"\0")[0])]
        return cls(*values)


@dataclass(frozen=True)
class ThreadState:
    """The page of one stream."""

    stream: int
    tid: int
    creator: int
    state: int
    tsc_begin: int
    tsc_end: int
    end: int
    lost: int
    syscalls: int
    syscalls_lost: int
    instructions: int
    hash: int
    hold: int
    logging: int
    buffer: int
    tnt: int
    pos: int
    tnt_pos: int
    ret_at: int
    start: int
    window: int

    @classmethod
    def parse(cls, page: bytes) -> ThreadState | None:
        """None: the page is not (yet) whole."""
        if len(page) < THREAD.size:
            return None
        magic, *rest = THREAD.unpack_from(page)
        numbers: list[int] = rest
        return cls(*numbers) if magic == THREAD_MAGIC else None

    @property
    def stored(self) -> int:
        """Bytes of the stream that are in its .pt file."""
        return self.end if self.hold == Hold.STORED else self.window

    @property
    def buffered(self) -> int:
        """Bytes behind them that are in its buffer."""
        size = 0
        if self.hold == Hold.WRITING:
            size = self.pos - self.start
        elif self.hold == Hold.VOID:
            size = self.end - self.window
        return size if 0 <= size <= BUFFER else 0

    @property
    def stream_lost(self) -> int:
        """Bytes of packets that were not stored."""
        if self.hold == Hold.VOID and self.pos >= self.start:
            return self.lost + self.pos - self.start
        return self.lost

    @property
    def pending(self) -> bytes:
        """Packets of the branches that belong behind the end of the stream."""
        if self.hold == Hold.VOID or (self.hold == Hold.WRITING and self.tnt_pos != self.pos):
            return b""
        return encode_tnt(self.tnt)


def encode_tnt(tnt: int) -> bytes:
    """Branches collected below a sentinel bit, as short TNT packets (SDM vol. 3, 33.4.2.1): the sentinel is bit 16
    of an empty word and moves up one bit for each branch."""
    bits = tnt.bit_length() - 17
    if bits <= 0 or tnt >> 64:
        return b""
    packets = bytearray()
    while bits > 0:
        now = min(bits, 6)
        bits -= now
        packets.append(((tnt >> bits & (1 << now) - 1) | 1 << now) << 1)
    return bytes(packets)


@dataclass(frozen=True)
class Record:
    """A record of P.rec. `value` as enum ptsoft_record_kind says."""

    kind: Kind
    tsc: int
    value: tuple[int, ...]
    text: str


def parse_records(data: bytes) -> Iterator[tuple[Record | None, int]]:
    """The whole records at the beginning of `data`, each with the offset behind it; None stands for one of an
    unknown kind. Stops at the first that cannot be one."""
    at = 0
    while at + RECORD.size <= len(data):
        size, kind, text, tsc, *value = RECORD.unpack_from(data, at)
        if size < RECORD.size + text or size % 8 or at + size > len(data) or text > PATH_MAX:
            return
        words = data[at + RECORD.size:at + RECORD.size + text]
        at += size
        known = kind in Kind._value2member_map_
        yield (Record(Kind(kind), tsc, tuple(value), os.fsdecode(words)) if known else None), at


def read_at(path: Path, offset: int, size: int) -> bytes:
    """Up to `size` bytes of a regular file, symbolic links refused; nothing when it is not there."""
    if offset + size > OFFSET_MAX:
        return b""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return b""
        parts = []
        while size > 0:
            part = os.pread(fd, min(size, 1 << 24), offset)
            if not part:
                break
            parts.append(part)
            offset += len(part)
            size -= len(part)
        return b"".join(parts)
    finally:
        os.close(fd)
