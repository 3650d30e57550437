# SPDX-License-Identifier: MIT
"""A progress line on a terminal, nothing in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int, int], None]
"""Called with (done, total), in any unit."""


@contextmanager
def progress(label: str, *, quiet: bool, unit: str = "") -> Iterator[Advance]:
    """A line with time left, and with the rate when the unit is bytes, while the block runs, when stderr is a
    terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    rate = [TransferSpeedColumn()] if unit == "bytes" else []
    with Progress(TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), *rate, TimeRemainingColumn(),
                  console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
