# SPDX-License-Identifier: MIT
"""Recorders are killed at random moments; the target goes on. What a job of that leaves: whole.ptw, and a bundle for
each recorder that lived long enough to begin one; what the targets said; and how many recorders were killed."""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from labtools import note, ptweave, ptweave_started

from ptweave.wrapper import pt

ADDR_NO_RANDOMIZE = 0x0040000
PR_SET_CHILD_SUBREAPER = 36
TIMES = 25
SLOWER = 1.1
WORDS = ("--aux-size=128K", "--",  # no trace is as long as that
         "/in/bin/dense-static", "8000")


@dataclass
class Recorder:
    """One that runs, or has ended."""

    pid: int
    number: int

    @property
    def stored(self) -> int:
        """Bytes of packets."""
        return stored(str(self.number))

    @property
    def over(self) -> bool:
        return bool(os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT))


def stored(name: str) -> int:
    try:
        with os.scandir(f"{name}.ptw/trace") as files:  # it shares its processor with who is looked at: little of it
            return sum(file.stat().st_size for file in files if file.name.endswith(".pt"))
    except FileNotFoundError:
        return 0


def _orphans() -> Iterator[int]:
    """Pids of targets that go on: they are ours when their recorder is dead."""
    for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        yield int(pid)


def kill(wait: Callable[[Recorder, float, int], None]) -> None:
    """`wait` gets a recorder, the seconds that a whole run took, and its bytes; when it returns, that is the moment."""
    pt.WATERMARK_MAX = 4096  # it stores often: there are many moments that differ
    libc = ctypes.CDLL(None)
    libc.personality(ADDR_NO_RANDOMIZE)  # every run executes the same addresses
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    os.sched_setaffinity(0, {1})  # one trace: what is there of two was not read at the same moment
    os.dup2(os.open("said", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 1)
    for name in ("first", "whole"):  # the first takes longer: the emulator translates
        began = time.monotonic()
        note(name, ptweave("record", "--engine", "intel_pt", "-q", "-o", f"{name}.ptw", *WORDS))
        took, size = time.monotonic() - began, stored(name)
    shutil.rmtree("first.ptw")
    random.seed(5)
    killed, ended = 0, []
    for number in range(2 * TIMES):  # some end before their moment
        if killed == TIMES:
            break
        began = time.monotonic()
        pid = ptweave_started("record", "--engine", "intel_pt", "-q", "-o", f"{number}.ptw", *WORDS)
        wait(Recorder(pid, number), took, size)
        os.kill(pid, signal.SIGKILL)
        was_killed = os.WIFSIGNALED(os.waitpid(pid, 0)[1])
        targets = list(_orphans())
        killed += was_killed
        if not was_killed:  # runs take less than the one that was timed
            took = min(took, time.monotonic() - began)
        elif not targets:  # they take more: it had not begun
            took *= SLOWER
        for target in targets:
            name = Path(f"/proc/{target}/comm").read_text().strip()  # ours as long as it was not executed
            ended.append(f"{name} {os.waitstatus_to_exitcode(os.waitpid(target, 0)[1])}")
    for reserve in Path().glob("*.ptw/.reserve*"):
        os.truncate(reserve, 0)  # its bytes are not read by anyone, and take long to send
    note("killed", killed)
    note("ended", "\n".join(ended))
