# SPDX-License-Identifier: MIT
"""`make bench-record`: how much of a core the drain of Intel PT's rings takes, per GB of packets.

The rings are made here (no machine of the project has the hardware): full of bytes, ahead of the reader by a quarter
of their size at every drain, as many as there would be threads. The bytes go through the recorder's own C drain into
files.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.bench.report import ROOT, Figure, medians_of, write

TOTAL = 1 << 30
STEP = 1 << 20
WANTED = 1.0  # seconds of processor time for a GB, that is, one core at 1 GB/s


def compiled(folder: Path) -> Path:
    program = folder / "bench_ring"
    source = ROOT / "wrapper/src"
    subprocess.run(["gcc", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{source}", "-o", program,
                    ROOT / "tests/programs/bench_ring.c", source / "perf_ring.c"], check=True)
    return program


def seconds_a_gb(program: Path, folder: Path, rings: int) -> Callable[[], float]:
    """A measure: seconds of processor time for 10⁹ bytes."""
    def measure() -> float:
        done = subprocess.run([program, folder, str(rings), str(STEP), str(TOTAL)], capture_output=True, text=True,
                              check=True)
        size, processor, _ = done.stdout.split()
        return float(processor) * 1e9 / int(size)
    return measure


def main() -> None:
    build = ROOT / "build"
    build.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory, tempfile.TemporaryDirectory(dir=build) as disk:
        program = compiled(Path(memory))
        cases = [(f"{rings} rings into files {name}", Path(folder), rings)
                 for name, folder in (("in memory", memory), ("on the disk", disk)) for rings in (1, 16)]
        medians = medians_of([seconds_a_gb(program, folder, rings) for _, folder, rings in cases], runs=3)
    write("record", [Figure(name, value, "s/GB", "", None, wanted=WANTED)
                     for (name, _, _), value in zip(cases, medians, strict=True)])


if __name__ == "__main__":
    main()
