# SPDX-License-Identifier: MIT
"""Has the laboratory's machines run jobs, and brings back what they left."""

from __future__ import annotations

import json
import os
import re
import tarfile
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from lab import emulator
from lab.build import FOLDER, Machine, loaded, locked, machine
from lab.given import pack_jobs, pack_project

MACHINES = 2
"""At once: each has a task that is stepped, and a recorder beside it that mostly waits."""
TIMES = FOLDER / "seconds.json"
USUAL = 2.0
"""Seconds that a job takes of which nothing is known."""
HANGS = 1800
"""Seconds: a machine that is up longer hangs."""
LAST_SECONDS = 5
"""For a machine without jobs to switch itself off."""
TOLD = 4000
"""Characters of its console that are shown when it does not do as it should."""
ENDED = re.compile(r"LAB: (?P<job>\S+) (?P<at>\d+) -?\d+ ")
"""What the guest says when a job has ended, and lies at this byte of the disk; the kernel may say something before."""


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


class Laboratory:
    """Machines that run jobs of jobs/, as many as there are processors, up to MACHINES. What a job left can be had as
    soon as it has ended, below `folder`. Raises lab.packages.Unavailable where there can be no laboratory."""

    def __init__(self, jobs: Sequence[str], folder: Path) -> None:
        self._found: dict[str, Future[Job]] = {name: Future() for name in jobs}
        self.machines: list[Running] = []
        project = folder / "project.tar"
        try:
            with locked():
                built = machine()
                pack_project(folder, project)
                state = loaded(built, project)
                for number, share in enumerate(_shares(jobs)):
                    found = {name: self._found[name] for name in share}
                    self.machines.append(Running(built, state, project, found, folder / str(number)))
                for one in self.machines:
                    one.awake.wait()
        except BaseException:
            self.close()
            raise

    def job(self, name: str) -> Job:
        """Wait for what a job left. Raises RuntimeError when its machine did not do as it should."""
        return self._found[name].result()

    def close(self) -> None:
        """End the machines, which have nothing to do any more or are not wanted."""
        for one in self.machines:
            one.close()
        done = {name: future.result().seconds for name, future in self._found.items()
                if future.done() and not future.exception()}
        TIMES.write_text(json.dumps(_times() | done))


def _times() -> dict[str, float]:
    """Seconds that jobs took the last time."""
    try:
        return {str(name): float(seconds) for name, seconds in json.loads(TIMES.read_text()).items()}
    except (OSError, ValueError, AttributeError):
        return {}


def _shares(jobs: Sequence[str]) -> list[list[str]]:
    """The jobs of each machine, so that all take about the same time, in the order in which they are wanted."""
    times = _times()
    shares: list[list[str]] = [[] for _ in range(max(1, min(MACHINES, os.cpu_count() or 1, len(jobs))))]
    sums = [0.0] * len(shares)
    for name in sorted(jobs, key=lambda name: -times.get(name, USUAL)):
        least = sums.index(min(sums))
        shares[least].append(name)
        sums[least] += times.get(name, USUAL)
    return [sorted(share, key=list(jobs).index) for share in shares]


class Running:
    """A machine, and the thread that listens to it."""

    def __init__(self, built: Machine, state: Path, project: Path, found: dict[str, Future[Job]], folder: Path) -> None:
        (folder / "results").mkdir(parents=True)
        self._folder, self._found = folder, found
        self.awake = threading.Event()
        """It has read what it was made from; or it has ended."""
        out = emulator.empty(folder / "out.img", emulator.OUT_SIZE)
        self._disks = emulator.Disks(project, folder / "jobs.tar", out)
        pack_jobs(list(found), folder, self._disks.jobs)
        self._qemu = emulator.run(built, state, self._disks)
        self._guard = threading.Timer(HANGS, self._qemu.kill)
        self._guard.daemon = True
        self._guard.start()
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    @property
    def pid(self) -> int:
        """QEMU's."""
        return self._qemu.pid

    def _listen(self) -> None:
        said: list[str] = []
        try:
            with (self._folder / "console").open("w") as console:
                assert self._qemu.stdout is not None
                for raw in self._qemu.stdout:
                    line = raw.decode(errors="replace").strip()
                    said.append(line)
                    print(line, file=console, flush=True)
                    self._hear(line)
        except (OSError, tarfile.TarError) as error:
            said.append(f"what a job left cannot be read: {error}")
        finally:
            self._qemu.kill()  # it has ended, or nobody hears it any more
            status = self._qemu.wait()
            self._fail(f"(QEMU's status: {status}):\n" + "\n".join(said)[-TOLD:])
            self.awake.set()

    def _fail(self, why: str) -> None:
        for name, future in self._found.items():
            if not future.done():
                future.set_exception(RuntimeError(f"the laboratory's machine ended before {name} did {why}"))

    def _hear(self, line: str) -> None:
        if "LAB: awake" in line:
            self.awake.set()
        elif (ended := ENDED.search(line)) and ended["job"] in self._found:
            self._take(ended["job"], int(ended["at"]))

    def _take(self, name: str, at: int) -> None:
        results = self._folder / "results"
        with self._disks.out.open("rb") as disk:
            disk.seek(at)
            with tarfile.open(fileobj=disk) as packed:
                packed.extractall(results, filter="tar")
        self._found[name].set_result(Job(results / name))

    def close(self) -> None:
        """End it; returns when it has ended."""
        if all(future.done() for future in self._found.values()):
            self._listener.join(LAST_SECONDS)
        self._qemu.kill()
        self._listener.join()
        self._guard.cancel()
        for file in (self._disks.out, self._disks.jobs):
            file.unlink()
