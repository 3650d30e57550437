# SPDX-License-Identifier: MIT
"""Ranges in one another: the innermost around a place, held to looking at each range for each place."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptweave.data.nested import Nested

KINDS = pytest.mark.parametrize("kind", [np.int64, np.uint64])


@st.composite
def nested(draw: st.DrawFn, begin: int = 0, size: int = 60, depth: int = 6) -> list[tuple[int, int]]:
    """Ranges of which any two lie in one another or apart, no two with one start."""
    found: list[tuple[int, int]] = []
    at, end = begin, begin + size
    while depth and at < end and draw(st.booleans()):
        start = draw(st.integers(at, end - 1))
        length = draw(st.integers(1, end - start))
        found.append((start, start + length))
        found += draw(nested(start + 1, length - 1, depth - 1))
        at = start + length
    return found


def numbers_of(ranges: list[tuple[int, int]], places: list[int], kind: Any = np.int64) -> list[int]:
    starts, ends = np.array(ranges, kind).reshape(-1, 2).T
    found: list[int] = Nested(starts, ends).find(np.array(places, kind)).tolist()
    return found


def one_by_one(ranges: list[tuple[int, int]], place: int) -> int:
    """The smallest range around a place."""
    around = [(end - start, number) for number, (start, end) in enumerate(ranges) if start <= place < end]
    return min(around, default=(0, -1))[1]


@KINDS
@given(ranges=nested())
def test_the_innermost_of_nested_ranges_is_found(kind: Any, ranges: list[tuple[int, int]]) -> None:
    ranges = sorted(ranges)
    places = list(range(62))
    assert numbers_of(ranges, places, kind) == [one_by_one(ranges, place) for place in places]


@given(ranges=st.lists(st.tuples(st.integers(-30, 30), st.integers(-40, 40)), max_size=20))
def test_of_any_ranges_the_one_that_begins_last_is_found(ranges: list[tuple[int, int]]) -> None:
    ranges.sort(key=lambda one: one[0])
    places = list(range(-42, 42))
    assert numbers_of(ranges, places) == [
        max((number for number, (start, end) in enumerate(ranges) if start <= place < end), default=-1)
        for place in places]


def test_behind_the_innermost_the_middle_one_goes_on() -> None:
    assert numbers_of([(0, 100), (10, 50), (20, 30)], [5, 15, 25, 35, 60, 100]) == [0, 1, 2, 1, 0, -1]


@pytest.mark.parametrize("apart", [1, 3])
def test_a_hundred_thousand_ranges_in_one_another_are_soon_known(apart: int) -> None:
    count = 100_000
    starts = np.arange(count, dtype=np.uint64) * np.uint64(apart)
    middle, ends = count * apart, (2 * count * apart - starts).astype(np.uint64)
    begin = time.process_time()
    ranges = Nested(starts, ends)
    behind = np.arange(middle, 2 * middle + 1, dtype=np.uint64)
    found = ranges.find(behind)
    assert time.process_time() - begin < 2
    assert found.tolist() == [(2 * middle - place - 1) // apart if place < 2 * middle else -1
                              for place in behind.tolist()]
