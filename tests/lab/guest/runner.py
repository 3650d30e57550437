# SPDX-License-Identifier: MIT
"""Runs jobs in the guest, one after the other, each in a process of its own: the console names the next one when it is
asked, and an empty line is the end.

Before that it loads the project, does once what the jobs will do, and waits until the machine has the jobs: while it
waits the machine's state is saved, and woken as often as there are jobs to run.

A job is a Python file, run with its folder /out/NAME as the current one; `stdout`, `stderr`, `status` (as a shell has
it) and `oracle` (what the module says was executed) are left there beside what the job makes, and sent to the host at
once.
"""

from __future__ import annotations

import gc
import os
import runpy
import select
import shutil
import signal
import sys
import time
import traceback
from pathlib import Path

from disks import JOBS, receive, send

ORACLE = Path("/proc/ptlab")
SECONDS = 600
"""A job that takes longer hangs."""


def run(name: str, at: int) -> int:
    """Run a job, and send what it leaves to byte `at` of the disk; returns where the next one's place is."""
    folder = Path("/out") / name
    folder.mkdir()
    ORACLE.write_text("0")
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        _job(name, folder)
    status = _wait(pid)
    (folder / "status").write_text(f"{status}\n")
    (folder / "oracle").write_text(ORACLE.read_text())
    seconds = time.monotonic() - began
    (folder / "seconds").write_text(f"{seconds:.2f}\n")
    after = send(folder, at)
    shutil.rmtree(folder)
    print(f"LAB: {name} {at} {status} {seconds:.2f}", flush=True)
    return after


def _job(name: str, folder: Path) -> None:
    status = 99
    try:
        os.setsid()
        os.chdir(folder)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # what the console says is the runner's
        for descriptor, stream in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(stream, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), descriptor)
        runpy.run_path(f"/in/jobs/{name}.py", run_name="__main__")
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001  it must reach the host as text
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


def _wait(pid: int) -> int:
    descriptor = os.pidfd_open(pid)
    ready, _, _ = select.select([descriptor], [], [], SECONDS)
    os.close(descriptor)
    if not ready:
        print("LAB: it hangs, and is ended", flush=True)
        os.killpg(pid, signal.SIGKILL)
    _, raw = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(raw) if ready else 124


def asked() -> str:
    """The next job."""
    print("LAB: next", flush=True)
    return sys.stdin.readline().strip()


def load() -> None:
    """Load the project, and use it once: what is loaded, linked and remembered then, no job has to do again."""
    sys.path[:0] = ["/in", *Path("/in/path").read_text().split(":")]
    os.environ["PYTHONPATH"] = ":".join(["/packages", Path("/in/path").read_text()])
    os.environ["TMPDIR"] = "/tmp"
    from labtools import warm

    warm()
    gc.collect()
    gc.freeze()


def main() -> None:
    load()
    print("LAB: loaded", flush=True)
    receive(JOBS, "/in")
    print("LAB: awake", flush=True)
    at = 0
    while name := asked():
        at = run(name, at)
    sys.stdout.flush()
    os._exit(0)  # nothing of what was loaded has to be taken down


main()
