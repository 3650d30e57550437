# SPDX-License-Identifier: MIT
"""Alignment's small parts: moments around blocks, and orders that only grow."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ptweave.merge.accesses import thunks_at
from ptweave.merge.align import FAR, NO_TIME, Aligner, Occurrences, Placement, Records, bounds
from ptweave.merge.moments import Window, behind, joined
from ptweave.merge.tables import I64


def array(values: list[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, np.int64)


@given(seqs=st.lists(st.integers(0, 60), max_size=20, unique=True).map(sorted),
       moments=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 999)), max_size=20),
       cut=st.lists(st.integers(0, 20), max_size=3).map(sorted))
def test_bounds_are_the_moments_around_each_block(seqs: list[int], moments: list[tuple[int, int]],
                                                  cut: list[int]) -> None:
    known = list(zip(sorted(seq for seq, _ in moments), sorted(t for _, t in moments), strict=True))
    edges = [0, *cut, len(known)]
    batches = [(array([seq for seq, _ in known[a:b]]), array([t for _, t in known[a:b]]))
               for a, b in itertools.pairwise(edges)]
    low, high = bounds(array(seqs), batches)
    for seq, before, after in zip(seqs, low.tolist(), high.tolist(), strict=True):
        assert before == max((t for at, t in known if at <= seq), default=NO_TIME)
        assert after == next((t for at, t in known if at > seq), FAR)


@given(clock=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 999)), max_size=15),
       more=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 999)), max_size=8), cut=st.integers(0, 15))
def test_joined_moments_are_all_there_sorted_and_never_go_back(clock: list[tuple[int, int]],
                                                               more: list[tuple[int, int]], cut: int) -> None:
    known = list(zip(sorted(seq for seq, _ in clock), sorted(t for _, t in clock), strict=True))
    batches = iter([(array([seq for seq, _ in part]), array([t for _, t in part]))
                    for part in (known[:cut], known[cut:])])
    window = Window(joined(batches, (array([seq for seq, _ in more]), array([t for _, t in more]))))
    window.reach(1 << 62)
    assert sorted(window.seqs.tolist()) == sorted(seq for seq, _ in known + more) == window.seqs.tolist()
    assert all(a <= b for a, b in itertools.pairwise(window.times.tolist()))


@given(moments=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 999)), max_size=15),
       cuts=st.lists(st.integers(0, 15), max_size=3), seq=st.integers(0, 60))
def test_moments_behind_a_block_begin_with_the_last_one_before_it(moments: list[tuple[int, int]], cuts: list[int],
                                                                  seq: int) -> None:
    known = list(zip(sorted(seq for seq, _ in moments), sorted(t for _, t in moments), strict=True))
    edges = [0, *sorted(min(cut, len(known)) for cut in cuts), len(known)]
    batches = iter([(array([seq for seq, _ in known[a:b]]), array([t for _, t in known[a:b]]))
                    for a, b in itertools.pairwise(edges)])
    found = [pair for seqs, times in behind(batches, seq) for pair in zip(seqs.tolist(), times.tolist(), strict=True)]
    before, after = [one for one in known if one[0] < seq], [one for one in known if one[0] >= seq]
    assert found == before[-1:] + after


def known(seq: I64, low: I64, high: I64) -> Occurrences:
    return Occurrences(seq, lambda: (low, high))


def place(records: int, occurrences: int, gaps: list[int], keys: tuple[list[int], list[int]]) -> list[tuple[int, bool]]:
    a, b = np.array(keys[0]), np.array(keys[1])
    nothing = np.zeros(records, np.int64)
    found = Aligner(Records(nothing, nothing + 10**6), known(
        np.arange(occurrences), np.full(occurrences, NO_TIME), np.full(occurrences, FAR)), array(gaps),
        lambda i, j: a[i] == b[j]).run()
    return list(zip(*(column.tolist() for column in found.all()), strict=True))


def test_a_certain_run_tells_where_the_run_before_it_must_be() -> None:
    # 7 may be the second or the third record: the run 1 2 3 behind it leaves only the second
    found = place(7, 5, [0, 2], ([9, 7, 7, 1, 2, 3, 7], [7, 7, 1, 2, 3]))
    assert found[1:6] == [(0, True), (1, True), (2, True), (3, True), (4, True)]
    assert not found[6][1]


def test_two_possible_shifts_are_never_certain() -> None:
    assert not any(exact for _, exact in place(4, 2, [0], ([5, 5, 5, 5], [5, 5])))


def agreeing(records: list[int], occurrences: list[int]) -> Placement:
    """Placed behind a gap, by keys that a few records may not have."""
    a, b, count = np.array(records), np.array(occurrences), len(occurrences)
    times = np.zeros(len(records), np.int64)
    return Aligner(Records(times, times + 10**6), known(
        np.arange(count), np.full(count, NO_TIME), np.full(count, FAR)), array([0]),
        lambda i, j: np.ones(len(i), np.bool_), agree=lambda i, j: a[i] == b[j]).run()


def test_a_shift_that_nearly_all_records_speak_for_is_certain() -> None:
    occurrences = list(range(40))
    found = agreeing([99, *occurrences[:7], 99, *occurrences[8:]], occurrences)
    assert found.all()[1].tolist() == [False] + [True] * 40
    assert found.all()[0].tolist()[1:] == occurrences


def test_the_only_shift_records_can_have_is_certain_though_times_speak_against_some_of_them() -> None:
    late = np.arange(13) * 1000
    late[[4, 6]] += 10**9
    keys = np.array([9, *range(10), 9, 9])
    found = Aligner(Records(late, late), known(np.arange(10), np.arange(1, 11) * 1000, np.arange(1, 11) * 1000),
                    array([0]), lambda i, j: keys[i] == j).run()
    assert found.all()[1].tolist() == [False] + [True] * 10 + [False] * 2
    late[[1, 2, 3]] += 10**9  # half of them: something is wrong
    assert not Aligner(Records(late, late), known(np.arange(10), np.arange(1, 11) * 1000,
                                                        np.arange(1, 11) * 1000), array([0]),
                       lambda i, j: keys[i] == j).run().all()[1].any()


def test_a_shift_is_not_certain_when_the_next_is_nearly_as_good() -> None:
    # faults of one instruction on page after page: nothing but two and one of them tell the two shifts apart
    assert not agreeing([1] * 40 + [2], [1] * 20 + [3] + [1] * 19).all()[1].any()
    assert not agreeing([2] + [1] * 40, [2] + [1] * 18 + [2] + [1] * 20).all()[1].any()


@given(st.lists(st.tuples(st.sampled_from(["certain", "guessed", "none"]), st.integers(1, 6)), max_size=12), st.data())
def test_any_part_of_a_placement_is_that_part_of_the_whole(runs: list[tuple[str, int]], data: st.DataObject) -> None:
    """Every second record of what is guessed is placed."""
    placement, wanted, at = Placement(sum(count for _, count in runs)), [], 0
    for kind, count in runs:
        if kind == "certain":
            placement.certain.append((1000 + 2 * at, at, at + count))
            wanted += [(1000 + 2 * at + more, True) for more in range(count)]
        elif kind == "guessed":
            placement.guessed.append((np.arange(at, at + count, 2), 5000 + np.arange(at, at + count, 2)))
            wanted += [(-1, False) if more % 2 else (5000 + at + more, False) for more in range(count)]
        else:
            wanted += [(-1, False)] * count
        at += count
    begin = data.draw(st.integers(0, at))
    end = data.draw(st.integers(begin, at))
    occurrence, exact = placement.part(begin, end)
    assert list(zip(occurrence.tolist(), exact.tolist(), strict=True)) == wanted[begin:end]


def test_blocks_lie_in_the_thunks_between_those_whose_begin_is_known() -> None:
    first, last = thunks_at(array([5, 10, 15, 20, 30, 40]), array([2, 3, 7]), array([10, 20, 40]))
    assert first.tolist() == [-1, 2, 2, 3, 3, 7]
    assert last.tolist() == [1, 2, 2, 6, 6, FAR - 1]
    first, last = thunks_at(array([5]), array([]), array([]))
    assert (first.tolist(), last.tolist()) == ([-1], [FAR - 1])
    some = array([5, 10, 15, 40, 50]), array([10, 20, 40])
    every, numbered = thunks_at(some[0], None, some[1]), thunks_at(some[0], array([0, 1, 2]), some[1])
    assert [part.tolist() for part in every] == [part.tolist() for part in numbered]


def test_incomplete_records_are_never_certain_behind_a_gap() -> None:
    nothing = np.zeros(3, np.int64)
    found = Aligner(Records(nothing, nothing), known(np.arange(3), nothing, nothing), array([]),
                    lambda i, j: i == j, complete=False).run()
    assert not found.all()[1].any()
