# SPDX-License-Identifier: MIT
"""Tables of the integration tests, shown at the end of a run whatever pytest captures, and whichever of its processes
they were filled in."""

from __future__ import annotations

from typing import Any

import pytest

TABLES = pytest.StashKey[dict[str, list[tuple[str, ...]]]]()
"""Rows of each table by its title; the first is the heading."""


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In a process of pytest-xdist: hand the tables to the one that the user sees."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["tables"] = session.config.stash.get(TABLES, {})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A process of pytest-xdist has ended; one that was killed leaves nothing, and that is told."""
    tables = node.config.stash.setdefault(TABLES, {})
    for title, (heading, *rows) in getattr(node, "workeroutput", {}).get("tables", {}).items():
        tables.setdefault(title, [tuple(heading)]).extend(tuple(row) for row in rows)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for title, rows in config.stash.get(TABLES, {}).items():
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        terminalreporter.section(title)
        for row in rows:
            terminalreporter.write_line("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))


def table(request: pytest.FixtureRequest, title: str, *heading: str) -> list[tuple[str, ...]]:
    """The rows of a table that is shown at the end."""
    return request.config.stash.setdefault(TABLES, {}).setdefault(title, [heading])


@pytest.fixture(scope="session")
def reference_table(request: pytest.FixtureRequest) -> list[tuple[str, ...]]:
    """Of reference traces."""
    return table(request, "reference traces",
                 "case", "trace", "packets", "instructions", "count", "hash", "events", "errors", "ledger")


@pytest.fixture(scope="session")
def right_table(request: pytest.FixtureRequest) -> list[tuple[str, ...]]:
    """Of programs whose output was compared with the native one."""
    return table(request, "output compared with the native one", "program", "threads", "mode", "runs", "identical")


@pytest.fixture(scope="session")
def similar_table(request: pytest.FixtureRequest) -> list[tuple[str, ...]]:
    """Of thunks that were stuck, and what was found to be their counterparts."""
    return table(request, "similar: thunks stuck on a lock", "case", "stuck", "node", "found", "right", "similarity")
