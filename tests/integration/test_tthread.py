# SPDX-License-Identifier: MIT
"""Real programs under libtthread with a ControlServer: unchanged, completely logged, rightly ordered."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ptweave.data import Ledger
from ptweave.data.evl import (
    EVL_HEADER,
    EVL_HEADER_SIZE,
    EVL_RECORD,
    EVL_RECORD_SIZE,
    FIRST_ACCESS,
    LAST_ACCESS,
    Operation,
)
from ptweave.data.handshake import SOCKET_VARIABLE, Hello
from ptweave.preload import library_path
from ptweave.wrapper.control import ControlServer
from support.control import Threads, Traced, impatient, new_bundle, run_traced, serve, start

PROGRAMS = Path(__file__).resolve().parents[1] / "programs"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Compiles tests/programs/NAME once."""
    folder = tmp_path_factory.mktemp("programs")

    def compile_(name: str) -> Path:
        out = folder / Path(name).stem
        if not out.exists():
            compiler = ["g++", "-std=c++17"] if name.endswith(".cpp") else ["gcc"]
            subprocess.run([*compiler, "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", out,
                            PROGRAMS / name, "-ldl"], check=True)
        return out

    return compile_


def plain(argv: list[str | Path], cwd: Path | None = None) -> subprocess.CompletedProcess[bytes]:
    """The oracle: the same program, not traced."""
    return subprocess.run([str(word) for word in argv], stdin=subprocess.DEVNULL, capture_output=True, timeout=120,
                          check=False, cwd=cwd)


def assert_whole(traced: Traced) -> None:
    """Every event that was produced is stored, and nobody was turned away."""
    assert [(name, stream.lost) for name, stream in traced.ledger if stream.lost] == []
    assert traced.ledger.check() == [] and traced.server.refused.total == 0
    assert all(process.ended for process in traced.server.processes)
    decoded = sum(stream.stored for name, stream in traced.ledger if name.startswith("dependence/"))
    assert traced.table().num_rows == decoded
    assert traced.bundle.ledger()["clocks"].lost == {}


# --- every operation ---

def counted(text: str) -> dict[str, int]:
    """What sync_all says it called."""
    return {name: int(count) for name, count in re.findall(r"^count (\w+) (\d+)$", text, re.M)}


def operations_of(traced: Traced) -> dict[str, int]:
    """How often each operation stands in the lists of sync_all, but for what libgcc does once: it unwinds."""
    found = traced.operations()
    own = {int(address) for address in re.findall(r"^once (\d+)$", traced.err, re.M)}
    others = [str(row["operation"]) for row in traced.thunks()
              if str(row["operation"]).startswith("once") and row["object"] not in own]
    assert len(own) == 4 and len(others) < 10
    for operation in others:
        found[operation] -= 1
    return found


@pytest.fixture(scope="module")
def sync_all(compiled: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Traced]:
    program = compiled("sync_all.c")
    return program, run_traced(tmp_path_factory.mktemp("sync_all"), [program])


def test_every_call_returns_what_glibc_returns(sync_all: tuple[Path, Traced]) -> None:
    program, traced = sync_all
    native = plain([program])
    assert (traced.status, traced.out) == (native.returncode, native.stdout)
    assert b"errno 110" in traced.out and b"EDEADLK" not in traced.out  # it did get to the errors


def test_every_call_is_logged_once(sync_all: tuple[Path, Traced]) -> None:
    """The program's own counters are the oracle."""
    _, traced = sync_all
    expected = counted(traced.err)
    assert set(expected) == {one.name.lower() for one in Operation if not FIRST_ACCESS <= one <= LAST_ACCESS and
                             one < Operation.TEAM}  # those and what follows: test_openmp.py
    assert operations_of(traced) == expected and min(expected.values()) > 0
    assert_whole(traced)


def test_what_is_done_once_is_ordered_before_all_who_find_it_done(sync_all: tuple[Path, Traced]) -> None:
    _, traced = sync_all
    rows = traced.thunks()
    done = {row["object"]: row for row in reversed(rows) if row["operation"] == "once_done"}
    found = [row for row in rows if row["operation"] == "once"]
    assert len(found) >= 6
    for row in found:
        first = done[row["object"]]
        assert first["release"] and row["acquire"] and row["thread"] != first["thread"]
        clock = row["clock"]
        assert isinstance(clock, list) and clock[int(str(first["thread"]))] >= int(str(first["thunk"]))


def test_a_call_that_is_not_counted_would_be_noticed(sync_all: tuple[Path, Traced]) -> None:
    """The control: one record less, and the counts differ."""
    _, traced = sync_all
    rows = traced.thunks()
    del rows[len(rows) // 2]
    counts: dict[str, int] = {}
    for row in rows:
        counts[str(row["operation"])] = counts.get(str(row["operation"]), 0) + 1
    assert counts != counted(traced.err)


def test_results_times_and_stacks_of_records(sync_all: tuple[Path, Traced]) -> None:
    program, traced = sync_all
    rows = traced.thunks()
    waits = [row for row in rows if row["operation"] == "cond_timedwait"]
    assert {row["result"] for row in waits} == {110} and all(row["acquire"] is False for row in waits)
    assert all(isinstance(row["wait"], int) and row["wait"] > 500_000 for row in waits)  # ticks of a 2 ms wait
    assert any(row["result"] == 125 for row in rows if row["operation"] == "cond_wait")  # ECANCELED
    assert any(row["result"] == 130 and row["acquire"] for row in rows if row["operation"] == "mutex_lock")
    symbols = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
    main, = [int(line.split()[0], 16) for line in symbols.splitlines() if line.endswith(" T main")]
    for row in rows:
        if row["thread"] == 0 and row["operation"] == "wrlock":
            stack = row["stack"]
            assert isinstance(stack, list) and len(stack) >= 4
            assert any((ip - main) % 4096 < 4096 and (ip & 0xFFF) != 0 for ip in stack)


def test_a_version_is_made_between_the_two_times_of_its_release(sync_all: tuple[Path, Traced]) -> None:
    """So the decoder knows until when others may have made the versions before: a thread can stand still in between."""
    _, traced = sync_all
    made = ("barrier_arrive", "cond_wait_begin", "sem_post", "cond_signal", "rwunlock", "mutex_unlock", "spin_unlock")
    waits = {name: [row["wait"] for row in traced.thunks() if row["operation"] == name] for name in made}
    assert all(waits.values()) and all(isinstance(wait, int) and wait > 0 for each in waits.values() for wait in each)


# --- order ---

def tid_threads(traced: Traced) -> dict[int, int]:
    """Thread numbers by tid, from the lists' headers."""
    found = {}
    for path in traced.bundle.dependence.glob("*.evl"):
        head = EVL_HEADER.unpack(path.read_bytes()[:EVL_HEADER_SIZE])
        found[head[2]] = head[3]
    return found


def broken_order(traced: Traced) -> int:
    """How many consecutive turns are not ordered by their clocks, or ordered the wrong way."""
    threads = tid_threads(traced)
    clocks = {(row["thread"], row["thunk"]): row["clock"] for row in traced.thunks()}
    turns = [(threads[int(tid)], int(first), int(last)) for tid, first, last in
             re.findall(r"turn (\d+) (\d+) (\d+)", traced.out.decode())]
    broken = 0
    for (before, begin, last), (after, first, _) in itertools.pairwise(turns):
        if before == after:
            continue
        forward, back = clocks[after, first], clocks[before, begin]
        assert isinstance(forward, list) and isinstance(back, list)
        broken += (forward[before] if before < len(forward) else 0) < last
        broken += (back[after] if after < len(back) else 0) > first
    return broken


@pytest.mark.parametrize("kind", ["sem", "mutex", "spin", "rwlock", "cond"])
def test_turns_are_ordered_by_their_clocks(compiled: Callable[[str], Path], tmp_path: Path, kind: str) -> None:
    traced = run_traced(tmp_path, [compiled("order.c"), kind, "4", "50"])
    assert traced.status == 0 and traced.out.count(b"turn") == 200
    assert broken_order(traced) == 0
    assert_whole(traced)


def test_barriers_order_rounds_but_not_the_threads_in_a_round(compiled: Callable[[str], Path], tmp_path: Path) -> None:
    traced = run_traced(tmp_path, [compiled("order.c"), "barrier", "5", "40"])
    assert_whole(traced)
    waits: dict[int, list[list[int]]] = {}
    for row in traced.thunks():
        if row["operation"] == "barrier_wait":
            waits.setdefault(int(str(row["thread"])), []).append(row["clock"])  # type: ignore[arg-type]
    assert len(waits) == 5 and {len(rounds) for rounds in waits.values()} == {41}
    for thread, rounds in waits.items():
        for n, clock in enumerate(rounds):
            for other in waits:  # start, then arrive and wait a round: thunks 0 … 2n + 1 is the arrival
                assert clock[other] == (2 * n + 3 if other == thread else 2 * n + 1)


@pytest.mark.parametrize("kind", ["sem", "mutex", "cond"])
def test_a_dropped_release_breaks_the_order(compiled: Callable[[str], Path], tmp_path: Path, kind: str) -> None:
    """The control: without one of a thread's releases the same check fails."""
    traced = run_traced(tmp_path, [compiled("order.c"), kind, "4", "50"])
    assert broken_order(traced) == 0
    wanted = {Operation.SEM_POST, Operation.MUTEX_UNLOCK, Operation.COND_SIGNAL}
    threads = tid_threads(traced)
    tid, _, last = re.findall(r"turn (\d+) (\d+) (\d+)", traced.out.decode())[100]
    path = traced.bundle.dependence / f"{threads[int(tid)]}.evl"
    data = bytearray(path.read_bytes())
    at, n = EVL_HEADER_SIZE, 0
    while n < int(last):
        at += EVL_RECORD.unpack_from(data, at)[0]
        n += 1
    size, operation = EVL_RECORD.unpack_from(data, at)[:2]
    assert operation in wanted
    del data[at:at + size]
    path.write_bytes(data)
    assert broken_order(traced) > 0


# --- real programs ---

def test_pigz(tmp_path: Path) -> None:
    source = tmp_path / "input"
    source.write_bytes(os.urandom(1 << 20) + b"text " * 400_000)
    traced = run_traced(tmp_path, ["pigz", "-p", "4", "-k", "-c", source])
    assert traced.out == plain(["pigz", "-p", "4", "-k", "-c", source]).stdout
    assert_whole(traced)
    operations = traced.operations()
    assert operations["mutex_lock"] > 50 and operations["create"] == operations["join"] == operations["exit"] - 1


def test_python_threads(tmp_path: Path) -> None:
    script = textwrap.dedent("""
        import queue, threading
        work, done = queue.Queue(), []
        def run():
            while (item := work.get()) is not None:
                done.append(item * item)
        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads: thread.start()
        for n in range(200): work.put(n)
        for _ in threads: work.put(None)
        for thread in threads: thread.join()
        print(sum(done))
        """)
    traced = run_traced(tmp_path, [sys.executable, "-c", script])
    assert (traced.status, traced.out) == (0, b"2646700\n")
    assert_whole(traced)
    assert traced.operations()["create"] == 4
    assert max(len(row["stack"]) for row in traced.thunks()) > 10  # type: ignore[arg-type]


def test_cpp(compiled: Callable[[str], Path], tmp_path: Path) -> None:
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    program = compiled("std_thread.cpp")
    traced = run_traced(tmp_path, [program])
    native = plain([program])
    assert (traced.status, traced.out, native.stdout) == (0, native.stdout, b"turn 100 destroyed 4\n")
    assert_whole(traced)
    rows = traced.thunks()
    ends = [row for row in rows if row["operation"] == "exit"]
    assert len(ends) == 5 and all(
        row["thunk"] == max(int(str(other["thunk"])) for other in rows if other["thread"] == row["thread"])
        for row in ends if row["thread"] != 0)  # thread_local destructors came before


def test_a_shell_pipeline_is_many_processes(tmp_path: Path) -> None:
    command = ["sh", "-c", "ls / | sort | tail -2; (echo a; /bin/true) && exec echo b"]
    traced = run_traced(tmp_path, command)
    assert traced.out == plain(command).stdout
    assert_whole(traced)
    kinds = [process.began_by for process in traced.server.processes]
    assert kinds.count(Hello.PROCESS) >= 5 and kinds.count(Hello.FORK) >= 4
    first = traced.server.processes[0]
    last = [process for process in traced.server.processes if process.pid == first.pid][-1]
    assert last is not first and last.threads == first.threads  # the shell execs: the same thread, another image


CASES = ["many", "churn", "closes_all", "fork_all_ways", "fork_while_busy", "signals", "tiny_stack", "coroutines",
         "storm", "plain"]


@pytest.mark.parametrize("case", CASES)
def test_awkward_programs_behave_as_untraced_ones(compiled: Callable[[str], Path], tmp_path: Path, case: str) -> None:
    program = compiled("tthread_cases.c")
    traced, native = run_traced(tmp_path, [program, case]), plain([program, case])
    assert (traced.status, traced.out) == (native.returncode, native.stdout) and native.returncode == 0
    assert "ptweave" not in traced.err
    assert_whole(traced)
    if case == "many":
        assert len(traced.server.processes[0].threads) == 201


def test_signal_handlers_are_logged_too(compiled: Callable[[str], Path], tmp_path: Path) -> None:
    traced = run_traced(tmp_path, [compiled("tthread_cases.c"), "signals"])
    handled, locked = map(int, re.findall(r"\d+", traced.err))
    operations = traced.operations()
    assert (operations["sem_post"], operations["mutex_lock"]) == (handled, locked) and handled >= 600


def test_handlers_that_jump_out_of_the_logging_cost_a_counted_record_at_most(
        compiled: Callable[[str], Path], tmp_path: Path) -> None:
    traced = run_traced(tmp_path, [compiled("tthread_cases.c"), "jumps"])
    assert (traced.status, traced.out) == (0, b"done\n")
    traced.table()
    ledger = traced.bundle.ledger()
    assert ledger.check() == [] and ledger["thunks"].stored > 1000
    stream = ledger["dependence/0"]
    assert set(stream.lost) <= {"dropped", "unfinished"} and stream.total_lost <= 200  # as many as jumps


def test_the_marker_runs_once_for_each_record(compiled: Callable[[str], Path], tmp_path: Path) -> None:
    """Counted by a hardware breakpoint, with handlers that log in between."""
    traced = run_traced(tmp_path, [compiled("tthread_cases.c"), "marker"])
    if traced.out.startswith(b"no breakpoint"):
        pytest.skip(f"perf events cannot set breakpoints here: {traced.out.decode().strip()}")
    ran, made = map(int, re.findall(rb"\d+", traced.out))
    assert ran == made and made > 100  # as many as its time allows
    symbols = subprocess.run(["nm", "-D", library_path()], capture_output=True, text=True, check=True).stdout
    offset, = [int(line.split()[0], 16) for line in symbols.splitlines() if line.endswith(" ptweave_mark")]
    assert {(int(str(row["marker"])) - offset) % 4096 for row in traced.thunks()[::100]} == {0}


def test_the_programs_descriptor_numbers_do_not_change(compiled: Callable[[str], Path], tmp_path: Path) -> None:
    """With as many arenas of glibc's heap as are allowed: else the ninth thread that asks for memory has glibc read
    /sys/devices/system/cpu/online, and threads that did not ask before do so for the key by which we see their end."""
    traced = run_traced(tmp_path, [compiled("tthread_cases.c"), "descriptors"], env={"MALLOC_ARENA_MAX": "1"})
    native = plain([compiled("tthread_cases.c"), "descriptors"])
    first, total, worst, *listed = traced.out.decode().split("\n")
    assert [first, total, worst] == native.stdout.decode().split("\n")[:3]
    assert (first, worst) == ("first 3", "worst 3")
    assert sorted(listed) == sorted(["0", "1", "2", "3", "900", "901", "902", ""])  # ls's own, none inherited
    assert len(traced.server.processes) == 2


def test_more_objects_than_the_table_holds_are_a_counted_loss(compiled: Callable[[str], Path], tmp_path: Path) -> None:
    traced = run_traced(tmp_path, [compiled("tthread_cases.c"), "objects"])
    assert (traced.status, traced.out) == (0, b"done\n")
    stream = traced.ledger["object_versions"]
    assert 30_000 < stream.lost["object table full"] < 100_000 and traced.ledger.check() == []
    assert traced.operations()["mutex_lock"] == 300_000


# --- under a Valgrind engine ---

@pytest.mark.parametrize("argv", [["sync_all.c"], ["order.c", "cond", "4", "20"]])
def test_under_valgrind(compiled: Callable[[str], Path], tmp_path: Path, argv: list[str]) -> None:
    """A static Valgrind tool: no vDSO, threads one at a time, one more preloaded library."""
    if shutil.which("valgrind") is None:
        pytest.skip("valgrind is not installed")
    program = compiled(argv[0])
    traced = run_traced(tmp_path, ["valgrind", "-q", "--tool=none", "--trace-children=yes", "--fair-sched=yes",
                                   "--vgdb=no", program, *argv[1:]])
    assert_whole(traced)
    if argv[0] == "order.c":
        assert traced.status == 0 and broken_order(traced) == 0
    else:
        counts, shells = counted(traced.err), len(traced.server.processes) - 2
        operations = operations_of(traced)
        assert {name: operations[name] - (shells if name == "start" else 0) for name in counts} == counts


# --- bad cases ---

def test_without_a_supervisor_a_program_runs_untraced_and_says_so_once(
        compiled: Callable[[str], Path], tmp_path: Path) -> None:
    program = compiled("tthread_cases.c")
    for address in (tmp_path / "nothing", tmp_path / ("x" * 200)):
        done = subprocess.run([program, "plain"], capture_output=True, text=True, check=False, timeout=60, env={
            **os.environ, SOCKET_VARIABLE: str(address), "LD_PRELOAD": str(library_path())})
        assert (done.returncode, done.stdout) == (0, "total 400\n")
        line, = done.stderr.splitlines()
        assert line.startswith("ptweave: ") and line.endswith("untraced")
    silent = subprocess.run([program, "plain"], capture_output=True, text=True, check=True,
                            env={**os.environ, "LD_PRELOAD": str(library_path())})
    assert silent.stderr == ""


def test_a_refused_program_runs_untraced_and_says_so(compiled: Callable[[str], Path], tmp_path: Path) -> None:
    bundle = new_bundle(tmp_path)
    server = ControlServer(bundle, lambda *_: -1)
    process = start(server, [compiled("tthread_cases.c"), "plain"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    serve(server, lambda: process.poll() is not None)
    out, err = process.communicate()
    assert (process.returncode, out) == (0, b"total 400\n")
    assert err.splitlines() == [b"ptweave: the supervisor refused this process: it goes on untraced"]
    server.finish(Ledger())


def test_a_supervisor_that_does_not_answer_ends_the_program(compiled: Callable[[str], Path], tmp_path: Path) -> None:
    """A library with a shorter patience; the run is not silently untraced."""
    library = impatient(tmp_path)
    server = ControlServer(new_bundle(tmp_path), lambda *_: 0)  # nobody calls its service
    done = subprocess.run([compiled("tthread_cases.c"), "plain"], capture_output=True, text=True, check=False,
                          timeout=60, env={**os.environ, **server.environment({}), "LD_PRELOAD": str(library)})
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == ("ptweave: the supervisor does not answer: ending the program rather than running it "
                           "untraced\n")
    server.finish(Ledger())


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


def test_the_death_of_the_supervisor_does_not_harm_the_program(
        compiled: Callable[[str], Path], tmp_path: Path) -> None:
    """Killed while the program logs as fast as it can and starts threads; forked children say nothing more either."""
    supervisor = subprocess.Popen([sys.executable, "-c", SUPERVISOR, tmp_path], stdout=subprocess.PIPE, text=True, env={
        **os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)})
    assert supervisor.stdout is not None
    environment = dict(supervisor.stdout.readline().rstrip("\n").split(" ", 1) for _ in range(2))
    program = subprocess.Popen([compiled("tthread_cases.c"), "outlive"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, env={**os.environ, **environment})
    assert program.stdout is not None and program.stdout.readline() == b"running\n"
    time.sleep(0.2)
    supervisor.kill()
    supervisor.wait()
    supervisor.stdout.close()
    time.sleep(0.5)
    began = time.monotonic()
    out, err = program.communicate(b"x", timeout=60)
    assert (program.returncode, out) == (0, b"outlived\n") and time.monotonic() - began < 20
    assert err.splitlines() == [b"ptweave: the supervisor is gone: this process goes on untraced"]
    shutil.rmtree(Path(environment[SOCKET_VARIABLE]).parent)


def test_a_program_that_is_killed_leaves_readable_lists(compiled: Callable[[str], Path], tmp_path: Path) -> None:
    bundle = new_bundle(tmp_path)
    server, ledger = ControlServer(bundle, Threads()), Ledger()
    process = start(server, [compiled("tthread_cases.c"), "killed"], stdout=subprocess.DEVNULL)
    until = time.monotonic() + 0.2
    serve(server, lambda: time.monotonic() > until)
    process.send_signal(signal.SIGKILL)
    process.wait()
    server.finish(ledger)
    bundle.save_ledger(ledger)
    traced = Traced(bundle, server, ledger, process.returncode, b"", "")
    table = traced.table()
    assert table.num_rows > 1000 and ledger.check() == [] and bundle.ledger().check() == []
    assert {why for _, stream in ledger for why in stream.lost} <= {"unfinished"}
    assert sum(stream.total_lost for _, stream in ledger) <= 4
    assert len(table["thread"].unique()) == 4


def test_a_slow_supervisor_slows_the_program_and_loses_nothing(compiled: Callable[[str], Path], tmp_path: Path) -> None:
    """More than all lists hold is logged between two drains: producers wait."""
    bundle = new_bundle(tmp_path)
    server, ledger = ControlServer(bundle, Threads()), Ledger()
    process = start(server, [compiled("tthread_cases.c"), "storm"], stdout=subprocess.PIPE)
    serve(server, lambda: len(server.processes) == 1 and len(server.processes[0].threads) == 5)
    while process.poll() is None:
        time.sleep(0.05)
        server.service()
    assert process.communicate()[0] == b"total 240000\n"
    server.finish(ledger)
    assert sum(stream.stored for _, stream in ledger) == 480_000 + 4 * 2 + 4 + 4 + 2
    assert all(stream.lost == {} for _, stream in ledger)


def test_records_have_whole_sizes_in_the_file(compiled: Callable[[str], Path], tmp_path: Path) -> None:
    traced = run_traced(tmp_path, [compiled("tthread_cases.c"), "plain"])
    for path in traced.bundle.dependence.glob("*.evl"):
        data, at = path.read_bytes(), EVL_HEADER_SIZE
        while at < len(data):
            size = EVL_RECORD.unpack_from(data, at)[0]
            assert size >= EVL_RECORD_SIZE and size % 8 == 0
            at += size
        assert at == len(data)


def test_limits_of_the_program_are_respected(compiled: Callable[[str], Path], tmp_path: Path) -> None:
    """Little address space, few descriptors, small files: traced, or untraced with a line, never broken."""
    program = compiled("tthread_cases.c")
    for limit, traced_ in (("-n 20", True), ("-f 1000", False), ("-v 500000", False), ("-v 3000000", True)):
        folder = tmp_path / limit.replace(" ", "")
        folder.mkdir()
        traced = run_traced(folder, ["sh", "-c", f"ulimit {limit}; exec {program} plain"])
        assert (traced.status, traced.out) == (0, b"total 400\n"), traced.err
        assert (len(traced.server.processes) == 2) is traced_
        assert ("untraced" in traced.err) is not traced_
        with contextlib.suppress(OSError):
            shutil.rmtree(folder)
