# SPDX-License-Identifier: MIT
"""`make bench-compare`: seconds and memory that comparing two runs of SQLite takes, one of them of a build with a bug
of one line, and at which rank that line is."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.bench.report import ROOT, Figure, write
from tests.bench.spent import spent

sys.path.insert(0, str(ROOT / "tests"))

from ptweave.merge import Run
from support.command import words
from support.sqlite import Unreachable, builds, statements

RUNS = 3
ROWS = (12_000, 48_000)
SECONDS = 30.0  # for a run of 100 million instructions, at most
MEGABYTES = 1000


def compared(a: Path, b: Path, out: Path) -> tuple[float, float]:
    """Wall-clock seconds and greatest memory (MB) of the command."""
    found = spent(words("diff", "-q", a, b, "--format", "json", "-o", out))
    if found.status != 0:
        raise SystemExit(f"ptweave diff {a} {b} failed")
    return found.wall, found.memory


def measured(folder: Path, rows: int) -> list[Figure]:
    """Of a table with so many rows."""
    made = builds()
    for name, program in (("good", made.good), ("bad", made.bad)):
        subprocess.run(words("wrap", "-q", "-o", folder / f"{name}{rows}.ptw", "--", program, ":memory:",
                             statements(rows)), check=True, stdout=subprocess.DEVNULL)
    a, b = (folder / f"{name}{rows}.ptw" for name in ("good", "bad"))
    taken = [compared(a, b, folder / "found") for _ in range(RUNS)]
    found = [json.loads(line) for line in (folder / "found").read_text().splitlines()]
    rank = next((row["rank"] for row in found if (row["function"], row["line"]) == (made.function, made.line)), -1)
    with Run(a) as run:
        (instructions,), = run.sql("select sum(instructions)::bigint from threads")
    name = f"sqlite, {rows} rows"
    return [Figure(f"{name}: instructions", instructions / 1e6, "M", "", None),
            Figure(f"{name}: diff", statistics.median(one[0] for one in taken), "s", "", None, wanted=SECONDS),
            Figure(f"{name}: memory", max(one[1] for one in taken), "MB", "", None, wanted=MEGABYTES),
            Figure(f"{name}: rank of the changed line", rank, "", "", None, wanted=1),
            Figure(f"{name}: rows", len(found), "", "", None)]


def main() -> None:
    """Measure, print, and write build/bench/compare.json."""
    try:
        builds()
    except Unreachable as error:
        raise SystemExit(f"the source of SQLite cannot be had: {error}") from error
    with tempfile.TemporaryDirectory() as scratch:
        write("compare", [figure for rows in ROWS for figure in measured(Path(scratch), rows)])


if __name__ == "__main__":
    main()
