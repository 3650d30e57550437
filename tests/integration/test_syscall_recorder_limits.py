# SPDX-License-Identifier: MIT
"""The eBPF recorder at its limits: full rings, full disks, paused and killed supervisors, refused permissions."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ptweave.data.bundle import Bundle
from ptweave.data.errors import BadInput, MachineLacks
from ptweave.data.ledger import Ledger
from ptweave.data.manifest import Manifest
from ptweave.wrapper import kernel_events, syscalls
from ptweave.wrapper.bpf_checks import probe
from ptweave.wrapper.kernel_events import KernelEvents
from ptweave.wrapper.syscalls import Options, SyscallRecorder
from support.bpf import fork_waiting, kernel_stream, needs_bpf, read_rows, record, wait_serving
from support.programs import ROOT, compile_program

pytestmark = [pytest.mark.root, needs_bpf]

PATHS = os.pathsep.join(str(ROOT / room) for room in ("data", "preload", "wrapper", "decode", "merge", "tests"))


def start_process(bundle: Path, words: list[str | Path], prefix: tuple[str, ...] = (),
                  **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen([*prefix, sys.executable, "-m", "support.recorder_process", bundle, *words],
                            env={**os.environ, "PYTHONPATH": PATHS, **env}, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def test_while_nobody_takes_batches_the_calls_do_not_wake_the_recorder_one_by_one(tmp_path: Path) -> None:
    rounds = 100_000
    events = KernelEvents(Options(batch_rows=64, batches=2))
    pid, go = fork_waiting([compile_program(tmp_path, "syscall_count"), 1, rounds])
    events.follow(pid)
    os.write(go, b"x")
    os.close(go)
    os.waitpid(pid, 0)
    events.stop()
    starved = events.totals()
    rows = sum(int(batch.rows) for batch in events.batches(everything=True))
    totals = events.totals()
    losses = events.losses()
    events.close()
    assert starved.starved > 0, "it always had a batch"
    assert starved.wakeups < 1000, "woken again and again for nothing"
    assert 3 * rounds <= totals.produced[0] == rows + sum(one.count for one in losses) < 3 * rounds + 200
    assert rows > 100_000, "what is in the ring is taken in the end"


@pytest.mark.parametrize("variant", list(syscalls.Variant)[1:], ids=lambda variant: variant.value)
def test_with_a_tiny_ring_every_call_is_stored_or_counted_as_lost(variant: syscalls.Variant, tmp_path: Path) -> None:
    rounds, threads = 30_000, 4
    options = Options(ring_bytes=4096, batch_rows=64, batches=2, variant=variant)
    recorded = record([compile_program(tmp_path, "syscall_count"), str(threads), str(rounds)], tmp_path, options)
    stream = kernel_stream(recorded)
    assert stream.lost["ring_full/getppid"] > 0
    for name in ("getppid", "read", "write"):
        kept = len([row for row in recorded.of(name) if row.args[2:] in ([], [64])])
        extra = len(recorded.of(name)) - kept  # the start-up's own reads and writes
        assert extra < 20
        missing = threads * rounds - kept
        assert missing <= stream.lost[f"ring_full/{name}"] <= missing + 20
    assert len(recorded.of("getppid")) + stream.lost["ring_full/getppid"] == threads * rounds
    assert stream.stored == len(recorded.rows)
    assert stream.produced == stream.stored + stream.total_lost
    assert set(stream.lost) == {why for why in stream.lost if why.startswith("ring_full/")}
    assert recorded.ledger.check() == []


def test_at_full_rate_a_caller_every_20_ms_loses_nothing(tmp_path: Path) -> None:
    rounds = 500_000
    recorded = record([compile_program(tmp_path, "syscall_count"), "1", str(rounds)], tmp_path, rows=False)
    assert kernel_stream(recorded).lost == {}
    assert kernel_stream(recorded).stored >= 3 * rounds
    assert recorded.ledger.check() == []


def test_a_caller_that_is_away_for_the_whole_run_loses_nothing(tmp_path: Path) -> None:
    """About a second of calls at full rate, held by the recorder's thread."""
    rounds = 200_000
    process = start_process(tmp_path / "run.ptw", [compile_program(tmp_path, "syscall_count"), "1", str(rounds)],
                            PAUSE="1")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    stream = json.loads(out.splitlines()[-1])["syscalls/kernel"]
    assert stream["lost"] == {}
    assert stream["stored"] > 3 * rounds


def test_calls_still_in_flight_at_the_end_are_counted(tmp_path: Path) -> None:
    bundle = Bundle.create(tmp_path / "run.ptw", Manifest())
    recorder = SyscallRecorder(bundle)
    recorder.start()
    pid, go = fork_waiting(["/bin/sleep", "100"])
    try:
        recorder.follow(pid)
        os.write(go, b"x")
        os.close(go)
        end = time.monotonic() + 20
        while "nanosleep" not in Path(f"/proc/{pid}/wchan").read_text() + Path(f"/proc/{pid}/stack").read_text():
            assert time.monotonic() < end
            time.sleep(0.02)
        recorder.service()
        ledger = Ledger()
        recorder.finish(ledger)
        assert ledger["syscalls/kernel"].lost == {"in_flight": 1}
        assert ledger.check() == []
        os.kill(pid, 0)  # the target goes on
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.02)


def program_exists(number: int) -> bool:
    """Whether the kernel still has the BPF program with this id (bpf(2): BPF_PROG_GET_FD_BY_ID)."""
    libc = ctypes.CDLL(None, use_errno=True)
    attributes = (ctypes.c_uint32 * 32)(number)
    fd = libc.syscall(ctypes.c_long(321), ctypes.c_int(13), ctypes.byref(attributes), ctypes.c_uint(128))
    if fd >= 0:
        os.close(fd)
        return True
    assert ctypes.get_errno() == errno.ENOENT
    return False


def test_a_killed_recorder_leaves_the_target_running_nothing_attached_and_a_readable_file(tmp_path: Path) -> None:
    bundle = tmp_path / "run.ptw"
    process = start_process(bundle, ["/bin/sh", "-c", "while :; do /bin/sleep 0.01; done"], SHOW_PROGRAMS="1")
    target = 0
    try:
        assert process.stdout is not None
        programs = []
        for line in process.stdout:
            word, number = line.split()
            if word == "started":
                target = int(number)
                break
            programs.append(int(number))
        assert len(programs) >= 5
        assert all(program_exists(number) for number in programs)
        recording = bundle / "events" / "syscalls.arrow"
        begun = recording.stat().st_size
        wait_until(lambda: recording.stat().st_size > begun + 20_000)
        process.kill()
        process.wait()
        end = time.monotonic() + 10
        while any(program_exists(number) for number in programs):
            assert time.monotonic() < end, "the programs outlived their recorder"
            time.sleep(0.02)
        os.kill(target, 0)
        rows = read_rows(bundle / "events" / "syscalls.arrow")
        assert len(rows) > 100
        assert b"/bin/sleep" in {path for row in rows if row.name == "execve" for path in row.paths}
    finally:
        process.kill()
        if target:
            os.kill(target, signal.SIGKILL)
        process.communicate()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for 2 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def test_a_full_disk_is_said_once_and_keeps_what_was_written(small_disk: Path, tmp_path: Path) -> None:
    bundle = Bundle.create(small_disk / "run.ptw", Manifest())
    recorder = SyscallRecorder(bundle)
    recorder.start()
    pid, go = fork_waiting([compile_program(tmp_path, "syscall_count"), "1", "200000"], stdout=Path("/dev/null"))
    recorder.follow(pid)
    os.write(go, b"x")
    os.close(go)
    said: list[MachineLacks] = []
    ledger = Ledger()
    status: int | None = None
    while status is None:
        try:
            status = wait_serving(pid, recorder)
        except MachineLacks as error:
            said.append(error)
    try:
        recorder.finish(ledger)
    except MachineLacks as error:
        said.append(error)
    assert status == 0
    assert len(said) == 1
    assert "No space left" in said[0].line()
    stream = ledger["syscalls/kernel"]
    assert stream.lost["not_written"] > 0
    assert stream.stored + stream.lost["not_written"] == stream.produced > 600_000
    assert len(read_rows(bundle.events / "syscalls.arrow")) == stream.stored > 0
    assert ledger.check() == []


def test_in_a_pid_namespace_tasks_have_the_numbers_they_have_there(tmp_path: Path) -> None:
    bundle = tmp_path / "run.ptw"
    process = start_process(bundle, ["/bin/sh", "-c", "echo shell $$; /bin/echo the child"],
                            ("unshare", "--pid", "--fork", "--mount-proc"))
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    words = dict(line.split(None, 1) for line in out.splitlines() if " " in line)
    rows = read_rows(bundle / "events" / "syscalls.arrow")
    assert rows[0].pid == rows[0].tid == int(words["started"]) == int(words["shell"]) < 100
    (forked,) = {row.result for row in rows if row.name in ("vfork", "clone") and row.pid == rows[0].pid}
    assert {row.pid for row in rows} == {rows[0].pid, forked}


def test_without_permission_one_line_says_what_to_do(tmp_path: Path) -> None:
    process = start_process(tmp_path / "run.ptw", ["/bin/true"], ("setpriv", "--bounding-set=-all", "--inh-caps=-all"))
    _, err = process.communicate(timeout=60)
    assert process.returncode == 3
    assert len(err.splitlines()) == 1
    assert "CAP_BPF" in err
    assert "sudo" in err


def test_programs_that_are_not_built_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_events, "_OBJECT", tmp_path / "none.bpf.o")
    with pytest.raises(MachineLacks, match="not built"):
        SyscallRecorder(Bundle.create(tmp_path / "run.ptw", Manifest())).start()


def test_programs_the_kernel_refuses_are_an_error_with_the_loader_s_words(tmp_path: Path,
                                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bad.bpf.o").write_bytes(b"\x7fELF no object")
    monkeypatch.setattr(kernel_events, "_OBJECT", tmp_path / "bad.bpf.o")
    with pytest.raises(MachineLacks, match="kernel refused the BPF programs"):
        SyscallRecorder(Bundle.create(tmp_path / "run.ptw", Manifest())).start()


def test_a_process_that_is_gone_cannot_be_followed(tmp_path: Path) -> None:
    recorder = SyscallRecorder(Bundle.create(tmp_path / "run.ptw", Manifest()))
    recorder.start()
    try:
        with pytest.raises(MachineLacks, match="process 4194304"):
            recorder.follow(4194304)
    finally:
        recorder.close()


def test_a_forked_child_cannot_disturb_its_parent_s_recorder(tmp_path: Path) -> None:
    bundle = Bundle.create(tmp_path / "run.ptw", Manifest())
    recorder = SyscallRecorder(bundle)
    recorder.start()
    child = os.fork()
    if child == 0:
        try:
            recorder.service()
            recorder.finish(Ledger())
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    pid, go = fork_waiting(["/bin/true"])
    recorder.follow(pid)
    os.write(go, b"x")
    os.close(go)
    wait_serving(pid, recorder)
    ledger = Ledger()
    recorder.finish(ledger)
    assert ledger["syscalls/kernel"].stored > 20
    assert [row.name for row in read_rows(bundle.events / "syscalls.arrow")][-1] == "exit_group"


def test_starting_leaves_no_descriptor_thread_or_limit_behind(tmp_path: Path) -> None:
    def state() -> tuple[int, int, str]:
        return (len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")),
                Path("/proc/self/limits").read_text())

    before = state()
    for index in range(3):
        recorder = SyscallRecorder(Bundle.create(tmp_path / f"{index}.ptw", Manifest()))
        recorder.start()
        assert recorder.fds()
        recorder.finish(Ledger())
        recorder.finish(Ledger())  # nothing to do any more
        recorder.close()
    assert state() == before


def test_the_doctor_s_checks_agree_with_what_works_here() -> None:
    checks = {check.name: check for check in probe()}
    assert checks["BTF"].ok
    assert checks["bpf system call"].ok
    assert all(check.remedy for check in checks.values() if not check.ok)


def test_a_bundle_that_exists_is_not_touched(tmp_path: Path) -> None:
    Bundle.create(tmp_path / "run.ptw", Manifest())
    with pytest.raises(BadInput):
        Bundle.create(tmp_path / "run.ptw", Manifest())
