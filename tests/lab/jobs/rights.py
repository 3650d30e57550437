# SPDX-License-Identifier: MIT
"""Somebody who is not root: forbidden to trace; allowed, with little memory; with less than little."""

import ctypes
import os
from collections.abc import Callable
from pathlib import Path

from labtools import note, ptweave

from ptweave.wrapper.engines import Engine, choose

NOBODY = 65534
PR_SET_DUMPABLE = 4
SETTINGS = Path("/proc/sys/kernel")


def as_nobody(work: Callable[[], int]) -> int:
    """The exit status of work that is done as another user."""
    pid = os.fork()
    if pid == 0:
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1)  # as somebody's who was never root
        os._exit(work())
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def record(name: str, *words: str) -> int:
    return ptweave("record", "--engine", "intel_pt", "-q", "-o", f"{name}.ptw", "--threads=native", *words, "--",
                   "deterministic", "300")


os.chmod(".", 0o777)
(SETTINGS / "perf_event_paranoid").write_text("3")
note("forbidden", as_nobody(lambda: record("forbidden")))
note("auto_when_forbidden", as_nobody(lambda: int(choose(Engine.AUTO) is Engine.SOFT)))
(SETTINGS / "perf_event_paranoid").write_text("1")
(SETTINGS / "perf_event_mlock_kb").write_text("600")
note("too_much", as_nobody(lambda: record("too_much", "--aux-size=16M")))
note("fits", as_nobody(lambda: record("fits")))
note("auto_when_allowed", as_nobody(lambda: int(choose(Engine.AUTO) is Engine.INTEL_PT)))
