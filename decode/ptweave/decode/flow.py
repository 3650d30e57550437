# SPDX-License-Identifier: MIT
"""Decode the traces of a run into control flow: tables images, maps, blocks, paths, flow, clock, pt_events, gaps.

The work is in C (`decode/src`): this module opens traces and images, calls `ptd_decoder_step` until each slice of
each trace is done and hands the columns it filled to the table writers. Memory stays bounded: a step ends when
its columns are full.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ptweave.data import schemas
from ptweave.data.bundle import Bundle
from ptweave.data.errors import MachineLacks
from ptweave.data.manifest import Manifest
from ptweave.data.schemas import TableWriter, write_table
from ptweave.data.sideband import read_sideband
from ptweave.decode import gaps
from ptweave.decode._ipt import ffi, lib
from ptweave.decode.columns import array, coded, times
from ptweave.decode.images import Code, Mapping
from ptweave.decode.naming import Naming
from ptweave.decode.plan import Thread, plan
from ptweave.decode.ranges import RANGE_BYTES, Range, cut, opened

FLOW_ROWS = schemas.ROW_GROUP
"""Rows of flow in a step: one row group."""

SHARE = 4
"""A step that filled at least one in so many of its rows hands their memory over; fewer are copied."""

CLASSES = tuple(kind.value for kind in schemas.BlockClass)
"""Names of `enum ptd_class`, in its order."""

EVENTS = ("enabled", "disabled", "async_disabled", "async_branch", "paging", "async_paging", "overflow", "exec_mode",
          "tsx", "stop", "vmcs", "async_vmcs", "exstop", "mwait", "pwre", "pwrx", "ptwrite", "tick", "cbr", "mnt",
          "unknown")
"""Names of `enum ptd_event`, in its order."""

DECODED_THREADS = pa.schema([
    pa.field("thread", pa.int32()), pa.field("trace_bytes", pa.int64()), pa.field("instructions", pa.int64()),
    pa.field("blocks", pa.int64()), pa.field("branches", pa.int64()), pa.field("gaps", pa.int64()),
    pa.field("lost_bytes", pa.int64()), pa.field("first_block", pa.int32()),
])
"""`decoded/threads.parquet`: what decoding knows of each thread; first_block is null when it has no flow."""

Progress = Callable[[int, int], None]


@dataclass
class Totals:
    """What a thread's trace came to."""

    seq: int = 0
    tsc: int = 0
    instructions: int = 0
    branches: int = 0
    gaps: int = 0
    lost_bytes: int = 0  # the recorder's losses included
    lost: dict[str, int] = field(default_factory=dict)  # of the trace's own bytes, by kind of gap
    first_block: int | None = None

    def add_gap(self, kind: str, size: int, *, of_trace: bool = True) -> None:
        self.gaps += 1
        self.lost_bytes += size
        if of_trace:
            self.lost[kind] = self.lost.get(kind, 0) + size


class _Writers:
    """The streaming tables of one decode."""

    def __init__(self, stack: ExitStack, bundle: Bundle) -> None:
        self.flow, self.clock, self.events, self.gaps = (
            stack.enter_context(TableWriter(bundle.tables, table))
            for table in (schemas.FLOW, schemas.CLOCK, schemas.PT_EVENTS, schemas.GAPS))


class _Sections:
    """Sections and address spaces in libipt's terms. A space is kept until the next one is asked for."""

    def __init__(self, code: Code) -> None:
        self.code = code
        self.handle = _own(lib.ptd_images_create(), lib.ptd_images_destroy)
        self._numbers: dict[tuple[int, int, int, int], int] = {}
        self._last: tuple[tuple[int, int] | None, Any, list[Mapping]] = (None, None, [])

    def space(self, number: int | None, epoch: int) -> tuple[Any, list[Mapping]]:
        """The space of an epoch, and the mappings in it whose code the bundle does not have."""
        key = (-1 if number is None else number, epoch)
        if self._last[0] != key:
            mappings = [] if number is None else self.code.space(number).at(epoch)
            sections, missing = [], []
            for mapping in mappings:
                section = self._section(mapping)
                if section < 0:
                    missing.append(mapping)
                else:
                    sections.append(section)
            made = ffi.new("struct ptd_space **")
            status = lib.ptd_space_create(self.handle, sections, len(sections), made)
            if status < 0:
                raise MachineLacks(f"cannot set up an address space ({_text(-status)})", where=f"epoch {epoch}",
                                   remedy="free some memory")
            self._last = (key, _own(made[0], lib.ptd_space_destroy), missing)
        return self._last[1], self._last[2]

    def _section(self, mapping: Mapping) -> int:
        """The section's number, negative when there is no code to be had."""
        image, size = mapping.image, mapping.end - mapping.start
        if image.file is None or image.size is None or mapping.offset >= image.size:
            return -1
        key = (image.number, mapping.offset, size, mapping.start)
        if key not in self._numbers:
            self._numbers[key] = int(lib.ptd_images_add(
                self.handle, os.fsencode(image.file), image.number, mapping.offset, size, mapping.start))
        return self._numbers[key]


class _Decode:
    """One decode of one bundle."""

    def __init__(self, bundle: Bundle, writers: _Writers, code: Code, range_bytes: int) -> None:
        self.range_bytes = range_bytes
        self.clocks = bundle.manifest.clocks
        self.writers = writers
        self.sections = _Sections(code)
        self.tables = _own(lib.ptd_tables_create(), lib.ptd_tables_destroy)
        self.cpu = _cpu(bundle.manifest)
        self.rows: Any = None  # a batch to be filled

    def thread(self, thread: Thread, moved: Callable[[int], None]) -> Totals:
        """Decode a thread's trace; `moved` is told offsets."""
        totals = Totals()
        lost = list(thread.lost)
        if not thread.present and thread.finish is None:
            self._gap(thread, totals, gaps.no_trace())
        with opened(thread.path, thread.size) as packets:
            with ffi.from_buffer("uint8_t[]", packets) as whole:
                ranges = list(cut(thread, whole, self.range_bytes))
            for part in ranges:
                while lost and lost[0].offset <= part.begin:
                    self._gap(thread, totals, gaps.lost(lost.pop(0)))
                if part.space is None:
                    self._gap(thread, totals, gaps.no_slice(part))
                else:
                    self._slice(thread, totals, part, packets, moved)
        for rest in lost:
            self._gap(thread, totals, gaps.lost(rest))
        self._after_end(thread, totals)
        return totals

    def _after_end(self, thread: Thread, totals: Totals) -> None:
        """Bytes after the orderly end: padding of the recorder's, or something nobody accounts for."""
        if thread.end < thread.size:
            with opened(thread.path, thread.size) as packets:
                if any(packets[thread.end:thread.size]):
                    self._gap(thread, totals, gaps.after_end(thread))

    def _gap(self, thread: Thread, totals: Totals, gap: gaps.Gap) -> None:
        totals.add_gap(gap.kind, gap.size, of_trace=gap.of_trace)
        time = self.clocks.to_ns(totals.tsc) if totals.tsc else None
        self.writers.gaps.write(pa.Table.from_pylist(
            [{"thread": thread.number, "seq": totals.seq, "t": time, "kind": gap.kind, "bytes": gap.size,
              "offset": gap.offset, "ip": None, "detail": gap.detail}], schema=schemas.GAPS.schema))

    def _slice(self, thread: Thread, totals: Totals, part: Range, packets: mmap.mmap,
               moved: Callable[[int], None]) -> None:
        space, missing = self.sections.space(part.space, part.epoch)
        progress = ffi.new("struct ptd_progress *")
        with ffi.from_buffer("uint8_t[]", packets) as whole:
            where = ffi.new("struct ptd_slice *", {
                "packets": whole + part.begin, "size": part.end - part.begin, "offset": part.begin,
                "seq": totals.seq, "tsc": totals.tsc, "has_stop": part.stop is not None, "stop_ip": part.stop or 0})
            made = ffi.new("struct ptd_decoder **")
            _check(lib.ptd_decoder_create(self.tables, space, self.cpu, where, made), thread)
            decoder = _own(made[0], lib.ptd_decoder_destroy)
            more = 1
            while more:
                rows = self.rows or _own(lib.ptd_rows_create(FLOW_ROWS), lib.ptd_rows_destroy)
                more = _check(lib.ptd_decoder_step(decoder, rows), thread)
                shared = rows.flow_count >= FLOW_ROWS // SHARE
                self._write(thread.number, totals, rows, missing, shared=shared)
                self.rows = None if shared else rows
                if not shared:
                    lib.ptd_rows_clear(rows)
                lib.ptd_decoder_progress(decoder, progress)
                done = part.begin + progress.offset
                moved(done)
                if done > mmap.PAGESIZE:  # what is behind us need not count as our memory any more
                    packets.madvise(mmap.MADV_DONTNEED, 0, done // mmap.PAGESIZE * mmap.PAGESIZE)
        totals.seq, totals.tsc = progress.seq, progress.tsc
        totals.instructions += progress.instructions
        totals.branches += progress.branches
        if totals.first_block is None and progress.first_block >= 0:
            totals.first_block = progress.first_block

    def _write(self, thread: int, totals: Totals, rows: Any, missing: list[Mapping], *, shared: bool) -> None:
        """Write a step's rows; `shared`: the columns of flow go on living in the rows' memory."""
        owner = rows if shared else None
        n = rows.flow_count
        if n:
            self.writers.flow.write(pa.table({
                "thread": _repeat(thread, n),
                "seq": array(owner, rows.flow_seq, n, pa.int64()),
                "path": array(owner, rows.flow_path, n, pa.int32())}))
        n = rows.clock_count
        if n:
            tsc = array(None, rows.clock_tsc, n, pa.uint64())
            self.writers.clock.write(pa.table({
                "thread": _repeat(thread, n), "seq": array(None, rows.clock_seq, n, pa.int64()), "tsc": tsc,
                "t": pa.array(times(tsc, self.clocks))}))
        n = rows.event_count
        if n:
            self.writers.events.write(pa.table({
                "thread": _repeat(thread, n),
                "seq": array(None, rows.event_seq, n, pa.int64()),
                "tsc": array(None, rows.event_tsc, n, pa.uint64()),
                "kind": coded(array(None, rows.event_kind, n, pa.int8()), EVENTS),
                "ip": array(None, rows.event_ip, n, pa.uint64(), rows.valid_event_ip),
                "target": array(None, rows.event_target, n, pa.uint64(), rows.valid_event_target),
                "offset": array(None, rows.event_offset, n, pa.uint64()),
                "detail": array(None, rows.event_detail, n, pa.int64(), rows.valid_event_detail)}))
        if rows.gap_count:
            table = gaps.table(thread, rows, missing, self.clocks)
            self.writers.gaps.write(table)
            for kind, count, size in gaps.sums(table):
                totals.gaps += count
                totals.lost_bytes += size
                totals.lost[kind] = totals.lost.get(kind, 0) + size

    def write_dictionaries(self, bundle: Bundle, code: Code) -> None:
        """Write blocks, with functions and lines, and paths."""
        view = ffi.new("struct ptd_paths_view *")
        lib.ptd_tables_paths(self.tables, view)
        n = view.count
        starts = array(self.tables, view.starts, n + 1, pa.int32())
        lists = pa.ListArray.from_arrays(starts, array(self.tables, view.blocks, view.block_count, pa.int32()))
        write_table(bundle.tables, schemas.PATHS, pa.table({
            "path": pa.array(np.arange(n, dtype=np.int32)), "blocks": lists,
            "length": array(self.tables, view.length, n, pa.int32()),
            "instructions": array(self.tables, view.instructions, n, pa.int32())}, schema=schemas.PATHS.schema))
        blocks = self._blocks()
        names = Naming(code).columns(blocks["image"].to_numpy(), blocks["offset"].to_numpy())
        write_table(bundle.tables, schemas.BLOCKS, pa.table({**blocks, **names}).cast(schemas.BLOCKS.schema))

    def _blocks(self) -> dict[str, pa.Array]:
        view = ffi.new("struct ptd_blocks_view *")
        lib.ptd_tables_blocks(self.tables, view)
        n = view.count
        return {
            "block": pa.array(np.arange(n, dtype=np.int32)),
            "image": array(self.tables, view.image, n, pa.int32()),
            "offset": array(self.tables, view.offset, n, pa.int64()),
            "ip": array(self.tables, view.ip, n, pa.uint64()),
            "size": array(self.tables, view.size, n, pa.int32()),
            "instructions": array(self.tables, view.instructions, n, pa.int32()),
            "last": coded(array(self.tables, view.last, n, pa.int8()), CLASSES),
            "last_ip": array(self.tables, view.last_ip, n, pa.uint64()),
        }


def decode_flow(bundle: Bundle, progress: Progress | None = None, *, range_bytes: int = RANGE_BYTES) -> None:
    """Decode every trace of `bundle` and write the flow tables, `decoded/threads.parquet` and the ledger.

    `progress` is called with bytes of trace done and in all. Decoding again replaces what was decoded before; the
    tables appear when all of it is done. Raises BadInput for a bundle without a readable sideband, MachineLacks
    when memory runs out. Everything that could not be decoded is a row of `gaps`, not an error.
    """
    sideband = read_sideband(bundle.sideband)
    threads = plan(bundle, sideband)
    code = Code(sideband, bundle.images)
    total = sum(thread.size for thread in threads)
    behind = 0
    results: list[tuple[Thread, Totals]] = []
    with ExitStack() as stack:
        decode = _Decode(bundle, _Writers(stack, bundle), code, range_bytes)
        for thread in threads:
            def moved(offset: int, base: int = behind) -> None:
                if progress is not None:
                    progress(base + offset, total)
            results.append((thread, decode.thread(thread, moved)))
            behind += thread.size
            if progress is not None:
                progress(behind, total)
        decode.write_dictionaries(bundle, code)
        write_table(bundle.tables, schemas.IMAGES, code.image_rows())
        write_table(bundle.tables, schemas.MAPS, code.map_rows())
    _write_threads(bundle, results)
    _account(bundle, results)


def _write_threads(bundle: Bundle, results: list[tuple[Thread, Totals]]) -> None:
    rows = [{"thread": thread.number, "trace_bytes": thread.size, "instructions": totals.instructions,
             "blocks": totals.seq, "branches": totals.branches, "gaps": totals.gaps,
             "lost_bytes": totals.lost_bytes, "first_block": totals.first_block} for thread, totals in results]
    bundle.decoded.mkdir(mode=0o700, exist_ok=True)
    partial = bundle.decoded / ".threads.parquet.partial"
    pq.write_table(pa.Table.from_pylist(rows, schema=DECODED_THREADS), partial)
    partial.replace(bundle.decoded / "threads.parquet")


def _account(bundle: Bundle, results: list[tuple[Thread, Totals]]) -> None:
    """Bytes of each trace = bytes decoded + bytes in gaps."""
    ledger = bundle.ledger()
    ledger.drop("decode/")
    for thread, totals in results:
        lost = sum(totals.lost.values())
        ledger.add(f"decode/{thread.number}", "bytes", produced=thread.size, stored=thread.size - lost,
                   lost=totals.lost)
    bundle.save_ledger(ledger)


def _cpu(manifest: Manifest) -> Any:
    """The processor in libipt's terms. The soft engine's packets have no errata, whatever made them."""
    cpu = ffi.new("struct ptd_cpu *")
    if manifest.engine == "intel_pt" and manifest.cpu.vendor == "GenuineIntel":
        cpu.intel = 1
        cpu.family, cpu.model, cpu.stepping = manifest.cpu.family, manifest.cpu.model, manifest.cpu.stepping
    return cpu


def _own(handle: Any, destroy: Any) -> Any:
    """A C object that is destroyed with its last reference. Raises MachineLacks for NULL."""
    if handle == ffi.NULL:
        raise MachineLacks("is out of memory", where="the decoder", remedy="free some memory")
    return ffi.gc(handle, destroy)


def _check(status: int, thread: Thread) -> int:
    """The status of a C function, or its error as an exception."""
    if status >= 0:
        return status
    if status == -errno.EOVERFLOW:
        raise MachineLacks("has more distinct blocks or paths than can be numbered", where=str(thread.path),
                           remedy="decode fewer threads at once")
    raise MachineLacks(f"cannot be decoded ({os.strerror(-status)})", where=str(thread.path),
                       remedy="free some memory")


def _repeat(thread: int, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(thread, pa.int32()), count)


def _text(code: int) -> str:
    return ffi.string(lib.ptd_error_text(code)).decode("ascii", "replace")
