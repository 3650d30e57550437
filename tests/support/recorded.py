# SPDX-License-Identifier: MIT
"""A run as it was recorded, and what steps made of it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from support.command import compile_c, ptweave

ROOT = Path(__file__).resolve().parents[2]


def pipeline(folder: Path) -> Path:
    """A run with threads, locks, accesses, system calls and files, recorded below `folder`."""
    program = compile_c(ROOT / "tests/programs/known_graph.c", folder / "known_graph")
    done = ptweave("record", "-o", folder / "run.ptw", "--", program, "pipeline")
    assert done.status == 0, done.err
    return folder / "run.ptw"


def files(bundle: Path) -> dict[str, str]:
    """What is in a bundle's tables and ledger: digests by name, and the ledger's lines."""
    found = {str(path.relative_to(bundle)): hashlib.sha256(path.read_bytes()).hexdigest()
             for path in sorted((bundle / "tables").rglob("*.parquet"))}
    return {**found, "ledger": json.loads((bundle / "ledger.json").read_text())}
