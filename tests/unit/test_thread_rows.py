# SPDX-License-Identifier: MIT
"""Rows of one thread out of a table sorted by thread, wherever its row groups begin and end."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ptweave.merge.flow_rows as flow_rows
import ptweave.merge.tables as tables
from ptweave.data.bundle import Bundle
from ptweave.data.errors import BadInput
from ptweave.data.schemas import FLOW
from ptweave.merge.flow_rows import FlowRows, FlowStretch
from ptweave.merge.tables import ThreadRows, numbers
from support.bundle_writer import BundleWriter


def written(folder: Path, threads: list[int], group: int, statistics: bool = True) -> Bundle:
    """A bundle with a flow of these threads' rows, `seq` their number in the table and `path` that below 0,
    `group` rows a row group."""
    writer = BundleWriter(folder / "run.ptw")
    writer.task(0, begin=0)
    writer.run(0, [writer.block("main", "jump")])
    bundle = writer.write()
    for old in (bundle.tables / FLOW.name).iterdir():
        old.unlink()
    columns = {"thread": pa.array(threads, pa.int32()), "seq": pa.array(range(len(threads)), pa.int64()),
               "path": pa.array([-seq for seq in range(len(threads))], pa.int32())}
    pq.write_table(pa.table(columns), bundle.tables / FLOW.name / "0.parquet", row_group_size=group,
                   write_statistics=statistics)
    return bundle


def read(bundle: Bundle, skip: int = 0) -> dict[int, list[int]]:
    rows = ThreadRows(bundle, FLOW, ["seq", "path"])
    try:
        return {thread: [seq for batch in rows.batches(thread, skip) for seq in numbers(batch, "seq").tolist()]
                for thread in rows.threads()}
    finally:
        rows.close()


def stretches(bundle: Bundle, skip: int = 0) -> dict[int, list[FlowStretch]]:
    rows = FlowRows(bundle)
    try:
        found = {thread: list(rows.stretches(thread, skip)) for thread in rows.threads()}
        for some in found.values():
            for stretch in some:
                seqs = stretch.ordinals().tolist()
                assert stretch.paths.tolist() == [-seq for seq in seqs]
                assert stretch.span in (None, (seqs[0], seqs[-1]))
        return {thread: [replace(stretch, ordinals=partial(stretch.ordinals().copy)) for stretch in some]
                for thread, some in found.items()}
    finally:
        rows.close()


def ordinals(some: dict[int, list[FlowStretch]]) -> dict[int, list[int]]:
    return {thread: [seq for stretch in stretches for seq in stretch.ordinals().tolist()]
            for thread, stretches in some.items()}


@settings(deadline=None)  # the first one may import much
@given(threads=st.lists(st.integers(-3, 6), max_size=60).map(sorted), group=st.integers(1, 70),
       statistics=st.booleans(), cached=st.sampled_from([0, 1 << 20]), skip=st.integers(0, 30))
def test_stretches_of_flow_are_the_same_rows(tmp_path_factory: pytest.TempPathFactory, threads: list[int], group: int,
                                             statistics: bool, cached: int, skip: int) -> None:
    """Those of row groups that are a thread's own say what they span."""
    bundle = written(tmp_path_factory.mktemp("rows"), threads, group, statistics)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flow_rows, "CACHED_ROWS", cached)
        found, rest = stretches(bundle), stretches(bundle, skip)
    assert ordinals(found) == read(bundle)
    assert ordinals(rest) == read(bundle, skip)
    own = [set(threads[begin:begin + group]) for begin in range(0, len(threads), group)]
    spans = [stretch.span for some in found.values() for stretch in some if stretch.span]
    assert len(spans) == (sum(len(of) == 1 for of in own) if statistics and cached else 0)


@given(threads=st.lists(st.integers(-3, 6), max_size=60).map(sorted), group=st.integers(1, 70),
       statistics=st.booleans(), batch=st.integers(1, 9), skip=st.integers(0, 30))
def test_each_thread_has_its_rows_in_order_and_no_others(tmp_path_factory: pytest.TempPathFactory, threads: list[int],
                                                         group: int, statistics: bool, batch: int, skip: int) -> None:
    """Also without its first ones."""
    bundle = written(tmp_path_factory.mktemp("rows"), threads, group, statistics)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "BATCH_ROWS", batch)
        found, rest = read(bundle), read(bundle, skip)
    assert found == {thread: [seq for seq, of in enumerate(threads) if of == thread] for thread in set(threads)}
    assert rest == {thread: seqs[skip:] for thread, seqs in found.items()}


@pytest.mark.parametrize("threads", [[0, 1, 0, 1], [1, 0], [0, 0, 1, 1, 1, 0], [0, 2, 2, 1]])
@pytest.mark.parametrize("batch", [1, 3, 100])
def test_a_row_group_that_is_not_sorted_by_thread_is_refused(tmp_path: Path, threads: list[int], batch: int,
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "BATCH_ROWS", batch)
    with pytest.raises(BadInput, match="not sorted by thread"):
        read(written(tmp_path, threads, 100))
    (tmp_path / "sorted").mkdir()
    assert read(written(tmp_path / "sorted", sorted(threads), 100))


class Watched:
    """A file that notes when it is read at two places at once (Arrow ends by SIGSEGV then, or never)."""

    def __init__(self, file: pq.ParquetFile) -> None:
        self._file = file
        self._reading = threading.Lock()
        self.at_once = False

    def iter_batches(self, *arguments: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        batches = self._file.iter_batches(*arguments, **options)
        while True:
            alone = self._reading.acquire(blocking=False)
            self.at_once |= not alone
            time.sleep(0.001)
            batch = next(batches, None) if alone else None
            if alone:
                self._reading.release()
            if batch is None:
                return
            yield batch

    def read_row_group(self, *arguments: Any, **options: Any) -> pa.Table:
        alone = self._reading.acquire(blocking=False)
        self.at_once |= not alone
        time.sleep(0.001)
        if not alone:
            return pa.table({name: [0] * 10 for name in options["columns"]})
        table = self._file.read_row_group(*arguments, **options)
        self._reading.release()
        return table

    @property
    def metadata(self) -> pq.FileMetaData:
        return self._file.metadata

    def close(self) -> None:
        self._file.close()


@pytest.mark.parametrize("locked", [True, False], ids=["as it is", "control: without the lock"])
def test_no_file_is_read_at_two_places_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locked: bool) -> None:
    monkeypatch.setattr(tables, "BATCH_ROWS", 5)
    monkeypatch.setattr(tables, "CACHED_ROWS", 0)
    rows = ThreadRows(written(tmp_path, [0, 1] + [5] * 200 + [6] * 200, 500), FLOW, ["seq", "path"])
    watched = Watched(rows._files[0])
    rows._files[0] = watched
    if not locked:
        monkeypatch.setattr(rows, "_lock", nullcontext())
    others = [threading.Thread(target=lambda thread=thread: list(rows.batches(thread))) for thread in (5, 6)]
    for other in others:
        other.start()
    rows.threads()
    for other in others:
        other.join()
    rows.close()
    assert watched.at_once != locked


@pytest.mark.parametrize("locked", [True, False], ids=["as it is", "control: without the lock"])
def test_no_stretch_is_read_while_another_thread_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                       locked: bool) -> None:
    """Nor its ordinals."""
    rows = FlowRows(written(tmp_path, [5] * 500 + [6] * 500, 10))
    watched = Watched(rows._files[0])
    rows._files[0] = watched
    if not locked:
        monkeypatch.setattr(rows, "_lock", nullcontext())

    def go_over(thread: int) -> None:
        for stretch in rows.stretches(thread):
            stretch.ordinals()

    others = [threading.Thread(target=go_over, args=[thread]) for thread in (5, 6)]
    for other in others:
        other.start()
    for other in others:
        other.join()
    rows.close()
    assert watched.at_once != locked
