# SPDX-License-Identifier: MIT
"""Real programs that know how often they call what: recorded, decoded, merged, and asked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ptweave.merge import Run

ROOT = Path(__file__).resolve().parents[2]
ROOMS = os.pathsep.join(str(ROOT / room) for room in ("data", "preload", "wrapper", "decode", "merge"))

pytest.importorskip("ptweave.wrapper.supervisor", reason="needs the recorder")
pytest.importorskip("ptweave.decode.flow", reason="needs the decoder")


def wrapped(name: str, folder: Path) -> Run:
    """Compile, record, decode and merge a program of tests/programs; open its run."""
    program, bundle = folder / name, folder / f"{name}.ptw"
    subprocess.run(["gcc", "-O1", "-g", "-pthread", "-o", program,
                    ROOT / "tests" / "programs" / f"{name}.c"], check=True)
    done = subprocess.run([sys.executable, "-m", "ptweave.cli", "wrap", "-o", bundle, "--", program],
                          capture_output=True, text=True, timeout=300, check=False,
                          env={**os.environ, "PYTHONPATH": ROOMS})
    assert done.returncode == 0, done.stderr
    return Run(bundle)


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return wrapped("known_calls", tmp_path_factory.mktemp("calls"))


@pytest.fixture(scope="module")
def locks(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return wrapped("known_locks", tmp_path_factory.mktemp("locks"))


def test_every_function_was_called_as_often_as_the_program_says(calls: Run) -> None:
    found = dict(calls.sql("select function, sum(calls)::bigint from profile join stacks using (stack) group by 1"))
    expected = {"main": 1, "fib": 1973, "tail": 10, "leaf": 10 + 3 + 4 + 2, "catcher": 3, "thrower": 3 * 6,
                "touch": 4, "on_segv": 4, "jumpout": 2, "on_segv2": 2, "on_usr": 7, "sorter": 1, "[signal]": 4 + 2 + 7}
    assert {name: found.get(name) for name in expected} == expected
    assert "[folded]" not in found


def test_callers_are_the_ones_the_program_has(calls: Run) -> None:
    """Behind longjmp, siglongjmp and handlers the stack is the right one again."""
    rows = calls.sql("""select parent.function, stacks.function, sum(calls)::bigint
                        from profile join stacks using (stack) join stacks as parent on parent.stack = stacks.parent
                        where stacks.function in ('leaf', 'tail', 'catcher', 'touch', 'jumpout', 'sorter', '[signal]',
                                                  'on_segv', 'on_segv2') group by 1, 2""").rows()
    found = {(caller, function): count for caller, function, count in rows if count}
    raised = found.pop(next(key for key in found if key[1] == "[signal]" and key[0] not in ("touch", "jumpout")))
    assert raised == 7
    assert found == {
        ("main", "tail"): 10, ("main", "leaf"): 10,  # tail jumps to it
        ("catcher", "leaf"): 3, ("touch", "leaf"): 4, ("jumpout", "leaf"): 2,
        ("main", "catcher"): 3, ("main", "touch"): 4, ("main", "jumpout"): 2, ("main", "sorter"): 1,
        ("touch", "[signal]"): 4, ("jumpout", "[signal]"): 2, ("[signal]", "on_segv"): 4, ("[signal]", "on_segv2"): 2}


def test_executions_agree_with_calls(calls: Run) -> None:
    for function, times in (("fib", 1973), ("leaf", 19), ("on_usr", 7)):
        assert calls.sql("select count(*) from executions(?)", function).rows() == [(times,)]


def test_nothing_is_counted_that_did_not_run(calls: Run) -> None:
    profiled = calls.sql("select sum(blocks)::bigint, sum(instructions)::bigint from profile").rows()
    assert profiled == calls.sql("select sum(blocks)::bigint, sum(instructions)::bigint from threads").rows()


def test_time_adds_up_to_the_threads_lives(calls: Run) -> None:
    spent, lived = calls.sql("select (select sum(time)::bigint from profile), "
                             "(select sum(t_end - t_start)::bigint from threads)").rows()[0]
    assert 0.9 * lived <= spent <= 1.05 * lived  # the kernel sees the last call a little after the engine's last word


@pytest.mark.parametrize("table", ["syscalls", "thunks"])
def test_all_rows_are_exact(calls: Run, locks: Run, table: str) -> None:
    for run in (calls, locks):
        assert {placed for placed, in run.sql(f"select distinct placed from {table}")} == {"exact"}
        assert run.ledger[f"placed/{table}"].total_lost == 0


def test_system_calls_lie_on_blocks_that_make_them(calls: Run, locks: Run) -> None:
    for run in (calls, locks):
        wrong = run.sql("""select count(*) from syscalls join flow_blocks using (thread, seq) join blocks using (block)
                           where last != 'syscall' or last_ip != syscalls.ip""").rows()
        assert wrong == [(0,)]


def test_locks_are_placed_in_the_function_that_took_them(locks: Run) -> None:
    rows = locks.sql("""select thread, operation, count(*), count(distinct caller), min(functions_of(stack)[1])
                        from thunks join call_stacks using (stack)
                        where operation in ('mutex_lock', 'mutex_unlock') and list_contains(functions, 'add')
                        group by 1, 2 order by 1, 2""").rows()
    assert [row[1:] for row in rows] == [("mutex_lock", 300, 1, "add"), ("mutex_unlock", 300, 1, "add")] * 4


def test_between_a_lock_and_its_unlock_the_flow_is_in_the_function(locks: Run) -> None:
    """`add` runs its own blocks in every critical section, and `worker` in none."""
    rows = locks.sql("""select function, count(distinct (thunks.thread, thunks.thunk)) from thunks
                        join flow_blocks on flow_blocks.thread = thunks.thread
                          and flow_blocks.seq >= thunks.seq and flow_blocks.seq < thunks.seq_end
                        join blocks using (block)
                        where operation = 'mutex_lock' and caller = 'add' and function in ('add', 'worker')
                        group by 1""").rows()
    assert rows == [("add", 1200)]


def test_threads_begin_in_their_routine(locks: Run) -> None:
    assert locks.sql("select start_function, parent, exit_status from threads where thread > 0 and not own").rows() == [
        ("worker", 0, 0)] * 4
