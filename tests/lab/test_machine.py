# SPDX-License-Identifier: MIT
"""The laboratory's machine itself: it has the PMU, and a processor the tools believe to be Intel's."""

from __future__ import annotations

import pytest

from lab.machine import Job


@pytest.mark.lab("smoke")
def test_the_machine_has_the_pmu_of_the_kernels_own_driver(job: Job) -> None:
    assert int(job.text("type")) > 0
    assert job.text("format-tsc") == "config:10\n"
    assert int(job.text("caps-psb_periods"), 16) == 0x3F
    assert job.text("vendor") == "GenuineIntel\n"
