# SPDX-License-Identifier: MIT
"""Waits in system calls that a thread of the run ended, and those of which that cannot be said: made-up calls."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from ptweave.cli import main
from ptweave.data.bundle import Bundle
from ptweave.data.schemas import PROCESSES, SYSCALLS, THREADS, THUNKS
from ptweave.merge import Run, merge_run
from ptweave.merge.call_waits import WAITS
from support.bundle_writer import BundleWriter, put

PIPE, OTHER = "pipe:[7]", "pipe:[8]"
CHILD = 200


def made(folder: Path) -> Bundle:
    """Thread 0 of process 100, thread 1 of its child 200, which begins at 100, and thread 2 beside thread 0."""
    writer = BundleWriter(folder / "run.ptw")
    block = writer.block("main", "jump")
    for thread, pid, space, begin in ((0, 100, 0, 0), (1, CHILD, 1, 100), (2, 100, 0, 50)):
        writer.task(thread, pid=pid, tid=pid + thread, space=space, begin=begin, end=2000,
                    creator=100 if thread else 0)
        writer.run(thread, [block] * 4)
        writer.moment(thread, 0, begin)
    writer.thunk(0, t=0, operation="start", acquire=False)
    bundle = writer.write()
    merge_run(bundle)
    return bundle


def call(thread: int, name: str, enter: int, leave: int | None, *args: int, result: int | None = 0,
         file: str | None = None, other: str | None = None, data: dict[int, bytes] | None = None) -> dict[str, Any]:
    """A row of `syscalls`; `data`: what an argument's memory held when it returned."""
    return {"thread": thread, "pid": CHILD if thread == 1 else 100, "t_enter": enter, "t_exit": leave, "name": name,
            "number": 0, "args": list(args), "paths": [], "files": [file, other, None], "result": result,
            "source": "both", "placed": "none", "data": [
                {"argument": argument, "kind": 3, "part": 0, "when": 1, "size": len(held), "data": held}
                for argument, held in (data or {}).items()]}


def waits(bundle: Bundle, *calls: dict[str, Any]) -> list[tuple[Any, ...]]:
    """The waits in these calls: thread, when entered, when and by which thread ended."""
    put(bundle, SYSCALLS, list(calls))
    with Run(bundle.path) as run:
        return run.sql(f"select thread, t_enter, released, by_thread from ({WAITS})").rows()


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return made(tmp_path)


def exited(at: int) -> dict[str, Any]:
    return call(1, "exit_group", at, None, 0, result=None)


def reap(enter: int, leave: int, status: int | None = 0) -> dict[str, Any]:
    held = {} if status is None else {1: struct.pack("<i", status)}
    return call(0, "wait4", enter, leave, CHILD, 1, 0, 0, result=CHILD, data=held)


def info(code: int, status: int) -> dict[int, bytes]:
    return {2: struct.pack("<iii4xiIi", 17, 0, code, CHILD, 0, status) + bytes(100)}


@pytest.mark.parametrize(("calls", "expected"), [
    ([reap(300, 600), exited(500)], [(0, 300, 500, 1)]),
    ([reap(300, 600, None), exited(500)], [(0, 300, 500, 1)]),
    ([reap(550, 600), exited(500)], []),  # it had ended
    ([reap(300, 600, 0x137f), exited(900)], []),  # it was stopped
    ([reap(300, 600, 0xffff), exited(900)], []),  # it went on
    ([call(0, "wait4", 300, 600, CHILD, 1, 1, 0, result=0), exited(500)], []),
    ([call(0, "waitid", 300, 600, 1, CHILD, 1, 4, 0, data=info(1, 3)), exited(500)], [(0, 300, 500, 1)]),
    ([call(0, "waitid", 300, 600, 1, CHILD, 1, 2, 0, data=info(5, 19)), exited(500)], []),  # stopped
    ([reap(300, 600, 9), call(2, "kill", 450, 455, CHILD, 9)], [(0, 300, 450, 2)]),
    ([reap(300, 600, None), call(2, "kill", 450, 455, CHILD, 9)], [(0, 300, 450, 2)]),
    ([reap(300, 600, None), exited(400), call(2, "kill", 450, 455, CHILD, 9)], [(0, 300, 400, 1)]),  # a zombie
    ([reap(300, 600, 0), exited(500), call(2, "kill", 450, 455, CHILD, 10)], [(0, 300, 500, 1)]),
    ([call(0, "vfork", 90, 160, result=CHILD), call(1, "execve", 140, 150, 1, 1, 1)], [(0, 90, 150, 1)]),
    ([call(0, "clone", 90, 160, 0x4111, result=CHILD), exited(140)], [(0, 90, 140, 1)]),
    ([call(0, "clone", 90, 160, 17, result=CHILD), exited(140)], []),  # a fork waits for nothing
])
def test_a_child_is_waited_for_until_it_ends(bundle: Bundle, calls: list[dict[str, Any]],
                                             expected: list[tuple[Any, ...]]) -> None:
    assert waits(bundle, *calls) == expected


def read(thread: int, enter: int, leave: int, size: int, file: str = PIPE) -> dict[str, Any]:
    return call(thread, "read", enter, leave, 3, 1, 64, result=size, file=file)


def write(thread: int, enter: int, size: int, file: str = PIPE) -> dict[str, Any]:
    return call(thread, "write", enter, enter + 5, 4, 1, size, result=size, file=file)


@pytest.mark.parametrize(("calls", "expected"), [
    ([read(0, 300, 600, 4), write(1, 500, 4)], [(0, 300, 500, 1)]),
    ([read(0, 300, 600, 4), write(1, 500, 4, OTHER)], []),
    ([read(0, 300, 600, 4), write(1, 200, 4)], []),  # it was there already
    # the first byte of the second read is the second write's, whatever was written while it took its time to go on
    ([write(1, 100, 4), read(0, 200, 210, 4), read(0, 300, 600, 2), write(2, 400, 2), write(1, 500, 4)],
     [(0, 300, 400, 2)]),
    # two readers: the first one to go on had what was written first
    ([read(0, 300, 700, 1), read(1, 310, 500, 1), write(2, 450, 1), write(2, 650, 1)],
     [(0, 300, 650, 2), (1, 310, 450, 2)]),
    ([read(0, 300, 600, 4), read(0, 610, 620, 4), write(1, 500, 4)], []),  # others write to it, too
    ([read(0, 300, 600, 4), write(0, 500, 4)], []),  # a handler of its own
    ([call(0, "poll", 300, 600, 1, 1, 0, result=1), read(0, 610, 620, 4), write(1, 500, 4)], [(0, 300, 500, 1)]),
    ([call(0, "poll", 300, 600, 1, 1, 0, result=0), read(0, 610, 620, 4), write(1, 500, 4)], []),  # its time was over
    ([call(0, "poll", 300, 600, 1, 1, 0, result=1), call(0, "poll", 605, 606, 1, 1, 0, result=1),
      read(0, 610, 620, 4), write(1, 500, 4)], []),  # it is not known that it was for this
    ([call(0, "splice", 300, 600, 3, 0, 5, 0, 64, 0, result=4, file=PIPE, other="/a"),
      call(1, "sendfile", 500, 510, 4, 5, 0, 4, result=4, file=PIPE, other="/b")], [(0, 300, 500, 1)]),
])
def test_a_pipe_is_waited_for_until_its_first_byte_is_written(bundle: Bundle, calls: list[dict[str, Any]],
                                                              expected: list[tuple[Any, ...]]) -> None:
    assert waits(bundle, *calls) == expected


@pytest.mark.parametrize(("calls", "expected"), [
    ([read(0, 300, 600, 0), write(1, 200, 4), read(0, 250, 260, 4), exited(500)], [(0, 300, 500, 1)]),
    ([read(0, 300, 600, 0), call(1, "close", 450, 451, 4, file=PIPE), exited(500)], [(0, 300, 500, 1)]),
    ([read(0, 300, 600, 0), call(1, "close", 450, 451, 4, file=PIPE), exited(900)], [(0, 300, 450, 1)]),
    ([read(0, 300, 600, 0), call(1, "dup2", 450, 451, 9, 4, file="/a", other=PIPE)], [(0, 300, 450, 1)]),
    ([read(0, 300, 600, 0), call(1, "dup2", 200, 201, 4, 1, file=PIPE, other="/a"),
      call(1, "execve", 400, 410, 1, 1, 1), exited(500)], [(0, 300, 500, 1)]),
    ([read(0, 300, 600, 0), call(1, "dup2", 200, 201, 4, 1, file=PIPE, other="/a"),
      call(1, "execve", 400, 410, 1, 1, 1)], [(0, 300, 410, 1)]),
    ([read(0, 300, 600, 0), exited(500)], []),  # it is not known that it had the pipe
    ([call(0, "read", 300, 600, 3, 1, 0, result=0, file=PIPE), call(1, "close", 450, 451, 4, file=PIPE)], []),
])
def test_the_end_of_a_pipe_is_waited_for_until_the_last_one_leaves_it(bundle: Bundle, calls: list[dict[str, Any]],
                                                                      expected: list[tuple[Any, ...]]) -> None:
    assert waits(bundle, *calls) == expected


def test_sockets_of_a_pair_are_told_by_who_uses_them_first(bundle: Bundle) -> None:
    pair = call(0, "socketpair", 60, 70, 1, 1, 0, 1, data={3: struct.pack("<ii", 3, 4)})
    use = [call(0, "close", 120, 121, 4, file="socket:[2]"), call(1, "close", 120, 121, 3, file="socket:[1]"),
           call(0, "recvfrom", 300, 600, 3, 1, 9, 0, 0, 0, result=2, file="socket:[1]"),
           call(1, "sendto", 500, 505, 4, 1, 2, 0, 0, 0, result=2, file="socket:[2]")]
    assert waits(bundle, pair, *use) == [(0, 300, 500, 1)]
    assert waits(bundle, *use) == []  # nobody knows what they are the ends of


@pytest.mark.parametrize(("thread", "polled", "expected"), [
    (2, False, [(0, 300, 500, 2)]), (2, True, [(0, 300, 500, 2)]),
    (1, False, [])])  # the child's number 5 is another one
def test_events_are_waited_for_by_number_in_one_program(bundle: Bundle, thread: int, polled: bool,
                                                        expected: list[tuple[Any, ...]]) -> None:
    event = "anon_inode:[eventfd]"
    found = [call(0, "epoll_wait", 300, 600, 9, 1, 1, 0, result=1),
             call(0, "read", 610, 611, 5, 1, 8, result=8, file=event)] if polled else [
                 call(0, "read", 300, 600, 5, 1, 8, result=8, file=event)]
    later = call(thread, "write", 550, 551, 5, 1, 8, result=8, file=event)
    assert waits(bundle, *found, call(thread, "write", 500, 505, 5, 1, 8, result=8, file=event), later) == expected


@pytest.mark.parametrize(("calls", "expected"), [
    ([call(1, "flock", 200, 201, 4, 2, file="/lock"), call(1, "flock", 500, 501, 4, 8, file="/lock"),
      call(0, "flock", 300, 600, 5, 2, file="/lock")], [(0, 300, 500, 1)]),
    ([call(1, "flock", 200, 201, 4, 2, file="/lock"), exited(500), call(0, "flock", 300, 600, 5, 2, file="/lock")],
     [(0, 300, 500, 1)]),
    ([call(1, "fcntl", 200, 201, 4, 6, 1, file="/lock"), call(1, "close", 500, 501, 4, file="/lock"),
      call(0, "fcntl", 300, 600, 5, 7, 1, file="/lock")], [(0, 300, 500, 1)]),
    ([call(1, "fcntl", 200, 201, 4, 6, 1, file="/lock"), call(1, "fcntl", 500, 501, 4, 6, 1, file="/lock"), exited(550),
      call(0, "fcntl", 300, 600, 5, 7, 1, file="/lock")], [(0, 300, 500, 1)]),
    ([call(1, "close", 500, 501, 4, file="/lock"), call(0, "flock", 300, 600, 5, 2, file="/lock")], []),
    ([call(1, "flock", 200, 201, 4, 2, file="/a"), call(1, "flock", 500, 501, 4, 8, file="/a"),
      call(0, "flock", 300, 600, 5, 2, file="/lock")], []),
])
def test_a_files_lock_is_waited_for_until_who_had_it_gives_it_back(bundle: Bundle, calls: list[dict[str, Any]],
                                                                   expected: list[tuple[Any, ...]]) -> None:
    assert waits(bundle, *calls) == expected


@pytest.mark.parametrize(("calls", "expected"), [
    ([call(0, "rt_sigtimedwait", 300, 600, 1, 1, 0, 8, result=10), call(2, "kill", 500, 501, 100, 10)],
     [(0, 300, 500, 2)]),
    ([call(0, "rt_sigtimedwait", 300, 600, 1, 1, 0, 8, result=12), call(2, "kill", 500, 501, 100, 10)], []),
    ([call(0, "pause", 300, 600, result=-514), call(2, "tgkill", 500, 501, 100, 100, 10)], [(0, 300, 500, 2)]),
    ([call(0, "rt_sigsuspend", 300, 600, 1, 8, result=-514), exited(500)], [(0, 300, 500, 1)]),
    ([call(0, "pause", 300, 600, result=-514), call(2, "kill", 500, 501, CHILD, 10)], []),
    ([call(0, "futex", 300, 600, 64, 128, 0, result=0), call(2, "futex", 500, 501, 64, 129, 1, result=1)],
     [(0, 300, 500, 2)]),
    ([call(0, "futex", 300, 600, 64, 128, 0, result=0), call(1, "futex", 500, 501, 64, 129, 1, result=1)], []),
])
def test_signals_and_futexes_end_waits_of_their_own_program(bundle: Bundle, calls: list[dict[str, Any]],
                                                            expected: list[tuple[Any, ...]]) -> None:
    assert waits(bundle, *calls) == expected


def path(bundle: Bundle) -> list[tuple[Any, ...]]:
    with Run(bundle.path) as run:
        return [(row["t_begin"], row["t_end"], row["thread"], row["what"], row["operation"])
                for row in run.critical_path().arrow().to_pylist()]


def ending(bundle: Bundle, ends: dict[int, int]) -> None:
    with Run(bundle.path) as run:
        rows = run.sql("from threads").arrow().to_pylist()
    put(bundle, THREADS, [{**row, "t_end": ends[row["thread"]]} for row in rows])


def test_the_critical_path_goes_to_a_child_and_back_to_who_made_it(bundle: Bundle) -> None:
    """A child without a record of its own operations, that slept and was waited for; then a sleep of its parent's."""
    ending(bundle, {0: 2000, 1: 500, 2: 60})
    put(bundle, SYSCALLS, [reap(300, 600), call(0, "nanosleep", 700, 900, 1, 0), call(0, "getpid", 950, 960),
                           call(1, "clock_nanosleep", 150, 450, 0, 0, 1, 0), exited(500)])
    assert path(bundle) == [
        (0, 100, 0, "run", "start"), (100, 150, 1, "run", None), (150, 450, 1, "system call", "clock_nanosleep"),
        (450, 500, 1, "run", None), (500, 600, 0, "woken", "wait4"), (600, 700, 0, "run", "start"),
        (700, 900, 0, "system call", "nanosleep"), (900, 2000, 0, "run", "start")]


def test_a_wait_that_nobody_of_the_run_ended_stays_on_the_path(bundle: Bundle) -> None:
    ending(bundle, {0: 2000, 1: 500, 2: 60})
    put(bundle, SYSCALLS, [read(0, 300, 1600, 4), exited(500)])
    assert path(bundle) == [(0, 300, 0, "run", "start"), (300, 1600, 0, "system call", "read"),
                            (1600, 2000, 0, "run", "start")]


def test_two_that_feed_each_other_are_followed_in_turns(bundle: Bundle) -> None:
    ending(bundle, {0: 2000, 1: 1900, 2: 60})
    put(bundle, SYSCALLS, [read(1, 200, 410, 1), write(0, 400, 1), read(0, 420, 810, 1, OTHER),
                           write(1, 800, 1, OTHER)])
    assert [row[:4] for row in path(bundle) if row[3] != "system call"] == [
        (0, 400, 0, "run"), (400, 410, 1, "woken"), (410, 800, 1, "run"), (800, 810, 0, "woken"), (810, 2000, 0, "run")]


def test_calls_that_wait_are_listed_longest_first(bundle: Bundle, capfd: pytest.CaptureFixture[str]) -> None:
    with Run(bundle.path) as run:
        first, = run.sql("from thunks").arrow().to_pylist()
    put(bundle, THUNKS, [first, {**first, "thunk": 1, "operation": "sem_wait", "t": 1910, "wait": 30}])
    put(bundle, SYSCALLS, [read(0, 300, 600, 4), write(1, 500, 4), call(0, "nanosleep", 700, 1900, 1, 0),
                           call(0, "getpid", 1900, 1905), call(0, "pause", 1950, None, result=None),
                           call(0, "futex", 1912, 1939, 64, 128, 0, result=0)])
    with Run(bundle.path) as run:
        assert run.contention(calls=True).rows() == [
            ("nanosleep", 0, 700, 1200, None, None, None, None), ("read", 0, 300, 300, PIPE, 1, "main", 500),
            ("write", 1, 500, 5, PIPE, None, None, None), ("pause", 0, 1950, None, None, None, None, None)]
    assert main(["contention", str(bundle.path), "--calls", "--format", "csv"]) == 0
    assert capfd.readouterr().out.splitlines()[2].replace('"', "") == "read,0,300,300,pipe:[7],1,main,500"
    with pytest.raises(SystemExit):
        main(["contention", str(bundle.path), "--calls", "--each"])


def test_a_run_of_one_program_has_no_beginnings_but_its_own(bundle: Bundle) -> None:
    """The control: without system calls the path is the thread's own running, as far as its thunks are known."""
    ending(bundle, {0: 2000, 1: 500, 2: 60})
    put(bundle, SYSCALLS, [])
    put(bundle, PROCESSES, [])
    assert path(bundle) == [(0, 2000, 0, "run", "start")]
