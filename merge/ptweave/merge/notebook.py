# SPDX-License-Identifier: MIT
"""A notebook to begin with, made for one run: cells for what the run has."""

from __future__ import annotations

import json
from pathlib import Path

from ptweave.merge.run import Run

_TEXT, _CODE = "markdown", "code"

_CELLS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    ((), _CODE, "from ptweave.merge import Run\n\nrun = Run({path})\nrun"),
    (("threads",), _TEXT, "## Threads over time\n\nStriped is waiting for another thread. For a closer look: "
     "`run.plot.timeline(thread=…, begin=…, end=…)`, in ns."),
    (("threads",), _CODE, "run.plot.timeline()"),
    (("profile", "stacks"), _TEXT, "## What ran most"),
    (("profile", "stacks"), _CODE, "run.hot().limit(20).pandas()"),
    (("profile", "stacks"), _CODE, "run.plot.flame()"),
    (("thunks", "edges"), _TEXT, "## Who waited for whom"),
    (("thunks", "edges"), _CODE, "run.plot.contention()"),
    (("thunks", "edges"), _CODE, "waits = run.contention(each=True).limit(20).pandas()\nwaits"),
    (("thunks", "edges"), _TEXT, "What the longest wait depended on, and what depended on it; any other thunk is named "
     "`THREAD.THUNK`."),
    (("thunks", "edges"), _CODE, "if len(waits):\n"
     "    display(run.plot.graph(f\"{{waits.thread[0]}}.{{waits.thunk[0]}}\"))"),
    (("accesses",), _TEXT, "## Which memory is shared"),
    (("accesses",), _CODE, "run.plot.pages()"),
    (("races",), _CODE, "run.races().limit(20).pandas()"),
    (("syscalls",), _TEXT, "## System calls"),
    (("syscalls",), _CODE, "run.syscalls.relation().aggregate(\"name, count(*) as calls, sum(t_exit - t_enter) as ns\")"
     ".order(\"ns desc nulls last\").limit(20).df()"),
    ((), _TEXT, "## Your questions\n\n`run.sql(\"…\")` asks with SQL (DuckDB) and gives `.pandas()`, `.polars()`, "
     "`.arrow()` or `.relation()`; tables have names, too: `run.thunks.where(\"wait > 1000000\").limit(10)`; "
     "`run.flow(thread=0, since=0, until=100)` are blocks as they ran. docs/tables.md describes all columns."),
    ((), _CODE, "run.tables()"),
)


def notebook_of(run: Run) -> str:
    """The notebook's file content (nbformat 4). Its cells name the run's absolute path.
    """
    path = repr(str(Path(run.path).resolve()))
    command = " ".join(run.manifest.command)
    # a fence longer than any in the command: nothing of it is markup
    fence = "`" * (3 + max((len(part) for part in _ticks(command)), default=0))
    cells = [_cell(_TEXT, 0, f"# What a program did\n\n{fence}\n{command}\n{fence}")]
    for needed, kind, source in _CELLS:
        if not any(name in run.missing for name in needed):
            cells.append(_cell(kind, len(cells), source.format(path=path) if kind == _CODE else source))
    return json.dumps({
        "cells": cells, "nbformat": 4, "nbformat_minor": 5,
        "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}},
        indent=1) + "\n"


def _cell(kind: str, number: int, source: str) -> dict[str, object]:
    cell: dict[str, object] = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": source}
    return cell if kind == _TEXT else {**cell, "execution_count": None, "outputs": []}


def _ticks(text: str) -> list[str]:
    """Runs of backticks."""
    return ["`" * len(run) for run in "".join(char if char == "`" else " " for char in text).split()]
