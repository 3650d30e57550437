# SPDX-License-Identifier: MIT
"""What system calls can be recorded with."""

from __future__ import annotations

from enum import Enum


class Means(Enum):
    """What system calls are recorded with; AUTO: the first of the others that works here."""

    AUTO = "auto"
    EBPF = "ebpf"
    PERF = "perf"
    PTRACE = "ptrace"


__all__ = ["Means"]
