# SPDX-License-Identifier: MIT
"""This machine: its processor, clocks and names, as the manifest keeps them."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path

from ptweave.data import Cpu, MachineLacks
from ptweave.wrapper._host import ffi, lib

KEPT_VARIABLES = ("HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PATH", "PWD", "SHELL", "TZ", "USER")
"""The environment subset a manifest keeps: enough to explain a run, nothing that is likely to hold a secret."""

CLOCK_TRIES = 64


@dataclass(frozen=True)
class Moment:
    """One moment on both clocks: TSC ticks and ns of CLOCK_MONOTONIC."""

    tsc: int
    ns: int


def moment() -> Moment:
    """Now, on both clocks. Raises MachineLacks where the clock cannot be read."""
    out = ffi.new("struct ptw_moment *")
    status = lib.ptw_host_moment(out, CLOCK_TRIES)
    if status < 0:
        raise MachineLacks(f"CLOCK_MONOTONIC cannot be read ({os.strerror(-status)})")
    return Moment(out.tsc, out.ns)


def cpu(tsc_hz: int = 0) -> Cpu:
    """The processor this runs on (SDM vol. 2, CPUID)."""
    out = ffi.new("struct ptw_cpu *")
    lib.ptw_host_cpu(out)
    return Cpu(ffi.string(out.vendor).decode("ascii", "replace"), out.family, out.model, out.stepping, tsc_hz)


def kept_environment() -> dict[str, str]:
    """The part of the environment that goes into the manifest."""
    return {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}


def kernel() -> str:
    return platform.release()


def host_name() -> str:
    return platform.node()


def working_folder() -> str:
    """The current folder. One that was removed has no name of its own: the kernel then says what it was (proc(5))."""
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        return str(Path("/proc/self/cwd").readlink())


def realtime_ns() -> int:
    return time.time_ns()
