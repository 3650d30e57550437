# SPDX-License-Identifier: MIT
"""A flight recorder of a process that runs already: asked for a snapshot after many rings' worth of packets, and again
soon after; and another, for a snapshot when a function is reached, which the process reaches all the time, also between
what the recorder does before anything is traced."""

import fcntl
import os
import signal
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

from labtools import ORACLE, SEEN, counter, look_often, note, ptweave_started

from ptweave.wrapper import pt
from ptweave.wrapper.perf.abi import Ioctl

SECONDS = 60
"""After which there will be no snapshot any more: the machine may be slow."""

os.sched_setaffinity(0, {1})  # the target stays on one processor, whose ring is looked at
look_often()
first = counter("bytes")
target = subprocess.Popen(["gated", "640"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
assert target.stdin is not None and target.stdout is not None
given, taken = target.stdin.fileno(), target.stdout.fileno()
os.read(taken, 1)
pid = ptweave_started("record", "--snapshot", "--aux-size=64K", "--pid", str(target.pid), "-q", "-o", "run.ptw",
                      without=(given, taken))
parts = 0


def quiet() -> None:
    """Wait until it waits to be told."""
    while not Path(f"/proc/{target.pid}/syscall").read_text().startswith("0 0x0 "):
        time.sleep(0.001)


def again() -> None:
    os.write(given, b"g")
    os.read(taken, 1)
    quiet()


def part() -> None:
    """A part of its own to the module."""
    global parts
    time.sleep(SEEN)
    ORACLE.write_text("0")
    again()
    note(f"part{parts}", ORACLE.read_text())
    parts += 1


def ask() -> None:
    trace = Path("run.ptw/trace/cpu-1.pt")
    before = trace.stat().st_size
    time.sleep(SEEN)
    os.kill(pid, signal.SIGUSR2)
    while trace.stat().st_size == before:
        time.sleep(SEEN)
    time.sleep(SEEN)
    note(f"stored{parts}", trace.stat().st_size)


while not ORACLE.read_text():
    again()  # until it is traced
for _ in range(12):
    part()
ask()
part()
part()
ask()
part()
time.sleep(SEEN)
os.kill(pid, signal.SIGINT)
_, raw = os.waitpid(pid, 0)
note("status_of_record", os.waitstatus_to_exitcode(raw))
note("bytes", counter("bytes") - first)


def slowly(fd: int, request: int, argument: int) -> None:
    """Nothing is traced before the process has reached the function a few times more."""
    if request == Ioctl.ENABLE:
        time.sleep(2 * SEEN)
    fcntl.ioctl(fd, request, argument)


ORACLE.write_text("0")
pt.fcntl = SimpleNamespace(ioctl=slowly)
pid = ptweave_started("record", "--snapshot-at", "odd", "--aux-size=64K", "-q", "-o", "at.ptw", "--pid",
                      str(target.pid), without=(given, taken))
taken_at, end = Path("at.ptw/trace/cpu-1.pt"), time.monotonic() + SECONDS
while not (taken_at.exists() and taken_at.stat().st_size) and time.monotonic() < end:
    time.sleep(SEEN / 2)
    again()
os.kill(pid, signal.SIGINT)
_, raw = os.waitpid(pid, 0)
note("status_at", os.waitstatus_to_exitcode(raw))
target.stdin.close()
note("status_of_target", target.wait())
