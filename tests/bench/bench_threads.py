# SPDX-License-Identifier: MIT
"""`make bench-threads`: what libtthread's modes cost, without an engine, divided by the native time of the same run.

The twelve workloads and six real programs, with four threads on two processors. The log is drained and written to its
files while the program runs, by the supervisor's own server on the same two processors; a time is the program's own,
from its start to its end. Runs whose log is not whole are an error.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import select
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.report import ROOT, Figure, kept, medians_of, write

from ptweave.data import Ledger
from ptweave.preload import library_path
from ptweave.wrapper.control import ControlServer
from ptweave.wrapper.supervisor import TICK_MS
from support.control import Threads, new_bundle
from support.inputs import text_file
from support.modes import MODES, NATIVE, NOT_BUILT, Mode
from support.programs import compile_program
from support.threaded import PROGRAMS
from support.workloads import WORKLOADS, Bench

PROCESSORS = 2
THREADS = 4
RUNS = 5
FEW, SLOW_SECONDS = 3, 1.0
"""Programs, and what takes longer than that, are run so often only."""
OPERATION_RUNS = 5
MOST_SECONDS = 60.0
"""No run takes so long, or it is not measured: `sort` in the private view takes minutes."""
INPUT_BYTES = 20_000_000
TICK_SECONDS = TICK_MS / 1000


@dataclass(frozen=True)
class Wanted:
    """What a mode may cost: median and geometric mean over the workloads."""

    median: float | None
    geomean: float


WANTED = {
    "process held shared": Wanted(1.25, 2.0),
    "process exact shared": Wanted(1.4, 3.0),
    "process held private": Wanted(None, 2.2),
}
CREATE_JOIN_US = 300.0
LOCK_OVER_NATIVE_NS = 1000.0


@dataclass
class Timed:
    """Runs a command in a mode; a call gives its seconds, infinite if it would take more than MOST_SECONDS. `out` is
    what it printed last, `bytes` its logs' sizes.

    `alone`: under libtthread without a supervisor, so nothing is logged.
    """

    mode: Mode
    argv: Sequence[str]
    folder: Path
    alone: bool = False
    out: str = ""
    bytes: list[int] = field(default_factory=list)
    endless: bool = False

    def __call__(self) -> float:
        if self.endless:
            return math.inf
        with (self.folder / "out").open("w+") as out:
            logged = self.mode.traced and not self.alone
            seconds = self._traced(out.fileno()) if logged else self._native(out.fileno())
            out.seek(0)
            self.out = out.read(1000) if os.fstat(out.fileno()).st_size < 1000 else ""
        return seconds

    def _native(self, out: int) -> float:
        began = time.perf_counter()
        extra = {**self.mode.environment(), "LD_PRELOAD": str(library_path())} if self.alone else {}
        child = subprocess.Popen(self.argv, stdin=subprocess.DEVNULL, stdout=out, env={**os.environ, **extra})
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        seconds = time.perf_counter() - began
        self._check(child)
        return seconds

    def _traced(self, out: int) -> float:
        bundle, ledger = new_bundle(Path(tempfile.mkdtemp(dir=self.folder))), Ledger()
        server = ControlServer(bundle, Threads())
        try:
            began = time.perf_counter()
            child = subprocess.Popen(self.argv, stdin=subprocess.DEVNULL, stdout=out, env={
                **os.environ, **self.mode.environment(), **server.environment()})
            pidfd = os.pidfd_open(child.pid)
            ready: list[int] = []
            seconds = 0.0
            while pidfd not in ready and seconds < MOST_SECONDS:
                ready, _, _ = select.select([*server.fds(), pidfd], [], [], min(TICK_SECONDS, server.patience()))
                seconds = time.perf_counter() - began
                server.service()
            os.close(pidfd)
            if pidfd not in ready:
                self.endless = True
                child.kill()
                child.wait()
                return math.inf
        finally:
            server.finish(ledger)
        self._check(child)
        lost = [(name, stream.lost) for name, stream in ledger if stream.lost]
        if lost or ledger.check() or not server.processes:
            raise SystemExit(f"{self.mode}: {self.argv}: the log is not whole: {lost or ledger.check()}")
        self.bytes.append(sum(path.stat().st_size for path in bundle.dependence.iterdir()))
        for path in bundle.dependence.iterdir():
            os.truncate(path, 0)  # not removed: for seconds after, ext4 looks long for the inode of a new file
        return seconds

    def _check(self, child: subprocess.Popen[bytes]) -> None:
        if child.wait() != 0:
            raise SystemExit(f"{self.mode}: {self.argv} ended with {child.returncode}")


@dataclass(frozen=True)
class Chosen:
    """What to measure: `names` of workloads and programs, modes with one of the `words` in their name; all if empty."""

    names: tuple[str, ...] = ()
    words: tuple[str, ...] = ()

    def has(self, name: str) -> bool:
        return not self.names or name in self.names

    @property
    def modes(self) -> list[Mode]:
        """The native one is always among them."""
        return [mode for mode in MODES
                if mode is NATIVE or not self.words or any(word in mode.name for word in self.words)]


def compare(name: str, argv: Sequence[str], folder: Path, modes: Sequence[Mode], *, published: float | None = None,
            wanted: float | None = None, runs: int = RUNS) -> dict[Mode, Figure]:
    """One command in these modes, in turns; its figures by mode, the native one among them."""
    timed = [Timed(mode, argv, folder) for mode in modes]
    seconds = dict(zip(modes, medians_of([*timed], runs, slow=SLOW_SECONDS, few=FEW), strict=True))
    found = {NATIVE: Figure(f"{name}: native", seconds[NATIVE] * 1000, "ms", "", None)}
    for mode, one in zip(modes, timed, strict=True):
        if one.endless:
            print(f"{name}: {mode}: more than {MOST_SECONDS:.0f} s: not measured", flush=True)
        elif mode is not NATIVE:
            found[mode] = Figure(f"{name}: {mode}", seconds[mode] * 1000, "ms", "native",
                                 seconds[mode] / seconds[NATIVE], published,
                                 wanted if mode.name == "process held shared" else None)
            print(f"{found[mode].metric}: {found[mode].beside()}, log {statistics.median(one.bytes) / 1e6:.1f} MB",
                  flush=True)
    return found


def workloads(folder: Path, chosen: Chosen) -> list[Figure]:
    """Every workload in every mode, then, when it is all of them, each mode's median and geometric mean."""
    bench = Bench(ROOT / "build" / "bench" / "workloads")
    tables = [compare(one.name, bench.argv(one, THREADS, one.size), folder, chosen.modes, published=one.published)
              for one in WORKLOADS if chosen.has(one.name)]
    figures = [figure for table in tables for figure in table.values()]
    published = [one.published for one in WORKLOADS]
    for mode in chosen.modes if len(tables) == len(WORKLOADS) else ():
        if mode is not NATIVE:
            ratios = [table[mode].ratio or math.nan if mode in table else math.inf for table in tables]
            wanted = WANTED.get(mode.name)
            for word, mean, limit in (("median", statistics.median, wanted and wanted.median),
                                      ("geometric mean", statistics.geometric_mean, wanted and wanted.geomean)):
                figures.append(Figure(f"twelve workloads, {word}: {mode}", mean(ratios), "", "native", mean(ratios),
                                      mean(published), limit))
    return figures


def programs(folder: Path, chosen: Chosen) -> list[Figure]:
    """Real programs on 20 MB of text."""
    source = text_file(folder / "text", INPUT_BYTES)
    return [figure for one in PROGRAMS if chosen.has(one.name)
            for figure in compare(one.name, one.argv(THREADS, source), folder, chosen.modes, wanted=one.wanted,
                                  runs=FEW).values()]


def operations(folder: Path, chosen: Chosen) -> list[Figure]:
    """What a create with its join and an uncontended lock with its unlock cost."""
    program = str(compile_program(folder, "bench_sync", flags=("-O2",)))
    held = next(mode for mode in MODES if mode.access == "held")
    timed = [*(Timed(mode, [program], folder) for mode in chosen.modes), Timed(held, [program], folder, alone=True)]
    rounds = [[_numbers(one) for one in timed] for _ in range(OPERATION_RUNS)]
    figures = []
    for index, mode in enumerate(chosen.modes):
        create, lock = (statistics.median(row[index][column] for row in rounds) for column in (0, 1))
        native_create, native_lock = (statistics.median(row[0][column] for row in rounds) for column in (0, 1))
        peer = "" if mode is NATIVE else "native"
        process = bool(mode.access)
        figures += [
            Figure(f"create and join: {mode}", create, "us", peer, create / native_create if peer else None,
                   wanted=CREATE_JOIN_US / native_create if process else None),
            Figure(f"uncontended lock and unlock: {mode}", lock, "ns", peer, lock / native_lock if peer else None,
                   wanted=(LOCK_OVER_NATIVE_NS + native_lock) / native_lock if process else None),
        ]
    alone = statistics.median(row[-1][0] for row in rounds)
    native = statistics.median(row[0][0] for row in rounds)
    figures.append(Figure(f"create and join, no supervisor: {held}", alone, "us", "native", alone / native))
    return figures


def _numbers(timed: Timed) -> tuple[float, float]:
    timed()
    values = dict(line.split() for line in timed.out.splitlines())
    return float(values["create_join_us"]), float(values["lock_unlock_ns"])


PARTS = {"workloads": workloads, "programs": programs, "operations": operations}


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    """A folder; what is large in it goes away again, its many emptied files do not: after thousands were deleted, ext4
    takes up to 0.2 ms instead of 0.01 to create one, for minutes, and the supervisor creates one for each thread."""
    parent = ROOT / "build" / "bench"
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="scratch-", dir=parent))
    try:
        yield folder
    finally:
        for path in folder.iterdir():
            if path.is_file():
                path.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"what to measure: {', '.join(PARTS)} (default: everything)")
    parser.add_argument("--only", default="", help="names of workloads and programs, separated by commas")
    parser.add_argument("--modes", default="", help="words of modes' names, separated by commas: --modes held,native")
    options = parser.parse_args()
    parts = options.parts or list(PARTS)
    if set(parts) - set(PARTS):
        parser.error(f"there is no such part: {' '.join(sorted(set(parts) - set(PARTS)))}")
    chosen = Chosen(*(tuple(filter(None, words.split(","))) for words in (options.only, options.modes)))
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:PROCESSORS])
    for mode, reason in NOT_BUILT.items():
        print(f"not measured: {mode}: {reason}")
    figures: list[Figure] = []
    for part in parts:
        with _scratch() as folder:
            figures += PARTS[part](folder, chosen)
    if parts != list(PARTS) or chosen != Chosen():  # of what was not measured, the figures of earlier runs stay
        figures = kept("threads", figures)
    write("threads", figures)


if __name__ == "__main__":
    main()
