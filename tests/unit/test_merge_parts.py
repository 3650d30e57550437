# SPDX-License-Identifier: MIT
"""A thread that is walked in parts at a time: the tables are those of one walker, whatever happens."""

from __future__ import annotations

import random
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptweave.data.errors import BadInput
from ptweave.merge import merge_run
from ptweave.merge.walk import Stretch, Unfit, Walker
from support.bundle_writer import BASE, BundleWriter
from support.merged import merged, walkers
from support.random_calls import Program, Reference, execute

BATCH = 7


@pytest.fixture(autouse=True)
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """However little there is to do."""
    monkeypatch.setattr("ptweave.merge.stage._PART_ROWS", 2 * BATCH)
    monkeypatch.setattr("ptweave.merge.tables.BATCH_ROWS", BATCH)


def write_run(path: Path, seed: int, *, rounds: int = 12, cut: int = 3) -> BundleWriter:
    """A thread that runs functions again and again, with thunks, system calls, gaps and odd times, and returns past its
    callers now and then; a second one that does little."""
    writer, draw = BundleWriter(path, cut=cut), random.Random(seed)
    program = Program(writer)
    main, call, behind = writer.block("main", "cond_jump"), writer.block("main", "call"), writer.block("main", "jump")
    marker = writer.block("ptweave_mark_thunk", "return", at=0)
    to_marker, back = writer.block("main", "call"), writer.block("main", "syscall")
    after = writer.block("main", "jump")
    blocks, syscalls, thunks = [main], [], []
    for number in range(rounds):
        body, function = Reference(), draw.randrange(5)
        execute(program, body, random.Random(draw.randrange(5)), function, ((f"fn{function}", call),), 5)
        if draw.random() < 0.2:  # it returns past its callers
            body.blocks[draw.randrange(len(body.blocks)):] = [program.leave[draw.randrange(5)][-1]]
        blocks += [call, *body.blocks, behind]
        if draw.random() < 0.6:
            blocks += [to_marker, marker, back, after]
            thunks.append(1000 * number)
            syscalls.append(len(blocks) - 2)
    gaps = sorted(draw.sample(range(1, len(blocks)), draw.randrange(3)))
    writer.run(0, blocks, cuts=gaps)
    for gap in gaps:
        writer.gap(0, gap)
    for index, t in enumerate(thunks):
        writer.syscall(0, index, enter=t + 20, leave=t + 50, ip=writer.blocks[back].last_ip)
        writer.thunk(0, t=t, marker=BASE + writer.blocks[marker].offset, stack=[writer.blocks[to_marker].end])
    seqs = sorted(draw.randrange(len(blocks)) for _ in range(6))
    for seq, t in zip(seqs, sorted(draw.randrange(1000 * rounds) for _ in seqs), strict=True):
        writer.moment(0, seq, t)
    writer.run(1, [main, behind])
    writer.task(0, begin=0)
    writer.task(1, tid=101, begin=1)
    return writer


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 32), cut=st.integers(1, 9), kept=st.sampled_from([0, 1 << 26]),
       most=st.sampled_from([6, 40, 200, 1 << 21]), depth=st.sampled_from([3, 512]))
def test_tables_are_the_same_in_however_many_parts_a_thread_is_walked(seed: int, cut: int, kept: int, most: int,
                                                                      depth: int) -> None:
    """Also where the flow is read again instead of kept, and where stacks are folded."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("ptweave.merge.walk.MAX_STACKS", most)
        patch.setattr("ptweave.merge.walk.MAX_DEPTH", depth)
        patch.setattr("ptweave.merge.kept_flow.KEPT_BYTES", kept)
        bundle = write_run(Path(folder) / "run.ptw", seed, cut=cut).write()
        one, *others = (merged(bundle, Path(folder) / f"{jobs}.ptw", jobs) for jobs in (1, 2, 3, 8))
        assert len(one) > 8
        for other in others:
            assert other == one
    assert not walkers()


def test_parts_are_joined_and_given_up_in_the_runs_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a table that a part is missing from is another one."""
    seen: list[str] = []
    join, go = Walker.join, Walker.go

    def noted(self: Walker, part: Walker, *, last: bool = False) -> bool:
        done = join(self, part, last=last)
        seen.append("joined" if done else "dropped")
        return done

    def gone(self: Walker, stretch: Stretch, *arguments: Any, **options: Any) -> None:
        try:
            go(self, stretch, *arguments, **options)
        except Unfit:
            seen.append("given up")
            raise

    monkeypatch.setattr(Walker, "join", noted)
    monkeypatch.setattr(Walker, "go", gone)
    for seed in range(30):
        bundle = write_run(tmp_path / f"{seed}.ptw", seed).write()
        merged(bundle, tmp_path / f"{seed}.1.ptw", 1)
        assert seed or not seen, "one job walks nothing in parts"
        merged(bundle, tmp_path / f"{seed}.3.ptw", 3)
    assert seen.count("joined") > 20
    assert {"dropped", "given up"} & set(seen)
    monkeypatch.setattr(Walker, "join", lambda self, part, last: True)
    assert merged(bundle, tmp_path / "without.ptw", 3) != merged(bundle, tmp_path / "with.ptw", 1)


@pytest.mark.parametrize("jobs", [1, 2, 5])
@pytest.mark.parametrize("place", [0.2, 0.5, 0.95])
def test_a_flow_that_goes_back_is_told_whichever_part_it_is_in(tmp_path: Path, jobs: int, place: float) -> None:
    writer = write_run(tmp_path / "run.ptw", 2, rounds=40)
    rows = sorted(row for row in writer.flow if row[0] == 0)
    thread, seq, path = rows[int(place * len(rows))]
    writer.flow.remove((thread, seq, path))
    writer.flow.append((thread, seq - 1, path))  # in the middle of the one before
    bundle = writer.write()
    with pytest.raises(BadInput, match="goes back"):
        merge_run(bundle, jobs=jobs)
    assert not walkers()


@pytest.mark.parametrize("part", [0.55, 0.75, 0.95])
def test_an_interruption_ends_parts_that_are_under_way(tmp_path: Path, part: float) -> None:
    bundle = write_run(tmp_path / "run.ptw", 3, rounds=200).write()

    def tell(done: int, total: int) -> None:
        assert 0 <= done <= total
        if done > total * part and threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        merge_run(bundle, jobs=4, progress=tell)
    assert not walkers()
    merge_run(bundle, jobs=4)


def test_progress_ends_with_all_rows_gone_over_twice(tmp_path: Path) -> None:
    def told(jobs: int) -> list[tuple[int, int]]:
        rows: list[tuple[int, int]] = []
        merge_run(bundle, jobs=jobs, progress=lambda done, total: rows.append((done, total)))
        assert [done for done, _ in rows] == sorted(done for done, _ in rows)
        return rows[-1:]

    writer = write_run(tmp_path / "run.ptw", 4, rounds=50)
    bundle = writer.write()
    assert told(1) == told(4) == [(2 * len(writer.flow),) * 2]
