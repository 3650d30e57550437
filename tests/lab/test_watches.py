# SPDX-License-Identifier: MIT
"""Watchpoints beside Intel PT: every write of the program is a row, with its values, and the trace is what ran, with
the handlers."""

from __future__ import annotations

from typing import Any

import pytest

from lab.exact import decoded, executed, gaps
from lab.machine import Job
from ptweave.decode.tags import decode_tags
from ptweave.decode.thunks import decode_thunks
from ptweave.merge.run import Run
from ptweave.merge.stage import merge_run

ROUNDS, STEP = 3, 3
MODES = pytest.mark.parametrize("mode", ["native", "process"])


def hits(job: Job, mode: str) -> list[dict[str, Any]]:
    bundle = decoded(job, mode)
    decode_thunks(bundle)
    decode_tags(bundle)
    merge_run(bundle, calls=True)
    with Run(bundle.path) as run:
        found: list[dict[str, Any]] = run.sql("select * from watches order by t").arrow().to_pylist()
    return found


@pytest.mark.lab("watches")
@MODES
def test_what_a_watched_program_ran_is_decoded_to_the_instruction(job: Job, mode: str) -> None:
    assert job.text(mode) == "0\n"
    bundle = decoded(job, mode)
    assert gaps(bundle) == []
    assert executed(bundle) == {ran.tid: (ran.count, ran.hash) for ran in job.executed(f"oracle_{mode}") if ran.count}
    assert len(executed(bundle)) == 2
    assert bundle.ledger().check() == []


@pytest.mark.lab("watches")
@MODES
def test_each_write_of_each_thread_is_a_row_with_its_values(job: Job, mode: str) -> None:
    rows = hits(job, mode)
    values = [(STEP * one, STEP * (one + 1)) for one in range(2 * ROUNDS)]
    assert [(row["old"], row["new"]) for row in rows] == values
    assert [row["thread"] for row in rows] == [0] * ROUNDS + [1] * ROUNDS
    assert {row["functions"][0] for row in rows} == {"count"}
    assert job.text("stdout").split() == [str(values[-1][1])] * 2
