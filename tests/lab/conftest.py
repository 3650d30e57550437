# SPDX-License-Identifier: MIT
"""Tests that need a processor with Intel PT: their recordings are made in the laboratory's machines.

A test names the job whose results it looks at: `@pytest.mark.lab("wraps")`, and gets them as `job`. The jobs of all
tests that were selected run while the tests look at what is there: each waits for its own, in the order of the jobs.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.build import instead, own_pmu
from lab.machine import Job, Laboratory, in_order
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
            item.add_marker(pytest.mark.timeout(SECONDS))  # it waits for the machine
            if marker.args[0] not in names:
                names.append(marker.args[0])
    names[:] = in_order(names)
    place = {name: number for number, name in enumerate(names)}
    items.sort(key=lambda item: place.get(_job_of(item), -1))


def _job_of(item: pytest.Item) -> str:
    marker = item.get_closest_marker("lab")
    return "" if marker is None else str(marker.args[0])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Tell of what was not as pinned."""
    found = instead()
    if found and config.stash.get(NAMES, []):
        terminalreporter.write_line(f"the laboratory has other packages than are pinned, which are gone: {found}")


@pytest.fixture(scope="session")
def laboratory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laboratory]:
    """The machines, at work on all jobs."""
    try:
        made = Laboratory(request.config.stash[NAMES], tmp_path_factory.mktemp("lab"))
    except Unavailable as error:
        pytest.skip(f"no laboratory: {error}")
    yield made
    made.close()


@pytest.fixture
def job(request: pytest.FixtureRequest, laboratory: Laboratory) -> Job:
    """What the test's job left; the test fails when the job failed."""
    marker = request.node.get_closest_marker("lab")
    assert marker is not None
    found = laboratory.job(marker.args[0])
    assert found.status == 0, found.text("stdout") + found.text("stderr")
    return found
