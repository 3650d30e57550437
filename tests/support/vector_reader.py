# SPDX-License-Identifier: MIT
"""A second reader of files of events, from the words of docs/event-vector.md, with nothing of the first."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HEAD, KINDS, KIND, KEYS, KEY = 4096, 256, 1088, 4096, 64
CHUNKS_AT = HEAD + KINDS * KIND + KEYS * KEY
I64, U64, F64, STRING, BYTES, WORDS = range(1, 7)
INLINE = 0xFFFF


def _name(data: bytes) -> str:
    return data.split(b"\0")[0].decode()


def _escaped(data: bytes) -> str:
    """Text as the tables have it: what is no UTF-8, and NULs, as \\xNN."""
    return data.decode("utf-8", errors="backslashreplace").replace("\0", "\\x00")


@dataclass
class Kind:
    name: str
    fields: list[tuple[str, int]]


@dataclass
class Event:
    kind: str
    pid: int
    tid: int
    tsc: int
    truncated: bool
    fields: dict[str, Any]
    pairs: list[tuple[str, str]]


@dataclass
class File:
    """Everything in a file. `head` has the counters by name; `order` numbers chunks as they were written."""

    head: dict[str, int]
    kinds: dict[int, Kind]
    keys: dict[int, str]
    events: list[Event] = field(default_factory=list)


_HEAD = ("magic version list_size slots closed span tsc0 tsc1 t0 t1 begun stored lost unfinished corrupt overwritten "
         "unwritten full nested kind fork")
_HEAD_LAYOUT = struct.Struct("<Q4I16Q")


def read(path: Path) -> File:
    data = path.read_bytes()
    head = dict(zip(_HEAD.split(), _HEAD_LAYOUT.unpack_from(data), strict=True))
    assert head["magic"].to_bytes(8, "little") == b"PTWEVF1\0" and head["version"] == 1
    kinds, keys = {}, {}
    for index in range(KINDS):
        at = HEAD + index * KIND
        state, count = struct.unpack_from("<II", data, at)
        if state == 2:
            raw = [data[at + 64 + 32 * i:at + 96 + 32 * i] for i in range(count)]
            kinds[index] = Kind(_name(data[at + 8:at + 64]), [(_name(one[1:]), one[0]) for one in raw])
    for index in range(KEYS):
        at = HEAD + KINDS * KIND + index * KEY
        if struct.unpack_from("<I", data, at)[0] == 2:
            keys[index] = _name(data[at + 8:at + 64])
    file = File(head, kinds, keys)
    chunks = []
    at = CHUNKS_AT
    while at + 64 <= len(data):
        magic, size, span, serial, pid, tid, producer, lane, sequence, offset, count = struct.unpack_from(
            "<IIQQIIIIQII", data, at)
        if serial and magic == 0x43565450:
            body = data[at + 64:at + 64 + size]
            chunks.append((producer, lane, sequence, offset, body, pid, tid, count if len(body) == size else None))
        at += span if not head["slots"] else head["span"]
    for producer, lane, sequence, _, body, pid, tid, count in sorted(chunks, key=lambda one: one[:4]):
        events = list(_events(file, body, pid, tid))
        assert count is None or len(events) == count, (producer, lane, sequence)
        file.events += events
    return file


def _events(file: File, body: bytes, pid: int, tid: int) -> Iterator[Event]:
    at = 0
    while at + 24 <= len(body):
        size, kind, flags, tsc, present, pairs = struct.unpack_from("<IHHQII", body, at)
        if at + size > len(body):
            return  # cut short
        record = body[at:at + size]
        declared = file.kinds[kind]
        fields = {}
        for index, (name, type_) in enumerate(declared.fields):
            fields[name] = _field(record, 24 + 8 * index, type_) if present >> index & 1 else None
        yield Event(declared.name, pid, tid, tsc, bool(flags & 1), fields, list(_pairs(file, record, pairs))[::-1])
        at += size


def _field(record: bytes, at: int, type_: int) -> Any:
    if type_ in (I64, U64, F64):
        return struct.unpack_from({I64: "<q", U64: "<Q", F64: "<d"}[type_], record, at)[0]
    offset, length = struct.unpack_from("<II", record, at)
    data = record[offset:offset + length]
    if type_ == STRING:
        return _escaped(data)
    return data if type_ == BYTES else list(struct.unpack(f"<{length // 8}Q", data))


def _pairs(file: File, record: bytes, at: int) -> Iterator[tuple[str, str]]:
    while at:
        before, key, type_, value = struct.unpack_from("<IHHQ", record, at)
        body = at + 16
        if key == INLINE:
            length, = struct.unpack_from("<Q", record, body)
            name = _escaped(record[body + 8:body + 8 + length])
            body += 8 + (length + 7) // 8 * 8
        else:
            name = file.keys[key]
        data = record[body:body + value] if type_ >= STRING else b""
        if type_ == F64:
            text = f"{struct.unpack('<d', struct.pack('<Q', value))[0]:.17g}"
        elif type_ == I64:
            text = str(struct.unpack("<q", struct.pack("<Q", value))[0])
        elif type_ == U64:
            text = str(value)
        elif type_ == STRING:
            text = _escaped(data)
        elif type_ == BYTES:
            text = "".join(f"\\x{one:02x}" for one in data)
        else:
            text = " ".join(f"{one:#x}" for one in struct.unpack(f"<{value // 8}Q", data))
        yield name, text
        at = before
