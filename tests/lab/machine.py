# SPDX-License-Identifier: MIT
"""Boots the laboratory's machine, has it run jobs, and brings back what they left.

Software emulation only: /dev/kvm is never used, and the processor that QEMU emulates has no Intel PT: that is the
module's.
"""

from __future__ import annotations

import compileall
import json
import os
import py_compile
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from lab.build import FOLDER, HERE, ROOT, Machine, machine
from support.command import compile_c

ROOMS = ("data", "preload", "wrapper")
OUT_SIZE = 512 << 20
SECONDS = 1800
"""A machine that is up longer hangs."""
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
    found: dict[str, Job] = {}
    with ThreadPoolExecutor(MACHINES) as pool:
        for part in pool.map(lambda share: _run(built, share[1], folder / str(share[0])), enumerate(_shares(jobs))):
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


def _run(built: Machine, jobs: Sequence[str], folder: Path) -> dict[str, Job]:
    """One machine."""
    folder.mkdir()
    given, disk = folder / "in.tar", folder / "out.img"
    _pack(built, jobs, folder, given)
    with disk.open("wb") as out:
        out.truncate(OUT_SIZE)
    console = _boot(built, given, disk, folder / "console")
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


def _pack(built: Machine, jobs: Sequence[str], folder: Path, given: Path) -> None:
    """The tar on the machine's first disk: the project, the jobs, their programs."""
    stage = folder / "in"
    for room in ROOMS:
        shutil.copytree(ROOT / room, stage / room, ignore=shutil.ignore_patterns(
            "__pycache__", "_engine", "build", "src"))
    (stage / "jobs").mkdir()
    for name in jobs:
        shutil.copy(HERE / "jobs" / f"{name}.py", stage / "jobs")
    for file in ("runner.py", "labtools.py"):
        shutil.copy(HERE / "guest" / file, stage)
    compileall.compile_dir(stage, quiet=1, stripdir=stage, prependdir="/in",
                           invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    (stage / "times").write_text("50" if os.environ.get("PTWEAVE_LONG") else "8")
    (stage / "order").write_text(" ".join(jobs))
    paths = ":".join(["/packages", *(f"/in/{room}" for room in ROOMS)])
    (stage / "start").write_text(
        f"export PATH=/in/bin:/bin:/usr/bin HOME=/tmp PYTHONPATH={paths} PYTHONDONTWRITEBYTECODE=1\n"
        f"exec {built.interpreter} -S /in/runner.py\n")
    binaries = stage / "bin"
    binaries.mkdir()
    for source in sorted((HERE / "programs").glob("*.c")):
        compile_c(source, binaries / source.stem)
    for source in sorted((HERE / "programs").glob("*.c")):
        if "ptlab: also static" in source.read_text():
            compile_c(source, binaries / f"{source.stem}-static", "-static")
    with tarfile.open(given, "w") as out:
        out.add(stage, ".")
    with given.open("ab") as out:
        out.write(b"\0" * (-given.stat().st_size % 512))
    shutil.rmtree(stage)


def _boot(built: Machine, given: Path, disk: Path, log: Path) -> str:
    words = [
        "qemu-system-x86_64", "-accel", "tcg,thread=multi",
        "-cpu", "max,vendor=GenuineIntel,family=6,model=94,stepping=3",
        "-M", "q35", "-smp", "2", "-m", "2048", "-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot",
        "-kernel", str(built.kernel), "-initrd", str(built.initramfs),
        "-append", "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable"]
    for number, (file, readonly) in enumerate([(given, True), (disk, False), (built.python, True)]):
        words += ["-drive", f"file={file},format=raw,if=none,id=d{number},readonly={'on' if readonly else 'off'}",
                  "-device", f"virtio-blk-pci,drive=d{number}"]
    try:
        with log.open("wb") as out:
            subprocess.run(words, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, timeout=SECONDS,
                           check=False, env={**os.environ, "LC_ALL": "C"})
    except subprocess.TimeoutExpired:
        with log.open("a") as out:
            out.write(f"\nended after {SECONDS} s\n")
    return log.read_text(errors="replace").replace("\r", "")
