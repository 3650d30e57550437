# SPDX-License-Identifier: MIT
"""Signals of the supervisor: what is sent to it is meant for the target.

The terminal sends Ctrl-C to the whole foreground group, the target included: such a signal (si_code SI_KERNEL) is
not sent a second time. One that a process sent to the supervisor alone is passed on.
"""

from __future__ import annotations

import os
import resource
import signal
from types import TracebackType

SI_KERNEL = 0x80
PASSED_ON = {
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTSTP,
    signal.SIGCONT, signal.SIGWINCH,
}
ENDING = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}


class SignalRelay:
    """While entered, holds the signals back; `relay` passes on what came since. Not for use in two threads."""

    def __init__(self) -> None:
        self._before: set[signal.Signals] = set()
        self.ours: frozenset[signal.Signals] = frozenset()
        """Signals that are meant for us, and not passed on."""
        self.ending: set[signal.Signals] = set()
        """Signals seen that ask for an end."""

    @property
    def held(self) -> set[signal.Signals]:
        """The signals a child must unblock to start as ptweave was started."""
        return PASSED_ON - self._before

    def __enter__(self) -> SignalRelay:
        self._before = {signal.Signals(s) for s in signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        while signal.sigtimedwait(PASSED_ON, 0) is not None:
            pass  # what came for a target that is gone
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)

    def relay(self, pid: int | None) -> list[signal.Signals]:
        """Pass on to `pid` (None: to nobody) what came; returns the signals that came from a process."""
        came: list[signal.Signals] = []
        while (info := signal.sigtimedwait(PASSED_ON, 0)) is not None:
            number = signal.Signals(info.si_signo)
            if number in ENDING:
                self.ending.add(number)
            came.append(number)
            if pid is not None and info.si_code != SI_KERNEL and number not in self.ours:
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    continue  # it ended in between; its status is about to be read
        return came


def die_by(number: int) -> None:
    """End this process by the signal that ended the target, so that a parent sees the same status."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
