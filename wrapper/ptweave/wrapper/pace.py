# SPDX-License-Identifier: MIT
"""Whose turn it is: the thread that writes tables yields to what is recorded, unless it falls behind."""

from __future__ import annotations

import os

YIELD, HURRY = 5, -10
"""Added to the nice value that the thread had."""
BEHIND = 1 / 4
"""Of all batches: when more wait to be written, it hurries; it yields again when none does."""


class Pace:
    """The nice value of the thread that makes it, until `usual`.

    Where there are fewer processors than threads that want one, somebody must wait. Writing can: the batches hold what
    comes. So the target goes first, until so much waits that calls could get lost. Where the kernel would not let us
    hurry (CAP_SYS_NICE), we do not yield either.
    """

    def __init__(self, batches: int) -> None:
        """`batches`: how many there are in all."""
        self._batches = batches
        self._usual = self._now = os.getpriority(os.PRIO_PROCESS, 0)
        self._able = self._try(self._usual + HURRY) and self._try(self._usual)

    def look(self, backlog: int) -> None:
        """So many batches wait to be written."""
        if backlog > self._batches * BEHIND:
            self._set(self._usual + HURRY)
        elif not backlog or self._now == self._usual:
            self._set(self._usual + YIELD)

    def usual(self) -> None:
        """Nothing is recorded any more."""
        self._set(self._usual)

    def _set(self, nice: int) -> None:
        if self._able and nice != self._now and self._try(nice):
            self._now = nice

    @staticmethod
    def _try(nice: int) -> bool:
        try:
            os.setpriority(os.PRIO_PROCESS, 0, nice)  # who calls it, not the whole process: setpriority(2)
        except PermissionError:
            return False
        return True


__all__ = ["Pace"]
