# SPDX-License-Identifier: MIT
"""System calls by perf's tracepoints and by ptrace, held to strace: the same table, and what it lacks is said."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from ptweave.data.ledger import Ledger
from ptweave.data.manifest import State
from ptweave.merge import Run
from ptweave.wrapper.perf_calls import PerfCalls
from support.command import ptweave, words
from support.programs import compile_program

pytestmark = pytest.mark.root

MEANS = ("perf", "ptrace")
PYTHON = "/usr/bin/python3"


def recorded(means: str, folder: Path, *command: object, name: str = "run") -> Run:
    done = ptweave("events", "-q", "--kinds", "syscall", "--syscalls-with", means, "-o", folder / f"{name}.ptw", "--",
                   *map(str, command))
    assert done.status == 0, done.err
    run = Run(folder / f"{name}.ptw")
    assert run.ledger.check() == []
    return run


def straced(folder: Path, *command: object) -> list[tuple[int, str]]:
    """(pid, name) of each call in the order in which they were entered; without the recording's own of a call."""
    log = folder / "strace"
    subprocess.run(["strace", "-f", "-qq", "-o", str(log), "-e", "signal=none", *map(str, command)], check=True,
                   capture_output=True)
    found = []
    for line in log.read_text(errors="replace").splitlines():
        match = re.match(r"(\d+) +(\w+)\(", line)
        found += [(int(match[1]), match[2])] if match else []
    return found


def by_task(calls: list[tuple[int, str]]) -> Counter[tuple[str, ...]]:
    """What each task called, in its order, with no word about which number it had."""
    tasks: dict[int, list[str]] = {}
    for tid, name in calls:
        tasks.setdefault(tid, []).append(name)
    return Counter(tuple(one) for one in tasks.values())


def after_exec(run: Run) -> list[tuple[int, str]]:
    rows = run.sql("select tid, name from syscalls order by t_enter").rows()
    first = next(i for i, (_, name) in enumerate(rows) if name == "execve")
    return rows[first:]


@pytest.mark.parametrize("means", MEANS)
def test_each_task_of_a_pipeline_made_the_calls_that_strace_saw(means: str, tmp_path: Path) -> None:
    command = ["/bin/sh", "-c", "ls -l /etc/hostname | cat; /bin/true; exec /bin/echo done"]
    with recorded(means, tmp_path, *command) as run:
        ours = by_task(after_exec(run))
        assert run.ledger.losses == []
        assert run.sql("select count(*) from syscalls where t_exit < t_enter or (t_exit is null) <> "
                       "(name in ('exit', 'exit_group'))").rows() == [(0,)]
    # a shell that waits may be interrupted by its child's end (wait4, rt_sigreturn), or come later than that
    def steady(tasks: Counter[tuple[str, ...]]) -> Counter[tuple[str, ...]]:
        return Counter({tuple(name for name in one if name not in ("wait4", "rt_sigreturn")): count
                        for one, count in tasks.items()})
    assert steady(ours) == steady(by_task(straced(tmp_path, *command)))


@pytest.mark.parametrize("means", MEANS)
def test_numbers_arguments_and_results_are_the_program_s(means: str, tmp_path: Path) -> None:
    script = ("import os, ctypes; syscall = ctypes.CDLL(None).syscall; "
              "print(os.getpid(), [syscall(39), syscall(1000, 11, 22, 33), os.getppid()][0], os.open('/dev/null', 0))")
    done = ptweave("events", "-q", "--kinds", "syscall", "--syscalls-with", means, "-o", tmp_path / "run.ptw", "--",
                   PYTHON, "-c", script)
    assert done.status == 0, done.err
    pid, same, fd = map(int, done.out.split())
    with Run(tmp_path / "run.ptw") as run:
        assert run.manifest.pid == pid == same and run.manifest.events == means
        assert run.sql("select args[1:3], errno from syscalls where number = 1000").rows() == [([11, 22, 33], "ENOSYS")]
        assert run.sql("select distinct result from syscalls where name = 'getpid'").rows() == [(pid,)]
        opened = run.sql(f"select paths[1] from syscalls where name = 'openat' and result = {fd} order by t_enter"
                         ).rows()[-1]
        assert opened == ("/dev/null" if means == "ptrace" else None,)
        assert any("memory that arguments point to" in line for line in run.manifest.lacks)


@pytest.mark.parametrize("means", MEANS)
def test_threads_and_calls_are_counted_exactly(means: str, tmp_path: Path) -> None:
    program, rounds = compile_program(tmp_path, "syscall_count"), 3000
    with recorded(means, tmp_path, program, 4, rounds) as run:
        counts = dict(run.sql("select name, count(*) from syscalls where name in ('getppid', 'read', 'write') "
                              f"and pid = {run.manifest.pid} group by name").rows())
        tids = run.sql("select count(distinct tid) from syscalls where name = 'getppid'").rows()
        assert run.ledger.losses == []
    assert counts["getppid"] == 4 * rounds and tids == [(4,)]
    assert counts["read"] - 4 * rounds in range(1, 8) and counts["write"] == 4 * rounds + 1  # the loader's, printf's


EXEC_IN_THREAD = """
import os, threading, time
def execute():
    waits = False
    while not waits:  # the first thread, in futex
        time.sleep(0.05)
        waits = open(f'/proc/self/task/{os.getpid()}/syscall').read().startswith('202 ')
    os.execv('/bin/true', ['true'])
threading.Thread(target=execute).start()
threading.Event().wait()
"""


@pytest.mark.parametrize("means", MEANS)
def test_a_thread_s_exec_is_one_call_and_what_it_ended_never_returned(means: str, tmp_path: Path) -> None:
    with recorded(means, tmp_path, PYTHON, "-c", EXEC_IN_THREAD) as run:
        pid = run.manifest.pid
        assert run.sql(f"select tid, result from syscalls where name = 'execve' and pid = {pid} order by t_enter"
                       ).rows() == [(pid, 0), (pid, 0)]
        # of a call that its task was killed in perf tells that it would be made again (ERESTART…)
        assert run.sql("select count(*) from syscalls where name = 'futex' and (t_exit is null or "
                       "result between -516 and -512)").rows() == [(1,)]
        assert run.ledger.losses == []


FORKS_WHEN_TOLD = """
import ctypes, os, sys
syscall = ctypes.CDLL(None).syscall
sys.stdin.readline()
go = os.pipe()
child = os.fork()
if child == 0:
    os.read(go[0], 1)
    for _ in range(1000):
        syscall(1000)
    os._exit(0)
print(child, flush=True)
sys.stdin.readline()
os.write(go[1], b'g')
os.wait()
"""


def test_a_task_that_inherits_perf_s_events_and_is_followed_too_is_told_once() -> None:
    target = subprocess.Popen([PYTHON, "-c", FORKS_WHEN_TOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    calls = PerfCalls(everybody=False)
    try:
        assert target.stdin is not None and target.stdout is not None
        calls.follow(target.pid)
        target.stdin.write(b"fork\n")
        target.stdin.flush()
        child = int(target.stdout.readline())
        assert calls.follow(child)
        calls.settle()
        target.stdin.write(b"go\n")
        target.stdin.close()
        assert target.wait() == 0
        calls.stop()
        rows = [row for batch in calls.batches(everything=True) for row in batch.to_pylist()]
        ledger = Ledger()
        calls.account(ledger, "calls", len(rows), 0)
    finally:
        target.kill()
        target.wait()
        calls.close()
    assert Counter(row["tid"] for row in rows if row["number"] == 1000) == {child: 1000}
    assert ledger.losses == [] and ledger.check() == []


@pytest.mark.parametrize("means", MEANS)
def test_a_running_process_is_followed_and_goes_on(means: str, tmp_path: Path) -> None:
    target = subprocess.Popen(["/bin/sh", "-c", "while :; do /bin/true; done"])
    try:
        process = subprocess.Popen(words("events", "-q", "--kinds", "syscall", "--syscalls-with", means, "--pid",
                                         str(target.pid), "-o", tmp_path / "run.ptw"), stderr=subprocess.PIPE)
        parts = tmp_path / "run.ptw" / "tables" / "syscalls" / "000000.parquet"
        while process.poll() is None and not parts.exists():
            os.sched_yield()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert process.returncode in (0, 1), err
        assert target.poll() is None
        assert "TracerPid:\t0" in Path(f"/proc/{target.pid}/status").read_text()
    finally:
        target.kill()
        target.wait()
    with Run(tmp_path / "run.ptw") as run:
        assert run.sql("select count(distinct pid) > 2 from syscalls where name = 'execve'").rows() == [(True,)]
        assert {why for _, why, _, _ in run.ledger.losses} <= {"in_flight"}


def test_a_stopped_target_stays_stopped_under_ptrace_and_signals_reach_it(tmp_path: Path) -> None:
    script = """
import os, signal, sys
child = os.fork()
if not child:
    signal.signal(signal.SIGUSR1, lambda *_: os._exit(7))
    os.write(1, b'ready ')  # unbuffered, a print is two writes, and the signal may come between them
    while True: signal.pause()
os.kill(child, signal.SIGSTOP)
print(os.WIFSTOPPED(os.waitpid(child, os.WUNTRACED)[1]))
os.kill(child, signal.SIGCONT)
print(os.WIFCONTINUED(os.waitpid(child, os.WCONTINUED)[1]))
os.kill(child, signal.SIGUSR1)
status = os.waitpid(child, 0)[1]
print(status if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))
"""
    done = ptweave("events", "-q", "--kinds", "syscall", "--syscalls-with", "ptrace", "-o", tmp_path / "run.ptw", "--",
                   PYTHON, "-c", script)
    out = done.out.decode().replace("ready ", "").split()  # a print of the other's is two writes, too
    assert done.status == 0 and out[:2] == ["True", "True"] and out[2] in ("7", str(int(signal.SIGUSR1)))


def test_without_the_privilege_for_ebpf_perf_or_ptrace_takes_over_and_the_manifest_says_so(tmp_path: Path) -> None:
    """A bounding set without the capabilities stands for a container without them: root's exec gets no more."""
    drop = ["setpriv", "--bounding-set=-bpf,-perfmon,-sys_admin", "--inh-caps=-all"]
    done = subprocess.run([*drop, *words("events", "-q", "-o", tmp_path / "run.ptw", "--", "/bin/echo", "seen")],
                          capture_output=True, check=False, text=True)
    assert done.stdout == "seen\n" and done.returncode == 0, done.stderr
    with Run(tmp_path / "run.ptw") as run:
        assert run.manifest.events in ("perf", "ptrace")
        assert run.manifest.state is State.COMPLETE
        assert any("they need eBPF" in line for line in run.manifest.lacks)
        assert run.sql("select count(*) from syscalls where name = 'exit_group'").rows() == [(1,)]


@pytest.mark.parametrize(("options", "what"), [
    (["--accept", "comm=x"], "filter rules need eBPF"), (["--kinds", "signal"], "need eBPF"),
])
@pytest.mark.parametrize("means", MEANS)
def test_what_needs_ebpf_is_refused_in_one_line(means: str, options: list[str], what: str, tmp_path: Path) -> None:
    done = ptweave("events", "--syscalls-with", means, *options, "-o", tmp_path / "run.ptw", "--", "/bin/true")
    assert done.status == 2 and what in done.err and len(done.err.splitlines()) == 1, done.err
    assert list(tmp_path.iterdir()) == []
