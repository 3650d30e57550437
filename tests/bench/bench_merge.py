# SPDX-License-Identifier: MIT
"""`make bench-merge`: what merging adds to decoding the same run, the memory it takes, and how long questions take.

Steps are measured as commands with their processes, in processor seconds and by the clock on the wall: `decode`,
`merge` of what it left, and `merge` alone, which decodes first: what that takes longer than `decode` is what merging
adds. Times of questions are wall-clock seconds from an open run. Medians of three, but of what takes long. The
recordings are made here, unless PTWEAVE_BENCH names a folder of finished bundles (`NAME.ptw`): those are copied, never
written to.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.bench.bench_decode import commands
from tests.bench.report import ROOT, Figure, write
from tests.bench.spent import Spent, spent

sys.path.insert(0, str(ROOT / "tests"))

from ptweave.merge import Result, Run
from support.command import words
from support.inputs import text_file

RUNS = 3
LONG = 2.0
"""Seconds after which a question is asked once; ten times as long, steps are taken once."""
ADDED = 0.5  # of the decode time, at most
SECONDS = 1.0  # a question, at most
MEGABYTES = 1000  # of memory, at most


BILLION = """
with recursive c(x) as (select 1 union all select x + 1 from c where x < 400000) select count(*), sum(x * x % 7) from c;
create table t(a, b);
insert into t select x, hex(randomblob(8)) from
  (with recursive c(x) as (select 1 union all select x + 1 from c where x < 120000) select x from c);
create index i on t(b);
select count(*) from t where b like '%AB%';"""
"""What sqlite3 executes a billion blocks for."""


def recordings(folder: Path) -> dict[str, Path]:
    """Runs by name."""
    given = os.environ.get("PTWEAVE_BENCH")
    if given:
        return {path.stem: path for path in sorted(Path(given).glob("*.ptw"))}
    text = str(text_file(folder / "text", 8_000_000))
    others = commands(folder)
    programs = {"gzip": ["gzip", "-c", text], "pigz": ["pigz", "-p", "3", "-c", text], "python": others["python"],
                "gcc": others["gcc"], "billion": ["sqlite3", ":memory:", BILLION]}
    for name, argv in programs.items():
        subprocess.run(words("record", "-q", "-o", folder / f"{name}.ptw", "--", *argv), check=True,
                       stdout=subprocess.DEVNULL)
    return {name: folder / f"{name}.ptw" for name in programs}


def step(command: str, bundle: Path) -> Spent:
    """What a step spends."""
    found = spent(words(command, "-q", bundle), stderr=subprocess.DEVNULL)
    if found.status not in (0, 1):
        raise SystemExit(f"ptweave {command} {bundle} failed")
    return found


def answered(ask: Callable[[], Result]) -> float:
    """Median seconds until all rows of an answer are there."""
    taken = []
    for _ in range(RUNS):
        began = time.perf_counter()
        ask().arrow()
        taken.append(time.perf_counter() - began)
        if taken[0] > LONG:
            break
    return statistics.median(taken)


@dataclass(frozen=True)
class Round:
    """Both steps as one command, and one after the other."""

    both: Spent
    decode: Spent
    merge: Spent

    @classmethod
    def of(cls, bundle: Path) -> Round:
        for made in ("tables", "decoded"):
            shutil.rmtree(bundle / made, ignore_errors=True)
        return cls(step("merge", bundle), step("decode", bundle), step("merge", bundle))


def steps(name: str, bundle: Path) -> list[Figure]:
    """Decoding and merging."""
    rounds: list[Round] = []
    while len(rounds) < RUNS and not (rounds and rounds[0].both.cpu > 10 * LONG):
        rounds.append(Round.of(bundle))
    figures = []
    for unit, seconds in {"CPU s": lambda one: one.cpu, "s": lambda one: one.wall}.items():
        both, decode, merge = (statistics.median(seconds(one) for one in found) for found in (
            [one.both for one in rounds], [one.decode for one in rounds], [one.merge for one in rounds]))
        figures += [Figure(f"{name}: decode", decode, unit, "", None),
                    Figure(f"{name}: merge", merge, unit, "decode", merge / decode),
                    Figure(f"{name}: decode and merge as one", both, unit, "decode", both / decode),
                    Figure(f"{name}: added by merging", both - decode, unit, "decode", (both - decode) / decode,
                           wanted=ADDED)]
    memory = max(one.memory for found in rounds for one in (found.both, found.merge))
    return [*figures, Figure(f"{name}: memory of merge", memory, "MB", "", None, wanted=MEGABYTES)]


def questions(name: str, bundle: Path) -> list[Figure]:
    """Questions to the merged run."""
    with Run(bundle) as run:
        (blocks,), = run.sql("select sum(blocks)::bigint from threads")
        figures = [Figure(f"{name}: blocks", blocks / 1e6, "M", "", None)]
        asked: dict[str, Callable[[], Result]] = {"hot": run.hot,
                                                  "executions": lambda: run.sql("from executions('main')")}
        if "edges" not in run.missing and "thunks" not in run.missing:
            ((begin, end, thunks),) = run.sql("select min(t), max(t), count(*) from thunks")
            figures.append(Figure(f"{name}: thunks", thunks / 1e6, "M", "", None))
            part = (begin + (end - begin) // 2, begin + (end - begin) * 51 // 100)
            asked |= {"contention": run.contention, "timeline": run.timeline,
                      "timeline of a hundredth": lambda: run.timeline(begin=part[0], end=part[1]),
                      "timeline, folded to a thousandth": lambda: run.timeline(
                          resolution=max(1, (end - begin) // 1000)),
                      "critical path": run.critical_path}
            if run.sql("from transfers where descriptor = 1 and not input limit 1").arrow().num_rows:
                asked["lineage"] = lambda: run.lineage(to="fd:1")
        return figures + [Figure(f"{name}: {what}", answered(ask), "s", "", None, wanted=SECONDS)
                          for what, ask in asked.items()]


def main() -> None:
    """Measure, print, and write build/bench/merge.json."""
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as scratch:
        for name, path in recordings(Path(scratch)).items():
            bundle = Path(scratch) / "measured.ptw"
            shutil.copytree(path, bundle, ignore=shutil.ignore_patterns("tables", "decoded"))
            for part in [bundle, *bundle.rglob("*")]:
                part.chmod(0o700 if part.is_dir() else 0o600)
            figures += steps(name, bundle) + questions(name, bundle)
            shutil.rmtree(bundle)
    write("merge", figures)


if __name__ == "__main__":
    main()
