# SPDX-License-Identifier: MIT
"""`make bench`: what recording costs the target, and what decode and merge cost after it, beside the native run.

The time of a recorded program is its own, from exec to its end, with every recorder on (packets, system calls,
libtthread); the whole `ptweave record` command, its start-up included, is listed on its own.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.bench.report import ROOT, Figure, medians_of, write
from tests.support.command import compile_c
from tests.support.inputs import text_file

PROGRAMS = ROOT / "tests" / "programs"
GZIP_BYTES = 5_000_000


WANTED = 6.0  # of a program with threads, times native


@dataclass
class Case:
    name: str
    argv: list[str]
    threads: tuple[str, ...] = ("native",)
    """What its threads are while it is recorded; the whole case is measured with each."""

    def called(self, threads: str) -> str:
        return self.name if threads == "native" else f"{self.name}, threads as processes"


class Native:
    """Runs a program as it is; keeps its CPU time beside the wall time."""

    def __init__(self, argv: list[str]) -> None:
        self.argv = argv
        self.cpu: list[float] = []

    def __call__(self) -> float:
        began = time.perf_counter()
        child = subprocess.Popen(self.argv, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        self.cpu.append(usage.ru_utime + usage.ru_stime)
        return time.perf_counter() - began


def ptweave(*words: str) -> list[str]:
    return [sys.executable, "-m", "ptweave.cli", *words]


class Recorded:
    """Runs `ptweave record`; keeps the time of the whole command beside the target's own."""

    def __init__(self, argv: list[str], bundle: Path, threads: str) -> None:
        self.argv, self.bundle, self.threads = argv, bundle, threads
        self.whole: list[float] = []
        self.cpu: list[float] = []

    def __call__(self) -> float:
        shutil.rmtree(self.bundle, ignore_errors=True)
        began = time.perf_counter()
        subprocess.run(ptweave("record", "-q", "--threads", self.threads, "-o", str(self.bundle), "--", *self.argv),
                       check=True, stdout=subprocess.DEVNULL)
        self.whole.append(time.perf_counter() - began)
        steps = json.loads((self.bundle / "run.json").read_text())["steps"]
        self.cpu.append(float(steps["target_cpu"]))
        return float(steps["target"])


def measured(argv: list[str]) -> tuple[float, float]:
    """Seconds and peak MB of a command."""
    began = time.perf_counter()
    child = subprocess.Popen(argv)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode not in (0, 1):
        raise SystemExit(f"{argv} ended with {child.returncode}")
    return time.perf_counter() - began, usage.ru_maxrss / 1024


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        source = text_file(folder / "input", GZIP_BYTES)
        threads, hashes, floats = (compile_c(PROGRAMS / f"{name}.c", folder / name, "-O2", "-lm")
                                   for name in ("bench_threads", "bench_hash", "bench_float"))
        cases = [
            Case("gzip of 5 MB", ["gzip", "-c", str(source)]),
            Case("four threads sorting", [str(threads), "20000"], ("native", "process")),
            Case("four threads hashing", [str(hashes), "50000000"], ("native", "process")),
            Case("floating-point loops", [str(floats), "20"]),
            Case("/bin/true", ["/bin/true"]),
        ]
        figures: list[Figure] = []
        for case in cases:
            native = Native(case.argv)
            recorders = [Recorded(case.argv, folder / f"{Path(case.argv[0]).name}.ptw", threads)
                         for threads in case.threads]
            plain, *seconds = medians_of([native, *recorders])
            plain_cpu = max(statistics.median(native.cpu), 1e-4)
            figures.append(Figure(f"{case.name}: native", plain * 1000, "ms", "", None))
            for recorded, traced in zip(recorders, seconds, strict=True):
                name = case.called(recorded.threads)
                whole, cpu = statistics.median(recorded.whole), statistics.median(recorded.cpu)
                figures += [
                    Figure(f"{name}: recorded", traced * 1000, "ms", "native", traced / plain,
                           wanted=WANTED if len(case.threads) > 1 else None),
                    Figure(f"{name}: recorded, CPU time", cpu * 1000, "ms", "native", cpu / plain_cpu),
                    Figure(f"{name}: whole command", whole * 1000, "ms", "native", whole / plain),
                ]
        bundle = str(folder / "gzip.ptw")
        for step in ("decode", "merge"):
            taken, peak = measured(ptweave(step, "-q", bundle))
            figures += [Figure(f"gzip of 5 MB: {step}", taken, "s", "", None),
                        Figure(f"gzip of 5 MB: {step}, peak memory", peak, "MB", "", None)]
        write("engine", figures)


if __name__ == "__main__":
    main()
