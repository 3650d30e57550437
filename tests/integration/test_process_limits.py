# SPDX-License-Identifier: MIT
"""Threads as processes where something runs out.

The program goes on as natively, or ends as natively with a clear line; nothing is left behind, and what was recorded
until then is readable.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ptweave.data.evl import EVL_HEADER_SIZE, EVL_RECORD, Operation
from ptweave.data.notices import NoticeKind
from support.evl_accesses import read_accesses
from support.modes import NATIVE, Mode, Ran, process_mode, run
from support.programs import compile_program

ROOT = Path(__file__).resolve().parents[2]
PAGE = 4096
HELD, EXACT = process_mode("held", "shared"), process_mode("exact", "shared")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("process-limits")


# --- mappings ---


def closed_everything(ran: Ran) -> int:
    """How often all pages of a thread that holds pages were closed at once."""
    assert ran.traced is not None
    count = 0
    for path in (ran.traced.bundle.path / "dependence").glob("*.evl"):
        data, at = path.read_bytes(), EVL_HEADER_SIZE
        while at < len(data):
            size, operation, *_, argument = EVL_RECORD.unpack_from(data, at)
            count += operation == Operation.ACCESS_END and argument == 0
            at += size
    return count


def test_more_pages_are_open_than_there_may_be_mappings(folder: Path, tmp_path: Path) -> None:
    """Every second page of 60,000 makes 60,000 mappings, and the limit is 65,530: all values are right, every page
    written is in the log. The control: with fewer pages they are closed at thunks only."""
    most = int(Path("/proc/sys/vm/max_map_count").read_text())
    if most > 80000:
        pytest.skip(f"vm.max_map_count is {most}: it would take too long to reach it")
    program, pages = compile_program(folder, "process_crowd"), most * 92 // 100
    ran = run(EXACT, tmp_path, [program, str(pages)], timeout=120)  # with held, windows grow before it comes to that
    place, right = ran.out.split()
    assert (ran.status, int(right)) == (0, (pages + 1) // 2), ran.err
    assert ran.traced is not None
    accesses = read_accesses(ran.traced.bundle.path / "dependence")
    written = {int(page) for page, write in zip(accesses.page, accesses.write, strict=True) if write}
    missing = {int(place, 16) + i * PAGE for i in range(0, pages, 2)} - written
    assert not missing
    few = run(EXACT, tmp_path, [program, "2000"], name="few.ptw")
    assert (few.status, int(few.out.split()[1])) == (0, 1000)
    assert closed_everything(ran) > closed_everything(few)


# --- memory ---


@pytest.fixture
def small_group() -> Iterator[Path]:
    """A group of processes that may have 400 MB together."""
    for root, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        group = Path(root) / f"ptweave-test-{os.getpid()}"
        try:
            group.mkdir()
            (group / limit).write_text(str(400 << 20))
        except OSError:
            if group.is_dir():
                group.rmdir()
            continue
        yield group
        end = time.monotonic() + 10
        while (group / "cgroup.procs").read_text().split() and time.monotonic() < end:
            time.sleep(0.05)
        group.rmdir()
        return
    pytest.skip("no memory control groups here, or no right to make one")


@pytest.mark.parametrize("mode", [NATIVE, HELD, EXACT], ids=str)
def test_memory_that_runs_out_ends_the_program_and_all_its_processes(folder: Path, tmp_path: Path, small_group: Path,
                                                                     mode: Mode) -> None:
    program = compile_program(folder, "process_hungry")
    ran = run(mode, tmp_path, ["sh", "-c", f"echo $$ > {small_group}/cgroup.procs; exec {program}"], timeout=60)
    assert (ran.status, ran.out) == (-9, b"eating\n")
    assert ran.err == "" or "SIGKILL (out of memory?)" in ran.err
    end = time.monotonic() + 10
    while (small_group / "cgroup.procs").read_text().split():
        assert time.monotonic() < end, "a process stays"
        time.sleep(0.05)
    if mode is not NATIVE:
        assert ran.traced is not None
        accesses = read_accesses(ran.traced.bundle.path / "dependence")
        assert len(accesses.page) > 100 and len(set(accesses.thread)) >= 4


# --- limits ---


@pytest.mark.parametrize("limit", ["-v 900000", "-f 1000"])
def test_little_address_space_and_small_files_leave_the_program_as_it_is(folder: Path, tmp_path: Path,
                                                                         limit: str) -> None:
    program = compile_program(folder, "process_crowd")
    ran = run(HELD, tmp_path, ["sh", "-c", f"ulimit {limit}; exec {program} 2000"])
    assert (ran.status, int(ran.out.split()[1])) == (0, 1000), ran.err
    lines = ran.err.splitlines()
    assert lines and all(line.startswith("ptweave: ") for line in lines)
    assert any("threads stay threads" in line for line in lines)


@pytest.mark.parametrize(("count", "fits"), [(3, True), (9, False)])
def test_more_data_that_is_each_process_s_own_than_can_be_noted_leaves_the_program_as_it_is(
        tmp_path: Path, count: int, fits: bool) -> None:
    """Data of libraries named as valgrind's stays each process's own, in at most eight ranges with ptweave's; what was
    not noted would be shared. The control: three libraries fit."""
    libraries = []
    for number in range(count):
        out = tmp_path / f"vgpreload_{number}.so"
        subprocess.run(["gcc", "-shared", "-fPIC", "-nostdlib", "-x", "c", "-o", out, "-"],
                       input=f"int own_{number}[4096] = {{1}};".encode(), check=True)
        libraries.append(str(out))
    program = tmp_path / "process_crowd"
    subprocess.run(["gcc", "-O1", "-o", program, ROOT / "tests/programs/process_crowd.c", "-pthread",
                    "-Wl,--no-as-needed", *libraries], check=True)
    ran = run(HELD, tmp_path, [program, "2000"])
    assert (ran.status, int(ran.out.split()[1])) == (0, 1000), ran.err
    assert ran.traced is not None
    told = [one.text for one in ran.traced.server.notices.all if one.kind is NoticeKind.FALLBACK]
    assert told == ([] if fits else ["no room to share the program's data: threads stay threads"])
    accesses = read_accesses(ran.traced.bundle.path / "dependence")
    assert (len(accesses.page) > 0) == fits
