# SPDX-License-Identifier: MIT
"""The child that is held at a gate: what it runs, and what becomes of it when it never does."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from ptweave.data import MachineLacks
from ptweave.wrapper.target import Spawn

TELL = ["/bin/sh", "-c", 'printf "%s\\0" "$0" "$@" > "$OUT"; env -0 >> "$OUT"; kill -TERM $$; exit 7']


def ended(pid: int) -> int:
    return os.waitpid(pid, 0)[1]


def test_the_command_gets_its_words_and_variables_byte_by_byte(tmp_path: Path) -> None:
    out = tmp_path / "out"
    odd = ["", "two\nlines", "\udcff\udcfe", "é", "-"]
    variables = {"OUT": str(out), "EMPTY": "", "BYTES": "\udc80=", "LONG": "x" * 100_000}
    child = Spawn(set())
    assert not out.exists()
    child.release([*TELL, *odd], {**variables, "PATH": "/usr/bin:/bin"})
    assert ended(child.pid) == signal.SIGTERM
    words = out.read_bytes().split(b"\0")
    assert words[:len(odd)] == [os.fsencode(word) for word in odd]
    assert {os.fsencode(f"{name}={value}") for name, value in variables.items()} < set(words[len(odd):])


def test_more_variables_than_a_pipe_holds_come_through(tmp_path: Path) -> None:
    out = tmp_path / "out"
    many = {f"V{number}": "y" * 1000 for number in range(1000)}
    child = Spawn(set())
    child.release(["/bin/sh", "-c", 'env > "$OUT"'], {**many, "OUT": str(out)})
    assert ended(child.pid) == 0
    assert sum(line.startswith("V") for line in out.read_text().splitlines()) == len(many)


@pytest.mark.parametrize("blocked", [set(), {signal.SIGTERM}])
def test_it_gets_the_signals_that_are_to_be_let_through(blocked: set[signal.Signals]) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        child = Spawn(blocked)
        child.release(["/bin/sh", "-c", "kill -TERM $$; exit 7"], dict(os.environ))
        assert ended(child.pid) == (signal.SIGTERM if blocked else 7 << 8)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_a_command_that_cannot_run_is_told(tmp_path: Path) -> None:
    child = Spawn(set())
    with pytest.raises(MachineLacks, match="No such file"):
        child.release([str(tmp_path / "nothing")], {})
    with pytest.raises(ChildProcessError):
        ended(child.pid)


def test_one_that_is_given_up_runs_nothing_and_can_be_given_up_twice() -> None:
    child = Spawn(set())
    child.cancel()
    child.cancel()
    with pytest.raises(ChildProcessError):
        ended(child.pid)


def test_giving_up_one_that_runs_leaves_it_alone() -> None:
    child = Spawn(set())
    child.release(["/bin/sh", "-c", "exit 5"], {})
    child.cancel()
    assert ended(child.pid) == 5 << 8


def test_one_that_is_killed_at_the_gate_has_that_as_its_status() -> None:
    child = Spawn(set())
    os.kill(child.pid, signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    child.release(["/bin/true"], {"LONG": "x" * 100_000})
    assert ended(child.pid) == signal.SIGKILL


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_is_signalled_at_the_gate_ends_by_that_signal_whatever_we_do_at_it(
        number: signal.Signals) -> None:
    before = signal.signal(number, lambda *_: sys.exit("ours"))
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, {number})
        child = Spawn({number})
        os.kill(child.pid, number)
        child.release(["true"], dict(os.environ))
        assert ended(child.pid) == number
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        signal.signal(number, before)
