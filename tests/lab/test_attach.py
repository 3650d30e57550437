# SPDX-License-Identifier: MIT
"""A process that runs already is recorded from then on, and not harmed."""

from __future__ import annotations

import pytest

from lab.exact import decoded, executed, gaps
from lab.machine import Job


@pytest.mark.lab("attach")
def test_a_running_process_decodes_to_what_it_ran_while_it_was_recorded(job: Job) -> None:
    bundle = decoded(job)
    assert gaps(bundle) == []
    (ran,) = job.executed("oracle_then")
    assert executed(bundle) == {ran.tid: (ran.count, ran.hash)}
    assert job.text("status_of_record") == "0\n"


@pytest.mark.lab("attach")
def test_it_goes_on_afterwards(job: Job) -> None:
    assert (job.text("alive"), job.text("status_of_target")) == ("True\n", "0\n")


@pytest.mark.lab("attach")
def test_a_process_that_is_not_there_is_an_error(job: Job) -> None:
    assert job.text("no_process") == "2\n"
    assert "--pid 4000000: there is no such process" in job.text("stderr")
