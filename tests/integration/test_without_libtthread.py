# SPDX-License-Identifier: MIT
"""Programs that libtthread is not in, inside a run in which it is in others: the last line tells how many."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ptweave.preload import library_path
from support.command import compile_c, ptweave

ROOT = Path(__file__).resolve().parents[2]
WITHOUT = "programs of libtthread (not in them: no thunks)"


def last_line(err: str) -> str:
    """The only line, too."""
    (line,) = err.splitlines()
    return line


@pytest.fixture
def static(tmp_path: Path) -> Path:
    source = tmp_path / "static.c"
    source.write_text("int main(void) { return 3; }")
    return compile_c(source, tmp_path / "static", "-static")


def test_static_programs_that_a_script_starts_are_told(tmp_path: Path, static: Path) -> None:
    done = ptweave("record", "-o", tmp_path / "run.ptw", "--", "sh", "-c", f"{static}; {static}; exec {static}")
    assert done.status == 3
    assert f"3 {WITHOUT}" in last_line(done.err)


def test_they_are_told_when_the_run_is_decoded_and_merged_too(tmp_path: Path, static: Path) -> None:
    done = ptweave("wrap", "-o", tmp_path / "run.ptw", "--", "sh", "-c", f"{static}; exec {static}")
    assert done.status == 3
    assert f"2 {WITHOUT}" in last_line(done.err)
    again = ptweave("merge", tmp_path / "run.ptw")
    assert f"2 {WITHOUT}" in last_line(again.err)


@pytest.mark.parametrize(("dies", "told"), [("raise(SIGTERM)", False), ("*(volatile int *)8 = 1", True)])
def test_one_that_somebody_s_signal_ended_is_not_told_but_one_that_failed_is(dies: str, told: bool,
                                                                              tmp_path: Path) -> None:
    """What is killed as it begins says no hello, either: `expect` ends at once what it has spawned."""
    source = tmp_path / "dies.c"
    source.write_text(f"#include <signal.h>\nint main(void) {{ {dies}; return 0; }}")
    program = compile_c(source, tmp_path / "dies", "-static")
    done = ptweave("record", "-o", tmp_path / "run.ptw", "--", "sh", "-c", f"{program} 2>/dev/null; true")
    assert done.status == 0 and (f"1 {WITHOUT}" in done.err.splitlines()[-1]) is told


def test_a_program_that_was_started_without_our_environment_is_told(tmp_path: Path) -> None:
    done = ptweave("record", "-o", tmp_path / "run.ptw", "--", "env", "-i", "/bin/true")
    assert f"1 {WITHOUT}" in last_line(done.err)


EXECS = ("execve", "execv", "execvp", "execvpe", "execl", "execlp", "execle", "posix_spawn", "posix_spawnp", "vfork")


@pytest.mark.parametrize("mode", ["native", "process"])
@pytest.mark.parametrize("how", EXECS)
def test_a_program_that_is_started_with_another_preload_has_both(tmp_path: Path, how: str, mode: str) -> None:
    made = compile_c(ROOT / "tests/programs/execs.c", tmp_path / "execs")
    done = ptweave("record", "-o", tmp_path / "run.ptw", f"--threads={mode}", "--", made, how, "libz.so.1")
    assert last_line(done.err).endswith("nothing lost")
    (value,) = [line for line in done.out.decode().splitlines() if line.startswith("LD_PRELOAD=")]
    assert value == f"LD_PRELOAD={library_path()}:libz.so.1"


def test_a_program_that_is_to_have_no_preload_is_left_without_and_told(tmp_path: Path) -> None:
    done = ptweave("record", "-o", tmp_path / "run.ptw", "--", "env", "-u", "LD_PRELOAD", "env")
    assert b"LD_PRELOAD" not in done.out and b"PTWEAVE_SOCKET" in done.out
    assert f"1 {WITHOUT}" in last_line(done.err)


def test_control_programs_with_libtthread_lose_nothing(tmp_path: Path) -> None:
    done = ptweave("record", "-o", tmp_path / "run.ptw", "--", "sh", "-c", "/bin/true; (exit 3); ls / | cat >/dev/null")
    assert last_line(done.err).endswith("nothing lost")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: becomes another user")
def test_a_program_that_becomes_another_user_is_told_why_and_counted(tmp_path: Path) -> None:
    done = ptweave("record", "-o", tmp_path / "run.ptw", "--", "setpriv", "--reuid", "65534", "--clear-groups",
                   "/bin/true")
    first, last = done.err.splitlines()
    assert first == "ptweave: this user may not reach the supervisor: this process goes on untraced"
    assert f"1 {WITHOUT}" in last


def test_an_engine_that_ends_before_the_program_begins_is_told(tmp_path: Path) -> None:
    """The program wants the addresses that the engine is at."""
    source = tmp_path / "elsewhere.c"
    source.write_text("int main(void) { return 0; }")
    program = compile_c(source, tmp_path / "elsewhere", "-no-pie", "-Wl,-Ttext-segment=0x7e000000")
    assert subprocess.run([program]).returncode == 0
    done = ptweave("record", "-o", tmp_path / "run.ptw", "--", program)
    assert done.status == 1
    assert done.err.splitlines()[-1].endswith("lacks everything: the engine ended before the program began")
