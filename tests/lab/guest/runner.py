# SPDX-License-Identifier: MIT
"""Runs the jobs in the guest, one after the other, each in a process of its own: /in/order names them.

Before that it loads what takes long and is always the same, and waits until the machine's first disk has something:
here its state is saved, and woken with another disk.

A job is a Python file, run with its folder /out/NAME as the current one; `stdout`, `stderr`, `status` (as a shell has
it) and `oracle` (what the module says was executed) are left there beside what the job makes.
"""

from __future__ import annotations

import mmap
import os
import runpy
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

import cffi  # noqa: F401  loaded once, for all: it takes seconds here
import elftools.elf.elffile  # noqa: F401
import numpy.ma  # noqa: F401
import pyarrow
import pyarrow.compute
import pyarrow.parquet  # noqa: F401

ORACLE = Path("/proc/ptlab")
GIVEN = "/dev/vda"
SECONDS = 600
"""A job that takes longer hangs."""


def run(name: str) -> None:
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
    (folder / "seconds").write_text(f"{seconds:.1f}\n")
    print(f"LAB: {name}: status {status}, {seconds:.1f} s", flush=True)


def _job(name: str, folder: Path) -> None:
    status = 99
    try:
        os.setsid()
        os.chdir(folder)
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
    import select

    ready, _, _ = select.select([descriptor], [], [], SECONDS)
    os.close(descriptor)
    if not ready:
        print("LAB: it hangs, and is ended", flush=True)
    os.killpg(pid, signal.SIGKILL) if not ready else None
    _, raw = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(raw) if ready else 124


def receive() -> None:
    """Wait for what is to be done, and unpack it."""
    print("LAB: ready", flush=True)
    first = mmap.mmap(-1, mmap.PAGESIZE)
    disk = os.open(GIVEN, os.O_RDONLY | os.O_DIRECT)  # nothing of it is to be remembered
    while os.preadv(disk, [first], 0) and not any(first[:512]):
        time.sleep(0.02)
    os.close(disk)
    subprocess.run(["tar", "-xf", GIVEN, "-C", "/in"], check=True)
    sys.path[:0] = ["/in", *Path("/in/path").read_text().split(":")]
    os.environ["PYTHONPATH"] = ":".join(["/packages", Path("/in/path").read_text()])
    import ptweave.cli.record
    import ptweave.cli.recording
    import ptweave.cli.session  # noqa: F401


def main() -> None:
    receive()
    for name in Path("/in/order").read_text().split():
        run(name)


main()
