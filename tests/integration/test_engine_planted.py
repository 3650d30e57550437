# SPDX-License-Identifier: MIT
"""Uprobes of others in the code of a program that the soft engine runs: it runs as ever, and so does its trace."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.bpf import needs_bpf
from support.command import words
from support.engine import check_exact, compile_c, record_all, threads

pytestmark = [pytest.mark.root, needs_bpf]

LIBC = Path("/lib/x86_64-linux-gnu/libc.so.6")
IN_LIBC = [f"{LIBC}:{name}" for name in ("printf", "_exit", "write", "pthread_create")]
FIRST_BYTE_OF_PRINTF = """
import ctypes
print(ctypes.string_at(ctypes.cast(ctypes.CDLL(None).printf, ctypes.c_void_p), 1).hex())
"""
GO = b"go\n"


@contextmanager
def probed(folder: Path, *places: str) -> Iterator[None]:
    """While someone else has uprobes in these places."""
    probes = [word for place in places for word in ("--uprobe", place)]
    target = ("sh", "-c", "echo ready; read line || true")
    with subprocess.Popen(words("events", "-q", "-o", folder / "others.ptw", *probes, "--", *target),
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as others:
        assert others.stdin is not None and others.stdout is not None
        assert others.stdout.readline() == b"ready\n"
        yield
        others.stdin.close()
        assert others.wait() == 0


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return compile_c("planted.c", tmp_path, "-pthread")


def run(program: Path, *more: Path) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([program, *more], input=GO, capture_output=True, check=True)


def test_a_program_with_others_breakpoints_and_its_own_runs_and_decodes_to_what_ran(
        program: Path, tmp_path: Path) -> None:
    native = run(program)
    with probed(tmp_path, f"{program}:work", f"{program}:main", *IN_LIBC):
        planted = run(program)
        recording = record_all([str(program)], tmp_path, log=True, stdin=GO)
    assert native.stdout == planted.stdout and native.stdout.endswith(b" 6\n")
    assert native.stderr != b"cc\n" and planted.stderr == b"cc\n"  # the control: they were there
    assert (recording.status, recording.stdout, recording.stderr) == (0, native.stdout, b"cc\n")
    check_exact(recording, tmp_path)
    assert len(threads(recording.bundle)) == 2


def test_others_breakpoints_are_passed_over_as_another_user_with_another_root(program: Path, tmp_path: Path) -> None:
    jail = tmp_path / "jail"
    jail.mkdir()
    native = run(program, jail)
    with probed(tmp_path, *IN_LIBC):
        control = subprocess.run([sys.executable, "-c", FIRST_BYTE_OF_PRINTF], capture_output=True, check=True)
        recording = record_all([str(program), str(jail)], tmp_path, log=True, stdin=GO)
    assert control.stdout == b"cc\n"
    assert (recording.status, recording.stdout) == (0, native.stdout)
    check_exact(recording, tmp_path)


def test_breakpoints_that_come_while_the_program_runs_are_passed_over(program: Path, tmp_path: Path) -> None:
    native = run(program)
    with subprocess.Popen(words("record", "-q", "-o", tmp_path / "run.ptw", "--", program), stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as target:
        assert target.stdout is not None
        first = target.stdout.readline()
        with probed(tmp_path, f"{program}:work", f"{LIBC}:printf", f"{LIBC}:pthread_create"):
            rest, said = target.communicate(GO, timeout=120)
    assert (target.returncode, first + rest, said) == (0, native.stdout, b"cc\n")
