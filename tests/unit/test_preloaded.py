# SPDX-License-Identifier: MIT
"""Programs that said no hello are counted; those that did, or were killed before they could, are not."""

from __future__ import annotations

import pytest

from ptweave.data import Ledger
from ptweave.wrapper.preloaded import STREAM, WHY, Program, account_programs

TWO = [Program(5, 100, 200), Program(5, 200, 300)]  # the second by exec


@pytest.mark.parametrize("hellos, silent", [
    ([(5, 110), (5, 210)], 0),
    ([(5, 110)], 1),
    ([(5, 210)], 1),
    ([(5, 110), (5, 120), (6, 210)], 1),  # another process's, and two of one
    ([], 2),
])
def test_a_program_is_counted_when_no_hello_came_from_its_pid_in_its_time(hellos: list[tuple[int, int]],
                                                                          silent: int) -> None:
    ledger = Ledger()
    account_programs(TWO, hellos, ledger, told=False)
    assert ledger.losses == ([(STREAM, WHY, silent, "programs")] if silent else [])
    assert ledger.check() == []


def test_a_command_that_is_told_of_already_is_not_counted_again() -> None:
    ledger = Ledger()
    account_programs(TWO, [(5, 210)], ledger, told=True)
    assert ledger.losses == []


def test_a_program_that_was_killed_is_not_counted() -> None:
    ledger = Ledger()
    account_programs([Program(5, 100, 0)], [], ledger, told=False)
    assert ledger.losses == []
