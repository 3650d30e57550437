# SPDX-License-Identifier: MIT
"""What a run did, as text: packets from its traces; blocks, instructions and events from its tables.

Everything streams: Python reads columns in batches, C makes the lines (`decode/src/dump*.c`). Memory holds the
distinct blocks and paths, and nothing that grows with the length of the run.
"""

from __future__ import annotations

import errno
import mmap
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ptweave.data.bundle import Bundle
from ptweave.data.errors import BadInput, MachineLacks
from ptweave.decode._dump import ffi, lib
from ptweave.decode.images import PLAIN_NAME
from ptweave.decode.stored import Cursor, Stored, read_table

TEXT = 1 << 20
"""Bytes of text made at a time."""

MAX_NOTE = 4096
END = (1 << 63) - 1

Write = Callable[[memoryview], object]


class Form(StrEnum):
    """What a line is."""

    PACKETS = "packets"
    BLOCKS = "blocks"
    INSTRUCTIONS = "instructions"
    EVENTS = "events"
    IPS = "ip-only"


@dataclass(frozen=True)
class Moment:
    """A place in a thread's flow: the block with ordinal `seq`, or a time in ns, of the run or (`t`) absolute."""

    seq: int | None = None
    since_start: int | None = None
    t: int | None = None

    @classmethod
    def parse(cls, text: str) -> Moment:
        """`1000` (0x… too), `12.5ms` (ns, us, ms, s), `t=NS`. Raises BadInput."""
        if found := re.fullmatch(r"0[xX][0-9a-fA-F]{1,15}|[0-9]{1,18}", text):
            return cls(seq=int(text, 0 if text[:2].lower() == "0x" else 10))
        if found := re.fullmatch(r"t=(-?[0-9]{1,18})", text):
            return cls(t=int(found[1]))
        if found := re.fullmatch(r"([0-9]{1,9})(?:\.([0-9]{1,9}))?(ns|us|ms|s)", text):
            decimals = {"ns": 0, "us": 3, "ms": 6, "s": 9}[found[3]]
            fraction = (found[2] or "").ljust(decimals, "0")
            if len(fraction.rstrip("0")) <= decimals:
                return cls(since_start=int(found[1]) * 10**decimals + int(fraction[:decimals] or "0"))
        raise BadInput(f"{text!r} is no place in a run", where="--from or --to",
                       remedy="give a block's number (1000), a time since the run's start (12.5ms, 3s) or t=NS")


@dataclass
class Dumped:
    """What was written: lines (packets, blocks, instructions or events) and the gaps among them, by kind."""

    lines: int = 0
    gaps: dict[str, int] = field(default_factory=dict)
    packets: dict[str, int] = field(default_factory=dict)

    def add_gap(self, kind: str, count: int = 1) -> None:
        self.gaps[kind] = self.gaps.get(kind, 0) + count

    def summary(self) -> str:
        """The gaps in words."""
        return ", ".join(f"{count} {kind}" for kind, count in sorted(self.gaps.items()))


class _Text:
    """A buffer for C to write into, and where it goes from there."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._room = ffi.new("char[]", TEXT)
        self.handle = ffi.new("struct dump_text *", {"data": self._room, "size": 0, "capacity": TEXT})
        self._view = memoryview(ffi.buffer(self._room, TEXT))

    def flush(self) -> None:
        if self.handle.size:
            self._write(self._view[:self.handle.size])
            self.handle.size = 0

    def line(self, text: str) -> None:
        self.flush()
        self._write(memoryview(text.encode("utf-8", "backslashreplace") + b"\n"))


# --- packets ------------------------------------------------------------------------------------------------------


def dump_packets(bundle: Bundle, write: Write, traces: list[str] | None = None, begin: int = 0,
                 end: int | None = None) -> Dumped:
    """Write the packets of a run's traces, which need not be decoded; returns what was written.

    `traces` names them as in trace/, without .pt (default: all). `begin` and `end` are byte offsets: packets that
    begin at or after the first and before the second are shown. Raises BadInput for a trace that is not there.
    """
    there = sorted((path.stem for path in bundle.trace.glob("*.pt") if re.fullmatch(r"(?:cpu-)?[0-9]+", path.stem)),
                   key=lambda name: (len(name), name))
    for name in traces or ():
        if name not in there:
            raise BadInput(f"has no trace {name}", where=str(bundle.path), remedy=f"it has {_list(there)}")
    dumped = Dumped()
    text = _Text(write)
    for name in traces or there:
        if len(there) > 1 and len(traces or there) > 1:
            text.line(f"-- trace {name}")
        _packets(bundle, name, text, begin, end, dumped)
    return dumped


def _packets(bundle: Bundle, name: str, text: _Text, begin: int, end: int | None, dumped: Dumped) -> None:
    path = bundle.trace / f"{name}.pt"
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with closing(os.fdopen(descriptor, "rb")) as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.EINVAL, "not a regular file")
            if not status.st_size:
                return
            packets = mmap.mmap(file.fileno(), status.st_size, access=mmap.ACCESS_READ)
    except OSError as error:
        raise BadInput(f"cannot be read ({error.strerror or error})", where=str(path),
                       remedy="make the run bundle readable") from error
    progress = ffi.new("struct dump_packets_progress *")
    with packets, ffi.from_buffer("uint8_t[]", packets) as whole:
        made = ffi.new("struct dump_packets **")
        _check(lib.dump_packets_create(whole, len(packets), begin, len(packets) if end is None else end, made))
        dump = ffi.gc(made[0], lib.dump_packets_destroy)
        more = 1
        while more:
            more = _check(lib.dump_packets_next(dump, text.handle))
            text.flush()
            lib.dump_packets_progress(dump, progress)
            behind = progress.offset // mmap.PAGESIZE * mmap.PAGESIZE
            if behind:  # what is behind us need not count as our memory any more
                packets.madvise(mmap.MADV_DONTNEED, 0, behind)
        del dump
    for kind, count in enumerate(progress.counts):
        if count:
            word = ffi.string(lib.dump_packet_kind(kind)).decode()
            dumped.packets[word] = dumped.packets.get(word, 0) + count
            dumped.lines += count
    if progress.bad:
        dumped.add_gap("of packets that cannot be read", progress.bad)


# --- flow ---------------------------------------------------------------------------------------------------------


class _Tables:
    """The distinct blocks and paths of a run as C wants them."""

    def __init__(self, bundle: Bundle, form: Form) -> None:
        names = ["image", "offset", "ip", "last_ip", "size", "instructions", "mode"]
        texts = [] if form is Form.IPS else ["last", "function", "file"]
        blocks = read_table(bundle, "blocks", [*names, *texts, *([] if form is Form.IPS else ["function_offset",
                                                                                              "line"])], texts)
        lists = read_table(bundle, "paths", ["blocks"])["blocks"].combine_chunks()
        self.starts = np.ascontiguousarray(lists.offsets.to_numpy())
        values = np.ascontiguousarray(lists.values.to_numpy())
        images = [ffi.NULL if path is None else ffi.new("char[]", os.fsencode(path)) for path in _images(bundle)]
        self._keep: list[Any] = [images]
        words = _Names()
        self.handle = ffi.new("struct dump_tables *", {
            "block_count": blocks.num_rows,
            "image": self._column(blocks, "image", "int32_t"), "offset": self._column(blocks, "offset", "int64_t"),
            "ip": self._column(blocks, "ip", "uint64_t"), "last_ip": self._column(blocks, "last_ip", "uint64_t"),
            "size": self._column(blocks, "size", "int32_t"),
            "instructions": self._column(blocks, "instructions", "int32_t"),
            "mode": self._column(blocks, "mode", "uint8_t", 64),
            **({} if form is Form.IPS else {
                "last": self._pointer("int32_t", words.codes(blocks, "last")),
                "function": self._pointer("int32_t", words.codes(blocks, "function")),
                "file": self._pointer("int32_t", words.codes(blocks, "file")),
                "function_offset": self._column(blocks, "function_offset", "int64_t"),
                "line": self._column(blocks, "line", "int32_t")}),
            "path_count": len(self.starts) - 1, "starts": self._pointer("int32_t", self.starts),
            "list_count": len(values), "list": self._pointer("int32_t", values),
            "image_count": len(images), "images": self._kept(ffi.new("char *[]", images))})
        starts, data = words.table()
        self.handle.name_count = len(starts) - 1
        self.handle.name_starts = self._pointer("int64_t", starts)
        self.handle.names = self._kept(ffi.from_buffer("char[]", data))

    def _kept(self, value: Any) -> Any:
        self._keep.append(value)
        return value

    def _pointer(self, kind: str, values: npt.NDArray[Any]) -> Any:
        return self._kept(ffi.from_buffer(f"{kind}[]", values))

    def _column(self, table: pa.Table, name: str, kind: str, default: int = 0) -> Any:
        """A column as an array of C type `kind`; nulls are `default`. NULL: the table has no such column."""
        if name not in table.column_names:
            return ffi.NULL
        column = table[name]
        if column.null_count:
            column = column.fill_null(default)
        return self._pointer(kind, np.ascontiguousarray(column.to_numpy().astype(kind.removesuffix("_t"), copy=False)))


def _images(bundle: Bundle) -> list[str | None]:
    """Paths of the image files by number."""
    rows = read_table(bundle, "images", ["image", "name"]).to_pylist()
    paths: list[str | None] = [None] * (max((row["image"] for row in rows), default=-1) + 1)
    for row in rows:
        if row["image"] >= 0 and row["name"] is not None and PLAIN_NAME.match(row["name"]):
            paths[row["image"]] = str(bundle.images / row["name"])
    return paths


class _Names:
    """Texts of several columns, numbered."""

    def __init__(self) -> None:
        self._starts = [np.zeros(1, np.int64)]
        self._data: list[bytes] = []
        self._count = 0

    def codes(self, table: pa.Table, name: str) -> npt.NDArray[np.int32]:
        """The numbers of a (dictionary) column's texts; -1 where there is none."""
        if name not in table.column_names:
            return np.full(table.num_rows, -1, np.int32)
        return self.codes_of(table[name])

    def codes_of(self, column: pa.ChunkedArray) -> npt.NDArray[np.int32]:
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        whole = column.unify_dictionaries().combine_chunks()
        if isinstance(whole, pa.ChunkedArray):  # without rows
            return np.zeros(0, np.int32)
        words = whole.dictionary.cast(pa.large_binary())
        codes = whole.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32)
        codes[codes >= 0] += self._count
        _, offsets, data = words.buffers()
        ends = np.frombuffer(offsets, np.int64)[words.offset:words.offset + len(words) + 1]
        if len(words):
            self._data.append(data.to_pybytes()[ends[0]:ends[-1]] if data is not None else b"")
            self._starts.append(ends[1:] - ends[0] + self._starts[-1][-1])
        self._count += len(words)
        return np.ascontiguousarray(codes)

    def table(self) -> tuple[npt.NDArray[np.int64], bytes]:
        """Where each text begins (and the last one ends), and all of them."""
        return np.ascontiguousarray(np.concatenate(self._starts)), b"".join(self._data) or b"\0"


class _Notes:
    """Gaps as lines to be put in before the block they precede."""

    def __init__(self, batches: Iterator[pa.RecordBatch], dumped: Dumped, first: int, last: int) -> None:
        self._cursor = Cursor(batches)
        self._dumped = dumped
        self._first, self._last = first, last

    def before(self, end: int | None) -> tuple[dict[str, Any], list[Any]]:
        """`struct dump_notes` of the gaps with seq < end, and what keeps its memory alive."""
        seqs, lines = [], []
        for batch in self._cursor.before(end):
            for row in batch.to_pylist():
                if self._first <= row["seq"] < self._last or row["seq"] == self._last == END:
                    self._dumped.add_gap(row["kind"])
                    seqs.append(row["seq"])
                    lines.append(_gap_line(row))
        starts = np.concatenate(([0], np.cumsum([len(line) for line in lines]))).astype(np.int64)
        keep = [np.array(seqs, np.int64), starts, b"".join(lines) or b"\0"]
        return {"count": len(seqs), "seq": ffi.from_buffer("int64_t[]", keep[0]),
                "starts": ffi.from_buffer("int64_t[]", starts), "text": ffi.from_buffer("char[]", keep[2])}, keep


def _gap_line(row: dict[str, Any]) -> bytes:
    ip = "" if row["ip"] is None else f", ip {row['ip']:016x}"
    detail = "".join(char if char.isprintable() else "?" for char in str(row["detail"] or ""))
    line = f"-- gap: {row['kind']}: {row['bytes']} bytes at {row['offset']:#x}{ip}: {detail}"
    return line.encode("utf-8", "backslashreplace")[:MAX_NOTE]


@dataclass(frozen=True)
class _Span:
    """Blocks `first` <= seq < `last`."""

    first: int
    last: int


class _Flow:
    """The flow of a decoded run, on its way to text."""

    def __init__(self, bundle: Bundle, stack: ExitStack, names: tuple[str, ...]) -> None:
        self.bundle = bundle
        self.tables: dict[str, Stored] = {}
        for name in names:
            self.tables[name] = Stored(bundle, name)
            stack.callback(self.tables[name].close)
        self.start = self.tables["clock"].least("t") or 0

    def threads(self, asked: list[str] | None) -> list[int]:
        """The threads asked for (None: all there are), in order. Raises BadInput for one that is not there."""
        there = set().union(*(table.threads() for table in self.tables.values()))
        if asked is None:
            return sorted(there)
        for name in asked:
            if not name.isdecimal() or int(name) not in there:
                raise BadInput(f"has no thread {name}", where=str(self.bundle.path),
                               remedy=f"it has {_list([str(number) for number in sorted(there)])}")
        return sorted({int(name) for name in asked})

    def span(self, thread: int, begin: Moment | None, end: Moment | None) -> _Span:
        return _Span(0 if begin is None else self._seq(thread, begin), END if end is None else self._seq(thread, end))

    def _seq(self, thread: int, moment: Moment) -> int:
        """The first block at or after a moment; END when there is none."""
        if moment.seq is not None:
            return moment.seq
        t = moment.t if moment.t is not None else self.start + (moment.since_start or 0)
        for batch in self.tables["clock"].batches(
                thread, ["seq", "t"], wanted=lambda bounds: bounds["t"] is None or bounds["t"][1] >= t):
            later = np.flatnonzero(batch["t"].to_numpy(zero_copy_only=False) >= t)
            if len(later):
                return int(batch["seq"][int(later[0])].as_py())
        return END

    def gaps(self, thread: int, span: _Span, dumped: Dumped) -> _Notes:
        rows = self.tables["gaps"].batches(thread, ["seq", "kind", "bytes", "offset", "ip", "detail"],
                                           since=span.first - 1)
        return _Notes(rows, dumped, span.first, span.last)


def dump_flow(bundle: Bundle, form: Form, write: Write, threads: list[str] | None = None, begin: Moment | None = None,
              end: Moment | None = None, *, with_bytes: bool = False) -> Dumped:
    """Write what a decoded run executed, thread by thread; returns what was written.

    Blocks from `begin` on and before `end` are shown; a time stands for the first block at or after it. Raises
    BadInput when the run is not decoded, has no such thread, or its tables and images do not fit together.
    """
    if form is Form.EVENTS:
        return _dump_events(bundle, write, threads, begin, end)
    dumped = Dumped()
    with ExitStack() as stack:
        flow = _Flow(bundle, stack, ("flow", "clock", "gaps"))
        chosen = flow.threads(threads)
        tables = _Tables(bundle, form)
        code = {Form.IPS: lib.DUMP_IPS, Form.BLOCKS: lib.DUMP_BLOCKS, Form.INSTRUCTIONS: lib.DUMP_INSTRUCTIONS}[form]
        made = ffi.new("struct dump_flow **")
        _check(lib.dump_flow_create(tables.handle, lib.DUMP_INSTRUCTIONS_BYTES if with_bytes and code ==
                                    lib.DUMP_INSTRUCTIONS else code, made))
        dump = ffi.gc(made[0], lib.dump_flow_destroy)
        text = _Text(write)
        for thread in chosen:
            if len(chosen) > 1 and form is not Form.IPS:
                text.line(f"-- thread {thread}")
            lib.dump_flow_thread(dump)
            _thread(flow, thread, flow.span(thread, begin, end), form, dump, tables, text, dumped)
        dumped.lines = lib.dump_flow_lines(dump)
    return dumped


def _thread(flow: _Flow, thread: int, span: _Span, form: Form, dump: Any, tables: _Tables, text: _Text,
            dumped: Dumped) -> None:
    gaps = flow.gaps(thread, span, dumped)
    clock = Cursor(iter(()) if form is Form.IPS else
                   flow.tables["clock"].batches(thread, ["seq", "t"], since=span.first))
    lengths = np.diff(tables.starts)
    for rows in flow.tables["flow"].batches(thread, ["seq", "path"], since=span.first):
        seq = rows["seq"].to_numpy(zero_copy_only=False)
        path = rows["path"].to_numpy(zero_copy_only=False)
        chosen = slice(max(0, int(np.searchsorted(seq, span.first, "right")) - 1),
                       int(np.searchsorted(seq, span.last)))
        seq, path = np.ascontiguousarray(seq[chosen]), np.ascontiguousarray(path[chosen])
        if not len(seq):
            if rows["seq"][0].as_py() >= span.last:
                break
            continue
        final = int(path[-1])
        after = int(seq[-1]) + (int(lengths[final]) if 0 <= final < len(lengths) else 1)
        _batch(flow, span, dump, text, seq, path, clock.before(after), gaps.before(min(after, span.last)), form)
    rest = gaps.before(None)
    if rest[0]["count"]:
        nothing = np.zeros(0, np.int64)
        _batch(flow, span, dump, text, nothing, nothing.astype(np.int32), [], rest, form)


def _batch(flow: _Flow, span: _Span, dump: Any, text: _Text, seq: npt.NDArray[np.int64],
           path: npt.NDArray[np.int32], moments: list[pa.RecordBatch], notes: tuple[dict[str, Any], list[Any]],
           form: Form) -> None:
    keep = [np.concatenate([np.zeros(0, np.int64), *(part[name].to_numpy(zero_copy_only=False) for part in moments)])
            for name in ("seq", "t")]
    keep[1] = keep[1] - flow.start
    batch = ffi.new("struct dump_batch *", {
        "count": len(seq), "seq": ffi.from_buffer("int64_t[]", seq), "path": ffi.from_buffer("int32_t[]", path),
        "from": span.first, "to": span.last, "clock_count": len(keep[0]),
        "clock_seq": ffi.from_buffer("int64_t[]", keep[0]), "clock_t": ffi.from_buffer("int64_t[]", keep[1]),
        "notes": notes[0]})
    lib.dump_flow_set(dump, batch)
    more = 1
    while more:
        more = lib.dump_flow_next(dump, text.handle)
        text.flush()
        if more < 0:
            raise _misfit(flow.bundle, more, lib.dump_flow_bad_block(dump))


def _misfit(bundle: Bundle, error: int, block: int) -> BadInput:
    if error == -errno.EILSEQ:
        return BadInput(f"block {block}: its code is not in images/, or is not what was decoded",
                        where=str(bundle.path), remedy="decode the run again")
    return BadInput("names paths or blocks that are not there", where=str(bundle.tables / "flow"),
                    remedy="decode the run again")


# --- events -------------------------------------------------------------------------------------------------------


def _dump_events(bundle: Bundle, write: Write, threads: list[str] | None, begin: Moment | None,
                 end: Moment | None) -> Dumped:
    from ptweave.decode.columns import times

    dumped = Dumped()
    text = _Text(write)
    clocks = bundle.manifest.clocks
    with ExitStack() as stack:
        flow = _Flow(bundle, stack, ("pt_events", "gaps", "clock"))
        chosen = flow.threads(threads)
        for thread in chosen:
            if len(chosen) > 1:
                text.line(f"-- thread {thread}")
            span = flow.span(thread, begin, end)
            gaps = flow.gaps(thread, span, dumped)
            for rows in flow.tables["pt_events"].batches(
                    thread, ["seq", "tsc", "kind", "ip", "target", "offset", "detail"], since=span.first - 1):
                seq = rows["seq"].to_numpy(zero_copy_only=False)
                low, high = np.searchsorted(seq, span.first), np.searchsorted(seq, span.last)
                shown = rows.slice(low, high - low)
                if shown.num_rows:
                    ns = times(shown["tsc"], clocks) - flow.start
                    _events(shown, ns, gaps.before(int(seq[high - 1]) + 1), text)
                    dumped.lines += shown.num_rows
                elif rows["seq"][0].as_py() >= span.last:
                    break
            for line in _lines(gaps.before(None)):
                text.line(line)
    return dumped


def _lines(notes: tuple[dict[str, Any], list[Any]]) -> Iterator[str]:
    starts, data = notes[1][1], notes[1][2]
    for index in range(notes[0]["count"]):
        yield data[starts[index]:starts[index + 1]].decode("utf-8", "replace")


def _events(rows: pa.RecordBatch, ns: npt.NDArray[np.int64], notes: tuple[dict[str, Any], list[Any]],
            text: _Text) -> None:
    words = _Names()
    columns: dict[str, Any] = {"kind": words.codes_of(pa.chunked_array([rows["kind"]])), "t": ns,
                               "valid_t": (rows["tsc"].to_numpy(zero_copy_only=False) != 0).astype(np.uint8)}
    for name, kind in (("seq", np.int64), ("offset", np.uint64), ("ip", np.uint64), ("target", np.uint64),
                       ("detail", np.int64)):
        columns[name] = np.ascontiguousarray(
            rows[name].fill_null(0).to_numpy(zero_copy_only=False).astype(kind, copy=False))
        if name in ("ip", "target", "detail"):
            columns[f"valid_{name}"] = rows[name].is_valid().to_numpy(zero_copy_only=False).astype(np.uint8)
    starts, data = words.table()
    types = {"kind": "int32_t", "t": "int64_t", "seq": "int64_t", "offset": "uint64_t", "ip": "uint64_t",
             "target": "uint64_t", "detail": "int64_t"}
    events = ffi.new("struct dump_events *", {
        "count": rows.num_rows, **{name: ffi.from_buffer(f"{types.get(name, 'uint8_t')}[]", values)
                                   for name, values in columns.items()},
        "name_count": len(starts) - 1, "name_starts": ffi.from_buffer("int64_t[]", starts),
        "names": ffi.from_buffer("char[]", data), "notes": notes[0]})
    row, note = ffi.new("size_t *"), ffi.new("size_t *")
    while _check(lib.dump_events_next(events, row, note, text.handle)):
        text.flush()
    text.flush()


# --- helpers ------------------------------------------------------------------------------------------------------


def _check(status: int) -> int:
    """The status of a C function, or its error as an exception."""
    if status < 0:
        raise MachineLacks(f"cannot go on ({os.strerror(-status)})", where="dump", remedy="free some memory")
    return status


def _list(names: list[str]) -> str:
    if not names:
        return "none"
    shown = ", ".join(names[:8])
    return shown if len(names) <= 8 else f"{shown}, … {names[-1]}"
