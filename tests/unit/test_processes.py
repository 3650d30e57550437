# SPDX-License-Identifier: MIT
"""What is known of how a process ended, whoever waits for it."""

from __future__ import annotations

import os
import signal
import time

import pytest

from ptweave.wrapper.processes import ended_by, signal_name


def made(work: int | signal.Signals) -> int:
    """A process that has ended so and was not waited for."""
    pid = os.fork()
    if pid == 0:
        if isinstance(work, signal.Signals):
            os.kill(os.getpid(), work)
            time.sleep(60)
        os._exit(work)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    return pid


@pytest.mark.parametrize(("work", "said"), [(0, ""), (7, ""), (signal.SIGUSR1, "SIGUSR1"), (signal.SIGKILL, "SIGKILL")])
def test_one_that_nobody_waited_for_yet_says_how_it_ended(work: int | signal.Signals, said: str) -> None:
    pid = made(work)
    try:
        assert ended_by(pid, {}) == (True, said)
    finally:
        os.waitpid(pid, 0)


def test_one_that_is_gone_is_not_known_unless_its_status_was_kept() -> None:
    pid = made(signal.SIGUSR1)
    _, status = os.waitpid(pid, 0)
    assert ended_by(pid, {}) == (True, None)
    assert ended_by(pid, {pid: status}) == (True, "SIGUSR1")


def test_one_that_lives_has_not_ended() -> None:
    assert ended_by(os.getpid(), {}) == (False, None)


def test_signals_without_a_name_have_a_number() -> None:
    assert (signal_name(11), signal_name(40)) == ("SIGSEGV", "SIG40")
