# SPDX-License-Identifier: MIT
"""Event lists to thunks: `dependence/*.evl` → `decoded/thunks.parquet` (`ptweave.data.schemas.DECODED_THUNKS`).

The C decoder (decode/src/evl.h) reads all threads together and computes vector clocks; it hands out batches of one
thread's rows. They are kept in a temporary Arrow file and written in thread order at the end, so memory stays bounded
however long the lists are.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ptweave.data import BadInput, Bundle, Ledger, Manifest
from ptweave.data.evl import Operation
from ptweave.data.schemas import DECODED_THUNKS, ROW_GROUP
from ptweave.decode._evl import ffi, lib

THREADS_MAX = 1_000_000
"""Greatest thread number believed: clocks have a component for each."""
SLACK_SECONDS = 0.001
"""How far all other threads must be beyond a wait before its release counts as missing."""
SLACK_TICKS = 3_000_000
"""The same where the TSC's rate is not known."""
GROUP_BYTES = 64 << 20
"""Rows held back for one row group."""
ACQUIRE, RELEASE = 1, 2
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
        """All thunks, as batches of one thread each, a thread's in order. Raises OSError."""
        batch = ffi.new("struct evl_batch *")
        while _check(lib.evl_decoder_next(self._decoder, batch), None):
            yield _record_batch(batch)

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


def _record_batch(batch: Any) -> pa.RecordBatch:
    rows = int(batch.rows)
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
        "stack": _lists(batch.stack_offsets, batch.stack, rows, "<u8"),
        "tsc": pa.array(_column(batch.tsc, rows, "<u8")),
        "marker": pa.array(_column(batch.marker, rows, "<u8")),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in DECODED_THUNKS.names], schema=DECODED_THUNKS)


def _in_thread_order(spool: Path, where: dict[int, list[int]]) -> Iterator[pa.RecordBatch]:
    with pa.OSFile(str(spool), "rb") as source:
        reader = pa.ipc.open_file(source)
        for thread in sorted(where):
            for index in where[thread]:
                yield reader.get_batch(index)


def _write(batches: Iterator[pa.RecordBatch], path: Path) -> None:
    partial = path.with_name(f".{path.name}.partial")
    pending: list[pa.RecordBatch] = []
    size = 0
    with pq.ParquetWriter(str(partial), DECODED_THUNKS, compression="zstd", compression_level=1,
                          use_dictionary=["thread", "operation"]) as writer:
        for batch in batches:
            pending.append(batch)
            size += batch.nbytes
            if size >= GROUP_BYTES:
                writer.write_table(pa.Table.from_batches(pending, DECODED_THUNKS), row_group_size=ROW_GROUP)
                pending, size = [], 0
        if pending:
            writer.write_table(pa.Table.from_batches(pending, DECODED_THUNKS), row_group_size=ROW_GROUP)
    partial.replace(path)


def lists_of(bundle: Bundle) -> tuple[dict[int, Path], list[Path]]:
    """The run's event lists by thread, ascending, and entries of the folder that are none."""
    lists, strange = {}, []
    for path in bundle.dependence.iterdir():
        match = _NAME.fullmatch(path.name)
        if match and int(match[1]) < THREADS_MAX:
            lists[int(match[1])] = path
        else:
            strange.append(path)
    return dict(sorted(lists.items())), strange


def decode_thunks(bundle: Bundle) -> int:
    """Write `decoded/thunks.parquet` and account for it in the ledger (`thunks`, `clocks`); returns its rows.

    A list that is cut short, corrupt or unreadable costs what cannot be read of it, never the others.
    Raises BadInput when the folder of lists cannot be read.
    """
    bundle.decoded.mkdir(mode=0o700, exist_ok=True)
    spool = bundle.decoded / ".thunks.spool"
    where: dict[int, list[int]] = defaultdict(list)
    ledger = bundle.ledger()
    lost: dict[str, int] = defaultdict(int)
    acquires = written = 0
    try:
        lists, strange = lists_of(bundle)
        lost["not a list"] = len(strange)
        with ThunkDecoder(bundle.manifest) as decoder, pa.OSFile(str(spool), "wb") as sink, pa.ipc.new_file(
                sink, DECODED_THUNKS) as out:
            for thread, path in lists.items():
                try:
                    decoder.add(path, thread)
                except OSError:
                    lost["unreadable"] += max(1, _expected(ledger, thread) or 0)
            for batch in decoder.batches():
                out.write_batch(batch)
                where[batch["thread"][0].as_py()].append(written)
                acquires += batch["acquire"].true_count
                written += 1
            counts, threads = decoder.counts(), decoder.thread_counts()
        _write(_in_thread_order(spool, where), bundle.decoded / "thunks.parquet")
    except OSError as error:
        raise BadInput(f"event lists cannot be decoded ({error.strerror or error})",
                       where=str(error.filename or bundle.dependence),
                       remedy="check permissions and room in the bundle") from error
    finally:
        spool.unlink(missing_ok=True)
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
    for name in ("thunks", "clocks"):
        ledger.drop(name)
    ledger.add("thunks", "records", stored=counts.rows, lost=lost)
    ledger.add("clocks", "acquires", stored=max(0, acquires - counts.missing - counts.inexact), lost={
        "release not recorded": counts.missing, "release not kept": counts.inexact})
