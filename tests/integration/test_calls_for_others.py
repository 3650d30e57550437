# SPDX-License-Identifier: MIT
"""System calls that libtthread makes for the program are the program's, as natively."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from ptweave.merge import Run
from support.command import compile_c, ptweave
from support.engine import PROGRAMS

MADE_FOR = ("mlock", "msync", "munlock", "times", "rt_sigpending", "setuid", "close_range", "sched_yield",
            "process_vm_readv", "getrusage")


@pytest.mark.parametrize("threads", ["process", "native"])
def test_calls_are_recorded_whoever_makes_them(tmp_path: Path, threads: str) -> None:
    program = compile_c(PROGRAMS / "calls_for_others.c", tmp_path / "calls_for_others")
    done = ptweave("wrap", "-q", "--threads", threads, "-o", tmp_path / "run.ptw", "--", program)
    assert done.status == 0, done.err
    subprocess.run(["strace", "-f", "-qq", "-o", tmp_path / "strace", program], check=True)
    native = Counter(re.findall(r"^\d+ +(\w+)\(", (tmp_path / "strace").read_text(), re.M))
    with Run(tmp_path / "run.ptw") as run:
        found = {name: (count, placed) for name, count, placed in run.sql(
            "select name, count(*), count(*) filter (placed = 'exact') from syscalls group by name").rows()}
    assert {name: found.get(name) for name in MADE_FOR} == {name: (native[name],) * 2 for name in MADE_FOR}
    assert all(native[name] == 1 for name in MADE_FOR)


def test_with_native_threads_mappings_are_the_kernels_as_the_program_asks_for_them(tmp_path: Path) -> None:
    program = compile_c(PROGRAMS / "calls_for_others.c", tmp_path / "calls_for_others")
    done = ptweave("wrap", "-q", "--threads", "native", "-o", tmp_path / "run.ptw", "--", program)
    assert done.status == 0, done.err
    with Run(tmp_path / "run.ptw") as run:
        found = run.sql("select name from syscalls where placed = 'exact' and result >= 0 and "
                        "(args[2] in (77777, 155554) or name = 'mremap') order by t_enter").rows()
    assert found == [("mmap",), ("mprotect",), ("mremap",), ("munmap",)]


@pytest.mark.parametrize("threads", ["process", "native"])
def test_a_limit_is_asked_for_once(tmp_path: Path, threads: str) -> None:
    program = compile_c(PROGRAMS / "calls_for_others.c", tmp_path / "calls_for_others")
    done = ptweave("wrap", "-q", "--threads", threads, "-o", tmp_path / "run.ptw", "--", program)
    assert done.status == 0, done.err
    with Run(tmp_path / "run.ptw") as run:
        found = run.sql("select args[1], args[3] != 0, result from syscalls where name = 'prlimit64' and args[2] = 4 "
                        "or name = 'prlimit64' and args[3] != 0").rows()
    assert found == [(0, True, 0)]
