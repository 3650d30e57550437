# SPDX-License-Identifier: MIT
"""Runs a program with watchpoints of the processor's: a plan, libtthread, a ControlServer, and no engine."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ptweave.cli.probing import plan_for
from ptweave.data import MachineLacks
from ptweave.decode.tags import decode_tags
from ptweave.decode.thunks import decode_thunks
from ptweave.wrapper.probes.plan import probes_environment
from ptweave.wrapper.target import examine
from ptweave.wrapper.watches.plan import COUNTS_FILE, FOLDER, Plan, make_plan, watches_environment
from ptweave.wrapper.watches.processor import check
from ptweave.wrapper.watches.spec import parse_spec
from support.control import Traced, run_traced


@dataclass
class Watched:
    """What became of a run; `hits` as the processor counted them."""

    plan: Plan
    traced: Traced
    hits: int

    def rows(self) -> list[dict[str, Any]]:
        """Decoded hits, in order of time."""
        path = self.traced.bundle.decoded / "watches.parquet"
        return sorted(pq.read_table(path).to_pylist(), key=lambda row: row["t"])

    def lost(self) -> dict[str, int]:
        """What the ledger says is missing of them."""
        return {why: count for name, why, count, _ in self.traced.bundle.ledger().losses if name == "watches"}


def run_watched(folder: Path, specs: Sequence[str], argv: Sequence[str | Path], *, name: str = "run.ptw",
                env: dict[str, str] | None = None) -> Watched:
    """Skips the test where the processor cannot watch."""
    plan = make_plan([parse_spec(text) for text in specs], Path(argv[0]))
    try:
        check(plan.slots)
    except MachineLacks as error:
        pytest.skip(error.line())
    place = folder / f"{name}.watches"
    plan.write(place)
    arrivals = {}
    if plan.late:
        plan_for([], examine([os.fspath(word) for word in argv]), arrivals=True).write(folder / f"{name}.probes")
        arrivals = probes_environment(folder / f"{name}.probes")
    traced = run_traced(folder, [os.fspath(word) for word in argv], name=name,
                        env={**(env or {}), **arrivals, **watches_environment(place)})
    hits = traced.server.watch_hits
    assert hits is not None
    place.rename(traced.bundle.path / FOLDER)
    (traced.bundle.path / FOLDER / COUNTS_FILE).write_text(json.dumps({"hits": hits}))
    traced.bundle.decoded.mkdir(exist_ok=True)
    decode_thunks(traced.bundle)
    decode_tags(traced.bundle)
    return Watched(plan, traced, hits)
