# SPDX-License-Identifier: MIT
"""Which programs libtthread was not in, though the engine ran them: their threads have no thunks, and that is a loss.

A static program, one that was started without our LD_PRELOAD, that cannot see our files or may not reach the socket (it
is another user's), or has no room for its lists: none of them says hello. The engine saw them all begin.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ptweave.data import Ledger

STREAM = "libtthread"
"""No name that decoding accounts under: it would begin anew, without these."""
WHY = "not in them: no thunks"


@dataclass(frozen=True)
class Program:
    """A program that began, by exec or as the command. TSCs; `end` is 0 where it could not say when it ended."""

    pid: int
    begin: int
    end: int


def account_programs(programs: Sequence[Program], hellos: Iterable[tuple[int, int]], ledger: Ledger, *,
                     told: bool) -> None:
    """Count those of which no hello, (pid, TSC), came. `told`: of the first the user knows already.

    One that was killed is not counted: it may have ended before it could say hello.
    """
    times: dict[int, list[int]] = {}
    for pid, tsc in hellos:
        times.setdefault(pid, []).append(tsc)
    silent = sum(not any(one.begin <= tsc <= one.end for tsc in times.get(one.pid, ()))
                 for one in programs[1 if told else 0:] if one.end)
    if silent:
        ledger.add(STREAM, "programs", stored=max(0, len(programs) - silent), lost={WHY: silent})
