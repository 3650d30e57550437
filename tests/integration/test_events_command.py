# SPDX-License-Identifier: MIT
"""`ptweave events`: commands, processes that run already, the whole machine; what it stores and what it shows."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ptweave.data.bundle import Bundle
from ptweave.data.manifest import State
from ptweave.merge import Run
from support.bpf import needs_bpf
from support.command import ptweave
from support.programs import ROOT, compile_program

pytestmark = [pytest.mark.root, needs_bpf]

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(
    str(ROOT / room) for room in ("data", "preload", "wrapper", "decode", "merge", "tests"))}
PYTHON = "/usr/bin/python3"


def wait_until(condition: Callable[[], object], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.02)


@contextmanager
def recorder(folder: Path, *words: object) -> Iterator[subprocess.Popen[str]]:
    """`ptweave events` in the background; its stderr is the file `stderr`."""
    with (folder / "stderr").open("w") as err:
        process = subprocess.Popen([sys.executable, "-m", "ptweave.cli", "events", *map(str, words)], env=ENVIRONMENT,
                                   stderr=err, stdout=subprocess.DEVNULL, text=True)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def attached(process: subprocess.Popen[str]) -> bool:
    """Whether the recorder's programs are attached: its links are there."""
    links = 0
    for entry in Path(f"/proc/{process.pid}/fdinfo").iterdir():
        try:
            links += "link_type" in entry.read_text()
        except OSError:
            continue
    return links >= 7


def events_of(script: str, folder: Path, *options: object) -> Run:
    done = ptweave("events", "-q", *options, "-o", folder / "run.ptw", "--", PYTHON, "-c", script)
    assert done.status == 0, done.err
    run = Run(folder / "run.ptw")
    assert run.ledger.check() == []
    assert run.ledger.losses == []
    return run


def test_a_command_s_calls_are_in_the_table_and_its_status_is_passed_on(tmp_path: Path) -> None:
    done = ptweave("events", "-o", tmp_path / "run.ptw", "--", "/bin/sh", "-c", "echo hi > file; exit 7", cwd=tmp_path)
    assert done.status == 7
    assert "nothing lost" in done.err
    with Run(tmp_path / "run.ptw") as run:
        texts = [row[0] for row in run.sql(
            "select call_text(number, args, result, paths, files, data) from syscalls order by t_enter").rows()]
        opened = [text for text in texts if text.startswith("openat") and '"file"' in text]
        assert opened == [f'openat(AT_FDCWD<{tmp_path}>, "file", O_WRONLY|O_CREAT|O_TRUNC, 0666) = 3<{tmp_path}/file>']
        assert f'write(1<{tmp_path}/file>, "hi\\n", 3) = 3' in texts
        assert texts[-1] == "exit_group(7) = ?"
        stored = run.sql("select count(*) from syscalls").rows()[0][0]
        assert run.ledger["syscalls/kernel"].stored == run.ledger["syscalls/kernel"].produced == stored > 20
        assert run.manifest.state is State.COMPLETE and run.manifest.status == 7 << 8


def test_follow_shows_a_line_a_call_and_stores_nothing(tmp_path: Path) -> None:
    done = ptweave("events", "--follow", "--", "/bin/sh", "-c", "kill -USR1 $$", cwd=tmp_path)
    assert done.status == -signal.SIGUSR1
    lines = done.err.splitlines()
    assert any(re.fullmatch(r"\d+ kill\(\d+, SIGUSR1\) = 0 <0\.\d{6}>", line) for line in lines)
    assert any("signal: " in line and "name='SIGUSR1'" in line and "'sent'" in line for line in lines)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_of_a_command_found_in_path_the_first_call_is_its_one_exec_as_strace_has_it(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/nowhere:{os.environ['PATH']}")
    done = ptweave("events", "--follow", "--", "true", cwd=tmp_path)
    calls = [line.split(" ", 1)[1] for line in done.err.splitlines() if re.match(r"\d+ \w+\(", line)]
    traced = subprocess.run(["strace", "true"], capture_output=True, text=True, check=True).stderr.splitlines()
    name = re.compile(r"\w+(?=\()")
    assert [name.findall(call)[0] for call in calls] == [name.findall(line)[0] for line in traced if name.match(line)]
    assert calls[0].split('"')[1] == shutil.which("true")


def test_kinds_choose_what_is_recorded(tmp_path: Path) -> None:
    with events_of("import os; os.write(1, b'x')", tmp_path, "--kinds", "write") as run:
        assert run.sql("select bytes from writes").rows() == [(1,)]
        assert run.sql("select count(*) from syscalls").rows() == [(0,)]


WRITERS = """
import os, socket, sys
memory = os.memfd_create('mem'); left, right = socket.socketpair(); inward, outward = os.pipe()
file = os.open('file', os.O_RDWR | os.O_CREAT)
os.write(file, b'1'); os.writev(file, [b'2', b'2']); os.pwrite(file, b'333', 0); os.pwritev(file, [b'4444'], 0)
os.pwritev(file, [b'55555'], 0, os.RWF_DSYNC)
os.write(memory, b'm' * 10); os.write(left.fileno(), b's' * 20); os.write(outward, b'p' * 30)
try: os.write(inward, b'q')
except OSError: pass
"""


def test_writes_tell_call_bytes_and_what_was_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with events_of(WRITERS, tmp_path, "--kinds", "write") as run:
        rows = run.sql("select source, bytes, kind, path, errno from writes order by t").rows()
    file = f"{tmp_path}/file"
    assert rows[:5] == [("write", 1, "file", file, None), ("writev", 2, "file", file, None),
                        ("pwrite64", 3, "file", file, None), ("pwritev2" if rows[3][0] == "pwritev2" else "pwritev", 4,
                        "file", file, None), ("pwritev2", 5, "file", file, None)]
    assert [(row[0], row[1], row[2]) for row in rows[5:8]] == [
        ("write", 10, "memfd"), ("write", 20, "socket"), ("write", 30, "pipe")]
    assert rows[5][3] == "/memfd:mem"
    assert re.fullmatch(r"socket:\[\d+\]", rows[6][3]) and re.fullmatch(r"pipe:\[\d+\]", rows[7][3])
    assert rows[8][1:3] == (None, "pipe") and rows[8][4] == "EBADF" and len(rows) == 9


DESCRIPTORS = """
import os
def count(): return len(os.listdir('/proc/self/fd')) - 1
told = []
first = os.open('/dev/null', os.O_RDONLY); told.append((first, count()))
many = [os.dup(first) for _ in range(200)]; told.append((many[-1], count()))
for fd in many: os.close(fd)
told.append((many[-1], count()))
import json; json.dump(told, open('told', 'w'))
"""


def test_descriptors_are_counted_as_proc_counts_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import json

    monkeypatch.chdir(tmp_path)
    with events_of(DESCRIPTORS, tmp_path, "--kinds", "file_descriptor_change") as run:
        rows = run.sql("select name, operation, fd, open_fds from fd_changes order by t").rows()
    (first, one), (last, all_), (_, none) = json.loads((tmp_path / "told").read_text())
    assert ("dup", "open", last, all_) in rows or ("fcntl", "open", last, all_) in rows
    assert ("close", "close", last, none) in rows
    assert [row[3] for row in rows if row[1] == "open" and row[2] == first][-1] == one
    assert all_ == one + 200 and none == one


SIGNALS = """
import os, signal
signal.signal(signal.SIGUSR1, lambda *_: None); signal.signal(signal.SIGUSR2, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])
me = os.getpid()
for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGHUP): os.kill(me, number)
child = os.fork()
if not child: os._exit(0)
os.waitpid(child, 0)
"""


def test_signals_are_told_when_sent_and_when_delivered(tmp_path: Path) -> None:
    with events_of(SIGNALS, tmp_path, "--kinds", "signal") as run:
        rows = run.sql("select operation, name, result, action, pid = target_pid from signals "
                       f"where target_pid = {run.manifest.pid} order by t").rows()
        ended = run.sql("select pid from signals where name = 'SIGCHLD' order by t").rows()
    assert rows == [
        ("sent", "SIGUSR1", "delivered", None, True), ("delivered", "SIGUSR1", None, "handler", True),
        ("sent", "SIGUSR2", "ignored", None, True), ("sent", "SIGHUP", "delivered", None, True),
        ("sent", "SIGHUP", "already_pending", None, True), ("sent", "SIGCHLD", "ignored", None, False)]
    assert ended[-1] == (run.manifest.pid,)  # its own end is told to the recorder, its parent


BLOCKED = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
(wake, waker), (answers, answer) = os.pipe(), os.pipe()
os.set_blocking(answers, False)
spinner = os.fork()
if not spinner:  # it never waits itself
    while True:
        os.write(waker, b'x')
        while True:
            try:
                os.read(answers, 1)
                break
            except BlockingIOError: pass
def delay(): return int(open('/proc/self/schedstat').read().split()[1])
os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))  # on waking it does not take the processor: sched(7)
told = []
while sum(one > 0 for one in told) < 20 and len(told) < 3000:  # who is to sleep may stay in the queue: no account then
    before = delay()
    os.readv(wake, [bytearray(1)])
    told.append(delay() - before)
    os.write(answer, b'y')
os.kill(spinner, 9); os.wait()
open('told', 'w').write(' '.join(map(str, told)))
"""


def test_waiting_for_a_processor_is_taken_out_of_blocking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Woken by a process that keeps the processor busy; /proc/self/schedstat is the witness."""
    monkeypatch.chdir(tmp_path)
    with events_of(BLOCKED, tmp_path, "--kinds", "blocking,syscall") as run:
        rows = run.sql("select b.duration, b.run_delay, s.t_exit - s.t_enter from blocking b join syscalls s "
                       "on b.tid = s.tid and b.t = s.t_enter and b.name = s.name "
                       f"where b.name = 'readv' and b.pid = {run.manifest.pid} order by b.t").rows()
    told = [int(one) for one in (tmp_path / "told").read_text().split()]
    assert len(rows) == len(told)
    assert all(duration + delay == whole for duration, delay, whole in rows)
    assert all(delay <= one for (_, delay, _), one in zip(rows, told, strict=True))
    assert sum(delay > 0 for _, delay, _ in rows) >= 10, told  # the rest waited beside the call


THREADS = """
import os, threading, time, sys
def work():
    while not os.path.exists('stop'): os.getppid(); time.sleep(0.001)
threads = [threading.Thread(target=work) for _ in range(5)]
for one in threads: one.start()
print('ready', flush=True)
for one in threads: one.join()
"""


def test_all_threads_of_a_process_that_runs_are_followed(tmp_path: Path) -> None:
    target = subprocess.Popen([PYTHON, "-c", THREADS], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    try:
        assert target.stdout is not None and target.stdout.readline() == "ready\n"
        tids = {int(entry.name) for entry in Path(f"/proc/{target.pid}/task").iterdir()}
        with recorder(tmp_path, "--pid", target.pid, "--follow", "--kinds", "syscall") as process:
            seen = tmp_path / "stderr"
            wait_until(lambda: len(set(re.findall(r"^(\d+) getppid\(\)", seen.read_text(), re.MULTILINE))) == 5)
            (tmp_path / "stop").touch()
            assert process.wait(60) == 0  # it ends with the process
        followed = {int(one) for one in re.findall(r"^(\d+) ", seen.read_text(), re.MULTILINE)}
        assert followed <= tids and len(tids) == 6
    finally:
        target.kill()
        target.communicate()


def test_children_that_a_process_has_already_are_followed_with_it(tmp_path: Path) -> None:
    script = "(while :; do /bin/true; done) & echo $!; wait"
    target = subprocess.Popen(["/bin/sh", "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert target.stdout is not None
        child = target.stdout.readline().strip()
        with recorder(tmp_path, "--pid", target.pid, "--follow", "--kinds", "syscall"):
            seen = tmp_path / "stderr"
            wait_until(lambda: re.search(rf"^{child} (clone|vfork|wait4)", seen.read_text(), re.MULTILINE) and
                       "exit_group" in seen.read_text())
    finally:
        os.killpg(target.pid, signal.SIGKILL)
        target.wait()


def test_the_whole_machine_is_recorded_but_the_recorder_until_it_is_told_to_end(tmp_path: Path) -> None:
    with recorder(tmp_path, "--all", "-o", tmp_path / "run.ptw") as process:
        wait_until(lambda: attached(process))
        pids = [subprocess.run(["/bin/sh", "-c", "echo $$"], capture_output=True, text=True, check=True).stdout
                for _ in range(3)]
        process.terminate()
        assert process.wait(60) in (0, 1)  # others' calls are still under way: counted
    with Run(tmp_path / "run.ptw") as run:
        seen = {row[0] for row in run.sql("select distinct pid from syscalls").rows()}
        assert {int(pid) for pid in pids} <= seen
        assert process.pid not in seen
        assert run.manifest.state is State.COMPLETE and run.ledger.check() == []
        assert {why for _, why, _, _ in run.ledger.losses} <= {"in_flight", "compat", "not_decoded", "unreadable",
                                                                "unknown", "truncated"}


def test_rules_are_read_again_when_their_file_changes_and_wrong_ones_change_nothing(tmp_path: Path) -> None:
    rules, said = tmp_path / "rules.toml", tmp_path / "stderr"
    rules.write_text('[filter]\naccept = ["comm=nobody"]\n')
    script = "while :; do /bin/true; /bin/sleep 0.01; done"
    with recorder(tmp_path, "--filter", rules, "--follow", "--kinds", "syscall", "--", "/bin/sh", "-c",
                  script) as process:
        wait_until(lambda: attached(process))
        rules.write_text('[filter]\naccept = ["pid=none"]\n')
        wait_until(lambda: "none is no pid" in said.read_text())
        assert "exit_group" not in said.read_text()
        rules.write_text('[filter]\naccept = ["comm=true"]\n')
        wait_until(lambda: "exit_group" in said.read_text())
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    calls = re.findall(r"^\d+ (\w+)\(", said.read_text(), re.MULTILINE)
    assert "wait4" not in calls and "clone" not in calls  # the shell's


def program_numbers(pid: int) -> list[int]:
    found = []
    for entry in Path(f"/proc/{pid}/fdinfo").iterdir():
        try:
            text = entry.read_text()
        except FileNotFoundError:
            continue  # a table's file, closed in between
        match = re.search(r"^prog_id:\s+(\d+)$", text, re.MULTILINE)
        found += [int(match[1])] if match else []
    return found


def test_a_killed_recorder_leaves_the_target_running_and_readable_tables(tmp_path: Path) -> None:
    path, name = tmp_path / "run.ptw", f"of {tmp_path}"
    with recorder(tmp_path, "-o", path, "--", "/bin/sh", "-c", "while :; do /bin/sleep 0.01; done", name) as process:
        wait_until(lambda: (path / "tables" / "syscalls" / "000000.parquet").exists())
        assert program_numbers(process.pid)
        process.kill()
        process.wait()
    # it is there; a child of its that has not become sleep yet has the same words, and a higher number most often
    target = min(int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal() and
                 name.encode() in _words(entry))
    os.kill(target, signal.SIGKILL)
    wait_until(lambda: not any(name.encode() in _words(entry) for entry in Path("/proc").iterdir()
                               if entry.name.isdecimal()))
    with Run(path) as run:
        assert run.sql("select count(*) > 100 from syscalls").rows() == [(True,)]
        assert run.manifest.state is State.RECORDING
        names = Counter(dict(run.sql("select name, count(*) from syscalls group by name").rows()))
        assert names["execve"] > 3


def _words(entry: Path) -> bytes:
    try:
        return (entry / "cmdline").read_bytes()
    except OSError:
        return b""


TURNS = 50_000  # two changes of its comm each, a few hundred nanoseconds apart without a recorder


@pytest.mark.parametrize(("rule", "wanted"), [
    (["--accept", "comm=two"], {"getppid": TURNS, "getpgrp": 0}),
    (["--reject", "comm=two"], {"getppid": 0, "getpgrp": TURNS}),
    (["--accept", "comm=two", "--reject", "comm=two"], {"getppid": 0, "getpgrp": 0}),
    ([], {"getppid": TURNS, "getpgrp": TURNS})])
def test_each_call_of_a_target_that_changes_its_comm_all_the_time_is_judged_by_the_comm_it_had(
        rule: list[str], wanted: dict[str, int], tmp_path: Path) -> None:
    """The last but one: a reject beats an accept that contradicts it."""
    program = compile_program(tmp_path, "comm_changer")
    done = ptweave("events", "-q", "--ring", "67108864", *rule, "-o", tmp_path / "run.ptw", "--", program, TURNS)
    assert done.status == 0, done.err
    with Run(tmp_path / "run.ptw") as run:
        rows = dict(run.sql("select name, count(*) from syscalls where name in ('getppid', 'getpgrp') "
                            "group by name").rows())
        assert run.ledger.losses == []
        assert {name: rows.get(name, 0) for name in wanted} == wanted


ODD = (b"\xff\xfe", b"caf\xe9", b"e\xcc\x81", b"\xed\xa0\x80", b"new\nline \x1b[31m")


def test_paths_that_are_too_long_or_no_utf8_are_rows_that_are_right(tmp_path: Path) -> None:
    script = ("import os, sys\nlong = [b'q' * 4095, b'q' * 4096, b'q' * 100000]\n"
              "for one in [*map(bytes.fromhex, sys.argv[1:]), *long]:\n"
              "    try: os.stat(one)\n    except OSError: pass\n")
    done = ptweave("events", "-q", "-o", tmp_path / "run.ptw", "--", "/usr/bin/python3", "-S", "-c", script,
                   *(b"/nowhere/".hex() + one.hex() for one in ODD))
    assert done.status in (0, 1), done.err
    with Run(tmp_path / "run.ptw") as run:
        rows = run.sql("select paths[1], errno, call_text(number, args, result, paths, files, data) from syscalls "
                       "where name in ('stat', 'newfstatat') and (paths[1] like '/nowhere/%' or paths[1] like 'qqq%') "
                       "order by t_enter").rows()
        # of 4096 bytes all are kept, but that there are no more is not known
        assert run.ledger["syscalls/kernel/paths"].lost == {"truncated": 2}
        assert len(run.ledger.losses) == 1
    shown = ["/nowhere/" + one.decode(errors="backslashreplace") for one in ODD]
    assert [row[:2] for row in rows] == [*((one, "ENOENT") for one in shown), ("q" * 4095, "ENAMETOOLONG"),
                                         *[("q" * 4096, "ENAMETOOLONG")] * 2]
    assert all(row[2].isprintable() and row[2].isascii() for row in rows)


def test_the_recording_of_a_process_that_has_ended_and_was_not_waited_for_ends_at_once_and_is_empty(
        tmp_path: Path) -> None:
    target = subprocess.Popen(["/bin/true"])
    os.waitid(os.P_PID, target.pid, os.WEXITED | os.WNOWAIT)
    done = ptweave("events", "-q", "--pid", str(target.pid), "-o", tmp_path / "run.ptw")
    target.wait()
    assert (done.status, done.err) == (0, "")
    with Run(tmp_path / "run.ptw") as run:
        assert run.sql("select count(*) from syscalls").rows() == [(0,)]
        assert run.ledger.losses == [] and run.ledger.check() == []


def test_a_fork_bomb_of_a_thousand_processes_is_recorded_whole(tmp_path: Path) -> None:
    program = compile_program(tmp_path, "process_ends")
    done = ptweave("events", "-q", "-o", tmp_path / "run.ptw", "--", program, "many", "1000")
    assert done.status == 0, done.err
    with Run(tmp_path / "run.ptw") as run:
        assert run.sql("select count(distinct pid) from syscalls where name = 'exit_group'").rows() == [(1001,)]
        assert run.ledger.losses == []


@pytest.mark.parametrize(("words", "what"), [
    (["--pid", "4194303", "-o", "x.ptw"], "no process can be followed"),
    (["--all"], "no bundle is named"),
    ([], "give exactly one"),
    (["--all", "--pid", "1", "-o", "x.ptw"], "give exactly one"),
    (["--accept", "comm=sixteen bytes....", "--all", "-o", "x.ptw"], "longer than a comm"),
    (["--accept", "colour=red", "--all", "-o", "x.ptw"], "is no rule"),
    (["--accept", "pid=12:sycall", "--all", "-o", "x.ptw"], "is no pid"),
    (["--kinds", "reads", "--all", "-o", "x.ptw"], "no kind of event"),
    (["--default", "comm=maybe", "--all", "-o", "x.ptw"], "is no default"),
    (["--default", "comm=accept", "--default", "comm=reject", "--all", "-o", "x.ptw"], "contradicts"),
    (["--filter", "missing.toml", "--all", "-o", "x.ptw"], "cannot be read"),
    (["--capture", "5000", "--all", "-o", "x.ptw"], "cannot be kept"),
    (["--ring", "5000", "--all", "-o", "x.ptw"], "power of two"),
    (["--", "/no/such/program"], "does not exist"),
])
def test_wrong_use_is_one_clear_line_and_leaves_nothing_behind(words: list[str], what: str, tmp_path: Path) -> None:
    done = ptweave("events", *words, cwd=tmp_path)
    assert done.status == 2
    assert what in done.err and len(done.err.splitlines()) == 1, done.err
    assert list(tmp_path.iterdir()) == []


def test_a_bundle_that_exists_is_left_alone(tmp_path: Path) -> None:
    bundle = tmp_path / "run.ptw"
    assert ptweave("events", "-q", "-o", bundle, "--", "/bin/true").status == 0
    before = Bundle.open(bundle).manifest.clocks
    assert ptweave("events", "-o", bundle, "--", "/bin/true").status == 2
    assert Bundle.open(bundle).manifest.clocks == before
