# SPDX-License-Identifier: MIT
"""The laboratory's machine itself: it has the PMU, and a processor the tools believe to be Intel's; it runs the project
as it is; when it ends early that is told, and it does not outlive who uses it."""

from __future__ import annotations

import hashlib
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lab.build import ROOMS, ROOT
from lab.machine import Job, Laboratory

LONG = "killed_at_sizes"
"""A job that is not over before its machine is killed."""
OWNER = f"""
import sys, time
from pathlib import Path
from lab.machine import Laboratory
print(Laboratory(["{LONG}"], Path(sys.argv[1])).machines[0].pid, flush=True)
time.sleep(600)
"""


@pytest.mark.lab("smoke")
def test_the_machine_has_the_pmu_of_the_kernels_own_driver(job: Job) -> None:
    assert int(job.text("type")) > 0
    assert job.text("format-tsc") == "config:10\n"
    assert int(job.text("caps-psb_periods"), 16) == 0x3F
    assert job.text("vendor") == "GenuineIntel\n"


@pytest.mark.lab("smoke")
def test_the_machine_has_loaded_the_project_as_it_is_now(job: Job) -> None:
    lines = [line.split(" ", 1) for line in job.text("project").splitlines()]
    there = {name for room in ROOMS for name in (str(file.relative_to(ROOT)) for file in (ROOT / room).rglob("*.py"))
             if "/_engine/" not in name and "/src/" not in name and "/build/" not in name}
    assert there <= {name for _, name in lines}
    assert any(name.endswith("libtthread.so") for _, name in lines)
    assert [name for digest, name in lines if digest != hashlib.blake2b((ROOT / name).read_bytes()).hexdigest()] == []


@pytest.mark.lab("smoke")
def test_a_machine_that_is_killed_fails_its_jobs(laboratory: Laboratory, tmp_path: Path) -> None:
    other = Laboratory([LONG], tmp_path)
    try:
        os.kill(other.machines[0].pid, signal.SIGKILL)
        with pytest.raises(RuntimeError, match=rf"ended before {LONG} did \(QEMU's status: -9\)"):
            other.job(LONG)
    finally:
        other.close()


@pytest.mark.lab("smoke")
def test_a_machine_ends_when_who_uses_it_is_killed(laboratory: Laboratory, tmp_path: Path) -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path)], stdout=subprocess.PIPE,
                             env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert owner.stdout is not None
    machine = os.pidfd_open(int(owner.stdout.readline()))
    ended = select.poll()
    ended.register(machine, select.POLLIN)
    assert ended.poll(0) == [], "the control: it runs"
    owner.kill()
    owner.wait()
    assert ended.poll(10_000), "it goes on"
    os.close(machine)
