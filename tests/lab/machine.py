# SPDX-License-Identifier: MIT
"""Has the laboratory's machines run jobs, and brings back what they left."""

from __future__ import annotations

import json
import os
import re
import tarfile
import threading
from collections import deque
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
LONG = 5.0
"""Seconds of a job that is not to be among the last."""
HANGS = 1800
"""Seconds: a machine that is up longer hangs."""
TOLD = 4000
"""Characters of its console that are shown when it does not do as it should."""
ASKS = "LAB: next"
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
    """Machines that run jobs of jobs/, as many as there are processors, up to MACHINES: each takes the next one, in the
    order given, when it has done one. What a job left can be had as soon as it has ended, below `folder`. Raises
    lab.packages.Unavailable where there can be no laboratory."""

    def __init__(self, jobs: Sequence[str], folder: Path) -> None:
        self._found: dict[str, Future[Job]] = {name: Future() for name in jobs}
        self._waiting = deque(jobs)
        self._lock = threading.Lock()  # of what waits, and of who lives
        self._alive = 0
        self.machines: list[Running] = []
        project, self._packed = folder / "project.tar", folder / "jobs.tar"
        try:
            with locked():
                built = machine()
                pack_project(folder, project)
                state = loaded(built, project)
                pack_jobs(jobs, folder, self._packed)
                self._alive = max(1, min(MACHINES, os.cpu_count() or 1, len(jobs)))
                for number in range(self._alive):
                    self.machines.append(Running(built, state, project, self._packed, folder / str(number), self))
                for one in self.machines:
                    one.awake.wait()
        except BaseException:
            self.close()
            raise

    def job(self, name: str) -> Job:
        """Wait for what a job left. Raises RuntimeError when its machine did not do as it should."""
        return self._found[name].result()

    def next(self) -> str | None:
        """The job that whoever asks has to do now."""
        with self._lock:
            return self._waiting.popleft() if self._waiting else None

    def ended(self, name: str, job: Job) -> None:
        """What a job left is there."""
        self._found[name].set_result(job)

    def gone(self, name: str | None, why: str) -> None:
        """A machine has ended, with this job half done; with the last machine all are lost that wait."""
        with self._lock:
            self._alive -= 1
            lost = [] if self._alive else [*self._waiting]
            if not self._alive:
                self._waiting.clear()
        for one in ([] if name is None else [name]) + lost:
            self._found[one].set_exception(RuntimeError(f"the laboratory's machine ended before {one} did {why}"))

    def close(self) -> None:
        """End the machines, which have nothing to do any more or are not wanted."""
        for one in self.machines:
            one.close()
        self._packed.unlink(missing_ok=True)
        done = {name: future.result().seconds for name, future in self._found.items()
                if future.done() and not future.exception()}
        TIMES.write_text(json.dumps(_times() | done))


def in_order(jobs: Sequence[str]) -> list[str]:
    """Those that took long the last time come first: what is left at the end is short, and no machine waits long for
    another."""
    times = _times()
    return sorted(jobs, key=lambda name: -times.get(name, 0.0) if times.get(name, 0.0) > LONG else 0)


def _times() -> dict[str, float]:
    """Seconds that jobs took the last time."""
    try:
        return {str(name): float(seconds) for name, seconds in json.loads(TIMES.read_text()).items()}
    except (OSError, ValueError, AttributeError):
        return {}


class Running:
    """A machine, and the thread that listens to it and says what it has to do."""

    def __init__(self, built: Machine, state: Path, project: Path, jobs: Path, folder: Path,
                 laboratory: Laboratory) -> None:
        (folder / "results").mkdir(parents=True)
        self._folder, self._laboratory = folder, laboratory
        self._job: str | None = None
        self.awake = threading.Event()
        """It has read what it was made from; or it has ended."""
        self._disks = emulator.Disks(project, jobs, emulator.empty(folder / "out.img", emulator.OUT_SIZE))
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
            self._laboratory.gone(self._job, f"(QEMU's status: {status}):\n" + "\n".join(said)[-TOLD:])
            self.awake.set()

    def _hear(self, line: str) -> None:
        if "LAB: awake" in line:
            self.awake.set()
        elif ASKS in line:
            self._job = self._laboratory.next()
            assert self._qemu.stdin is not None
            self._qemu.stdin.write(f"{self._job or ''}\n".encode())
            self._qemu.stdin.flush()
        elif (ended := ENDED.search(line)) and ended["job"] == self._job:
            job, self._job = self._take(ended["job"], int(ended["at"])), None
            self._laboratory.ended(ended["job"], job)

    def _take(self, name: str, at: int) -> Job:
        results = self._folder / "results"
        with self._disks.out.open("rb") as disk:
            disk.seek(at)
            with tarfile.open(fileobj=disk) as packed:
                packed.extractall(results, filter="tar")
        return Job(results / name)

    def close(self) -> None:
        """End it; returns when it has ended."""
        self._qemu.kill()
        self._listener.join()
        self._guard.cancel()
        self._disks.out.unlink()
