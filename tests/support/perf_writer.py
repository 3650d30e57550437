# SPDX-License-Identifier: MIT
"""Writes perf.data files from scratch: file mode and pipe mode, compressed or not, with Intel PT in them.

Written after perf.data-file-format.txt and perf_event.h, apart from the reader: neither uses anything of the other.
Records come out in the order they are added.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from support.tracing_data import tracing_data

INTEL_PT_TYPE = 8
SAMPLE = 0x10087  # IP, TID, TIME, CPU, IDENTIFIER
SAMPLE_RAW = SAMPLE | 0x400
SAMPLE_AUX = SAMPLE | 0x100000
TSC_BIT, NORETCOMP_BIT, MTC_BIT, CYC_BIT, MTC_FREQ_BITS = 0x400, 0x800, 0x200, 0x2, 0x3C000
KERNEL, USER = 1, 2
MISC_13, MISC_14 = 1 << 13, 1 << 14
IDS = {"pt": 101, "dummy": 102, "switch": 103}


@dataclass(frozen=True)
class When:
    """The sample id: pid, tid, time in ns, cpu."""

    pid: int = 0
    tid: int = 0
    time: int = 0
    cpu: int = 0


@dataclass
class PerfWriter:
    """One recording. `mult` and `shift` turn TSC into ns, as in perf_event_mmap_page."""

    shift: int = 31
    mult: int = 672770566
    zero: int = -12607119952
    mtc_period: int = 3
    ratio: tuple[int, int] = (266, 2)
    max_nonturbo: int = 32
    mtc: bool = True
    cyc: bool = True
    user_only: bool = True
    snapshot: bool = False
    per_cpu: bool = True
    have_sched_switch: int = 3
    aux_samples: bool = False
    cpuid: str = "GenuineIntel,6,94,3"
    filter: str = ""  # of addresses
    records: list[bytes] = field(default_factory=list)
    build_ids: list[tuple[str, bytes, int]] = field(default_factory=list)
    sched_switch_id: int = 316

    # --- time

    def ns(self, tsc: int) -> int:
        return ((tsc * self.mult >> self.shift) + self.zero) & (1 << 64) - 1

    # --- records

    def raw(self, kind: int, misc: int, body: bytes) -> PerfWriter:
        self.records.append(struct.pack("<IHH", kind, misc, 8 + len(body)) + body)
        return self

    def record(self, kind: int, misc: int, body: bytes, when: When, which: str = "dummy") -> PerfWriter:
        trailer = struct.pack("<iiQiIQ", when.pid, when.tid, when.time, when.cpu, 0, IDS[which])
        return self.raw(kind, misc, body + trailer)

    def mmap(self, pid: int, start: int, size: int, offset: int, path: str, when: When | None = None, *,
             tid: int | None = None, build_id: bytes | None = None, kernel: bool = False,
             protection: int = 5) -> PerfWriter:
        """MMAP2."""
        name = path.encode("utf-8", "surrogateescape") + b"\0"
        name += bytes(-len(name) % 8)
        misc = KERNEL if kernel else USER
        if build_id is None:
            middle = bytes(24)
        else:
            misc |= MISC_14
            middle = bytes([len(build_id), 0, 0, 0]) + build_id.ljust(20, b"\0")
        body = struct.pack("<iiQQQ", pid, pid if tid is None else tid, start, size, offset) + middle
        return self.record(10, misc, body + struct.pack("<II", protection, 2) + name, when or When())

    def old_mmap(self, pid: int, start: int, size: int, offset: int, path: str, when: When | None = None, *,
                 kernel: bool = False) -> PerfWriter:
        """MMAP."""
        name = path.encode("utf-8", "surrogateescape") + b"\0"
        name += bytes(-len(name) % 8)
        body = struct.pack("<iiQQQ", pid, 0 if kernel else pid, start, size, offset) + name
        return self.record(1, KERNEL if kernel else USER, body, when or When())

    def comm(self, pid: int, tid: int, name: str, when: When | None = None, *, exec_: bool = False) -> PerfWriter:
        text = name.encode() + b"\0"
        text += bytes(-len(text) % 8)
        return self.record(3, MISC_13 if exec_ else 0, struct.pack("<ii", pid, tid) + text, when or When())

    def fork(self, pid: int, parent: int, tid: int, parent_tid: int, when: When) -> PerfWriter:
        return self.record(7, 0, struct.pack("<iiiiQ", pid, parent, tid, parent_tid, when.time), when)

    def exit(self, pid: int, tid: int, when: When) -> PerfWriter:
        return self.record(4, 0, struct.pack("<iiiiQ", pid, pid, tid, tid, when.time), when)

    def itrace_start(self, pid: int, tid: int, when: When) -> PerfWriter:
        return self.record(12, 0, struct.pack("<ii", pid, tid), when, "pt")

    def aux(self, offset: int, size: int, flags: int, when: When) -> PerfWriter:
        return self.record(11, 0, struct.pack("<QQQ", offset, size, flags), when, "pt")

    def switch_cpu_wide(self, when: When, other: tuple[int, int], *, out: bool) -> PerfWriter:
        return self.record(15, MISC_13 if out else 0, struct.pack("<ii", *other), when, "dummy")

    def switch_pair(self, tsc: int, cpu: int, old: tuple[int, int], new: tuple[int, int]) -> PerfWriter:
        """What the kernel writes when `new` takes the CPU from `old` ((pid, tid) each)."""
        self.switch_cpu_wide(When(*old, self.ns(tsc), cpu), new, out=True)
        return self.switch_cpu_wide(When(*new, self.ns(tsc + 20), cpu), old, out=False)

    def switch(self, when: When, *, out: bool) -> PerfWriter:
        return self.record(14, MISC_13 if out else 0, b"", when, "dummy")

    def lost(self, count: int, when: When) -> PerfWriter:
        return self.record(2, 0, struct.pack("<QQ", IDS["pt"], count), when)

    def text_poke(self, address: int, old: bytes, new: bytes, when: When) -> PerfWriter:
        body = struct.pack("<QHH", address, len(old), len(new)) + old + new
        return self.record(20, KERNEL, body + bytes(-len(body) % 8), when)

    def sched_switch(self, when: When, next_tid: int, next_comm: str = "next") -> PerfWriter:
        """A sample of the tracepoint."""
        raw = struct.pack("<HBBi16siiq16sii", self.sched_switch_id, 0, 0, when.pid, b"prev", when.tid, 120, 0,
                          next_comm.encode(), next_tid, 120)
        raw += bytes(-(len(raw) + 4) % 8)
        body = struct.pack("<QQiiQiI", IDS["switch"], 0, when.pid, when.tid, when.time, when.cpu, 0)
        return self.raw(9, KERNEL, body + struct.pack("<I", len(raw)) + raw)

    def aux_sample(self, data: bytes, when: When) -> PerfWriter:
        """A sample of the event that carries Intel PT."""
        data += bytes(-len(data) % 8)
        body = struct.pack("<QQiiQiI", IDS["dummy"], 0x401000, when.pid, when.tid, when.time, when.cpu, 0)
        return self.raw(9, USER, body + struct.pack("<Q", len(data)) + data)

    def auxtrace(self, data: bytes, *, offset: int = 0, reference: int = 1, index: int = 0, tid: int = -1,
                 cpu: int = 0) -> PerfWriter:
        data += bytes(-len(data) % 8)
        body = struct.pack("<QQQIiiI", len(data), offset, reference, index, tid, cpu, 0)
        self.records.append(struct.pack("<IHH", 71, 0, 8 + len(body)) + body + data)
        return self

    def round(self) -> PerfWriter:
        """FINISHED_ROUND: perf sorts what comes before it."""
        return self.raw(68, 0, b"")

    # --- the file

    def config(self) -> int:
        """The event's config: branches, TSC, and what else is wanted."""
        return (0x2000 | TSC_BIT | 1 | self.mtc * (MTC_BIT | self.mtc_period << 14) | self.cyc * CYC_BIT)

    def attrs(self) -> list[tuple[bytes, int]]:
        """(perf_event_attr, its id)."""
        common = 1 << 18  # sample_id_all
        kernel = 0 if self.user_only else 1 << 5 ^ 1 << 5
        user = 1 << 5 if self.user_only else kernel
        made = [(_attr(INTEL_PT_TYPE, self.config(), SAMPLE, common | user | 2), IDS["pt"]),
                (_attr(1, 9, SAMPLE_AUX if self.aux_samples else SAMPLE, common | user | 1 << 8 | 1 << 9 | 1 << 13 |
                       1 << 23 | 1 << 24 | (1 << 26 if self.have_sched_switch in (2, 3) else 0),
                       aux_sample_size=4096 if self.aux_samples else 0), IDS["dummy"])]
        if self.have_sched_switch == 1:
            made.append((_attr(2, self.sched_switch_id, SAMPLE_RAW, common), IDS["switch"]))
        return made

    def info(self) -> bytes:
        """AUXTRACE_INFO."""
        words = [INTEL_PT_TYPE, self.shift, self.mult, self.zero & (1 << 64) - 1, 1, TSC_BIT, NORETCOMP_BIT,
                 self.have_sched_switch, int(self.snapshot), int(self.per_cpu), MTC_BIT, MTC_FREQ_BITS, *self.ratio,
                 CYC_BIT, self.max_nonturbo, len(self.filter)]
        text = self.filter.encode().ljust((len(self.filter) // 8 + 1) * 8, b"\0") if self.filter else b""
        body = struct.pack("<II", 1, 0) + struct.pack(f"<{len(words)}Q", *words) + text
        return struct.pack("<IHH", 70, 0, 8 + len(body)) + body

    def features(self) -> dict[int, bytes]:
        found = {3: _string("host"), 4: _string("6.1.0"), 5: _string("6.1"), 6: _string("x86_64"),
                 7: struct.pack("<II", 4, 4), 9: _string(self.cpuid),
                 11: struct.pack("<I", 2) + _string("perf") + _string("record")}
        if self.build_ids:
            found[2] = b"".join(_build_id(*entry) for entry in self.build_ids)
        if self.have_sched_switch == 1:
            found[1] = tracing_data(self.sched_switch_id)
        names = ["intel_pt//u", "dummy:u", "sched:sched_switch"]
        described = b""
        attrs = self.attrs()
        for (attr, number), name in zip(attrs, names, strict=False):
            described += attr + struct.pack("<I", 1) + _string(name) + struct.pack("<Q", number)
        found[12] = struct.pack("<II", len(attrs), len(attrs[0][0])) + described
        found[18] = struct.pack("<Q", 0)
        return found

    def body(self, *, compressed: bool = False) -> bytes:
        records = [self.info(), *self.records]
        return _compress(records) if compressed else b"".join(records)

    def file(self, *, compressed: bool = False) -> bytes:
        """File mode."""
        attrs, ids, table = self.attrs(), b"", b""
        at = 104
        for _, number in attrs:
            ids += struct.pack("<Q", number)
        table_at = at + len(ids)
        for index, (attr, _) in enumerate(attrs):
            table += attr + struct.pack("<QQ", at + 8 * index, 8)
        data_at = table_at + len(table)
        data = self.body(compressed=compressed)
        features = self.features()
        if compressed:
            features[27] = struct.pack("<IIIII", 1, 1, 1, 2, 1 << 20)
        bits = [0, 0, 0, 0]
        for number in features:
            bits[number // 64] |= 1 << number % 64
        head = struct.pack("<8sQQQQQQQQ4Q", b"PERFILE2", 104, len(attrs[0][0]) + 16, table_at, len(table), data_at,
                           len(data), 0, 0, *bits)
        sections, blobs = b"", b""
        begin = data_at + len(data) + 16 * len(features)
        for number in sorted(features):
            sections += struct.pack("<QQ", begin + len(blobs), len(features[number]))
            blobs += features[number]
        return head + ids + table + data + sections + blobs

    def pipe(self, *, compressed: bool = False) -> bytes:
        """Pipe mode."""
        out = struct.pack("<8sQ", b"PERFILE2", 16)
        for attr, number in self.attrs():
            body = attr + struct.pack("<Q", number)
            out += struct.pack("<IHH", 64, 0, 8 + len(body)) + body
        features = self.features()
        if compressed:
            features[27] = struct.pack("<IIIII", 1, 1, 1, 2, 1 << 20)
        for number, blob in sorted(features.items()):
            if number not in (2, 18):
                body = struct.pack("<Q", number) + blob
                body += bytes(-len(body) % 8)
                out += struct.pack("<IHH", 80, 0, 8 + len(body)) + body
        for entry in self.build_ids:
            blob = _build_id(*entry)
            out += struct.pack("<IHH", 67, struct.unpack_from("<H", blob, 4)[0], len(blob)) + blob[8:]
        return out + self.body(compressed=compressed)

    def write(self, path: Path, *, pipe: bool = False, compressed: bool = False) -> Path:
        path.write_bytes(self.pipe(compressed=compressed) if pipe else self.file(compressed=compressed))
        return path


def _attr(kind: int, config: int, sample_type: int, flags: int, *, aux_sample_size: int = 0) -> bytes:
    head = struct.pack("<IIQQQQQ", kind, 128, config, 1, sample_type, 4, flags)
    return (head + bytes(112 - len(head)) + struct.pack("<II", aux_sample_size, 0)).ljust(128, b"\0")


def _string(text: str) -> bytes:
    data = text.encode() + b"\0"
    data += bytes(-len(data) % 64)
    return struct.pack("<I", len(data)) + data


def _build_id(path: str, build_id: bytes, misc: int) -> bytes:
    name = path.encode() + b"\0"
    name += bytes(-len(name) % 64)
    body = struct.pack("<i", -1) + build_id.ljust(20, b"\0") + bytes([len(build_id), 0, 0, 0]) + name
    return struct.pack("<IHH", 67, misc | 1 << 15, 8 + len(body)) + body


class _Sink:
    closed = False

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> int:
        self.data += bytes(data)
        return len(data)

    def flush(self) -> None: ...
    def writable(self) -> bool: return True
    def readable(self) -> bool: return False
    def seekable(self) -> bool: return False
    def close(self) -> None: self.closed = True


def _compress(records: list[bytes]) -> bytes:
    """COMPRESSED records: an open zstd stream, flushed every few hundred bytes wherever a record may be.

    What the recorder itself adds (types from 64 on) is not compressed; AUXTRACE must come in order with the rest.
    """
    sink = _Sink()
    stream = pa.CompressedOutputStream(pa.PythonFile(sink, mode="w"), "zstd")
    out, pending = b"", b""

    def flush() -> None:
        nonlocal out, pending
        for at in range(0, len(pending), 300):
            stream.write(pending[at:at + 300])
            stream.flush()
            part, sink.data = sink.data, b""
            part += bytes(0)
            out += struct.pack("<IHH", 81, 0, 8 + len(part)) + part
        pending = b""

    for record in records:
        if struct.unpack_from("<I", record)[0] < 64:
            pending += record
        else:
            flush()
            out += record
    flush()
    return out
