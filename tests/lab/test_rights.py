# SPDX-License-Identifier: MIT
"""What somebody who is not root may trace, and what the line says who may not."""

from __future__ import annotations

import pytest

from lab.exact import check_exact
from lab.machine import Job


@pytest.mark.lab("rights")
def test_who_may_not_trace_is_told_which_setting_forbids_it(job: Job) -> None:
    assert job.text("forbidden") == "3\n"
    assert "perf_event_paranoid is 3" in job.text("stderr")
    assert not (job.folder / "forbidden.ptw").exists()


@pytest.mark.lab("rights")
def test_the_engine_that_can_be_used_is_chosen(job: Job) -> None:
    assert (job.text("auto_when_forbidden"), job.text("auto_when_allowed")) == ("1\n", "1\n")


@pytest.mark.lab("rights")
def test_more_memory_than_may_be_locked_is_an_error_with_the_numbers(job: Job) -> None:
    assert job.text("too_much") == "3\n"
    assert "16384 KiB of packets are more memory than may be locked (perf_event_mlock_kb is 600" in job.text("stderr")
    assert not (job.folder / "too_much.ptw").exists()


@pytest.mark.lab("rights")
def test_rings_are_made_as_large_as_the_limits_allow(job: Job) -> None:
    assert job.text("fits") == "0\n"
    check_exact(job, "fits")
