# SPDX-License-Identifier: MIT
"""The parts of a recording behind one interface, each guarded: one that breaks is named, and all go on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ptweave.data import Ledger, PtweaveError


@dataclass
class Part:
    """A recorder as the supervisor sees it. `service` does what there is to do now and never blocks."""

    name: str
    service: Callable[[], None]
    finish: Callable[[Ledger], None]
    fds: Callable[[], Sequence[int]] = field(default=lambda: ())
    patience: Callable[[], float] = field(default=lambda: math.inf)
    """Seconds after which `service` should be called though no descriptor is ready."""
    broken: str = ""


def _why(error: Exception) -> str:
    if isinstance(error, PtweaveError):
        return error.line()
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return f"{type(error).__name__}: {error}"


def service(part: Part) -> None:
    """Let a part work. One that fails (a full disk, say) is marked broken, and still called: what it does beside
    storing, such as answering the target, must go on."""
    try:
        part.service()
    except (OSError, PtweaveError, ValueError) as error:
        part.broken = part.broken or _why(error)


def finish(part: Part, ledger: Ledger) -> None:
    """End a part. What breaks here is marked too, so that the remaining parts still end orderly."""
    try:
        part.finish(ledger)
    except (OSError, PtweaveError, ValueError) as error:
        part.broken = part.broken or _why(error)
