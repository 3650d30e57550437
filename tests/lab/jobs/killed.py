# SPDX-License-Identifier: MIT
"""The recorder is killed at random moments: of its start, and when it has stored so much; the target goes on."""

import ctypes
import os
import random
import signal
import time
from pathlib import Path

from labtools import note, ptweave, ptweave_started

from ptweave.wrapper import pt

pt.WATERMARK_MAX = 4096  # it stores often: there are many moments that differ
ADDR_NO_RANDOMIZE = 0x0040000
TIMES = int(Path("/in/times").read_text())
WORDS = ("--aux-size=64K", "--",  # no trace is as long as that
         "/in/bin/deterministic-static", "4000")


def stored(number: int) -> int:
    """Bytes of packets."""
    return sum(path.stat().st_size for path in Path(f"{number}.ptw/trace").glob("*.pt"))


def running() -> bool:
    """Whether the target is."""
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "comm").read_text() == "deterministic-s\n":
                return True
        except OSError:
            continue
    return False


ctypes.CDLL(None).personality(ADDR_NO_RANDOMIZE)  # every run executes the same addresses
os.sched_setaffinity(0, {1})  # one trace: what is there of two was not read at the same moment
os.dup2(os.open("said", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 1)
began = time.monotonic()
note("whole", ptweave("record", "--engine", "intel_pt", "-q", "-o", "whole.ptw", *WORDS))
took = time.monotonic() - began
size = sum(path.stat().st_size for path in Path("whole.ptw/trace").glob("*.pt"))
random.seed(5)
killed = 0
for number in range(TIMES):
    pid = ptweave_started("record", "--engine", "intel_pt", "-q", "-o", f"{number}.ptw", *WORDS)
    if number % 2:
        time.sleep(random.uniform(0, took))
    else:
        wanted = random.uniform(0, size * 0.8)
        while stored(number) < wanted and not os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            time.sleep(0.001)
    os.kill(pid, signal.SIGKILL)
    _, raw = os.waitpid(pid, 0)
    killed += os.WIFSIGNALED(raw)
    while running():
        time.sleep(0.01)
note("killed", killed)
