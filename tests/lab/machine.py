# SPDX-License-Identifier: MIT
"""Has the laboratory's machine run jobs, and brings back what they left."""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from lab import emulator
from lab.build import FOLDER, Machine, machine, woken
from lab.given import pack

DONE = "LAB: done"
MACHINES = 2
"""At once: each has a task that is stepped, and a recorder beside it that mostly waits."""
TIMES = FOLDER / "seconds.json"
USUAL = 5.0
"""Seconds that a job takes of which nothing is known."""


@dataclass(frozen=True)
class Ran:
    """A task, as the module saw it: instructions executed, the hash of their addresses, and how many of them ran while
    an overflow that the module forced dropped packets."""

    pid: int
    tid: int
    count: int
    hash: int
    unseen: int


@dataclass(frozen=True)
class Job:
    """What a job left."""

    folder: Path

    @property
    def status(self) -> int:
        return int(self.text("status"))

    @property
    def seconds(self) -> float:
        """How long it took."""
        return float(self.text("seconds"))

    def text(self, name: str) -> str:
        return (self.folder / name).read_text(errors="replace")

    @property
    def oracle(self) -> list[Ran]:
        return self.executed("oracle")

    def executed(self, name: str) -> list[Ran]:
        """What the module said, as the job left it in a file."""
        lines = (line.split() for line in self.text(name).splitlines() if line)
        return [Ran(int(pid), int(tid), int(count), int(digest, 16), int(unseen))
                for pid, tid, count, digest, unseen in lines if int(count)]


def run(jobs: Sequence[str], folder: Path) -> dict[str, Job]:
    """Run jobs of jobs/ in fresh machines, as many at once as there are processors, up to MACHINES; their results are
    below `folder`. Raises lab.packages.Unavailable where there can be no laboratory, RuntimeError when a machine did
    not do as it should."""
    built = machine()
    state = woken(built)
    found: dict[str, Job] = {}
    with ThreadPoolExecutor(MACHINES) as pool:
        shares = enumerate(_shares(jobs))
        for part in pool.map(lambda share: _run(built, state, share[1], folder / str(share[0])), shares):
            found |= part
    TIMES.write_text(json.dumps(_times() | {name: job.seconds for name, job in found.items()}))
    return found


def _times() -> dict[str, float]:
    """Seconds that jobs took the last time."""
    try:
        return {str(name): float(seconds) for name, seconds in json.loads(TIMES.read_text()).items()}
    except (OSError, ValueError, AttributeError):
        return {}


def _shares(jobs: Sequence[str]) -> list[list[str]]:
    """The jobs of each machine, so that all take about the same time."""
    times = _times()
    shares: list[list[str]] = [[] for _ in range(max(1, min(MACHINES, os.cpu_count() or 1, len(jobs))))]
    sums = [0.0] * len(shares)
    for name in sorted(jobs, key=lambda name: -times.get(name, USUAL)):
        least = sums.index(min(sums))
        shares[least].append(name)
        sums[least] += times.get(name, USUAL)
    return shares


def _run(built: Machine, state: Path, jobs: Sequence[str], folder: Path) -> dict[str, Job]:
    """One machine."""
    folder.mkdir()
    given, disk = folder / "in.tar", folder / "out.img"
    pack(jobs, folder, given)
    console = emulator.run(built, state, given, folder / "console")
    results = folder / "results"
    results.mkdir()
    if DONE not in console:
        raise RuntimeError(f"the laboratory's machine did not come to its end:\n{console[-4000:]}")
    with tarfile.open(disk) as packed:
        packed.extractall(results, filter="tar")
    disk.unlink()
    given.unlink()
    if not all((results / name / "status").exists() for name in jobs):
        raise RuntimeError(f"the laboratory's machine ran only a part of the jobs:\n{console[-4000:]}")
    return {name: Job(results / name) for name in jobs}
