# SPDX-License-Identifier: MIT
"""A variable on a coroutine's stack, lent to another thread: the data edges are those of any other memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.command import compile_c
from support.engine import PROGRAMS
from support.known import ENGINE_RUNS, EXACT, NATIVE_RUNS, Known, natively, wrapped
from support.modes import Mode, process_mode

ROUNDS = 5
HELD = process_mode("held", "shared")
PRIVATE = process_mode("exact", "private")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c(PROGRAMS / "known_coroutine.c", tmp_path_factory.mktemp("known") / "coroutine", "-g", "-Wl,-z,now")


def promise_turns(known: Known) -> None:
    """Each round hands the variable over and back; other frames on its page make more edges."""
    found = known.between(known.page(0))
    assert found[0, 1] >= ROUNDS and found[1, 0] >= ROUNDS, found


@pytest.mark.parametrize("mode", [EXACT, PRIVATE, HELD], ids=str)
def test_a_coroutines_variable_makes_data_edges_each_way_each_round(program: Path, tmp_path: Path, mode: Mode) -> None:
    for _ in range(NATIVE_RUNS):
        with natively(program, tmp_path, mode, "") as known:
            promise_turns(known)


def test_every_thunk_on_a_coroutines_stack_is_said_to_write_there(program: Path, tmp_path: Path) -> None:
    """Its frames lie there: also when the page was opened before the thunk's record was logged."""
    with natively(program, tmp_path, EXACT, "") as known:
        thread, page = known.threads[0], known.page(0)
        found = known.run.sql("""
            with mine as (select thunk from accesses where thread = ? and page = ? and write)
            select count(*), count(*) filter (thunk not in (from mine)) from thunks
            where thread = ? and thunk between (select min(thunk) from mine) and (select max(thunk) from mine)""",
                              thread, page, thread)
        (thunks, without), = found
        assert thunks > 4 * ROUNDS and without == 0


def test_under_the_engine_a_coroutines_variable_makes_data_edges_each_way(program: Path, tmp_path: Path) -> None:
    for number in range(ENGINE_RUNS):
        folder = tmp_path / str(number)
        folder.mkdir()
        with wrapped(program, folder) as known:
            promise_turns(known)
