# SPDX-License-Identifier: MIT
"""What process mode saves itself, and that the log still says all of it: counts of records, not seconds."""

from __future__ import annotations

import collections
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from ptweave.data.evl import EVL_HEADER, EVL_HEADER_SIZE, EVL_RECORD, Operation
from ptweave.data.handshake import Hello
from ptweave.preload import library_path
from support.modes import process_mode, run
from support.programs import compile_program

PAGE = 4096
ROUNDS, PAGES = 400, 64  # the program's own
LOGGED = (Operation.ACCESS_READ, Operation.ACCESS_WRITE)


@dataclass
class Log:
    """A pseudo-thread's list: operations in order, and for each thunk the pages it could read and write."""

    operations: list[Operation]
    reads: list[set[int]]
    writes: list[set[int]]
    logged: dict[Operation, int]
    faults: int = 0


def read_log(path: Path) -> Log:
    """Open pages of each thunk; a thunk's record comes before its accesses, an end after them."""
    data, at = path.read_bytes(), EVL_HEADER_SIZE
    log = Log([], [], [], collections.Counter())
    reading: set[int] = set()
    writing: set[int] = set()
    while at < len(data):
        size, number, frames, _, _, first, _, _, count = EVL_RECORD.unpack_from(data, at)
        operation, start = Operation(number), first // PAGE * PAGE
        log.logged[operation] += 1
        pages = set(range(start, start + count * PAGE, PAGE))
        if operation is Operation.ACCESS_END:
            for held in (reading, writing):
                held.difference_update(pages if count else set(held))
        elif operation in LOGGED:
            log.faults += frames > 0
            for held, thunks in ((reading, log.reads), (writing, log.writes)):
                if held is reading or operation is Operation.ACCESS_WRITE:
                    held |= pages
                    thunks[-1] |= pages
        else:
            log.operations.append(operation)
            log.reads.append(set(reading))
            log.writes.append(set(writing))
        at += size
    return log


def record(tmp_path: Path, access: str, what: str) -> tuple[int, int, list[Log]]:
    """Addresses of counter and pages, and what its two threads logged."""
    program = compile_program(tmp_path, "process_costs", flags=["-Wl,-z,lazy"])
    ran = run(process_mode(access, "shared"), tmp_path, [program, what])
    assert ran.status == 0 and ran.traced is not None, ran.err
    counter, pages, total = ran.out.split()
    wanted = {"nothing": 0, "count": 2 * ROUNDS, "contend": PAGES * (2 * ROUNDS % 256) + 2 * ROUNDS}
    assert int(total) == wanted[what]
    logs = [path for path in ran.traced.bundle.dependence.glob("*.evl")
            if EVL_HEADER.unpack_from(path.read_bytes())[4] & 0xFF == Hello.PSEUDO_THREAD]
    assert len(logs) == 2
    return int(counter, 16), int(pages, 16), [read_log(path) for path in logs]


def locked(log: Log) -> list[int]:
    return [index for index, one in enumerate(log.operations) if one is Operation.MUTEX_LOCK]


def test_exact_thunks_that_touch_nothing_fault_for_nothing_and_are_said_to_read_their_linkage(tmp_path: Path) -> None:
    """A record of an access that faulted has a stack."""
    counter, _, logs = record(tmp_path, "exact", "nothing")
    for log in logs:
        assert len(locked(log)) == ROUNDS and log.faults < 30
        assert all(counter // PAGE * PAGE in log.reads[index] for index in locked(log))
        assert not any(counter // PAGE * PAGE in log.writes[index] for index in locked(log)[1:])


def test_exact_thunks_that_write_beside_their_linkage_each_say_so(tmp_path: Path) -> None:
    counter, _, logs = record(tmp_path, "exact", "count")
    page = counter // PAGE * PAGE
    for log in logs:
        assert log.faults >= ROUNDS
        assert all(page in log.writes[index] and page in log.reads[index] for index in locked(log))
        unlocked = [index + 1 for index in locked(log)][1:]
        assert not any(page in log.writes[index] for index in unlocked)
        assert all(page in log.reads[index] for index in unlocked)


def test_held_pages_that_threads_keep_taking_from_each_other_are_kept_and_said_to_be(tmp_path: Path) -> None:
    """Every locked thunk writes every page; both threads do, so each takes all pages from the other all the time."""
    _, pages, logs = record(tmp_path, "held", "contend")
    wanted = set(range(pages, pages + PAGES * PAGE, PAGE))
    for log in logs:
        assert [index for index in locked(log) if not wanted <= log.writes[index]] == []
        assert PAGES / 8 < log.logged[Operation.ACCESS_WRITE] < ROUNDS * PAGES / 4


@pytest.mark.parametrize("access", ["held", "exact"])
def test_a_thread_s_records_are_all_there(tmp_path: Path, access: str) -> None:
    _, _, logs = record(tmp_path, access, "contend")
    for log in logs:
        assert log.operations[0] is Operation.START and log.operations[-1] is Operation.EXIT
        assert log.operations.count(Operation.MUTEX_UNLOCK) == ROUNDS


def test_a_thread_costs_few_page_faults(tmp_path: Path) -> None:
    """Each is one to three microseconds of its creation. That they are counted: no process is without any."""
    program = compile_program(tmp_path, "thread_faults")
    faults = []
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        ran = run(process_mode("held", "shared"), tmp_path / folder, [program])
        assert ran.status == 0 and ran.traced is not None, ran.err
        faults.append(int(ran.out))
    assert 10 < min(faults) <= 48


@pytest.mark.parametrize(("tunables", "clones"), [("", 1), ("glibc.pthread.rseq=0", 2)])
def test_a_thread_costs_one_clone(tmp_path: Path, tunables: str, clones: int) -> None:
    """Of 250 threads; libtthread has a few of its own. Where it cannot clone a process inside pthread_create (here: the
    C library has no rseq) a thread is made first, and clones itself."""
    program, trace = compile_program(tmp_path, "thread_faults"), tmp_path / "strace"
    environment = {**process_mode("held", "shared").environment(), "LD_PRELOAD": str(library_path()),
                   "GLIBC_TUNABLES": tunables}
    subprocess.run(["strace", "-f", "-qq", "-e", "trace=clone,clone3", "-o", trace,
                    *(f"-E{name}={value}" for name, value in environment.items()), program], check=True)
    made = len(re.findall(r"\bclone3?\([^N]", trace.read_text()))
    assert 250 * clones < made <= 250 * clones + 6
