# SPDX-License-Identifier: MIT
"""Mappings of one address space laid over each other."""

from __future__ import annotations

import numpy as np
import pytest

from ptweave.merge.addresses import _flatten

OLD, NEW = 1 << 40, 2 << 40


def place(rows: list[tuple[int, int, int, bool]], address: int) -> int:
    """What is found at an address, of mappings (start, end, place of the start, executed)."""
    columns = [np.array([row[i] for row in rows], np.uint64) for i in range(3)]
    space = _flatten(*columns, np.array([row[3] for row in rows], np.bool_))
    return int(space.locate(np.array([address], np.uint64))[0])


@pytest.mark.parametrize("order", [1, -1])
def test_code_that_was_replaced_before_it_ran_gives_way(order: int) -> None:
    rows = [(100, 200, OLD, False), (140, 145, NEW, True)][::order]
    assert place(rows, 142) == NEW + 2
    assert place(rows, 150) == OLD + 50


@pytest.mark.parametrize("ran", [True, False])
def test_where_it_cannot_be_told_which_code_it_was_nothing_is_found(ran: bool) -> None:
    rows = [(100, 200, OLD, ran), (140, 145, NEW, ran)]
    assert place(rows, 142) == 0
    assert place(rows, 145) == OLD + 45
    assert place([*rows, (142, 143, 3 << 40, True)], 142) == (0 if ran else 3 << 40)


def test_the_same_code_mapped_twice_is_found() -> None:
    assert place([(100, 200, OLD, True), (150, 200, OLD + 50, True)], 160) == OLD + 60
