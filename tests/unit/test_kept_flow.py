# SPDX-License-Identifier: MIT
"""A thread's flow, gone over twice: the second time is the first, whether it was kept or is read again."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from functools import partial
from itertools import accumulate, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptweave.data.errors import BadInput
from ptweave.merge import kept_flow
from ptweave.merge.flow_rows import FlowStretch
from ptweave.merge.kept_flow import Cut, Following, KeptFlow
from ptweave.merge.program import Program
from ptweave.merge.tables import I32, I64
from support.bundle_writer import BundleWriter

LENGTHS = (1, 2, 3, 4)
CALLING = (1, 3)
"""Paths that end with a system call."""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """Four paths, of 1, 2, 3 and 4 blocks."""
    writer = BundleWriter(tmp_path_factory.mktemp("flow") / "run.ptw", cut=64)
    writer.task(0, begin=0)
    ends = np.cumsum(LENGTHS).tolist()
    calls = [ends[path] - 1 for path in CALLING]
    blocks = [writer.block("main", "syscall" if at in calls else "jump") for at in range(ends[-1])]
    writer.run(0, blocks, cuts=ends[:-1])
    with Program(writer.write()) as made:
        made.compile()
        assert [made.after(0, path) for path in range(len(LENGTHS))] == list(LENGTHS)
        yield made


Batch = tuple[list[int], list[int]]
"""Executed paths: ordinals and numbers."""


class Source:
    """Gives stretches of so many rows, with what they span or without."""

    def __init__(self, rows: Batch, cuts: list[int], *, spans: bool = True) -> None:
        self.rows = rows
        self.cuts = cuts
        self.spans = spans
        self.times = 0
        self.asked = 0

    def read(self, skip: int) -> Generator[FlowStretch, None, None]:
        """Without the first rows."""
        self.times += 1
        seqs, paths = self.rows
        edges = [0, *sorted(cut % (len(seqs) + 1) for cut in self.cuts), len(seqs)]
        for begin, end in pairwise(edges):
            first = max(begin, skip)
            if first < end:
                span = (min(seqs[begin:end]), max(seqs[begin:end])) if self.spans and first == begin else None
                yield FlowStretch(np.array(paths[first:end], np.int32), span, partial(self.ordinals, first, end))

    def ordinals(self, begin: int, end: int) -> I64:
        self.asked += 1
        return np.array(self.rows[0][begin:end], np.int64)


def flow_of(rows: list[tuple[int, int]]) -> Batch:
    """Rows (blocks missing before the path, path)."""
    seqs, paths, at = [], [], 0
    for hole, path in rows:
        seqs.append(at + hole)
        paths.append(path)
        at = seqs[-1] + LENGTHS[path]
    return seqs, paths


def ordinals(seqs: I64 | Following, paths: I32) -> list[int]:
    """Of each path, where they follow each other, too."""
    if not isinstance(seqs, Following):
        return seqs.tolist()
    ends = list(accumulate((LENGTHS[path] for path in paths.tolist()), initial=seqs.first))
    assert ends.pop() == seqs.end
    return ends


def second(flow: KeptFlow, begin: Cut | None = None, end: Cut | None = None) -> list[Batch]:
    return [(ordinals(seqs, paths), paths.tolist()) for seqs, paths in flow.again(begin, end)]


def joined(batches: list[Batch]) -> Batch:
    return [seq for seqs, _ in batches for seq in seqs], [path for _, paths in batches for path in paths]


def system_calls(rows: Batch) -> list[tuple[int, int]]:
    """Ordinals and paths of the system calls, which are the last blocks of their paths."""
    return [(seq + LENGTHS[path] - 1, path) for seq, path in zip(*rows, strict=True) if path in CALLING]


HOLES = st.sampled_from([0] * 12 + [1, 1 << 40])
LIES = st.sampled_from([0] * 12 + [1, -3, 1 << 40])


@given(rows=st.lists(st.tuples(HOLES, st.integers(0, 3)), max_size=40), cuts=st.lists(st.integers(0, 40), max_size=6),
       limit=st.sampled_from([0, 1, 30, 200, 4000]), size=st.integers(1, 50), spans=st.booleans())
def test_both_goings_over_are_what_is_read_with_holes_and_without(
        program: Program, rows: list[tuple[int, int]], cuts: list[int], limit: int, size: int, spans: bool) -> None:
    """Batches' first and last ordinals, and system calls, are those of what is read, too."""
    whole = flow_of(rows)
    source = Source(whole, cuts, spans=spans)
    flow = KeptFlow(source.read, program, limit)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept_flow, "BATCH_ROWS", size)
        found = list(flow.first())
        assert all(survey.rows <= size for survey in found)
        assert [seq for survey in found for seq in survey.seqs] == [seq for seq, _ in system_calls(whole)]
        batches = second(flow)
    assert joined(batches) == whole
    assert [(survey.rows, survey.first, survey.last) for survey in found] == [
        (len(seqs), seqs[0], seqs[-1]) for seqs, _ in batches]
    assert not (spans and source.asked and not any(hole for hole, _ in rows[1:])), "nothing was missing"


@given(rows=st.lists(st.tuples(LIES, st.integers(0, 3)), min_size=1, max_size=40),
       cuts=st.lists(st.integers(0, 40), max_size=6), limit=st.sampled_from([0, 200, 4000]))
def test_ordinals_that_lie_are_read_as_they_are_or_taken_at_their_sum(
        program: Program, rows: list[tuple[int, int]], cuts: list[int], limit: int) -> None:
    """The second going over is the same as the first, paths are those that are read, and so are all ordinals of a
    stretch unless its first and last one fit."""
    whole = flow_of(rows)
    source = Source(whole, cuts)
    flow = KeptFlow(source.read, program, limit)
    found = list(flow.first())
    batches = second(flow)
    assert joined(batches)[1] == whole[1]
    assert [(survey.first, survey.last) for survey in found] == [(seqs[0], seqs[-1]) for seqs, _ in batches]
    at = 0
    for seqs, paths in batches:
        read = whole[0][at:at + len(seqs)]
        fits = min(read) >= 0 and min(read) + sum(LENGTHS[path] for path in paths[:-1]) == max(read)
        assert seqs == (list(accumulate((LENGTHS[path] for path in paths[:-1]), initial=min(read))) if fits else read)
        at += len(seqs)


@pytest.mark.parametrize("path", [-1, 4, 0xffff, 0x10000])
@pytest.mark.parametrize("spans", [True, False])
def test_a_path_that_does_not_exist_is_refused(program: Program, path: int, spans: bool) -> None:
    flow = KeptFlow(Source(([0, 2, 5], [1, path, 1]), [], spans=spans).read, program)
    with pytest.raises(BadInput, match="names blocks or paths that do not exist"):
        list(flow.first())


@pytest.mark.parametrize(("hole", "limit", "read"), [(0, 32, 1), (0, 31, 2), (5, 80, 1), (5, 79, 2)],
                         ids=["fits", "does not fit", "with a hole, fits", "with a hole, does not fit"])
def test_only_what_does_not_fit_is_read_again(program: Program, hole: int, limit: int, read: int) -> None:
    whole = flow_of([(0, 1)] * 4 + [(hole, 2)] * 4)
    source = Source(whole, [])
    flow = KeptFlow(source.read, program, limit)
    list(flow.first())
    assert joined(second(flow)) == whole
    assert source.times == read


@given(rows=st.lists(st.tuples(st.sampled_from([0] * 6 + [3]), st.integers(0, 3)), min_size=1, max_size=40),
       cuts=st.lists(st.integers(1, 39), max_size=9), limit=st.sampled_from([0, 30, 4000]), count=st.integers(1, 6),
       size=st.integers(1, 50))
def test_parts_are_the_flow_one_after_the_other(program: Program, rows: list[tuple[int, int]], cuts: list[int],
                                                limit: int, count: int, size: int) -> None:
    """Each says what came before it."""
    whole = flow_of(rows)
    flow = KeptFlow(Source(whole, cuts).read, program, limit, divided=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept_flow, "BATCH_ROWS", size)
        list(flow.first())
        places = [None, *flow.cuts(count), None]
        parts = [second(flow, begin, end) for begin, end in pairwise(places)]
    assert len(places) - 1 <= count
    assert joined([batch for part in parts for batch in part]) == whole
    for part, cut in zip(parts, places[1:-1], strict=False):
        assert cut is not None
        seqs, paths = part[-1]
        assert (cut.last, cut.before, flow.seq(cut)) == (seqs[-1], paths[-1], seqs[-1] + LENGTHS[paths[-1]])
    assert all(parts)
    assert flow.end.rows == len(rows)


def test_parts_are_about_of_one_size(program: Program) -> None:
    flow = KeptFlow(Source(flow_of([(0, 1)] * 60), list(range(1, 60))).read, program, divided=True)
    list(flow.first())
    assert [cut.rows for cut in flow.cuts(4)] == [15, 30, 45]
    assert flow.cuts(1) == []


def test_a_part_with_more_paths_of_its_own_has_fewer_rows(program: Program) -> None:
    """Paths that come first take their time: 64 rows each."""
    rows = [(0, path) for path in (0, 1, 2, 3)] * 20 + [(0, 3)] * 300
    flow = KeptFlow(Source(flow_of(rows), list(range(20, len(rows), 20))).read, program, divided=True)
    list(flow.first())
    (cut,) = flow.cuts(2)
    first, second = cut.rows + 64 * 4, len(rows) - cut.rows + 64 * 1
    assert abs(first - second) <= 40
    plain = KeptFlow(Source(flow_of(rows), list(range(20, len(rows), 20))).read, program)
    list(plain.first())
    assert cut.rows < plain.cuts(2)[0].rows


def test_a_path_that_begins_one_block_late_is_told_from_one_that_follows(program: Program) -> None:
    paths = np.array([0, 1, 2, 3], np.int32)
    assert program.survey(np.array([5, 6, 8, 11], np.int64), paths, 1).follows
    assert not program.survey(np.array([5, 6, 8, 12], np.int64), paths, 1).follows
