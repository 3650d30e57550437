# SPDX-License-Identifier: MIT
"""Programs that the soft engine's program runs next, by names and with rights that only the kernel can give."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from support import command
from support.engine import check_exact, compile_c, record_all, threads

CAPABILITIES = struct.pack("<5I", 0x02000001, 1 << 12, 0, 0, 0)  # VFS_CAP_REVISION_2, effective: CAP_NET_ADMIN


def executed(program: Path, way: str, folder: Path) -> tuple[str, Path]:
    """A command that executes a copy of the program in a folder of its own."""
    folder.mkdir()
    shutil.copy(program, folder / "itself")
    return f"cd {folder}; exec ./itself {way}", folder


@pytest.mark.parametrize("way", ["self", "thread", "pid", "at", "removed", "link", "nameless", "descriptor"])
def test_a_program_that_executes_itself_runs_again_and_is_traced(tmp_path: Path, way: str) -> None:
    """By /proc/self/exe, which is the engine's file to the kernel, or out of a file without a name."""
    program = compile_c("executes_itself.c", tmp_path)
    native = subprocess.run(["sh", "-c", executed(program, way, tmp_path / "native")[0]], capture_output=True,
                            check=False)
    assert (native.returncode, native.stdout) == (4, f"again {way} second, 0 descriptors\n".encode())
    under = record_all(["sh", "-c", executed(program, way, tmp_path / "under")[0]], tmp_path, log=True)
    assert (under.status, under.stdout, under.stderr) == (native.returncode, native.stdout, native.stderr)
    assert under.bundle.ledger().losses == []
    assert threads(under.bundle) == [0]
    check_exact(under, tmp_path)


def test_control_another_file_under_a_name_in_proc_is_not_taken_for_the_program(tmp_path: Path) -> None:
    """A descriptor's own file runs, and no other: /bin/echo, not what calls it."""
    script = "exec 9</bin/echo; exec /proc/self/fd/9 from nine"
    assert record_all(["bash", "-c", script], tmp_path).stdout == b"from nine\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: capabilities of a file")
def test_a_program_with_file_capabilities_runs_without_the_engine_and_is_counted(tmp_path: Path) -> None:
    copy = tmp_path / "capable"
    shutil.copy("/bin/echo", copy)
    os.setxattr(copy, "security.capability", CAPABILITIES)
    recording = record_all(["sh", "-c", f"{copy} hello; echo $?"], tmp_path)
    assert (recording.stdout, recording.stderr) == (b"hello\n0\n", b"")
    assert recording.bundle.ledger().losses == [("processes", "the engine cannot run it", 1, "images")]


def strace_of(log: Path, *words: str) -> list[str]:
    return ["strace", "-qq", "-o", str(log), *words]


def calls_in(log: Path) -> list[str]:
    """Which calls, in order."""
    return [line.partition("(")[0] for line in log.read_text().splitlines()]


def test_a_program_that_another_one_traces_runs_as_natively(tmp_path: Path) -> None:
    """It would show the engine: its calls to strace, its registers to a debugger."""
    words = ["sh", "-c", "exec /bin/echo one two"]
    native = subprocess.run(strace_of(tmp_path / "native", *words), capture_output=True, check=True)
    recording = record_all(strace_of(tmp_path / "under", *words), tmp_path)
    assert (recording.status, recording.stdout, recording.stderr) == (0, native.stdout, native.stderr)
    assert len(calls_in(tmp_path / "native")) > 50
    assert calls_in(tmp_path / "under") == calls_in(tmp_path / "native")
    assert recording.bundle.ledger().losses == [("processes", "the engine cannot run it", 1, "images")]


def test_what_another_one_traces_is_without_libtthread_but_not_without_other_libraries(tmp_path: Path) -> None:
    other = next(Path("/lib/x86_64-linux-gnu").glob("libz.so.1*"))
    traced = ["sh", "-c", f"LD_PRELOAD=$LD_PRELOAD:{other} exec strace -qq -o {tmp_path}/log env"]
    run = subprocess.run([*command.words("record", "-q", "-o", tmp_path / "env.ptw", "--"), *traced],
                         capture_output=True, check=False, text=True)
    found = [line for line in run.stdout.splitlines() if line.startswith("LD_PRELOAD=")]
    assert run.returncode == 0 and found == [f"LD_PRELOAD={other}"]


def test_control_a_tracer_from_outside_does_not_keep_the_engine_away(tmp_path: Path) -> None:
    run = subprocess.run(
        strace_of(Path(os.devnull), "-f", *command.words("record", "-o", tmp_path / "run.ptw", "--"), "sh", "-c",
                  "/bin/true; exec /bin/echo one two"), capture_output=True, check=False, text=True)
    assert (run.returncode, run.stdout) == (0, "one two\n")
    assert "the engine cannot run it" not in run.stderr
