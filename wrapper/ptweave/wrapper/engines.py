# SPDX-License-Identifier: MIT
"""Which engine records: the processor's Intel PT through perf, or the soft engine that emits the same packets."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from ptweave.data import MachineLacks

INTEL_PT_PMU = Path("/sys/bus/event_source/devices/intel_pt")


class Engine(StrEnum):
    AUTO = "auto"
    INTEL_PT = "intel_pt"
    SOFT = "soft"


def choose(asked: Engine) -> Engine:
    """The engine to record with. Raises MachineLacks when the one asked for cannot be had.

    `auto` is the soft engine for now, on every machine: recording through the PMU is not part of this version.
    """
    if asked is Engine.INTEL_PT:
        if not INTEL_PT_PMU.exists():
            raise MachineLacks("this machine has no Intel PT (no intel_pt PMU)", where="--engine intel_pt",
                               remedy="use --engine soft, which emits the same packets")
        raise MachineLacks("this version of ptweave does not record through the intel_pt PMU yet",
                           where="--engine intel_pt", remedy="use --engine soft, which emits the same packets")
    return Engine.SOFT
