# SPDX-License-Identifier: MIT
"""Flows that are gone over for the first time before it is their turn: beside what else is loaded, and beside the walks
of those before them."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Generator, Iterator
from pathlib import Path

import numpy as np
import pytest

from ptweave.data.errors import BadInput
from ptweave.merge import merge_run
from ptweave.merge.accesses import Accesses
from ptweave.merge.flow_rows import FlowRows, FlowStretch
from ptweave.merge.kept_flow import KeptFlow
from ptweave.merge.program import Survey
from ptweave.merge.stage import _Merge
from ptweave.merge.tables import ThreadRows
from ptweave.merge.thunks import Thunks
from support.bundle_writer import BundleWriter
from support.merged import merged

THREADS = 5
TIMEOUT = 60.0


def write_run(path: Path) -> BundleWriter:
    """Threads with system calls, of which the first has most."""
    writer = BundleWriter(path, cut=5)
    for thread in range(THREADS):
        writer.task(thread, begin=0)
        jump, call = writer.block(f"f{thread}", "jump"), writer.block(f"f{thread}", "syscall")
        writer.run(thread, [jump, call, jump] * (90 if thread == 0 else 7 + thread))
        for index in range(4):
            writer.syscall(thread, index, enter=100 + 10 * index, leave=105 + 10 * index)
    return writer


@pytest.fixture
def gone_over(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the threads (of this process) that went over a flow for the first time."""
    names: list[str] = []
    first = KeptFlow.first

    def told(self: KeptFlow) -> Iterator[Survey]:
        names.append(threading.current_thread().name)
        return first(self)

    monkeypatch.setattr(KeptFlow, "first", told)
    return names


def left() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(("merge", "walk"))]


def test_tables_are_the_same_whether_flows_are_gone_over_ahead(tmp_path: Path, gone_over: list[str]) -> None:
    bundle = write_run(tmp_path / "run.ptw").write()
    alone = merged(bundle, tmp_path / "1.ptw", 1)
    assert len(gone_over) == THREADS and not any(name.startswith("merge") for name in gone_over)
    gone_over.clear()
    assert merged(bundle, tmp_path / "2.ptw", 2) == alone
    assert len(gone_over) == THREADS and all(name.startswith("merge") for name in gone_over)
    assert not left()


def test_two_flows_wait_for_their_turn_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = threading.Semaphore(0)
    first, load = KeptFlow.first, _Merge._load_accesses

    def told(self: KeptFlow) -> Iterator[Survey]:
        begun.release()
        return first(self)

    def late(self: _Merge) -> Accesses | None:
        """Nothing was walked yet."""
        assert begun.acquire(timeout=TIMEOUT) and begun.acquire(timeout=TIMEOUT)
        assert not begun.acquire(timeout=0.2)
        return load(self)

    monkeypatch.setattr(KeptFlow, "first", told)
    monkeypatch.setattr(_Merge, "_load_accesses", late)
    merge_run(write_run(tmp_path / "run.ptw").write(), jobs=2)
    assert all(begun.acquire(blocking=False) for _ in range(THREADS - 2))


def test_what_cannot_be_read_of_a_later_flow_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, begun = KeptFlow.first, itertools.count()

    def broken(self: KeptFlow) -> Iterator[Survey]:
        if next(begun) == 3:
            raise BadInput("is torn", where="flow", remedy="none")
        return first(self)

    monkeypatch.setattr(KeptFlow, "first", broken)
    with pytest.raises(BadInput, match="torn"):
        merge_run(write_run(tmp_path / "run.ptw").write(), jobs=2)
    assert not left()


@pytest.mark.parametrize("few", [1, 1 << 40], ids=["read ahead", "read as it is asked for"])
def test_an_error_elsewhere_ends_the_going_over_that_is_under_way(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    under_way = threading.Event()

    def endless(self: FlowRows, thread: int, skip: int = 0) -> Generator[FlowStretch, None, None]:
        for row in itertools.count():
            if row > 50:
                under_way.set()
            seqs = np.array([row], np.int64)
            yield FlowStretch(np.zeros(1, np.int32), None, lambda seqs=seqs: seqs)  # type: ignore[misc]

    def torn(self: Thunks, *_: object) -> None:
        assert under_way.wait(TIMEOUT)
        raise BadInput("is torn", where="thunks", remedy="none")

    monkeypatch.setattr("ptweave.merge.stage._SOON", 1 << 40)
    monkeypatch.setattr("ptweave.merge.stage._FEW_ROWS", few)
    monkeypatch.setattr(ThreadRows, "sizes", lambda self: {0: 1 << 20})
    monkeypatch.setattr(_Merge, "_at_a_time", lambda self: 1)
    monkeypatch.setattr(FlowRows, "stretches", endless)
    monkeypatch.setattr("ptweave.merge.stage.Thunks", type("Torn", (), {"__init__": torn}))
    bundle = write_run(tmp_path / "run.ptw").write()
    (bundle.decoded / "thunks.parquet").touch()
    with pytest.raises(BadInput, match="torn"):
        merge_run(bundle, jobs=2)
    assert not left()
