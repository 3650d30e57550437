# SPDX-License-Identifier: MIT
"""Tables of the integration tests, shown at the end of a run whatever pytest captures."""

from __future__ import annotations

import pytest

TABLE = pytest.StashKey[list[tuple[str, ...]]]()
"""Rows of the table of reference traces; the first is the heading."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    rows = config.stash.get(TABLE, [])
    if len(rows) < 2:
        return
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    terminalreporter.section("reference traces")
    for row in rows:
        terminalreporter.write_line("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))


@pytest.fixture(scope="session")
def reference_table(request: pytest.FixtureRequest) -> list[tuple[str, ...]]:
    """The rows to be shown at the end."""
    return request.config.stash.setdefault(
        TABLE, [("case", "trace", "packets", "instructions", "count", "hash", "events", "errors", "ledger")])
