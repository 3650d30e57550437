# SPDX-License-Identifier: MIT
"""`make bench-probes`: nanoseconds that a hit of a probe adds to a small function, for each built-in handler, all hits
stored; beside a uprobe at the same place (through tracefs, into the kernel's ring), which needs root.

Five rounds of 400,000 calls a run, of which the least counts; medians of RUNS runs in turns. Files are in /dev/shm.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.report import ROOT, Figure, write

from ptweave.cli.code import load_code
from support.probed import run_probed

CALLS, RUNS, ROUNDS = 400_000, 3, 5
HANDLERS = ("log", "args", "stack", "time")
WANTED_NS = 40.0
TRACING = Path("/sys/kernel/tracing")


def build(folder: Path) -> Path:
    """The program. Raises CalledProcessError."""
    out = folder / "bench_probe"
    subprocess.run(["gcc", "-O2", "-o", out, ROOT / "tests/programs/bench_probe.c"], check=True)
    return out


def plain(program: Path) -> float:
    """Nanoseconds of a call."""
    return float(subprocess.run([program, str(CALLS)], capture_output=True, check=True).stdout)


def probed(program: Path, handler: str) -> float:
    """The same with a probe; every hit must be there."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        run = run_probed(Path(folder), [("--handler", handler), ("--probe", "probed")], [program, str(CALLS)])
        assert run.counts() == {"probed": CALLS * ROUNDS}, run.counts()
        return float(run.traced.out)


def _say(path: Path, text: str) -> None:
    """In one write, without a seek: tracefs knows none."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


@contextmanager
def uprobe(program: Path) -> Iterator[None]:
    """A uprobe at the function. Raises OSError where there may be none."""
    code = load_code(program)
    events = TRACING / "uprobe_events"
    _say(events, f"p:ptweave_bench/hit {program}:{code.symbols['probed'][0] - code.low:#x}\n")
    switch = TRACING / "events/ptweave_bench/enable"
    try:
        switch.write_text("1")
        yield
    finally:
        switch.write_text("0")
        _say(events, "-:ptweave_bench/hit\n")


@contextmanager
def _tracefs() -> Iterator[None]:
    mounted = (TRACING / "uprobe_events").exists()
    if not mounted:
        subprocess.run(["mount", "-t", "tracefs", "tracefs", TRACING], check=True, capture_output=True)
    try:
        yield
    finally:
        if not mounted:
            subprocess.run(["umount", TRACING], check=False)


def with_uprobe(program: Path) -> float | None:
    """None: there may be none here."""
    try:
        with _tracefs(), uprobe(program):
            return plain(program)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"no uprobe: {error}", file=sys.stderr)
        return None


def main() -> int:
    """Status 1 when `log` costs more than is wanted."""
    taken: dict[str, list[float]] = {handler: [] for handler in HANDLERS}
    uprobes: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        program = build(Path(folder))
        for _ in range(RUNS):
            base = plain(program)
            for handler in HANDLERS:
                taken[handler].append(probed(program, handler) - base)
            found = with_uprobe(program)
            uprobes += [] if found is None else [found - base]
    peer = statistics.median(uprobes) if uprobes else None
    figures = [Figure(f"probe, {handler}", round(statistics.median(values), 1), "ns", "a uprobe",
                      None if peer is None else round(statistics.median(values) / peer, 4),
                      wanted=None) for handler, values in taken.items()]
    if peer is not None:
        figures.append(Figure("uprobe", round(peer, 1), "ns", "", None))
    write("probes", figures)
    log = statistics.median(taken["log"])
    print(f"log: {log:.1f} ns, wanted at most {WANTED_NS:.0f}", file=sys.stderr)
    return int(log > WANTED_NS and not os.environ.get("PTWEAVE_BENCH_LENIENT"))


if __name__ == "__main__":
    sys.exit(main())
