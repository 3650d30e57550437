# SPDX-License-Identifier: MIT
"""Which engine records: the processor's Intel PT through perf, or the soft engine that emits the same packets."""

from __future__ import annotations

from enum import StrEnum

from ptweave.wrapper.perf.pmu import INTEL_PT
from ptweave.wrapper.pt import no_intel_pt, obstacle


class Engine(StrEnum):
    AUTO = "auto"
    INTEL_PT = "intel_pt"
    SOFT = "soft"


def choose(asked: Engine) -> Engine:
    """The engine to record with: unless another was asked for the processor's, where it has one that can be used now.

    Raises MachineLacks when the one asked for cannot be had.
    """
    if asked is Engine.INTEL_PT:
        if not INTEL_PT.exists():
            raise no_intel_pt()
        return asked
    if asked is Engine.AUTO and INTEL_PT.exists() and obstacle() is None:
        return Engine.INTEL_PT
    return Engine.SOFT
