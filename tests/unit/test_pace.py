# SPDX-License-Identifier: MIT
"""The pace of the thread that writes tables, as the kernel has it; in threads of their own, whose nice values end."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from ptweave.wrapper import pace
from ptweave.wrapper.pace import HURRY, YIELD, Pace

BATCHES = 16


def in_a_thread(step: Callable[[], None]) -> None:
    with ThreadPoolExecutor(1) as thread:
        thread.submit(step).result()


def nice() -> int:
    return os.getpriority(os.PRIO_PROCESS, 0)


@pytest.mark.root
def test_it_yields_until_a_quarter_of_the_batches_waits_then_hurries_until_none_does() -> None:
    usual = nice()

    def steps() -> None:
        one = Pace(BATCHES)
        assert nice() == usual
        seen = []
        for backlog in (0, 4, 5, 4, 1, 0, 3):
            one.look(backlog)
            seen.append(nice() - usual)
        assert seen == [YIELD, YIELD, HURRY, HURRY, HURRY, YIELD, YIELD]
        one.usual()
        assert nice() == usual

    in_a_thread(steps)
    assert nice() == usual, "of its own thread alone"


def test_where_the_kernel_would_not_let_it_hurry_it_does_not_yield_either(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = nice()

    def refuse(which: int, who: int, value: int) -> None:
        if value < usual:
            raise PermissionError
        raise AssertionError("it must stay as it is")

    monkeypatch.setattr(pace.os, "setpriority", refuse)
    one = Pace(BATCHES)
    for backlog in (0, BATCHES, 0):
        one.look(backlog)
    one.usual()
