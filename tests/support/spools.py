# SPDX-License-Identifier: MIT
"""Writes the files that the soft engine leaves, as a target would (or would not) leave them."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ptweave.data.syslog import SYSLOG_DTYPE
from ptweave.wrapper.spool_format import BUFFER, PAGE, PROCESS, RECORD, THREAD, Began, Ended, Hold, Kind

EMPTY_TNT = 1 << 16
PSB = b"\x02\x82" * 8


def psb(tsc: int) -> bytes:
    """PSB, TSC, PSBEND."""
    return PSB + b"\x19" + tsc.to_bytes(7, "little") + b"\x02\x23"


@dataclass
class FakeStream:
    """A stream: `stored` in its file, `tail` in its buffer, `tnt` pending."""

    tid: int
    stored: bytes = b""
    tail: bytes = b""
    tnt: int = EMPTY_TNT
    hold: Hold = Hold.WRITING
    torn: bool = False  # the pending branches were written already
    lost: int = 0
    nowhere: int = 0  # bytes written nowhere since
    calls: int = 0


@dataclass
class FakeProcess:
    """A process image of the engine: its files in a spool folder."""

    spool: Path
    pid: int
    life: int = 0
    began: Began = Began.STARTED
    ended: Ended = Ended.FINISHED
    parent: int = 1
    tsc: int = 1000
    exe: str = "/bin/fake"
    streams: list[FakeStream] = field(default_factory=list)
    records: bytes = b""
    code: bytes = b""
    children_lost: int = 0

    @property
    def prefix(self) -> str:
        return f"{self.pid}.{self.life}"

    def record(self, kind: Kind | int, *values: int, text: str = "", tsc: int = 0) -> None:
        words = text.encode()
        padded = words + bytes(-len(words) % 8)
        self.tsc += 10
        self.records += RECORD.pack(RECORD.size + len(padded), kind, len(words), tsc or self.tsc,
                                    *values, *[0] * (8 - len(values))) + padded

    def begin_stream(self, stream: FakeStream, epoch: int = 0, creator: int = 0) -> int:
        number = len(self.streams)
        self.streams.append(stream)
        self.record(Kind.THREAD, number, stream.tid, creator)
        self.record(Kind.SLICE, number, 0, epoch)
        return number

    def end_stream(self, number: int) -> None:
        stream = self.streams[number]
        self.record(Kind.THREAD_EXIT, number, stream.tid, len(stream.stored) + len(stream.tail))

    def write(self, **changes: int) -> None:
        """Write all files; `changes` override fields of the process's page."""
        fields = {"magic": b"PWTPSOP1", "pid": self.pid, "tid": self.pid, "parent": self.parent, "parent_tid": 0,
                  "began": int(self.began), "ended": int(self.ended), "tsc": 1000,
                  "tsc_end": self.tsc if self.ended else 0, "records": len(self.records), "code": len(self.code),
                  "records_lost": 0, "code_lost": 0, "streams": len(self.streams), "streams_lost": 0,
                  "children_lost": self.children_lost, "exe": self.exe.encode(), **changes}
        pages = [PROCESS.pack(*fields.values()).ljust(PAGE, b"\0")]
        buffers = b""
        for number, stream in enumerate(self.streams):
            pages.append(self._thread_page(number, stream))
            buffers += stream.tail.ljust(BUFFER, b"\xee")
            (self.spool / f"{self.prefix}.{number}.pt").write_bytes(stream.stored + b"\xdd" * 50)
            calls = np.zeros(stream.calls, SYSLOG_DTYPE)
            calls["number"] = np.arange(stream.calls)
            calls["stream"] = 1 + np.arange(stream.calls)
            (self.spool / f"{self.prefix}.{number}.sys").write_bytes(calls.tobytes() + bytes(96 * 3))
        (self.spool / f"{self.prefix}.state").write_bytes(b"".join(pages))
        (self.spool / f"{self.prefix}.buf").write_bytes(buffers)
        (self.spool / f"{self.prefix}.rec").write_bytes(self.records + b"\xff" * 100)
        (self.spool / f"{self.prefix}.code").write_bytes(self.code + b"\xff" * 100)

    def _thread_page(self, number: int, stream: FakeStream) -> bytes:
        start = 0x10000
        size = stream.nowhere if stream.hold == Hold.VOID else len(stream.tail)
        end = len(stream.stored) + (len(stream.tail) if stream.hold == Hold.VOID else 0)
        pos = start + size
        return THREAD.pack(b"PWTPSOT1", number, stream.tid, 0, 1, 1000, 0, end, stream.lost, stream.calls, 0, 0, 0,
                           stream.hold, 0, number, stream.tnt, pos, pos - 1 if stream.torn else pos, 0, start,
                           len(stream.stored)).ljust(PAGE, b"\0")


def pending(bits: str) -> int:
    """A word of pending branches, oldest first, such as "1101"."""
    return int("1" + bits, 2) << 16 if not bits else EMPTY_TNT << len(bits) | int(bits, 2)


def elf_with_build_id(build_id: bytes, contents: bytes = b"") -> bytes:
    """The smallest ELF file that has a build id."""
    note = struct.pack("<III", 4, len(build_id), 3) + b"GNU\0" + build_id + bytes(-len(build_id) % 4)
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    program = struct.pack("<IIQQQQQQ", 4, 4, 120, 0, 0, len(note), len(note), 4)
    return header + program + note + contents
