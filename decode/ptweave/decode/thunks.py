# SPDX-License-Identifier: MIT
"""Event lists to thunks and accesses: `dependence/*.evl` → `decoded/thunks.parquet`, `stacks.parquet`, and where there
are accesses `decoded/accesses.parquet` and `decoded/pages.parquet` (`ptweave.data.schemas.DECODED_…`).

The C decoder (decode/src/evl.h) reads all threads together and computes vector clocks; it hands out batches of one
thread's rows. They are kept in temporary Arrow files and written in thread order at the end, so memory stays bounded
however long the lists are.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ptweave.data import BadInput, Bundle, Ledger, Manifest
from ptweave.data.evl import Operation
from ptweave.data.schemas import BYTES, DECODED_ACCESSES, DECODED_PAGES, DECODED_STACKS, DECODED_THUNKS
from ptweave.decode._evl import ffi, lib
from ptweave.decode.spool import Spool
from ptweave.decode.stacks import StackFile

THREADS_MAX = 1_000_000
"""Greatest thread number believed: clocks have a component for each."""
SLACK_SECONDS = 0.001
"""How far all other threads must be beyond a wait before its release counts as missing."""
SLACK_TICKS = 3_000_000
"""The same where the TSC's rate is not known."""
MANY_THREADS = 64
"""More, and a row is a clock for the most part, which differs little from the row before."""
ACQUIRE, RELEASE = 1, 2
_KINDS = (("thunks", DECODED_THUNKS), ("accesses", DECODED_ACCESSES), ("pages", DECODED_PAGES))
VECTOR_NAME = re.compile(r"vector-(0|[1-9][0-9]{0,8})\.ptv")
"""Files of events in the same folder (`ptweave.decode.tags`)."""
_NAME = re.compile(r"(0|[1-9][0-9]{0,6})\.evl")
_OPERATIONS = pa.array([None, *(operation.name.lower() for operation in Operation)], pa.string())


@dataclass(frozen=True)
class Counts:
    """What the lists held (`struct evl_counts`), of one thread or of all."""

    rows: int
    unfinished: int
    corrupt: int
    unread: int
    lost: int
    missing: int
    accesses: int
    inexact: int

    @classmethod
    def of(cls, raw: Any) -> Counts:
        return cls(raw.rows, raw.unfinished, raw.corrupt, raw.unread, raw.lost, raw.missing, raw.accesses,
                   raw.inexact)


class ThunkDecoder:
    """The C decoder over the lists of one run. Use as a context manager."""

    def __init__(self, manifest: Manifest) -> None:
        clocks = manifest.clocks
        slack = int(manifest.cpu.tsc_hz * SLACK_SECONDS) or SLACK_TICKS
        raw = ffi.new("struct evl_clocks *", {
            "tsc0": clocks.tsc0, "tsc1": clocks.tsc1, "t0": clocks.t0_ns, "t1": clocks.t1_ns})
        self._decoder = lib.evl_decoder_create(raw, slack)
        self._paths: list[Any] = []  # the decoder keeps pointers to them
        self.threads: list[int] = []
        if self._decoder == ffi.NULL:
            raise MemoryError

    def __enter__(self) -> ThunkDecoder:
        return self

    def __exit__(self, *_: object) -> None:
        lib.evl_decoder_destroy(self._decoder)

    def add(self, path: Path, thread: int) -> None:
        """Add a thread's list, in ascending order of threads. Raises OSError."""
        name = ffi.new("char[]", os.fsencode(path))
        _check(lib.evl_decoder_add(self._decoder, name, thread), path)
        self._paths.append(name)
        self.threads.append(thread)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All thunks, accesses and pages, as batches of one thread each, and stacks before the first thunk that has
        them (all told apart by their schema); a thread's thunks and accesses in order. Raises OSError."""
        batch, accesses = ffi.new("struct evl_batch *"), ffi.new("struct evl_accesses *")
        while kind := _check(lib.evl_decoder_next(self._decoder, batch, accesses), None):
            if kind == lib.EVL_THUNKS:
                if batch.new_stacks:
                    yield _stack_batch(batch)
                yield _record_batch(batch)
                continue
            if accesses.rows:
                yield _access_batch(accesses)
            if accesses.pages:
                yield _page_batch(accesses)

    def counts(self) -> Counts:
        """What all lists held; complete when `batches` has ended."""
        raw = ffi.new("struct evl_counts *")
        lib.evl_decoder_counts(self._decoder, raw)
        return Counts.of(raw)

    def thread_counts(self) -> dict[int, Counts]:
        """The same for each thread."""
        found = {}
        for index, thread in enumerate(self.threads):
            raw = ffi.new("struct evl_counts *")
            lib.evl_decoder_thread_counts(self._decoder, index, raw)
            found[thread] = Counts.of(raw)
        return found


def _check(result: int, path: Path | None) -> int:
    if result < 0:
        raise OSError(-result, os.strerror(-result), None if path is None else str(path))
    return result


def _column(pointer: Any, count: int, dtype: str) -> np.ndarray[Any, np.dtype[Any]]:
    """A copy of C memory: the decoder uses it again for the next batch."""
    size = np.dtype(dtype).itemsize * count
    return np.frombuffer(bytes(ffi.buffer(pointer, size)) if size else b"", dtype)


def _lists(offsets: Any, values: Any, rows: int, dtype: str) -> pa.ListArray:
    starts = _column(offsets, rows + 1, "<i4")
    return pa.ListArray.from_arrays(pa.array(starts), pa.array(_column(values, int(starts[-1]), dtype)))


def _stack_batch(batch: Any) -> pa.RecordBatch:
    offsets = _column(batch.new_offsets, int(batch.new_stacks) + 1, "<u4")
    words = _column(batch.new_words + int(offsets[0]), int(offsets[-1] - offsets[0]), "<u8")
    lists = pa.ListArray.from_arrays(pa.array((offsets - offsets[0]).astype(np.int32)), pa.array(words))
    return pa.RecordBatch.from_arrays([lists], schema=DECODED_STACKS)


def _record_batch(batch: Any) -> pa.RecordBatch:
    rows = int(batch.rows)
    stacks = _column(batch.stack, rows, "<i4")
    flags = _column(batch.flags, rows, "u1")
    objects = _column(batch.object, rows, "<u8")
    columns: dict[str, pa.Array] = {
        "thread": pa.array(np.full(rows, batch.thread, "<i4")),
        "thunk": pa.array(_column(batch.thunk, rows, "<i4")),
        "operation": _OPERATIONS.take(pa.array(_column(batch.operation, rows, "<u2"))),
        "object": pa.array(objects, mask=objects == 0),
        "result": pa.array(_column(batch.result, rows, "<i8")),
        "t": pa.array(_column(batch.t, rows, "<i8")),
        "wait": pa.array(_column(batch.wait, rows, "<i8")),
        "acquire": pa.array((flags & ACQUIRE) != 0),
        "release": pa.array((flags & RELEASE) != 0),
        "clock": _lists(batch.clock_offsets, batch.clock, rows, "<u4"),
        "stack": pa.array(stacks, mask=stacks < 0),
        "tsc": pa.array(_column(batch.tsc, rows, "<u8")),
        "marker": pa.array(_column(batch.marker, rows, "<u8")),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in DECODED_THUNKS.names], schema=DECODED_THUNKS)


def _access_batch(batch: Any) -> pa.RecordBatch:
    rows = int(batch.rows)
    columns: dict[str, pa.Array] = {
        "thread": pa.array(np.full(rows, batch.thread, "<i4")),
        "record": pa.array(np.arange(batch.first, batch.first + rows, dtype="<i8")),
        "thunk": pa.array(_column(batch.thunk, rows, "<i4")),
        "operation": _OPERATIONS.take(pa.array(_column(batch.operation, rows, "<u2"))),
        "t": pa.array(_column(batch.t, rows, "<i8")),
        "address": pa.array(_column(batch.address, rows, "<u8")),
        "argument": pa.array(_column(batch.argument, rows, "<u8")),
        "result": pa.array(_column(batch.result, rows, "<i8")),
        "bytes": _bytes(batch),
        "stack": _lists(batch.stack_offsets, batch.stack, rows, "<u8"),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in DECODED_ACCESSES.names], schema=DECODED_ACCESSES)


def _bytes(batch: Any) -> pa.ListArray:
    """Runs of changed bytes; null where there are none."""
    offsets = _column(batch.run_offsets, int(batch.rows) + 1, "<i4")
    runs = _column(batch.run, int(offsets[-1]), "<u4")
    pairs = [pa.array((runs & 0xFFFF).astype("<i4")), pa.array((runs >> 16).astype("<i4"))]
    return pa.ListArray.from_arrays(pa.array(offsets), pa.StructArray.from_arrays(pairs, ["offset", "length"]),
                                    type=BYTES, mask=pa.array(offsets[1:] == offsets[:-1]))


def _page_batch(batch: Any) -> pa.RecordBatch:
    rows = int(batch.pages)
    columns: dict[str, pa.Array] = {
        "thread": pa.array(np.full(rows, batch.thread, "<i4")),
        "record": pa.array(_column(batch.page_record, rows, "<i8")),
        "page": pa.array(_column(batch.page, rows, "<u8")),
        "write": pa.array(_column(batch.page_write, rows, "u1") != 0),
        "thunk": pa.array(_column(batch.page_thunk, rows, "<i4")),
        "until_thunk": pa.array(_column(batch.page_until, rows, "<i4")),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in DECODED_PAGES.names], schema=DECODED_PAGES)


def lists_of(bundle: Bundle) -> tuple[dict[int, Path], list[Path]]:
    """The run's event lists by thread, ascending, and entries of the folder that are none (nor files of events)."""
    lists, strange = {}, []
    for path in bundle.dependence.iterdir():
        match = _NAME.fullmatch(path.name)
        if match and int(match[1]) < THREADS_MAX:
            lists[int(match[1])] = path
        elif not VECTOR_NAME.fullmatch(path.name):
            strange.append(path)
    return dict(sorted(lists.items())), strange


@dataclass
class _Spools:
    """What comes out, by kind."""

    stacks: StackFile
    thunks: Spool
    accesses: Spool
    pages: Spool

    def add(self, batch: pa.RecordBatch) -> None:
        if batch.schema.equals(DECODED_STACKS):
            self.stacks.add(batch)
            return
        spools = {DECODED_THUNKS: self.thunks, DECODED_ACCESSES: self.accesses, DECODED_PAGES: self.pages}
        spools[batch.schema].add(batch)

    def write(self, folder: Path) -> None:
        """Files of accesses are there only when there were any."""
        self.stacks.finish()
        self.thunks.write(folder / "thunks.parquet")
        for spool, name in ((self.accesses, "accesses.parquet"), (self.pages, "pages.parquet")):
            if spool.rows:
                spool.write(folder / name)
            else:
                (folder / name).unlink(missing_ok=True)


def decode_thunks(bundle: Bundle) -> int:
    """Write `decoded/thunks.parquet`, `stacks.parquet`, `accesses.parquet` and `pages.parquet`, and account for it in
    the ledger (`thunks`, `clocks`, `accesses`); returns the number of thunks.

    A list that is cut short, corrupt or unreadable costs what cannot be read of it, never the others.
    Raises BadInput when the folder of lists cannot be read.
    """
    bundle.decoded.mkdir(mode=0o700, exist_ok=True)
    ledger = bundle.ledger()
    lost: dict[str, int] = defaultdict(int)
    acquires = 0
    try:
        lists, strange = lists_of(bundle)
        lost["not a list"] = len(strange)
        with ExitStack() as files:
            stacks = files.enter_context(StackFile(bundle.decoded / "stacks.parquet"))
            spools = _Spools(stacks, *(files.enter_context(
                Spool(bundle.decoded / f".{name}.spool", schema, compressed=len(lists) > MANY_THREADS))
                for name, schema in _KINDS))
            decoder = files.enter_context(ThunkDecoder(bundle.manifest))
            for thread, path in lists.items():
                try:
                    decoder.add(path, thread)
                except OSError:
                    lost["unreadable"] += max(1, _expected(ledger, thread) or 0)
            for batch in decoder.batches():
                spools.add(batch)
                if batch.schema.equals(DECODED_THUNKS):
                    acquires += batch["acquire"].true_count
            counts, threads = decoder.counts(), decoder.thread_counts()
            spools.write(bundle.decoded)
    except OSError as error:
        raise BadInput(f"event lists cannot be decoded ({error.strerror or error})",
                       where=str(error.filename or bundle.dependence),
                       remedy="check permissions and room in the bundle") from error
    for thread, one in threads.items():
        lost["corrupt"] += one.corrupt
        lost["unfinished"] += one.unfinished
        lost["unreadable"] += _unreadable(one, _expected(ledger, thread))
    _account(ledger, counts, acquires, lost)
    bundle.save_ledger(ledger)
    return counts.rows


def _expected(ledger: Ledger, thread: int) -> int | None:
    """Records the recorder stored of a thread, if it said so."""
    name = f"dependence/{thread}"
    return ledger[name].stored if name in ledger else None


def _unreadable(one: Counts, expected: int | None) -> int:
    """Records that were stored and did not come out: counted by the recorder's account, at least one if cut."""
    missing = 0 if expected is None else max(0, expected - one.rows - one.corrupt - one.accesses)
    return max(missing, 1 if one.unread else 0)


def _account(ledger: Ledger, counts: Counts, acquires: int, lost: dict[str, int]) -> None:
    for name in ("thunks", "clocks", "accesses"):
        ledger.drop(name)
    ledger.add("thunks", "records", stored=counts.rows, lost=lost)
    ledger.add("clocks", "acquires", stored=max(0, acquires - counts.missing - counts.inexact), lost={
        "release not recorded": counts.missing, "release not kept": counts.inexact})
    if counts.accesses:
        ledger.add("accesses", "records", stored=counts.accesses)
