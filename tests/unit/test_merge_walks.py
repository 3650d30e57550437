# SPDX-License-Identifier: MIT
"""Threads that are walked at a time: the tables are those of one walker, whatever happens."""

from __future__ import annotations

import itertools
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptweave.data.errors import BadInput
from ptweave.merge import merge_run
from ptweave.merge.walk import Counted, Walker
from support.bundle_writer import BundleWriter
from support.merged import merged, walkers
from support.random_calls import Program, Reference, execute

THREADS = 7
TIMEOUT = 60.0


@pytest.fixture(autouse=True)
def several_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """However little they have to do."""
    monkeypatch.setattr("ptweave.merge.stage._FEW_ROWS", 0)


def write_run(path: Path, seed: int, rounds: int = 3) -> BundleWriter:
    """Threads that run functions of one program, some of them the very same ones, at odd times."""
    writer, draw = BundleWriter(path, cut=1 + seed % 9), random.Random(seed)
    program = Program(writer)
    for thread in range(THREADS):
        reference, same = Reference(), draw.randrange(4)
        for _ in range(rounds):
            execute(program, reference, random.Random(same), draw.randrange(2), (("fn0", None),), draw.randrange(6))
        writer.run(thread, reference.blocks)
        seqs = sorted(draw.randrange(len(reference.blocks) + 1) for _ in range(5))
        for seq, t in zip(seqs, sorted(draw.randrange(1 << 30) for _ in seqs), strict=True):
            writer.moment(thread, seq, t)
    return writer


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1 << 32), most=st.sampled_from([6, 9, 25, 80, 200, 1 << 21]),
       large=st.sampled_from([1, 20, 1 << 19]), held=st.sampled_from([0, 1 << 26]))
def test_tables_are_the_same_however_many_threads_are_walked_at_a_time(
        seed: int, most: int, large: int, held: int) -> None:
    """Also where stacks are folded from some thread on, where helpers give way, and where results may not wait."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("ptweave.merge.walk.MAX_STACKS", most)
        patch.setattr("ptweave.merge.walks.LARGE_TREE", large)
        patch.setattr("ptweave.merge.walks.HELD_BYTES", held)
        bundle = write_run(Path(folder) / "run.ptw", seed).write()
        one, *others = (merged(bundle, Path(folder) / f"{jobs}.ptw", jobs) for jobs in (1, 2, 3, 9))
        assert len(one) > 8
        for other in others:
            assert other == one
    assert not walkers()


def test_the_check_fails_when_stacks_keep_their_helpers_numbers(tmp_path: Path,
                                                                monkeypatch: pytest.MonkeyPatch) -> None:
    def unchanged(self: Counted, numbers: npt.NDArray[np.uint32]) -> Counted:
        return self

    first_two, keys, asked = threading.Barrier(2), Walker.keys, itertools.count()

    def both_there(self: Walker, since: int) -> npt.NDArray[np.uint32]:
        """One helper may be fast enough to walk all of them: its numbers would be right. So two have to walk."""
        if next(asked) < 2:
            first_two.wait(TIMEOUT)
        return keys(self, since)

    bundle = write_run(tmp_path / "run.ptw", 1).write()
    one = merged(bundle, tmp_path / "1.ptw", 1)
    monkeypatch.setattr(Walker, "keys", both_there)
    assert merged(bundle, tmp_path / "2.ptw", 2) == one
    monkeypatch.setattr(Counted, "numbered", unchanged)

    def wrong(attempt: int) -> bool:
        """Which helper meets which thread first is chance: now and then their numbers are right."""
        nonlocal asked
        asked = itertools.count()
        return merged(bundle, tmp_path / f"3-{attempt}.ptw", 3) != one

    assert any(wrong(attempt) for attempt in range(6))


def test_helpers_are_asked_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(Counted, "numbered", lambda self, _: seen.append("helped") or self)
    bundle = write_run(tmp_path / "run.ptw", 1).write()
    merged(bundle, tmp_path / "1.ptw", 1)
    assert not seen
    merged(bundle, tmp_path / "2.ptw", 2)
    assert len(seen) == THREADS


@pytest.mark.parametrize("jobs", [1, 2, 5])
@pytest.mark.parametrize("bad", [0, 3, THREADS - 1])
def test_a_flow_that_goes_back_is_told_whoever_walks_it(tmp_path: Path, jobs: int, bad: int) -> None:
    writer = write_run(tmp_path / "run.ptw", 2)
    rows = [row for row in writer.flow if row[0] == bad]
    writer.flow.remove(rows[-1])
    writer.flow.append((bad, rows[0][1] + 1, rows[-1][2]))
    bundle = writer.write()
    with pytest.raises(BadInput, match="goes back"):
        merge_run(bundle, jobs=jobs)
    assert not walkers()


@pytest.mark.parametrize("jobs", [1, 3])
def test_an_interruption_ends_walks_that_are_under_way(tmp_path: Path, jobs: int) -> None:
    bundle = write_run(tmp_path / "run.ptw", 3).write()

    def tell(done: int, total: int) -> None:
        assert 0 <= done <= total
        if done > total // 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        merge_run(bundle, jobs=jobs, progress=tell)
    assert not walkers()
    assert not (bundle.decoded / "calls.parquet").exists()
    merge_run(bundle, jobs=jobs)


def test_what_waits_for_a_walker_is_not_begun_when_all_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Walks are told to stop before the pool forgets what waits: who is quick must not begin another one."""
    made: list[Walker] = []

    class Made(Walker):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            made.append(self)

        def stop(self) -> None:
            super().stop()
            time.sleep(0.2)  # it ends, and its thread asks for more, before the pool is told

    def fail(self: Walker, keys: object, numbers: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ptweave.merge.stage.Walker", Made)
    monkeypatch.setattr(Walker, "adopt", fail)
    with pytest.raises(KeyboardInterrupt):
        merge_run(write_run(tmp_path / "run.ptw", 6, rounds=300).write(), jobs=2)
    assert len(made) <= 3 and not walkers(), "one, and two that help"


def test_progress_is_told_row_by_row_whoever_walks(tmp_path: Path) -> None:
    def told(jobs: int) -> Iterator[tuple[int, int]]:
        rows: list[tuple[int, int]] = []
        merge_run(bundle, jobs=jobs, progress=lambda done, total: rows.append((done, total)))
        assert [done for done, _ in rows] == sorted(done for done, _ in rows)
        return iter(rows[-1:])

    bundle = write_run(tmp_path / "run.ptw", 4).write()
    assert list(told(1)) == list(told(4)) == [(2 * len(write_run(tmp_path / "x.ptw", 4).flow),) * 2]
