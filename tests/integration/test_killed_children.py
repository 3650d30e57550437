# SPDX-License-Identifier: MIT
"""Children that are killed right after their fork, or in their exec: what they had no time to do is no loss, and what
the engine did for them meanwhile no call of theirs."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptweave.data.bundle import Bundle
from ptweave.merge import Run
from support.bpf import needs_bpf
from support.command import ptweave
from support.programs import compile_program

pytestmark = [pytest.mark.root, needs_bpf]


SELDOM = 2
"""Children of a run that may be killed in the midst of an event; one was, in many runs of this file."""


def is_half_an_event(stream: str, why: str, count: int, unit: str) -> bool:
    """Of one child's list, the one that it was about to tell (docs/event-vector.md)."""
    return stream.startswith("dependence/") and (why, count, unit) == ("unfinished", 1, "events")


def test_nothing_else_is_half_an_event() -> None:
    assert is_half_an_event("dependence/15", "unfinished", 1, "events")
    for other in (("dependence/15", "unfinished", 2, "events"), ("dependence/15", "lost", 1, "events"),
                  ("syscalls", "unfinished", 1, "events"), ("trace/15", "unfinished", 1, "bytes")):
        assert not is_half_an_event(*other)


@pytest.mark.parametrize("mode", ["process", "native"])
@pytest.mark.parametrize("count, step, program", [(20, 0, ()), (25, 1000, ()), (30, 2500, ("/bin/sleep",))],
                         ids=["at once", "as they begin", "as they exec"])
def test_children_killed_before_they_did_anything_leave_nothing_missing(
        tmp_path: Path, mode: str, count: int, step: int, program: tuple[str, ...]) -> None:
    words = [str(compile_program(tmp_path, "killed_children")), str(count), str(step), *program]
    done = ptweave("wrap", f"--threads={mode}", "-o", tmp_path / "run.ptw", "--", *words)
    lost = Bundle.open(tmp_path / "run.ptw").ledger().losses
    assert [loss for loss in lost if not is_half_an_event(*loss)] == [] and len(lost) <= SELDOM
    told = "incomplete: lacks " + "; ".join(f"1 events of {stream} (unfinished)" for stream, *_ in lost)
    assert (done.status, done.out, done.lines) == (
        0, b"killed them all\n", [f"ptweave: {tmp_path}/run.ptw: {told if lost else 'nothing lost'}"])
    run = Run(tmp_path / "run.ptw")
    assert run.sql("select count(*) from syscalls where placed != 'exact'").rows() == [(0,)]
    kills = run.sql("select count(*), count(distinct args[1]) from syscalls where name = 'kill'").rows()
    assert kills == [(count, count)]  # the control: what the program did is there
    own = Bundle.open(tmp_path / "run.ptw").ledger()["syscalls/engine_own"].stored
    assert own > 20 * count  # and there was something to leave out


def test_a_fork_costs_few_calls_of_the_engine_s(tmp_path: Path) -> None:
    """It emptied the queues of signals of 1024 threads that never were: two calls each."""
    forks = 20
    ptweave("wrap", "--threads=native", "-o", tmp_path / "run.ptw", "--", "sh", "-c", "(:);" * forks)
    run = Run(tmp_path / "run.ptw")
    assert run.sql("select count(*) from processes where began_by = 'fork'").rows() == [(forks,)]
    own = Bundle.open(tmp_path / "run.ptw").ledger()["syscalls/engine_own"].stored
    assert own < forks * 300 + 1500
