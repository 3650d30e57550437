# SPDX-License-Identifier: MIT
"""Signals that stop a program stop it under the soft engine as they do natively, and SIGCONT has it go on."""

from __future__ import annotations

import os
import pty
import select
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
from support.programs import compile_program

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


class VforkChild:
    """A child of vfork takes its time before it executes a shell; its parent waits for it in the kernel."""

    def __init__(self, begin: Begin, program: Path, how: str) -> None:
        script = "echo executed; exit 3"
        self.process = begin(shlex.join(["exec", str(program), *how.split(), "/bin/sh", "-c", script]))
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"waiting\n"

    def signal(self, number: signal.Signals) -> None:
        os.killpg(self.process.pid, number)

    def says_something_within(self, seconds: float) -> bool:
        return bool(select.select([self.process.stdout], [], [], seconds)[0])

    def ends_well(self) -> None:
        assert next_change(self.process) == "ended with 3"
        assert rest(self.process) == b"executed\n"


@pytest.fixture
def before_exec(tmp_path: Path) -> Path:
    return compile_program(tmp_path, "vfork_before_exec")


@pytest.mark.parametrize("begin", ["soft"], indirect=True)
@pytest.mark.parametrize("how", ["sleeps", "computes"])
@pytest.mark.parametrize("number", [signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU])
def test_a_stop_waits_in_a_vfork_child_until_it_executes(begin: Begin, before_exec: Path, how: str,
                                                         number: signal.Signals) -> None:
    child = VforkChild(begin, before_exec, how)
    child.signal(number)
    assert next_change(child.process) == f"stopped by {number.name}"
    assert not child.says_something_within(0.5)
    child.signal(signal.SIGCONT)
    child.ends_well()


@pytest.mark.parametrize("begin", ["native"], indirect=True)
def test_control_natively_a_vfork_child_that_takes_long_stops_and_its_parent_does_not(begin: Begin,
                                                                                      before_exec: Path) -> None:
    child = VforkChild(begin, before_exec, "sleeps")
    child.signal(signal.SIGTSTP)
    assert not child.says_something_within(1.5)
    assert os.waitpid(child.process.pid, os.WUNTRACED | os.WNOHANG) == (0, 0)
    child.signal(signal.SIGCONT)
    child.ends_well()


def test_sigcont_takes_back_a_stop_that_waits_in_a_vfork_child(begin: Begin, before_exec: Path) -> None:
    child = VforkChild(begin, before_exec, "sleeps")
    child.signal(signal.SIGTSTP)
    child.signal(signal.SIGCONT)
    child.ends_well()


def test_a_stop_that_a_vfork_child_blocks_is_blocked_in_what_it_executes(begin: Begin, before_exec: Path) -> None:
    child = VforkChild(begin, before_exec, "sleeps blocked")
    child.signal(signal.SIGTSTP)
    child.ends_well()


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
            assert select.select([terminal], [], [], max(0, deadline - time.monotonic()))[0], said
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
