# SPDX-License-Identifier: MIT
"""How programs end whose threads are processes: as natively, whoever is killed, and nothing of them stays."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from ptweave.data import Ledger
from ptweave.wrapper.control import SOCKET_VARIABLE, ControlServer
from support.control import Threads, Traced, impatient, new_bundle, serve
from support.modes import MODES, NATIVE, TRACED, Mode
from support.programs import compile_program

PROCESS_MODES = tuple(mode for mode in MODES if mode.access)
PATIENCE = 20  # seconds
KEEPER, WANTER, WORKER = 1, 2, 3  # places in the program's line of thread numbers; main is 0


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(tmp_path_factory.mktemp("process-ends"), "locked_for_ever")


def group_of(leader: int) -> list[int]:
    """Processes of a process group that run; a zombie is gone but for its number."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            state, _, group = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(group) == leader and state not in "ZX":
            found.append(int(entry.name))
    return found


def assert_nothing_stays(leader: int) -> None:
    end = time.monotonic() + PATIENCE
    while group_of(leader):
        assert time.monotonic() < end, group_of(leader)
        time.sleep(0.01)


class Started:
    """The program, running in a process group of its own, with its threads' numbers."""

    def __init__(self, program: Path, environment: Mapping[str, str]) -> None:
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, process_group=0, env={**os.environ, **environment})
        self.threads: list[int] = []

    def read_threads(self) -> None:
        assert self.process.stdout is not None
        self.threads = [int(word) for word in self.process.stdout.readline().split()]
        assert len(self.threads) == 5 and self.threads[0] == self.process.pid

    def alive(self) -> bool:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(b"x")
        self.process.stdin.flush()
        return self.process.stdout.readline() == b"alive\n"

    def finish(self) -> tuple[int, str]:
        """Status and what it said on stderr; its input is closed."""
        _, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, err.decode()


@contextmanager
def started(program: Path, environment: Mapping[str, str]) -> Iterator[Started]:
    run = Started(program, environment)
    try:
        yield run
    finally:
        if group_of(run.process.pid):
            os.killpg(run.process.pid, signal.SIGKILL)
        run.process.wait()


@contextmanager
def served(folder: Path, program: Path, mode: Mode) -> Iterator[tuple[Started, Traced, ControlServer]]:
    """The same under a server that was there since the beginning."""
    bundle, ledger = new_bundle(folder), Ledger()
    server = ControlServer(bundle, Threads())
    try:
        with started(program, {**mode.environment(), **server.environment()}) as run:
            serve(server, lambda: len(group_of(run.process.pid)) >= 5 or not mode.access, PATIENCE)
            end = time.monotonic() + 0.5  # the rest of its start, and some records
            serve(server, lambda: time.monotonic() > end)
            run.read_threads()
            yield run, Traced(bundle, server, ledger, 0, b"", ""), server
    finally:
        server.finish(ledger)
    bundle.save_ledger(ledger)


def test_natively_a_kill_of_any_thread_ends_the_program(program: Path) -> None:
    """The oracle of the tests below."""
    for place in (0, KEEPER, WANTER, WORKER):
        with started(program, {}) as run:
            run.read_threads()
            os.kill(run.threads[place], signal.SIGKILL)
            assert run.finish() == (-signal.SIGKILL, "")
            assert_nothing_stays(run.process.pid)


@pytest.mark.parametrize("place", [0, KEEPER, WANTER, WORKER], ids=["main", "keeper", "wanter", "worker"])
@pytest.mark.parametrize("mode", PROCESS_MODES, ids=str)
def test_a_kill_of_any_thread_ends_the_program_and_the_log_is_readable(
        program: Path, mode: Mode, place: int, tmp_path: Path) -> None:
    with served(tmp_path, program, mode) as (run, traced, server):
        assert run.alive() and len(group_of(run.process.pid)) == 5
        killed = run.threads[place]
        os.kill(killed, signal.SIGKILL)
        serve(server, lambda: run.process.poll() is not None, PATIENCE)
        status, err = run.finish()
        assert_nothing_stays(run.process.pid)
    assert status == -signal.SIGKILL
    said = f"ptweave: thread {killed} was ended by SIGKILL (out of memory?): the program ends\n"
    assert err == ("" if place == 0 else said)
    assert traced.table().num_rows > 100 and len(traced.table()["thread"].unique()) == 5
    assert traced.ledger.check() == [] and traced.bundle.ledger().check() == []
    assert {why for _, stream in traced.ledger for why in stream.lost} <= {"unfinished"}
    assert sum(stream.total_lost for _, stream in traced.ledger) <= 5  # what was being written when it died


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGABRT, signal.SIGSEGV])
@pytest.mark.parametrize("mode", [NATIVE, *PROCESS_MODES], ids=str)
def test_a_fatal_signal_to_the_program_ends_all_of_it(program: Path, mode: Mode, number: int) -> None:
    with started(program, mode.environment() | library(mode)) as run:
        run.read_threads()
        run.process.send_signal(number)
        assert run.finish()[0] == -number
        assert_nothing_stays(run.process.pid)


def library(mode: Mode) -> dict[str, str]:
    from ptweave.preload import library_path

    return {"LD_PRELOAD": str(library_path())} if mode.traced else {}


@pytest.mark.parametrize("mode", PROCESS_MODES, ids=str)
def test_a_program_in_process_mode_that_is_asked_to_end_leaves_nothing(program: Path, mode: Mode) -> None:
    with started(program, mode.environment() | library(mode)) as run:
        run.read_threads()
        assert run.alive() and set(group_of(run.process.pid)) == set(run.threads)
        assert run.finish() == (0, "")
        assert_nothing_stays(run.process.pid)


SUPERVISOR = """
import sys
from pathlib import Path
from support.control import Threads, new_bundle, serve
from ptweave.wrapper.control import ControlServer
server = ControlServer(new_bundle(Path(sys.argv[1])), Threads())
for name, value in server.environment({}).items():
    print(name, value, flush=True)
serve(server, lambda: False)
"""


@pytest.mark.parametrize("mode", [TRACED, *PROCESS_MODES], ids=str)
def test_the_death_of_the_supervisor_does_not_harm_the_program(program: Path, mode: Mode, tmp_path: Path) -> None:
    """The threads go on, also when their lists are full; nothing of them stays."""
    supervisor = subprocess.Popen([sys.executable, "-c", SUPERVISOR, tmp_path], stdout=subprocess.PIPE, text=True, env={
        **os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)})
    assert supervisor.stdout is not None
    environment = dict(supervisor.stdout.readline().rstrip("\n").split(" ", 1) for _ in range(2))
    try:
        with started(program, {**mode.environment(), **environment}) as run:
            run.read_threads()
            supervisor.kill()
            supervisor.wait()
            for _ in range(10):
                assert run.alive()
                time.sleep(0.05)
            assert run.finish() == (0, "")
            assert_nothing_stays(run.process.pid)
    finally:
        supervisor.kill()
        supervisor.wait()
        supervisor.stdout.close()
        shutil.rmtree(Path(environment[SOCKET_VARIABLE]).parent)


def test_a_process_that_stays_would_be_noticed() -> None:
    """The control: a shell that leaves a child behind."""
    process = subprocess.Popen(["sh", "-c", "sleep 55 & echo $!"], stdout=subprocess.PIPE, process_group=0)
    assert process.stdout is not None
    child = int(process.stdout.readline())
    process.wait()
    process.stdout.close()
    assert group_of(process.pid) == [child]
    os.kill(child, signal.SIGKILL)
    assert_nothing_stays(process.pid)


def test_nothing_stays_of_threads_that_wait_for_one_that_ends_the_program(tmp_path: Path) -> None:
    """Hellos nobody reads: hundreds of threads wait for the one that waits for room, and gives up."""
    crowd = compile_program(tmp_path, "many_threads")
    server = ControlServer(new_bundle(tmp_path), Threads())
    process = subprocess.Popen([crowd, "600"], stderr=subprocess.PIPE, process_group=0, env={
        **os.environ, **PROCESS_MODES[0].environment(), **server.environment({}),
        "LD_PRELOAD": str(impatient(tmp_path))})
    try:
        serve(server, lambda: bool(server.processes), PATIENCE)
        _, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 3 and err.startswith(b"ptweave: the supervisor does not answer: ")
        assert_nothing_stays(process.pid)
    finally:
        for left in group_of(process.pid):
            os.kill(left, signal.SIGKILL)
        server.finish(Ledger())
