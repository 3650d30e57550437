# SPDX-License-Identifier: MIT
"""`ptweave wrap` with the PMU: what it leaves can be asked, and is what ran."""

from __future__ import annotations

import pytest

from lab.exact import check_exact, executed, gaps
from lab.machine import Job
from ptweave.data import Bundle, State
from ptweave.decode.syscalls import decode_syscalls
from ptweave.decode.tags import decode_tags
from ptweave.decode.thunks import decode_thunks
from ptweave.merge.run import Run
from ptweave.merge.stage import merge_run


@pytest.mark.lab("wrapped")
def test_what_wrap_leaves_is_complete_and_what_ran(job: Job) -> None:
    assert job.text("wrap") == "0\n"
    bundle = Bundle.open(job.folder / "run.ptw")
    assert (bundle.manifest.engine, bundle.manifest.state) == ("intel_pt", State.COMPLETE)
    assert {"decode", "merge"} <= bundle.manifest.steps.keys()
    assert gaps(bundle) == []
    assert executed(bundle) == {ran.tid: (ran.count, ran.hash) for ran in job.oracle}
    assert len(executed(bundle)) == 5
    assert bundle.ledger().check() == []


@pytest.mark.lab("wrapped")
def test_what_wrap_leaves_answers_questions(job: Job) -> None:
    with Run(job.folder / "run.ptw") as run:
        threads = run.sql("select distinct thread from thunks order by all").arrow()["thread"].to_pylist()
        called = run.sql("select distinct function from blocks where function = 'work'").arrow()
    assert threads == list(range(5))
    assert called.num_rows == 1


@pytest.mark.parametrize("job_name", [
    pytest.param(name, marks=pytest.mark.lab(name)) for name in ("single", "native", "process", "family", "signals")])
def test_recordings_of_all_kinds_merge_and_stay_what_ran(job: Job, job_name: str) -> None:
    bundle = check_exact(job)
    decode_syscalls(bundle)
    decode_thunks(bundle)
    decode_tags(bundle)
    merge_run(bundle, calls=True)
    assert executed(bundle) == {ran.tid: (ran.count, ran.hash) for ran in job.oracle}
    assert bundle.ledger().check() == []
    with Run(bundle.path) as run:
        threads = run.sql("select distinct thread from threads").arrow()
    assert threads.num_rows == len(job.oracle)
