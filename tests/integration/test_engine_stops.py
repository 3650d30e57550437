# SPDX-License-Identifier: MIT
"""Signals that stop a program stop it under the soft engine as they do natively, and SIGCONT has it go on."""

from __future__ import annotations

import os
import pty
import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ptweave.data import Bundle, Manifest
from ptweave.wrapper.soft import SoftEngine, salvage
from support.command import words

Begin = Callable[[str], "subprocess.Popen[bytes]"]
LOOP = "i=0; while [ $i -lt 3000000 ]; do i=$((i+1)); done"


@pytest.fixture(params=["native", "soft"])
def begin(request: pytest.FixtureRequest, tmp_path: Path) -> Begin:
    """Start a script, in a group of its own: the kernel stops none that has nobody to wake it."""

    def start(script: str) -> subprocess.Popen[bytes]:
        argv, environment = ["sh", "-c", script], dict(os.environ)
        if request.param == "soft":
            spool = tmp_path / "spool"
            spool.mkdir()
            argv, extra = SoftEngine().command(argv, spool)
            environment.update(extra)
        return subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL,
                                process_group=0)

    return start


def next_change(process: subprocess.Popen[bytes]) -> str:
    """What happened to it: "stopped by N" or "ended with N"."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        pid, status = os.waitpid(process.pid, os.WUNTRACED | os.WNOHANG)
        if pid and os.WIFSTOPPED(status):
            return f"stopped by {signal.Signals(os.WSTOPSIG(status)).name}"
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return f"ended with {process.returncode}"
        time.sleep(0.02)
    process.kill()
    return "nothing"


def begun(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == b"begun\n"


def rest(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    with process.stdout:
        return process.stdout.read()


@pytest.mark.parametrize("work", [LOOP, "sleep 1", "exec sleep 1"], ids=["computes", "waits", "sleeps"])
@pytest.mark.parametrize("number", [signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU])
def test_a_program_is_stopped_and_goes_on(begin: Begin, work: str, number: signal.Signals) -> None:
    process = begin(f"echo begun; {work}")
    begun(process)
    process.send_signal(number)
    assert next_change(process) == f"stopped by {number.name}"
    process.send_signal(signal.SIGCONT)
    process.send_signal(signal.SIGTERM)
    assert next_change(process) == f"ended with {-signal.SIGTERM}"
    rest(process)


@pytest.mark.parametrize("before", ["", "trap : TSTP; trap - TSTP;"], ids=["always default", "default again"])
def test_a_program_stops_itself(begin: Begin, before: str) -> None:
    process = begin(f"{before} kill -TSTP $$; echo went on; exit 3")
    assert next_change(process) == "stopped by SIGTSTP"
    process.send_signal(signal.SIGCONT)
    assert next_change(process) == "ended with 3"
    assert rest(process) == b"went on\n"


@pytest.mark.parametrize("trap, said", [("trap '' TSTP;", b""), ("trap 'echo caught' TSTP;", b"caught\n")])
def test_control_a_program_that_ignores_or_handles_the_signal_is_not_stopped(begin: Begin, trap: str,
                                                                             said: bytes) -> None:
    process = begin(f"{trap} kill -TSTP $$; echo went on; exit 3")
    assert next_change(process) == "ended with 3"
    assert rest(process) == said + b"went on\n"


def test_a_program_that_was_stopped_is_recorded_whole(tmp_path: Path) -> None:
    bundle = Bundle.create(tmp_path / "run.ptw", Manifest())
    spool = tmp_path / "spool"
    spool.mkdir()
    command, extra = SoftEngine().command(["sh", "-c", "kill -TSTP $$; exit 3"], spool)
    process = subprocess.Popen(command, env={**os.environ, **extra}, process_group=0)
    assert next_change(process) == "stopped by SIGTSTP"
    process.send_signal(signal.SIGCONT)
    assert next_change(process) == "ended with 3"
    assert salvage(bundle, spool).losses == []


def test_ctrl_z_stops_a_recording_and_it_goes_on_in_the_foreground(tmp_path: Path) -> None:
    """A shell with job control, at a terminal, says what happened to its job."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.environ["PS1"] = "> "
        os.execlp("bash", "bash", "--norc", "--noediting", "-i")
    said = b""

    def until(text: bytes) -> None:
        nonlocal said
        deadline = time.monotonic() + 60
        while text not in said:
            assert time.monotonic() < deadline, said
            said += os.read(terminal, 4096)
        said = said.partition(text)[2]

    command = shlex.join(words("record", "-o", "run.ptw", "--", "sh", "-c"))
    os.write(terminal, f"{command} 'echo be''gun; sleep 1; exit 3'\n".encode())
    until(b"begun\r\n")
    os.write(terminal, b"\x1a")
    until(b"Stopped")
    os.write(terminal, b"fg\n")
    until(b"nothing lost")
    os.write(terminal, b"echo status $?; exit\n")
    until(b"status 3\r\n")
    os.waitpid(pid, 0)
    os.close(terminal)
