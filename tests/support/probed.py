# SPDX-License-Identifier: MIT
"""Runs a program with probes natively: a plan, libtthread, a ControlServer, and no engine."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from ptweave.cli.probing import plan_for
from ptweave.decode.vector import EventFile
from ptweave.wrapper.probes.plan import Plan, probes_environment
from ptweave.wrapper.target import examine
from support.control import Traced, run_traced


@dataclass
class Probed:
    """What became of a run."""

    plan: Plan
    traced: Traced

    def rows(self) -> list[dict[str, Any]]:
        """Events of both kinds, in order of time."""
        found: list[dict[str, Any]] = []
        for path in sorted(self.traced.bundle.dependence.glob("vector-*.ptv")):
            with EventFile(path) as file:
                assert not file.account().corrupt
                for table in file.tables().values():
                    found += table.to_pylist()
        return sorted(found, key=lambda row: row["tsc"])

    def counts(self) -> Counter[str]:
        """Hits by function."""
        tables = []
        for path in sorted(self.traced.bundle.dependence.glob("vector-*.ptv")):
            with EventFile(path) as file:
                tables += [table.select(["hit"]) for table in file.tables().values()]
        if not tables:
            return Counter()
        names = {hit.hit: hit.function for hit in self.plan.hits}
        counted: Counter[str] = Counter()
        for one in pa.concat_tables(tables)["hit"].value_counts().to_pylist():
            counted[names[one["values"]]] += one["counts"]
        return counted


def run_probed(folder: Path, given: Sequence[tuple[str, str]], argv: Sequence[str | Path], *, name: str = "run.ptw",
               env: dict[str, str] | None = None, cwd: Path | None = None) -> Probed:
    """`given`: ("--probe" or "--handler", value), in order."""
    plan = plan_for(given, examine([os.fspath(word) for word in argv]))
    place = folder / f"{name}.probes"
    plan.write(place)
    traced = run_traced(folder, list(argv), name=name, env={**(env or {}), **probes_environment(place)}, cwd=cwd)
    return Probed(plan, traced)
