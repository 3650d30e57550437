# SPDX-License-Identifier: MIT
"""How the target's threads run, and what libtthread is told about it (preload/src/options.h)."""

from __future__ import annotations

from enum import StrEnum


class ThreadsMode(StrEnum):
    """What a thread of the target is."""

    NATIVE = "native"  # a thread: its operations are logged
    PROCESS = "process"  # a process: the pages it accesses are logged too


class Access(StrEnum):
    """Which accesses are logged in process mode."""

    HELD = "held"  # a page stays open until another thread's access conflicts
    EXACT = "exact"  # every thunk's own


def threads_environment(threads: ThreadsMode, access: Access) -> dict[str, str]:
    """What the target's environment must have; nothing for native threads, so that it stays as it is."""
    if threads is ThreadsMode.NATIVE:
        return {}
    return {"PTWEAVE_THREADS": threads.value, "PTWEAVE_ACCESS": access.value}
