# SPDX-License-Identifier: MIT
"""How the target's threads run, and what libtthread is told about it (preload/src/options.h)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum

from ptweave.data import BadInput


class ThreadsMode(StrEnum):
    """What a thread of the target is."""

    NATIVE = "native"  # a thread: its operations are logged
    PROCESS = "process"  # a process: the pages it accesses are logged too


class Access(StrEnum):
    """Which accesses are logged in process mode."""

    HELD = "held"  # a page stays open until another thread's access conflicts
    EXACT = "exact"  # every thunk's own


class View(StrEnum):
    """When a thread's writes are seen by others, in process mode."""

    SHARED = "shared"  # at once, as with threads
    PRIVATE = "private"  # after the writer's next release: each thread has copies of the pages it writes


def check_shared(names: Sequence[str]) -> None:
    """Raises BadInput for what cannot be the name of a variable, an address or a range of addresses."""
    for name in names:
        if not re.fullmatch(r"0[xX][0-9a-fA-F]{1,16}(-0[xX][0-9a-fA-F]{1,16})?|[^\W\d][\w$.@]*", name, re.ASCII):
            raise BadInput("is no variable's name, nor 0xADDRESS, nor 0xFROM-0xTO", where=f"--shared {name}",
                           remedy="name a variable as nm shows it")


def threads_environment(threads: ThreadsMode, access: Access, view: View,
                        shared: Sequence[str] = ()) -> dict[str, str]:
    """What the target's environment must have; nothing for native threads, so that it stays as it is."""
    if threads is ThreadsMode.NATIVE:
        return {}
    variables = {"PTWEAVE_THREADS": threads.value, "PTWEAVE_ACCESS": access.value, "PTWEAVE_VIEW": view.value}
    return variables | ({"PTWEAVE_SHARED": ",".join(shared)} if shared else {})
