# SPDX-License-Identifier: MIT
"""A thread's flow, gone over twice: the second time is the first, whether it was kept or is read again."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import accumulate, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptweave.merge.kept_flow import Batch, Following, KeptFlow
from ptweave.merge.program import Program
from ptweave.merge.tables import I32, I64
from support.bundle_writer import BundleWriter

LENGTHS = (1, 2, 3, 4)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """Four paths, of 1, 2, 3 and 4 blocks."""
    writer = BundleWriter(tmp_path_factory.mktemp("flow") / "run.ptw", cut=64)
    writer.task(0, begin=0)
    writer.run(0, [writer.block("main", "jump") for _ in range(sum(LENGTHS))], cuts=np.cumsum(LENGTHS)[:-1].tolist())
    with Program(writer.write()) as made:
        made.compile()
        assert [made.after(0, path) for path in range(len(LENGTHS))] == list(LENGTHS)
        yield made


class Source:
    """Gives batches in memory that is written over for the next one, as the reader of a table does."""

    def __init__(self, batches: list[Batch]) -> None:
        self.batches = batches
        self.times = 0

    def read(self, skip: int) -> Generator[Batch, None, None]:
        """Without the first rows."""
        self.times += 1
        for seqs, paths in self.batches:
            if skip >= len(seqs) and skip:
                skip -= len(seqs)
                continue
            given = seqs[skip:].copy(), paths[skip:].copy()
            skip = 0
            yield given
            for column in given:
                column.fill(-77)


def flow_of(rows: list[tuple[int, int]], cuts: list[int]) -> list[Batch]:
    """Batches of rows (blocks missing before the path, path)."""
    seqs, paths, at = [], [], 0
    for hole, path in rows:
        seqs.append(at + hole)
        paths.append(path)
        at = seqs[-1] + (LENGTHS[path] if 0 <= path < len(LENGTHS) else 1)
    edges = [0, *sorted(cut % (len(rows) + 1) for cut in cuts), len(rows)]
    return [(np.array(seqs[begin:end], np.int64), np.array(paths[begin:end], np.int32))
            for begin, end in pairwise(edges)]


def as_lists(batches: Iterator[Batch]) -> list[tuple[list[int], list[int]]]:
    return [(seqs.tolist(), paths.tolist()) for seqs, paths in batches]


def ordinals(seqs: I64 | Following, paths: I32) -> list[int]:
    """Of each path, where they follow each other, too."""
    if not isinstance(seqs, Following):
        return seqs.tolist()
    ends = list(accumulate((LENGTHS[path] for path in paths.tolist()), initial=seqs.first))
    assert ends.pop() == seqs.end
    return ends


def second(flow: KeptFlow) -> list[tuple[list[int], list[int]]]:
    return [(ordinals(seqs, paths), paths.tolist()) for seqs, paths in flow.again()]


HOLES = st.sampled_from([0] * 12 + [1, -3, 1 << 40])
PATHS = st.sampled_from([0, 1, 2, 3] * 4 + [-1, 4, 0xffff, 0x10000])


@given(rows=st.lists(st.tuples(HOLES, PATHS), max_size=40), cuts=st.lists(st.integers(0, 40), max_size=6),
       limit=st.sampled_from([0, 1, 30, 200, 4000]))
def test_the_second_going_over_is_the_first_with_holes_and_paths_that_do_not_exist(
        program: Program, rows: list[tuple[int, int]], cuts: list[int], limit: int) -> None:
    batches = flow_of(rows, cuts)
    flow = KeptFlow(Source(batches).read, program, limit)
    first = as_lists(flow.first())
    assert first == as_lists(iter(batches))
    assert second(flow) == first


@pytest.mark.parametrize(("hole", "limit", "read"), [(0, 32, 1), (0, 31, 2), (5, 80, 1), (5, 79, 2)],
                         ids=["fits", "does not fit", "with a hole, fits", "with a hole, does not fit"])
def test_only_what_does_not_fit_is_read_again(program: Program, hole: int, limit: int, read: int) -> None:
    source = Source(flow_of([(0, 1)] * 4 + [(hole, 2)] * 4, []))
    flow = KeptFlow(source.read, program, limit)
    first = as_lists(flow.first())
    assert second(flow) == first
    assert source.times == read


@given(rows=st.lists(st.tuples(st.sampled_from([0] * 6 + [3]), st.integers(0, 3)), min_size=1, max_size=40),
       cuts=st.lists(st.integers(1, 39), max_size=9), limit=st.sampled_from([0, 30, 4000]), count=st.integers(1, 6))
def test_parts_are_the_flow_one_after_the_other(program: Program, rows: list[tuple[int, int]], cuts: list[int],
                                                limit: int, count: int) -> None:
    """Each says what came before it."""
    batches = [batch for batch in flow_of(rows, cuts) if len(batch[0])]
    flow = KeptFlow(Source(batches).read, program, limit)
    whole = as_lists(flow.first())
    places = [None, *flow.cuts(count), None]
    assert len(places) - 1 <= count
    parts = [[(ordinals(seqs, paths), paths.tolist()) for seqs, paths in flow.again(begin, end)]
             for begin, end in pairwise(places)]
    assert [batch for part in parts for batch in part] == whole
    for part, cut in zip(parts, places[1:-1], strict=False):
        assert cut is not None
        seqs, paths = part[-1]
        assert (cut.last, cut.before, flow.seq(cut)) == (seqs[-1], paths[-1], seqs[-1] + LENGTHS[paths[-1]])
    assert all(parts)
    assert flow.end.rows == len(rows)


def test_parts_are_about_of_one_size(program: Program) -> None:
    flow = KeptFlow(Source(flow_of([(0, 1)] * 60, list(range(1, 60)))).read, program, divided=True)
    list(flow.first())
    assert [cut.rows for cut in flow.cuts(4)] == [15, 30, 45]
    assert flow.cuts(1) == []


def test_a_part_with_more_paths_of_its_own_has_fewer_rows(program: Program) -> None:
    """Paths that come first take their time: 64 rows each."""
    rows = [(0, path) for path in (0, 1, 2, 3)] * 20 + [(0, 3)] * 300
    flow = KeptFlow(Source(flow_of(rows, list(range(20, len(rows), 20)))).read, program, divided=True)
    list(flow.first())
    (cut,) = flow.cuts(2)
    first, second = cut.rows + 64 * 4, len(rows) - cut.rows + 64 * 1
    assert abs(first - second) <= 40
    plain = KeptFlow(Source(flow_of(rows, list(range(20, len(rows), 20)))).read, program)
    list(plain.first())
    assert cut.rows < plain.cuts(2)[0].rows


def test_a_path_that_begins_one_block_late_is_told_from_one_that_follows(program: Program) -> None:
    paths = np.array([0, 1, 2, 3], np.int32)
    assert program.follow(np.array([5, 6, 8, 11], np.int64), paths)
    assert not program.follow(np.array([5, 6, 8, 12], np.int64), paths)
