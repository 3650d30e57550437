# SPDX-License-Identifier: MIT
"""A recorded program behaves as it does natively: status, streams, signals, folder. The native run is the oracle."""

from __future__ import annotations

import os
import pty
import select
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest

from ptweave.data import Bundle
from support.command import engine_processes, native, ptweave, words

SHELL = ["sh", "-c"]


@pytest.mark.parametrize("script", [
    "exit 0", "exit 1", "exit 42", "exit 255",
    "cat", "cat >&2", "pwd", "echo \"$0\" \"$@\"", "printf 'no newline'", "head -c 100000 /dev/zero",
    "kill -TERM $$", "kill -KILL $$", "kill -SEGV $$", "kill -ABRT $$", "kill -USR1 $$", "kill -PIPE $$",
    "trap 'echo caught; exit 7' TERM; kill -TERM $$; sleep 1",
    "yes | head -n 3", "exec echo replaced", "(exit 3) || echo $?",
])
def test_status_and_output_equal_the_native_ones(script: str, tmp_path: Path) -> None:
    argv: list[str | Path] = [*SHELL, script, "name", "a b", ""]
    expected = native(argv, cwd=tmp_path, stdin=b"some input\n")
    done = ptweave("record", "-q", "-o", tmp_path / "run.ptw", "--", *argv, cwd=tmp_path, stdin=b"some input\n")
    assert (done.status, done.out) == (expected.status, expected.out)
    assert [line for line in done.err.splitlines() if not line.startswith("ptweave: ")] == expected.err.splitlines()


OPEN = """
import os, sys
def place(fd):
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return "closed"
said = " ".join(place(fd) for fd in range(3))
with open(sys.argv[1], "w") as file:
    file.write(said)
sys.exit(4)
"""


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("command", ["wrap", "record", "events"])
def test_standard_streams_that_are_closed_are_closed_for_the_target_alone(command: str, closed: str,
                                                                          tmp_path: Path) -> None:
    target = shlex.join(["/usr/bin/python3", "-c", OPEN])
    recorder = shlex.join(words(command, "-o", tmp_path / "run.ptw", "--"))
    expected = native([*SHELL, f"exec {target} {tmp_path}/native {closed}"])
    done = native([*SHELL, f"exec {recorder} {target} {tmp_path}/recorded {closed}"])
    assert (done.status, done.out) == (expected.status, b"") == (4, b"")
    assert done.err == ("" if "2>" in closed else f"ptweave: {tmp_path / 'run.ptw'}: nothing lost\n")
    seen = (tmp_path / "recorded").read_text()
    assert seen.count("closed") == closed.count("&-") == (tmp_path / "native").read_text().count("closed")


@pytest.mark.parametrize("command", ["wrap", "record", "events"])
def test_a_working_folder_that_was_removed_is_no_hindrance(command: str, tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    recorder = shlex.join(words(command, "-o", tmp_path / "run.ptw", "--"))
    done = native([*SHELL, f"cd gone && rmdir ../gone && exec {recorder} sh -c 'echo there; exit 3'"], cwd=tmp_path)
    assert (done.status, done.out) == (3, b"there\n")
    assert Bundle.open(tmp_path / "run.ptw").manifest.cwd == f"{tmp_path / 'gone'} (deleted)"


def test_control_a_different_program_differs(tmp_path: Path) -> None:
    expected = native([*SHELL, "exit 4"])
    done = ptweave("record", "-q", "-o", tmp_path / "run.ptw", "--", *SHELL, "exit 5")
    assert done.status != expected.status


def test_environment_is_the_native_one_but_for_what_preloading_needs(tmp_path: Path) -> None:
    def variables(out: bytes) -> dict[bytes, bytes]:
        return dict(line.split(b"=", 1) for line in out.split(b"\0") if line)

    expected = variables(native(["env", "-0"]).out)
    seen = variables(ptweave("record", "-q", "-o", tmp_path / "run.ptw", "--", "env", "-0").out)
    changed = {name for name in expected.keys() | seen.keys() if expected.get(name) != seen.get(name)}
    needed = {b"LD_PRELOAD", b"PTWEAVE_SOCKET", b"GLIBCPP_FORCE_NEW", b"GLIBCXX_FORCE_NEW"}
    assert changed <= needed | {b"PTWEAVE_THREADS", b"PTWEAVE_ACCESS", b"PTWEAVE_VIEW"}
    assert not {name for name in changed - needed if name in expected}


def test_sigterm_to_ptweave_reaches_the_target_and_keeps_the_record(tmp_path: Path) -> None:
    bundle = tmp_path / "run.ptw"
    child = subprocess.Popen(
        words("wrap", "-o", bundle, "--", *SHELL, "trap 'echo ended orderly; exit 9' TERM; echo up; while :; do "
              "sleep 0.05; done"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "up\n"
    child.terminate()
    out, err = child.communicate(timeout=60)
    assert (child.returncode, out) == (9, "ended orderly\n")
    assert "recorded until SIGTERM" in err
    assert ptweave("decode", bundle).status == 0
    assert ptweave("merge", bundle).status == 0


def test_sigterm_that_ends_the_target_ends_ptweave_the_same_way(tmp_path: Path) -> None:
    child = subprocess.Popen(words("record", "-q", "-o", tmp_path / "run.ptw", "--", *SHELL, "echo up; exec sleep 60"),
                             stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    child.stdout.readline()
    child.terminate()
    child.communicate(timeout=60)
    assert child.returncode == -signal.SIGTERM


def _terminal(argv: list[str]) -> tuple[int, int]:
    pid, fd = pty.fork()
    if pid == 0:
        os.execvp(argv[0], argv)
    return pid, fd


def _read_until(fd: int, wanted: bytes, seconds: float = 60) -> bytes:
    seen = b""
    end = time.monotonic() + seconds
    while wanted not in seen and time.monotonic() < end:
        if select.select([fd], [], [], 0.2)[0]:
            try:
                seen += os.read(fd, 4096)
            except OSError:
                break  # the terminal is gone with its last process
    return seen


def test_ctrl_c_reaches_the_target_once(tmp_path: Path) -> None:
    script = ("trap 'n=$((n+1)); echo int $n' INT; echo up; i=0; "
              "while [ $i -lt 40 ]; do sleep 0.05; i=$((i+1)); done; exit 6")
    pid, fd = _terminal(words("record", "-q", "-o", tmp_path / "run.ptw", "--", *SHELL, script))
    assert b"up" in _read_until(fd, b"up")
    os.write(fd, b"\x03")
    seen = _read_until(fd, b"int 2", seconds=4)
    _, status = os.waitpid(pid, 0)
    os.close(fd)
    assert b"int 1" in seen
    assert b"int 2" not in seen
    assert os.waitstatus_to_exitcode(status) == 6


def test_ctrl_c_that_ends_the_target_ends_ptweave_by_sigint(tmp_path: Path) -> None:
    pid, fd = _terminal(words("record", "-q", "-o", tmp_path / "run.ptw", "--", *SHELL, "echo up; sleep 60"))
    assert b"up" in _read_until(fd, b"up")
    time.sleep(0.3)
    os.write(fd, b"\x03")
    _read_until(fd, b"\xff never", seconds=8)
    _, status = os.waitpid(pid, 0)
    os.close(fd)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGINT


def test_the_target_sees_the_terminal(tmp_path: Path) -> None:
    pid, fd = _terminal(words("record", "-q", "-o", tmp_path / "run.ptw", "--", *SHELL,
                              "test -t 0 && test -t 1 && test -t 2 && echo yes"))
    assert b"yes" in _read_until(fd, b"yes")
    os.waitpid(pid, 0)
    os.close(fd)


def test_progress_is_drawn_on_a_terminal_and_not_in_a_pipe(tmp_path: Path) -> None:
    pid, fd = _terminal(words("wrap", "-o", tmp_path / "a.ptw", "--", "true"))
    seen = _read_until(fd, b"nothing lost")
    os.waitpid(pid, 0)
    os.close(fd)
    assert b"decode" in seen
    assert b"\x1b[" in seen
    piped = ptweave("wrap", "-o", tmp_path / "b.ptw", "--", "true")
    assert "\x1b[" not in piped.err
    assert "decode" not in piped.err


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "t"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    ptweave("wrap", "-o", tmp_path / "run.ptw", "--", *SHELL, "sleep 0.1 & exit 0")
    assert list(place.iterdir()) == []
    assert engine_processes(tmp_path) == set()
    assert not (tmp_path / "run.ptw" / "spool").exists()
    assert [entry.name for entry in (tmp_path / "run.ptw").iterdir() if entry.name.startswith(".")] == []


def test_processes_left_behind_are_waited_for_and_recorded(tmp_path: Path) -> None:
    began = time.monotonic()
    done = ptweave("wrap", "-o", tmp_path / "run.ptw", "--", *SHELL, "(sleep 1.5; echo late) & exit 3")
    assert done.status == 3
    assert done.out == b"late\n"
    assert time.monotonic() - began > 1.5
