# SPDX-License-Identifier: MIT
"""What the soft engine does to a target (nothing it can see), and what is left of a trace when things go wrong."""

from __future__ import annotations

import os
import random
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ptweave.data import Bundle, MachineLacks, Manifest
from ptweave.data.sideband import read_sideband
from ptweave.wrapper.soft import SoftEngine, salvage
from support.engine import Recorder, check_exact, compile_c, decode, record, record_all, system_calls, threads

BARE = ("-nostdlib", "-static", "-no-pie", "-fno-stack-protector", "-fcf-protection=none")
root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: mounts, set-user-id programs")


@pytest.mark.parametrize("script", [
    "cat; echo out; echo err >&2; exit 7",
    "kill -9 $$", "kill -TERM $$", "kill -SEGV $$", "pwd; umask; ulimit -s",
    "env | grep -v -e ^_= | sort", "trap 'echo caught; exit 3' TERM; kill -TERM $$; echo no",
    "readlink /proc/self/exe; nproc; cat /proc/self/comm", "ls /no/such/file; head -c x",
    "bash -c \"exec -a other bash -c 'echo \\$0'\"", "exec 3>&1; echo three >&3; exec false",
    "LD_PRELOAD=libz.so.1 sh -c 'echo $LD_PRELOAD; env | grep -c -i -e valgrind -e ptsoft'",
    "no-such-command", "cd / && ls -d usr", "sleep 0.05 & wait; echo $?",
    "ulimit -n 64; ulimit -n; ulimit -Hn; ulimit -Sn 20; ulimit -n; sh -c 'ulimit -Sn; ulimit -Hn'",
    "ulimit -Sn 100; bash -c 'ulimit -n 200; ulimit -n'; (ulimit -n 30; ulimit -Hn); ulimit -Sn",
    "export TMPDIR=/no/such/folder; /bin/echo $?; ls /etc/passwd; grep -c passwd /proc/self/cmdline",
    "ulimit -n 50; ulimit -n 60; ulimit -n; ulimit -Sn 70; ulimit -Sn",
    "ulimit -s 16384; ulimit -s; ulimit -Hs; sh -c 'ulimit -Ss 300; sh -c \"ulimit -s; ulimit -Hs\"'",
    "ulimit -s unlimited; sh -c 'ulimit -s'; ulimit -Ss 100; ulimit -s; ulimit -Hs; sh -c 'ulimit -Ss 99; ulimit -s'",
    "ulimit -v 100000; seq 9 | wc -c; (ulimit -v 50000; ulimit -v); ulimit -Sv 60000; sh -c 'ulimit -v; ulimit -Hv'",
    "ulimit -v 300000; perl -e 'print length(qq(a) x 9e7), qq( )'; perl -e '$x = qq(a) x 4e8; print 1'; echo $?",
])
def test_target_runs_as_without(tmp_path: Path, script: str) -> None:
    """Output, error output, status and death by signal; environment, descriptors, directory."""
    native = subprocess.run(["sh", "-c", script], capture_output=True, check=False, input=b"some\ninput\n",
                            env=os.environ)
    under = record_all(["sh", "-c", script], tmp_path, stdin=b"some\ninput\n")
    assert under.stdout == native.stdout
    assert under.stderr == native.stderr
    assert under.status == native.returncode
    assert under.bundle.ledger().losses == []


@pytest.mark.parametrize("limit, calls, status", [
    ("8192", 75, 3), ("8192", 90, -11), ("1500", 12, 3), ("1500", 17, -11), ("100000", 950, 3), ("100000", 1100, -11),
    ("unlimited", 5000, 3)])
def test_a_stack_grows_to_its_limit(tmp_path: Path, limit: str, calls: int, status: int) -> None:
    deep = compile_c("deep_stack.c", tmp_path)
    command = ["sh", "-c", f"ulimit -Ss {limit}; exec {deep} {calls}"]
    assert subprocess.run(command, check=False).returncode == status
    assert record_all(command, tmp_path).status == status


def new_counter(folder: Path) -> Path:
    file = folder / "count"
    file.write_bytes(bytes(4096))
    return file


def wait_until_it_counts(counter: Path) -> None:
    deadline = time.monotonic() + 60
    while not any(counter.read_bytes()[:8]):
        assert time.monotonic() < deadline, "the target does not run"
        time.sleep(0.005)


def counted(program: Path) -> int:
    """Address of the instruction that counts."""
    symbols = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
    return next(int(line.split()[0], 16) for line in symbols.splitlines() if line.endswith(" counted"))


@pytest.mark.parametrize("attempt", range(6))
def test_killed_target_loses_nothing_that_ran(tmp_path: Path, attempt: int) -> None:
    """SIGKILL at any moment: the program's own count, in memory that outlives it, is what its trace says."""
    program = compile_c("counter.c", tmp_path, "-no-pie")
    counter = new_counter(tmp_path)
    recorder = Recorder([str(program), str(counter)], tmp_path)
    wait_until_it_counts(counter)
    time.sleep(random.Random(attempt).uniform(0, 0.5))
    recorder.process.kill()
    recording = recorder.finish()
    assert recording.status == -signal.SIGKILL
    (counts,) = struct.unpack_from("<Q", counter.read_bytes())
    decoded = decode(recording.bundle, 0, tmp_path, ip=counted(program))[0]
    assert decoded.errors == 0
    assert counts > 100
    assert counts <= decoded.hits <= counts + 1  # the block that was about to run
    calls = system_calls(recording.bundle, 0)
    assert abs(len(calls) - decoded.syscalls) <= 1  # the last may be about to be made
    rows = read_sideband(recording.bundle.sideband).to_pylist()
    assert not [row for row in rows if row["kind"] == "finish"]  # it did not end orderly, and nobody says so
    assert next(row for row in rows if row["kind"] == "process_exit")["value"] == signal.SIGKILL
    assert recording.bundle.ledger().losses == []


def test_control_a_trace_cut_short_counts_less(tmp_path: Path) -> None:
    program = compile_c("counter.c", tmp_path, "-no-pie")
    counter = new_counter(tmp_path)
    recorder = Recorder([str(program), str(counter)], tmp_path)
    wait_until_it_counts(counter)
    recorder.process.kill()
    bundle = recorder.finish().bundle
    trace = bundle.trace / "0.pt"
    os.truncate(trace, trace.stat().st_size - 64)
    (counts,) = struct.unpack_from("<Q", counter.read_bytes())
    assert decode(bundle, 0, tmp_path, ip=counted(program))[0].hits < counts


def test_spool_of_a_dead_supervisor_is_salvaged(tmp_path: Path) -> None:
    """Nobody polled, the bundle was begun: the spool alone gives the same trace."""
    bundle = Bundle.create(tmp_path / "late.ptw", Manifest())
    spool = tmp_path / "spool"
    spool.mkdir()
    command, extra = SoftEngine().command(["sh", "-c", "ls / >&2; exec true"], spool)
    subprocess.run(command, env={**os.environ, **extra}, check=True, stderr=subprocess.DEVNULL)
    ledger = salvage(bundle, spool)
    assert not spool.exists()
    assert ledger.check() == []
    assert ledger.losses == []
    assert [one.errors for thread in threads(bundle) for one in decode(bundle, thread, tmp_path)] == [0] * 4


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "none", folder], check=True)
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@root
def test_full_disk_is_counted_and_the_target_goes_on(tmp_path: Path, small_disk: Path) -> None:
    program = compile_c("four_threads.c", tmp_path, "-pthread")
    native = subprocess.run([program, "1500"], capture_output=True, check=True)
    bundle = Bundle.create(tmp_path / "full.ptw", Manifest())
    spool = small_disk / "spool"
    spool.mkdir()
    command, extra = SoftEngine().command([str(program), "1500"], spool)
    done = subprocess.run(command, env={**os.environ, **extra}, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, native.stdout, b"")
    ledger = salvage(bundle, spool)
    assert ledger.check() == []
    lost = {name: count for name, why, count, _ in ledger.losses if name.startswith("trace/") and why == "disk full"}
    assert lost
    rows = read_sideband(bundle.sideband).to_pylist()
    for name, count in lost.items():
        told = sum(row["size"] for row in rows if row["kind"] == "lost" and row["thread"] == int(name[6:]))
        assert told == count
    for thread in threads(bundle):  # what was stored is right
        assert all(one.errors == 0 for one in decode(bundle, thread, tmp_path))


@pytest.mark.parametrize("script", [
    "ulimit -f 0; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo $i; seq 1 100000 | tail -1",
    "ulimit -f 300; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; (exit 3); echo $i $?",
])
def test_a_limit_of_file_size_costs_trace_and_not_the_program(tmp_path: Path, script: str) -> None:
    """Files that grow beyond it would have the kernel send the program SIGXFSZ."""
    native = subprocess.run(["bash", "-c", script], capture_output=True, check=True)
    under = record_all(["bash", "-c", script], tmp_path)
    assert (under.status, under.stdout, under.stderr) == (0, native.stdout, b"")
    assert under.bundle.ledger().check() == []
    assert "disk full" in {why for name, why, _, _ in under.bundle.ledger().losses if name.startswith("trace/")}
    for thread in threads(under.bundle):  # what was stored is right
        assert all(one.errors == 0 for one in decode(under.bundle, thread, tmp_path))


def test_control_a_program_that_exceeds_its_limit_of_file_size_gets_the_signal(tmp_path: Path) -> None:
    script = f"ulimit -f 1; head -c 5000 /dev/zero >{tmp_path}/large; echo $?; wc -c <{tmp_path}/large"
    assert record_all(["bash", "-c", script], tmp_path).stdout == b"153\n1024\n"


def test_no_temporary_file_is_made(tmp_path: Path) -> None:
    """Whoever is killed while it starts would leave one behind."""
    (tmp_path / "temporary").mkdir(mode=0o700)
    watched = ("import os, sys\nbefore = os.stat(sys.argv[1]).st_mtime_ns\nos.system('/bin/true')\n"
               "sys.exit(os.stat(sys.argv[1]).st_mtime_ns != before)")
    recording = record_all(["/usr/bin/python3", "-c", watched, f"{tmp_path}/temporary"], tmp_path,
                           env={**os.environ, "TMPDIR": f"{tmp_path}/temporary"})
    assert recording.status == 0


@root
def test_trace_goes_on_when_there_is_room_again(tmp_path: Path, small_disk: Path) -> None:
    program = compile_c("counter.c", tmp_path, "-no-pie")
    counter = new_counter(tmp_path)
    bundle = Bundle.create(tmp_path / "gap.ptw", Manifest())
    spool = small_disk / "spool"
    spool.mkdir()
    command, extra = SoftEngine().command([str(program), str(counter)], spool)
    process = subprocess.Popen(command, env={**os.environ, **extra})
    try:
        wait_until_it_counts(counter)
        ballast = small_disk / "ballast"
        with ballast.open("wb", buffering=0) as out:
            try:
                while True:
                    out.write(bytes(1 << 16))
            except OSError:
                pass
        time.sleep(1.5)
        subprocess.run(["mount", "-o", "remount,size=500m", small_disk], check=True)
        time.sleep(0.5)
    finally:
        process.kill()
        process.wait()
    ledger = salvage(bundle, spool)
    rows = [row for row in read_sideband(bundle.sideband).to_pylist() if row["kind"] in ("lost", "slice")]
    kinds = [row["kind"] for row in rows]
    assert "lost" in kinds
    assert kinds[-1] == "slice"  # it went on behind the hole
    assert ledger["trace/0"].total_lost == sum(row["size"] for row in rows if row["kind"] == "lost")
    (counts,) = struct.unpack_from("<Q", counter.read_bytes())
    decoded = decode(bundle, 0, tmp_path, ip=counted(program))[0]
    assert decoded.errors == 0
    assert 0 < decoded.hits < counts


def test_image_of_a_program_that_is_gone(tmp_path: Path) -> None:
    """A program is copied, run and removed before anyone polls: its code is in the bundle all the same."""
    program = compile_c("bare.c", tmp_path, *BARE)
    script = f"cp {program} {tmp_path}/gone; {tmp_path}/gone second; rm {tmp_path}/gone"
    recorder = Recorder(["sh", "-c", script], tmp_path, log=True, poll=1000)
    recording = recorder.finish()
    assert recording.stdout == b"hi\n"
    rows = read_sideband(recording.bundle.sideband).to_pylist()
    gone = [row for row in rows if row["kind"] == "map" and row["path"] == f"{tmp_path}/gone"]
    assert gone and all(row["image"] for row in gone)
    check_exact(recording, tmp_path)


def test_program_that_removes_itself(tmp_path: Path) -> None:
    program = compile_c("four_threads.c", tmp_path, "-pthread")
    shutil.copy(program, tmp_path / "itself")
    script = f"exec 9<{tmp_path}/itself; rm {tmp_path}/itself; exec /proc/self/fd/9 5"
    recording = record_all(["bash", "-c", script], tmp_path, log=True)
    assert recording.status == 0, recording.stderr
    check_exact(recording, tmp_path)


@root
def test_programs_the_engine_cannot_run_run_without_it(tmp_path: Path) -> None:
    """A set-user-id program: the engine would not let it run. It runs, and is reported."""
    copy = tmp_path / "suid"
    shutil.copy("/bin/echo", copy)
    copy.chmod(0o4755)
    recording = record_all(["sh", "-c", f"{copy} hello; echo after"], tmp_path)
    assert recording.stdout == b"hello\nafter\n"
    assert recording.stderr == b""
    assert ("processes", "the engine cannot run it", 1, "images") in recording.bundle.ledger().losses


@root
def test_traces_through_chroot_and_other_users(tmp_path: Path) -> None:
    """The spool is reached by descriptor: a program that changes its root or its user is still traced."""
    program = compile_c("bare.c", tmp_path, *BARE)
    jail = tmp_path / "jail"
    jail.mkdir()
    shutil.copy(program, jail / "bare")
    script = ("import os, sys\npid = os.fork()\nif pid == 0:\n os.chroot(sys.argv[1])\n os.setgid(65534)\n"
              " child = os.fork()\n if child == 0:\n  os._exit(3)\n"
              " os._exit(os.waitpid(child, 0)[1] >> 8)\nsys.exit(os.waitpid(pid, 0)[1] >> 8)")
    recording = record_all(["/usr/bin/python3", "-c", script, str(jail)], tmp_path, log=True)
    assert recording.status == 3
    assert len(threads(recording.bundle)) == 3
    check_exact(recording, tmp_path)


@root
def test_traces_a_program_that_another_user_executes(tmp_path: Path) -> None:
    """Who may not even see the spool, or the engine, writes there all the same."""
    script = ("import os, sys\npid = os.fork()\nif pid == 0:\n os.setgid(65534)\n os.setuid(65534)\n"
              " os.execv('/bin/sh', ['other', '-c', 'id -u; echo $0; exit 4'])\n"
              "sys.exit(os.waitpid(pid, 0)[1] >> 8)")
    recording = record_all(["/usr/bin/python3", "-c", script], tmp_path, log=True)
    assert (recording.status, recording.stdout) == (4, b"65534\nother\n")
    check_exact(recording, tmp_path)
    assert len(threads(recording.bundle)) == 3
    assert recording.bundle.ledger().losses == []


@root
@pytest.mark.parametrize("change", ["os.setuid(65534)", "os.setresuid(65534, 65534, 65534)", "os.seteuid(65534)",
                                    "os.seteuid(65534); os.seteuid(0); os.seteuid(65533)"])
def test_a_program_that_becomes_another_user_and_goes_on_loses_nothing(tmp_path: Path, change: str) -> None:
    """As servers do: what was opened before goes on, and what is new, here a library, is recorded."""
    script = f"import os\n{change}\nimport _decimal\nprint(sum(n % 7 for n in range(20000)), os.geteuid() > 1)"
    recording = record_all(["/usr/bin/python3", "-c", script], tmp_path, log=True)
    assert (recording.status, recording.stdout) == (0, b"59997 True\n")
    assert recording.bundle.ledger().losses == []
    check_exact(recording, tmp_path)


@root
def test_a_program_that_cannot_reach_the_spool_runs_and_is_counted(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)  # the spool is closed to others then
    script = "import os\nos.setuid(65534)\nos.execv('/bin/echo', ['echo', 'here'])"
    recording = record_all(["/usr/bin/python3", "-c", script], tmp_path, log=True)
    assert (recording.status, recording.stdout, recording.stderr) == (0, b"here\n", b"")
    assert recording.bundle.ledger().losses == [("processes", "what it executed left no file", 1, "images")]


def test_exec_keeps_the_thread_and_fork_makes_one(tmp_path: Path) -> None:
    bundle = record(["sh", "-c", "(exit 0); exec sh -c 'exec true'"], tmp_path)
    rows = read_sideband(bundle.sideband).to_pylist()
    processes = [row for row in rows if row["kind"] == "process"]
    assert sorted(row["detail"] for row in processes) == ["exec", "exec", "fork", "start"]
    assert len({row["space"] for row in processes}) == 4
    assert threads(bundle) == [0, 1]
    assert len([row for row in rows if row["kind"] == "thread"]) == 2
    fork = next(row for row in processes if row["detail"] == "fork")
    assert fork["value"] == processes[0]["pid"]
    finish = [row for row in rows if row["kind"] == "finish"]
    assert {row["thread"]: row["offset"] for row in finish} == {
        thread: (bundle.trace / f"{thread}.pt").stat().st_size for thread in (0, 1)}
    assert [row["tsc"] for row in rows] == sorted(row["tsc"] for row in rows)
    psbs = list(struct.iter_unpack("<QQ", (bundle.trace / "0.psb").read_bytes()))
    slices = [row["offset"] for row in rows if row["kind"] == "slice" and row["thread"] == 0]
    assert set(slices) <= {offset for offset, _ in psbs}
    assert all(tsc for _, tsc in psbs)
    assert [tsc for _, tsc in psbs] == sorted(tsc for _, tsc in psbs)


def test_a_program_that_another_thread_than_the_first_executes_is_traced(tmp_path: Path) -> None:
    program = compile_c("exec_from_thread.c", tmp_path, "-pthread")
    recording = record_all([str(program), "/bin/echo", "executed"], tmp_path, log=True)
    assert (recording.status, recording.stdout, recording.stderr) == (0, b"executed\n", b"")
    check_exact(recording, tmp_path)
    rows = read_sideband(recording.bundle.sideband).to_pylist()
    assert [row["detail"] for row in rows if row["kind"] == "process"] == ["start", "exec"]
    assert recording.bundle.ledger().losses == []


@pytest.mark.parametrize("name", ["code_runs_off_its_pages", "generated_code_of_many_pages"])
def test_code_at_the_end_of_what_can_be_read_runs_and_decodes_exactly(name: str, tmp_path: Path) -> None:
    """Valgrind reads on behind it, and died of that."""
    program = compile_c(f"../conformance/{name}.c", tmp_path, "-pthread")
    recording = record_all([str(program)], tmp_path, log=True)
    assert (recording.status, recording.stderr, recording.messages) == (0, b"", "")
    check_exact(recording, tmp_path)


def test_many_threads_at_once(tmp_path: Path) -> None:
    """Each has files, buffers and a number of its own; the descriptors are the program's."""
    program = compile_c("many_threads.c", tmp_path, "-pthread")
    recording = record_all(["sh", "-c", f"ulimit -n 20; exec {program} 600"], tmp_path, log=True)
    assert (recording.status, recording.stdout) == (0, b"600 threads\n"), recording.messages
    assert len(threads(recording.bundle)) == 601
    assert recording.bundle.ledger().losses == []
    for thread in (1, 300, 600):
        assert decode(recording.bundle, thread, tmp_path)[0].errors == 0


def test_engine_that_is_not_built_says_so(tmp_path: Path) -> None:
    with pytest.raises(MachineLacks) as error:
        SoftEngine(tmp_path).version()
    assert "not built" in error.value.line()
    assert error.value.remedy


def test_version_names_the_valgrind_it_was_built_with() -> None:
    assert "Valgrind 3.19" in SoftEngine().version()


def test_a_program_gets_the_low_memory_it_asks_for_but_little(tmp_path: Path) -> None:
    """Of 16 MiB each below 2 GiB: the loader and the libraries come first, and the last but one is the engine's own."""
    program = compile_c("low_memory.c", tmp_path, "-static")
    failed = [int(one, 16) for one in record_all([str(program)], tmp_path).stdout.split()]
    assert [at for at in failed if at >= 0x8000000] == [0x7e000000]
