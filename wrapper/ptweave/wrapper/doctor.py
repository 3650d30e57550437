# SPDX-License-Identifier: MIT
"""What this machine can record with: one check a function, each with what to do when it fails."""

from __future__ import annotations

import ctypes.util
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from ptweave.data import MachineLacks
from ptweave.wrapper import host
from ptweave.wrapper.perf.pmu import INTEL_PT
from ptweave.wrapper.pt import obstacle


class Need(Enum):
    """What a failed check means."""

    MUST = "nothing can be recorded without it"
    SHOULD = "a recording lacks a part without it"
    MAY = "not needed"


@dataclass(frozen=True)
class Check:
    """One line of the report."""

    name: str
    good: bool
    found: str
    remedy: str = ""
    need: Need = Need.SHOULD


def _processor() -> Check:
    cpu = host.cpu()
    return Check("processor", True, f"{cpu.vendor} family {cpu.family} model {cpu.model} stepping {cpu.stepping}")


def _intel_pt() -> Check:
    if INTEL_PT.exists():
        why = obstacle()
        if why is not None:
            return Check("Intel PT", False, why.what, why.remedy, Need.MAY)
        return Check("Intel PT", True, "the intel_pt PMU is here, and can be used", need=Need.MAY)
    return Check("Intel PT", False, "no intel_pt PMU", "needs an Intel processor since Broadwell, outside a virtual "
                 "machine that hides it; the soft engine emits the same packets", Need.MAY)


def _paranoid() -> Check:
    path = Path("/proc/sys/kernel/perf_event_paranoid")
    try:
        level = int(path.read_text())
    except (OSError, ValueError):
        return Check("perf_event_paranoid", False, "perf events are not in this kernel",
                     "use a kernel with CONFIG_PERF_EVENTS", Need.MAY)
    good = level <= 1 or os.geteuid() == 0
    return Check("perf_event_paranoid", good, str(level) + (" (root is not bound by it)" if os.geteuid() == 0 else ""),
                 "sysctl kernel.perf_event_paranoid=1, or run as root", Need.MAY)


def _system_calls() -> list[Check]:
    from ptweave.wrapper.bpf_checks import probe

    optional = {"tracefs"}
    return [Check(one.name, one.ok, one.detail, one.remedy, Need.MAY if one.name in optional else Need.SHOULD)
            for one in probe()]


def _soft_engine() -> Check:
    from ptweave.wrapper.soft import SoftEngine

    try:
        version = SoftEngine().version()
    except MachineLacks as error:
        return Check("soft engine", False, error.what, error.remedy, Need.MUST)
    return Check("soft engine", True, f"{version}, {shutil.which('valgrind')}", need=Need.MUST)


def _libtthread() -> Check:
    from ptweave.preload import library_path

    path = library_path()
    return Check("libtthread", path.exists(), str(path), "build it: make build")


def _libipt() -> Check:
    found = ctypes.util.find_library("ipt")
    return Check("libipt", found is not None, found or "not installed", "apt-get install libipt-dev, then make build",
                 Need.MUST)


CHECKS: tuple[Callable[[], Check], ...] = (_processor, _intel_pt, _paranoid, _soft_engine, _libipt, _libtthread)


def examine() -> list[Check]:
    """All checks, in the order of the report."""
    return [*(check() for check in CHECKS), *_system_calls()]
