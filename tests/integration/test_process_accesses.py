# SPDX-License-Identifier: MIT
"""What process mode logs of accesses: a program that says which pages it touches is the oracle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from ptweave.data.evl import EVL_HEADER, EVL_HEADER_SIZE, EVL_RECORD, EVL_RECORD_SIZE, Operation
from ptweave.data.handshake import Hello
from support.control import run_traced
from support.programs import compile_program

PAGE = 4096
ACCESSES = (Operation.ACCESS_READ, Operation.ACCESS_WRITE, Operation.ACCESS_END, Operation.ACCESS_COMMIT,
            Operation.ALLOCATION)


@dataclass(frozen=True)
class Record:
    """One record of a list; `thunk` is the number of records before it that begin thunks, less one."""

    thunk: int
    operation: Operation
    object: int
    argument: int
    stack: tuple[int, ...]

    def covers(self, page: int) -> bool:
        return self.object // PAGE * PAGE <= page < self.object // PAGE * PAGE + self.argument * PAGE


def records(data: bytes) -> Iterator[Record]:
    """The second reader of the format."""
    at, thunk = EVL_HEADER_SIZE, -1
    while at < len(data):
        size, operation, frames, _, _, obj, _, _, argument = EVL_RECORD.unpack_from(data, at)
        stack = tuple(int.from_bytes(data[at + EVL_RECORD_SIZE + 8 * i:][:8], "little") for i in range(frames))
        thunk += Operation(operation) not in ACCESSES
        yield Record(thunk, Operation(operation), obj, argument, stack)
        at += size


@dataclass(frozen=True)
class Run:
    memory: int
    read_one: int
    write_one: int
    main: list[Record]
    thread: list[Record]


@pytest.fixture(scope="module", params=["held", "exact"])
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Run]:
    folder = tmp_path_factory.mktemp("accesses")
    program = compile_program(folder, "process_accesses", flags=["-Wno-unused-result"])
    traced = run_traced(folder, [program], env={"PTWEAVE_THREADS": "process", "PTWEAVE_ACCESS": request.param})
    assert traced.status == 0, traced.err
    memory, read_one, write_one = (int(word, 16) for word in traced.out.split())
    lists = {}
    for path in traced.bundle.dependence.glob("*.evl"):
        data = path.read_bytes()
        kind = Hello(EVL_HEADER.unpack_from(data, 0)[4] & 0xFF)
        lists[kind] = list(records(data))
    assert set(lists) == {Hello.PROCESS, Hello.PSEUDO_THREAD}
    return request.param, Run(memory, read_one, write_one, lists[Hello.PROCESS], lists[Hello.PSEUDO_THREAD])


def touching(records: list[Record], operation: Operation, page: int) -> list[Record]:
    return [one for one in records if one.operation is operation and one.covers(page)]


def test_a_read_and_a_write_are_logged_where_they_happened(ran: tuple[str, Run]) -> None:
    _, run = ran
    read = touching(run.thread, Operation.ACCESS_READ, run.memory + PAGE)[0]
    write = touching(run.thread, Operation.ACCESS_WRITE, run.memory + 3 * PAGE)[0]
    assert read.object == run.memory + PAGE + 7 and write.object == run.memory + 3 * PAGE + 9
    assert 0 <= read.stack[0] - 1 - run.read_one < 64 and 0 <= write.stack[0] - 1 - run.write_one < 64
    assert len(read.stack) > 2 and write.thunk == read.thunk + 1  # the lock lies between
    assert not touching(run.thread, Operation.ACCESS_WRITE, run.memory + PAGE)


def test_a_system_call_counts_as_an_access(ran: tuple[str, Run]) -> None:
    _, run = ran
    assert touching(run.thread, Operation.ACCESS_WRITE, run.memory + 5 * PAGE)


def test_main_reads_what_the_thread_wrote(ran: tuple[str, Run]) -> None:
    _, run = ran
    joined = next(one.thunk for one in run.main if one.operation is Operation.JOIN)
    assert [one.thunk for one in touching(run.main, Operation.ACCESS_READ, run.memory + 3 * PAGE)] == [joined]


def test_pages_nobody_touched_are_not_logged(ran: tuple[str, Run]) -> None:
    _, run = ran
    everything = [one for one in run.main + run.thread
                  if one.operation in ACCESSES and one.operation is not Operation.ALLOCATION]
    assert not [one for one in everything if one.covers(run.memory + 40 * PAGE) and one.argument]


def test_exact_closes_at_every_boundary_and_held_does_not(ran: tuple[str, Run]) -> None:
    access, run = ran
    writes = touching(run.thread, Operation.ACCESS_WRITE, run.memory + 3 * PAGE)
    assert len(writes) == (2 if access == "exact" else 1)
