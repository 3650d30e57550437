# SPDX-License-Identifier: MIT
"""What system calls can be recorded with."""

from __future__ import annotations

from enum import Enum

from ptweave.data.errors import BadInput


class Means(Enum):
    """What system calls are recorded with; AUTO: the first of the others that works here."""

    AUTO = "auto"
    EBPF = "ebpf"
    PERF = "perf"
    PTRACE = "ptrace"


def check_beside_branches(means: Means) -> None:
    """Raises BadInput for what cannot record calls beside a trace of branches."""
    if means is Means.PTRACE:
        raise BadInput("cannot be combined with a trace of branches: a program under an engine is not stopped at its "
                       "calls", where=f"--syscalls-with {means.value}",
                       remedy="choose auto, ebpf or perf; ptweave events --syscalls-with ptrace records calls alone")


__all__ = ["Means", "check_beside_branches"]
