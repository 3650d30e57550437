# SPDX-License-Identifier: MIT
"""Tests that need a processor with Intel PT: their recordings are made in one boot of the laboratory's machine.

A test names the job whose results it looks at: `@pytest.mark.lab("wraps")`, and gets them as `job`. The jobs of all
tests that were selected run in one machine, before the first of them.
"""

from __future__ import annotations

import pytest

from lab.build import own_pmu
from lab.machine import Job, run
from lab.packages import Unavailable

SECONDS = 2400
DRIVERS_OWN = ("filters",)
"""Jobs that need the kernel's driver."""
NAMES = pytest.StashKey[list[str]]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    names = config.stash.setdefault(NAMES, [])
    for item in items:
        marker = item.get_closest_marker("lab")
        if marker is not None and marker.args[0] in DRIVERS_OWN and own_pmu():
            item.add_marker(pytest.mark.skip("the PMU of our own has no address filters"))
        elif marker is not None:
            item.add_marker(pytest.mark.timeout(SECONDS))  # the first of them waits for the machine
            if marker.args[0] not in names:
                names.append(marker.args[0])


@pytest.fixture(scope="session")
def jobs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Job]:
    """All jobs, run."""
    folder = tmp_path_factory.mktemp("lab")
    try:
        return run(request.config.stash[NAMES], folder)
    except Unavailable as error:
        pytest.skip(f"no laboratory: {error}")


@pytest.fixture
def job(request: pytest.FixtureRequest, jobs: dict[str, Job]) -> Job:
    """What the test's job left; the test fails when the job failed."""
    marker = request.node.get_closest_marker("lab")
    assert marker is not None
    found = jobs[marker.args[0]]
    assert found.status == 0, found.text("stdout") + found.text("stderr")
    return found
