# SPDX-License-Identifier: MIT
"""Numbering alike numbers in C: the same as sorting them says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptweave.merge import distinct as module
from ptweave.merge.distinct import ascending, distinct, values_of


def expected(keys: list[int]) -> tuple[list[int], list[int]]:
    """By a dictionary: where each number comes first, and each number's ordinal among those."""
    known: dict[int, int] = {}
    first = []
    for place, key in enumerate(keys):
        if key >= 0 and key not in known:
            known[key] = len(known)
            first.append(place)
    return first, [known.get(key, -1) for key in keys]


def told_apart(keys: list[int]) -> tuple[list[int], list[int]]:
    found = distinct(np.array(keys, np.int32))
    return found.first.tolist(), found.of(slice(None)).tolist()


@given(st.lists(st.integers(-3, 9) | st.integers(0, 70_000) | st.sampled_from([2**31 - 1, 2**31 - 2, -2**31])))
def test_numbers_are_told_apart_in_the_order_they_come(keys: list[int]) -> None:
    assert told_apart(keys) == expected(keys)


def test_control_another_order_is_another_answer() -> None:
    assert distinct(np.array([5, 7], np.int32)).first.tolist() != expected([7, 7, 5])[0]


def test_parts_of_an_array_are_taken_as_they_are() -> None:
    keys = np.arange(20, dtype=np.int32)
    assert distinct(keys[::-2]).of(slice(None)).tolist() == list(range(10))


@given(st.lists(st.integers(-3, 9), max_size=30), st.integers(1, 7))
def test_numbers_are_gone_over_in_parts(keys: list[int], rows: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BATCH_ROWS", rows)
        assert told_apart(keys) == expected(keys)


@given(st.lists(st.integers(-3, 9) | st.integers(-2**63, 2**63 - 1)))
def test_values_and_their_ranks_are_what_sorting_says(keys: list[int]) -> None:
    values, which = values_of(np.array(keys, np.int64))
    assert values.tolist() == sorted(set(keys)) and [values[rank] for rank in which] == keys


@given(st.sets(st.integers(0, 999)), st.sampled_from([1000, 1_000_000]))
def test_numbers_are_put_in_order_whether_they_are_few_of_those_below_the_limit_or_many(numbers: set[int],
                                                                                       limit: int) -> None:
    shuffled = np.array(list(numbers)[::-1], np.uint32)
    assert ascending(shuffled, limit).tolist() == sorted(numbers)


def test_the_limits_own_neighbour_is_kept() -> None:
    assert ascending(np.array([3, 0, 2, 1], np.uint32), 4).tolist() == [0, 1, 2, 3]
