# SPDX-License-Identifier: MIT
"""Gaps of a processor's trace where it does not say whose it is are of the piece behind, or before: none is dropped."""

from __future__ import annotations

import pytest

from ptweave.decode.assemble import _owned_gaps


@pytest.mark.parametrize(("threads", "seqs", "rows", "owned"), [
    ([0], [0, 5], [0, 3], [(0, 3)]),
    ([-1, 0], [0, 0, 5], [0, 2, 3], [(0, 0), (0, 3)]),  # before it is known
    ([0, -1], [0, 5, 5], [0, 1, 3], [(0, 3), (3, 3)]),  # after the last is gone
    ([-1, -1, 4], [0, 0, 0, 5], [0, 1, 2, 2], [(0, 0), (0, 0), (0, 2)]),
    ([0, -1, 1], [0, 5, 5, 9], [0, 1, 2, 3], [(0, 1), (1, 1), (1, 3)]),  # between two: the one behind
    ([-1, 0], [0, 7, 9], [0, 2, 3], [(0, 2), (2, 3)]),  # somebody who is not asked for ran: they are that one's
])
def test_gaps_are_somebodys(threads: list[int], seqs: list[int], rows: list[int],
                            owned: list[tuple[int, int]]) -> None:
    assert _owned_gaps(threads, seqs, rows) == owned


def test_a_trace_that_is_nobodys_keeps_its_gaps() -> None:
    assert sum(last - first for first, last in _owned_gaps([-1, -1], [0, 0, 0], [0, 1, 2])) == 2
