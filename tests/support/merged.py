# SPDX-License-Identifier: MIT
"""Merging copies of a bundle, to compare what comes of it."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

from ptweave.data.bundle import Bundle
from ptweave.merge import merge_run


def merged(source: Bundle, to: Path, jobs: int) -> dict[str, bytes]:
    """The tables' files, and the ledger, of a copy that is merged with so many jobs."""
    shutil.copytree(source.path, to)
    merge_run(Bundle.open(to), jobs=jobs)
    files = {str(path.relative_to(to)): path.read_bytes() for path in sorted((to / "tables").rglob("*.parquet"))}
    return {**files, "ledger": (to / "ledger.json").read_bytes()}


def walkers() -> list[str]:
    """Names of the threads that walk."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("walk")]
