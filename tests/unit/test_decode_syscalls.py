# SPDX-License-Identifier: MIT
"""Joining the engine's log with the kernel's record, on inputs whose join is known."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ptweave.data.bundle import Bundle
from ptweave.data.errors import BadInput
from ptweave.data.schemas import RAW_SYSCALLS_1
from ptweave.data.sideband import SidebandKind, read_sideband, write_sideband
from ptweave.data.syscall_table import NUMBERS
from ptweave.decode import syscalls
from ptweave.decode.raw_syscalls import MemoryStore, Numbers
from ptweave.decode.syscalls import decode_syscalls
from support.sysfiles import (
    ANSWERED,
    RESTARTED,
    KernelRow,
    Life,
    LoggedCall,
    Run,
    decoded,
    make_bundle,
    recording_batch,
    write_files,
)

OPENAT, READ, GETPPID, EXECVE = NUMBERS["openat"], NUMBERS["read"], NUMBERS["getppid"], NUMBERS["execve"]
EXIT, CLONE = NUMBERS["exit"], NUMBERS["clone"]
EXIT_GROUP, WRITE, BRK, RENAME, FUTEX = (NUMBERS[name] for name in ("exit_group", "write", "brk", "rename", "futex"))
US = 1000
MS = 1_000_000


def decode(folder: Path, run: Run) -> list[dict[str, Any]]:
    bundle = make_bundle(folder, run)
    count = decode_syscalls(bundle)
    rows = decoded(bundle)
    assert count == len(rows)
    ledger = bundle.ledger()
    assert ledger["syscalls"].stored == count
    assert ledger.check() == []
    return rows


def test_a_call_in_both_has_the_logs_result_and_the_kernels_path_and_times(tmp_path: Path) -> None:
    run = Run(
        logs={0: [LoggedCall(OPENAT, 10 * US, 20 * US, (5, 0x1000, 0, 0), result=3)]},
        rows=[KernelRow(OPENAT, 12 * US, 15 * US, (5, 0x1000, 0, 0), result=3, paths=[b"/etc/passwd"])])
    assert decode(tmp_path, run) == [{
        "thread": 0, "index": 0, "pid": 100, "tid": 100, "t_enter": 12 * US, "t_exit": 15 * US, "number": OPENAT,
        "name": "openat", "args": [5, 0x1000, 0, 0], "paths": ["/etc/passwd"], "files": [None, None, None],
        "data": [], "result": 3, "errno": None, "ip": 0x401000, "source": "both"}]


def test_files_and_captures_come_with_the_kernels_row(tmp_path: Path) -> None:
    capture = {"argument": 1, "kind": 4, "part": 0, "when": 1, "size": 4096, "data": b"head"}
    run = Run(logs={0: [LoggedCall(READ, 10 * US, 20 * US, (3, 0x1000, 4096), result=4096),
                        LoggedCall(GETPPID, 30 * US, 31 * US, flags=ANSWERED)]},
              rows=[KernelRow(READ, 12 * US, 15 * US, (3, 0x1000, 4096), result=4096, files=(7, 0, 8),
                              captures=[capture])])
    bundle = make_bundle(tmp_path, run)
    write_files(bundle.events / "files.arrow", {7: b"/tmp/\xff", 9: b"/other"})
    decode_syscalls(bundle)
    read, getppid = decoded(bundle)
    assert read["files"] == ["/tmp/\\xff", None, None]  # of id 8 there is no definition: it was lost
    assert read["data"] == [capture]
    assert (getppid["files"], getppid["data"]) == (None, None)


def test_a_recording_of_the_first_version_is_read(tmp_path: Path) -> None:
    row = KernelRow(OPENAT, 12 * US, 15 * US, (5, 0x1000, 0, 0), result=3, paths=[b"/etc/passwd"])
    bundle = make_bundle(tmp_path, Run(logs={0: [LoggedCall(OPENAT, 10 * US, 20 * US, (5, 0x1000, 0, 0), result=3)]},
                                       rows=[row]))
    with pa.OSFile(str(bundle.events / "syscalls.arrow"), "wb") as sink, \
            pa.ipc.new_stream(sink, RAW_SYSCALLS_1) as writer:
        writer.write_batch(recording_batch([row]).select(RAW_SYSCALLS_1.names).replace_schema_metadata(
            RAW_SYSCALLS_1.metadata))
    decode_syscalls(bundle)
    (found,) = decoded(bundle)
    assert (found["paths"], found["files"], found["source"]) == (["/etc/passwd"], [None, None, None], "both")


def test_the_engines_own_calls_are_left_out_and_counted(tmp_path: Path) -> None:
    run = Run(
        logs={0: [LoggedCall(READ, 10 * US, 20 * US, (3, 0x2000, 100), result=100)]},
        rows=[KernelRow(READ, 5 * US, 6 * US, (9, 0x9000, 100), result=1),  # before
              KernelRow(READ, 11 * US, 12 * US, (9, 0x9000, 1), result=1),  # inside, other arguments
              KernelRow(READ, 13 * US, 14 * US, (3, 0x2000, 100), result=100),
              KernelRow(FUTEX, 15 * US, 16 * US),
              KernelRow(READ, 3 * MS, 3 * MS + 9, (3, 0x2000, 100), result=0)])  # after, same arguments
    bundle = make_bundle(tmp_path, run)
    assert decode_syscalls(bundle) == 1
    (row,) = decoded(bundle)
    assert (row["source"], row["t_enter"], row["result"]) == ("both", 13 * US, 100)
    assert bundle.ledger()["syscalls/engine_own"].stored == 4
    assert bundle.ledger()["syscalls/joined"].stored == 1


def test_without_the_log_the_engines_own_calls_would_be_there(tmp_path: Path) -> None:
    """The control: it is the join that leaves them out."""
    run = Run(rows=[KernelRow(READ, 5 * US, 6 * US, (9, 0x9000, 100), result=1), KernelRow(FUTEX, 15 * US, 16 * US)])
    assert [row["source"] for row in decode(tmp_path, run)] == ["kernel", "kernel"]


def test_what_the_engine_answered_itself_is_never_the_kernels(tmp_path: Path) -> None:
    run = Run(
        logs={0: [LoggedCall(BRK, 10 * US, 20 * US, (0,), result=0x5000, flags=ANSWERED)]},
        rows=[KernelRow(BRK, 12 * US, 13 * US, (0,), result=0x7000)])
    (row,) = decode(tmp_path, run)
    assert (row["source"], row["result"], row["paths"]) == ("engine", 0x5000, [])


def test_a_log_alone_gives_every_call_with_null_paths(tmp_path: Path) -> None:
    run = Run(logs={0: [LoggedCall(RENAME, 10 * US, 20 * US, (1, 2), result=-2),
                        LoggedCall(GETPPID, 30 * US, 40 * US, result=7),
                        LoggedCall(EXIT_GROUP, 50 * US, None, (3,))]})
    rows = decode(tmp_path, run)
    assert [row["source"] for row in rows] == ["engine"] * 3
    assert rows[0]["paths"] == [None, None]
    assert (rows[0]["errno"], rows[0]["result"]) == ("ENOENT", -2)
    assert (rows[1]["t_enter"], rows[1]["t_exit"], rows[1]["pid"]) == (30 * US, 40 * US, 100)
    assert (rows[2]["t_exit"], rows[2]["result"], rows[2]["args"]) == (None, None, [3])


def test_a_record_alone_gives_every_call_and_the_instructions_own_address(tmp_path: Path) -> None:
    run = Run(rows=[KernelRow(RENAME, 10, 20, (1, 2), paths=[b"/a", None]), KernelRow(EXIT_GROUP, 30, None, (3,)),
                    KernelRow(9999, 40, 50, (1, 2, 3, 4, 5, 6), result=-38, tid=7, pid=7)])
    rows = decode(tmp_path, run)
    assert [(row["thread"], row["index"]) for row in rows] == [(0, None), (0, None), (None, None)]
    assert rows[0]["paths"] == ["/a", None]
    assert rows[0]["ip"] == 0x401000
    assert rows[1]["result"] is None
    assert (rows[2]["name"], rows[2]["errno"], rows[2]["args"]) == ("syscall_9999", "ENOSYS", [1, 2, 3, 4, 5, 6])


def test_an_exec_that_succeeded_has_the_kernels_end_and_the_path_the_engine_looked_up(tmp_path: Path) -> None:
    run = Run(
        logs={0: [LoggedCall(EXECVE, 10 * US, None, (0x1000, 2, 3), flags=ANSWERED),
                  LoggedCall(GETPPID, 100 * US, 110 * US)]},
        rows=[KernelRow(OPENAT, 11 * US, 12 * US, (5, 0x1000, 0, 0), result=9, paths=[b"./prog"]),
              KernelRow(EXECVE, 20 * US, 60 * US, (0x9999, 8, 9), paths=[b"/lib/engine"]),
              KernelRow(GETPPID, 102 * US, 103 * US)],
        execs=[(100, 70 * US)])
    first, second = decode(tmp_path, run)
    assert (first["source"], first["result"], first["t_exit"], first["paths"]) == ("engine", 0, 60 * US, ["./prog"])
    assert second["source"] == "both"


def test_calls_of_a_program_that_runs_without_the_engine_are_the_kernels(tmp_path: Path) -> None:
    run = Run(
        logs={0: [LoggedCall(EXECVE, 10 * US, None, (0x1000, 2, 3))]},
        rows=[KernelRow(BRK, 9 * US, 9 * US + 1),
              KernelRow(EXECVE, 20 * US, 60 * US, (0x1000, 2, 3), paths=[b"/bin/su"]),
              KernelRow(GETPPID, 102 * US, 103 * US), KernelRow(EXIT_GROUP, 110 * US, None)])
    rows = decode(tmp_path, run)
    assert [(row["name"], row["source"]) for row in rows] == [
        ("execve", "both"), ("getppid", "kernel"), ("exit_group", "kernel")]
    assert rows[0]["paths"] == ["/bin/su"]


@pytest.mark.parametrize(("path", "lost", "left"), [
    (b"/proc/thread-self/exe", {}, ["execve"]),
    (b"/bin/su", {}, ["execve", "getppid"]),  # the control: that runs without the engine
    (b"/proc/thread-self/exe", {"what it executed left no file": 1}, ["execve", "getppid"]),  # it may have gone on
    ], ids=["engine", "another program", "no file"])
def test_what_the_engine_did_in_an_exec_it_was_killed_in_is_none_of_the_programs(
        tmp_path: Path, path: bytes, lost: dict[str, int], left: list[str]) -> None:
    bundle = make_bundle(tmp_path, Run(
        logs={0: [LoggedCall(EXECVE, 10 * US, None, (0x1000, 2, 3))]},
        rows=[KernelRow(EXECVE, 20 * US, 60 * US, (0x1000, 2, 3), paths=[path]),
              KernelRow(GETPPID, 102 * US, 103 * US)]))
    assert decode_with(bundle, lost) == left


def decode_with(bundle: Bundle, lost: dict[str, int]) -> list[str]:
    """The names of the calls, in a recording that lost these processes."""
    ledger = bundle.ledger()
    ledger.add("processes", "images", stored=1, lost=lost)
    bundle.save_ledger(ledger)
    decode_syscalls(bundle)
    return [row["name"] for row in decoded(bundle)]


def killed_at_once(child: int = 200) -> list[KernelRow]:
    """Task 100 makes a process, of which nothing but the engine's first calls is there."""
    return [KernelRow(GETPPID, 11 * US, 12 * US, pid=child, tid=child),
            KernelRow(CLONE, 10 * US, 20 * US, (17,), result=200),
            KernelRow(GETPPID, 30 * US, 31 * US, pid=child, tid=child)]


FORKS = {0: [LoggedCall(CLONE, 9 * US, 21 * US, (17,), result=200)]}


@pytest.mark.parametrize(("rows", "lost", "left"), [
    (killed_at_once(), {}, ["clone"]),
    (killed_at_once(201), {}, ["clone", "getppid", "getppid"]),  # nobody the engine ran made that one
    (killed_at_once(), {"no file could be made for it": 1}, ["clone", "getppid", "getppid"]),  # it may have gone on
    ], ids=["child", "stranger", "no file"])
def test_what_the_engine_did_in_a_child_that_was_killed_at_once_is_none_of_the_programs(
        tmp_path: Path, rows: list[KernelRow], lost: dict[str, int], left: list[str]) -> None:
    assert decode_with(make_bundle(tmp_path, Run(logs=FORKS, rows=rows)), lost) == left


def test_a_child_of_a_program_that_runs_without_the_engine_has_calls_of_its_own(tmp_path: Path) -> None:
    run = Run(logs={0: [LoggedCall(EXECVE, 10 * US, None, (0x1000, 2, 3))]},
              rows=[KernelRow(EXECVE, 11 * US, 12 * US, (0x1000, 2, 3), paths=[b"/bin/su"]),
                    KernelRow(CLONE, 20 * US, 30 * US, (17,), result=200),
                    KernelRow(GETPPID, 25 * US, 26 * US, pid=200, tid=200)])
    assert [row["name"] for row in decode(tmp_path, run)] == ["execve", "clone", "getppid"]


def test_a_number_used_again_is_the_one_that_made_it_last(tmp_path: Path) -> None:
    """First a child that was killed at once, then one of a task that nobody ran under the engine."""
    rows = [*killed_at_once(), KernelRow(CLONE, 50 * US, 60 * US, (17,), result=200, pid=300, tid=300),
            KernelRow(BRK, 55 * US, 56 * US, pid=200, tid=200)]
    assert [row["name"] for row in decode(tmp_path, Run(logs=FORKS, rows=rows))] == ["clone", "clone", "brk"]


def test_in_another_pid_namespace_no_child_is_taken_for_one_that_was_killed(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path, Run(logs=FORKS, rows=killed_at_once()))
    rows = read_sideband(bundle.sideband).to_pylist()
    rows.append({"kind": SidebandKind.PROCESS, "tsc": 1 << 40, "pid": 1, "tid": 1, "space": 1, "detail": "fork",
                 "value": 0, "path": "/bin/other"})  # its parent has no number where it has 1
    write_sideband(bundle.sideband, rows)
    assert decode_with(bundle, {}) == ["clone", "getppid", "getppid"]


def test_an_interrupted_call_shows_how_the_kernel_left_it(tmp_path: Path) -> None:
    run = Run(
        logs={0: [LoggedCall(READ, 10 * US, None, (0, 1, 2), flags=RESTARTED),
                  LoggedCall(READ, 50 * US, 90 * US, (0, 1, 2), result=2)]},
        rows=[KernelRow(READ, 11 * US, 30 * US, (0, 1, 2), result=-512),
              KernelRow(READ, 51 * US, 80 * US, (0, 1, 2), result=2)])
    first, second = decode(tmp_path, run)
    assert (first["errno"], first["t_exit"]) == ("ERESTARTSYS", 30 * US)
    assert (second["result"], second["t_enter"]) == (2, 51 * US)


def test_the_end_of_a_process_is_found_although_the_engine_ends_it_in_its_own_way(tmp_path: Path) -> None:
    run = Run(
        logs={0: [LoggedCall(EXIT_GROUP, 10 * US, None, (3, 77, 88), flags=ANSWERED)]},
        rows=[KernelRow(EXIT_GROUP, 500 * US, None, (3,))])
    (row,) = decode(tmp_path, run)
    assert (row["source"], row["t_enter"], row["result"]) == ("both", 500 * US, None)


def test_an_exec_s_path_is_found_among_thousands_of_calls_without_looking_at_the_paths_of_all(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the engine does while it begins is in the exec's time."""
    looked: list[int] = []
    paths = MemoryStore.paths

    def look(store: MemoryStore, ordinals: Numbers) -> list[list[bytes | None]]:
        looked.extend(ordinals.tolist())
        return paths(store, ordinals)

    monkeypatch.setattr(MemoryStore, "paths", look)
    own = [KernelRow(OPENAT, (21 + number) * US, (21 + number) * US + 1, (5, 0x7000 + number, 0, 0), paths=[b"/own"])
           for number in range(3000)]
    run = Run(
        logs={0: [LoggedCall(EXECVE, 10 * US, None, (0x1000, 2, 3), flags=ANSWERED),
                  LoggedCall(GETPPID, 9000 * US, 9001 * US)]},
        rows=[KernelRow(OPENAT, 11 * US, 12 * US, (5, 0x1000, 0, 0), result=9, paths=[b"./prog"]),
              KernelRow(EXECVE, 20 * US, 5000 * US, (0x9999, 8, 9), paths=[b"/lib/engine"]), *own],
        execs=[(100, 70 * US)])
    assert decode(tmp_path, run)[0]["paths"] == ["./prog"]
    assert len(looked) == 1


def test_paths_that_are_no_utf8_are_shown_with_their_bytes(tmp_path: Path) -> None:
    run = Run(rows=[KernelRow(OPENAT, 10, 20, (0, 1), paths=[b"/tmp/\xff\xc3\xa4"]),
                    KernelRow(OPENAT, 30, 40, (0, 1), paths=[b"/tmp/\xc3\xa4"])])
    assert [row["paths"] for row in decode(tmp_path, run)] == [["/tmp/\\xffä"], ["/tmp/ä"]]


def test_a_tid_used_again_is_another_thread(tmp_path: Path) -> None:
    lives = [Life(0, tid=100, begin=10 * MS, end=20 * MS), Life(1, tid=100, begin=50 * MS)]
    times = [5, 15, 21, 45, 60]  # ms: before, in, just after, between, in the second life
    run = Run(rows=[KernelRow(GETPPID, time * MS, time * MS + 1) for time in times], lives=lives)
    rows = decode(tmp_path, run)
    assert [(row["thread"], row["t_enter"] // MS) for row in rows] == [(0, 5), (0, 15), (0, 21), (1, 45), (1, 60)]


def test_threads_are_joined_each_with_its_own_log(tmp_path: Path) -> None:
    run = Run(
        logs={0: [LoggedCall(WRITE, 10 * US, 20 * US, (1, 2, 3), result=3)],
              1: [LoggedCall(WRITE, 10 * US, 20 * US, (1, 2, 3), result=3)]},
        rows=[KernelRow(WRITE, 12 * US, 13 * US, (1, 2, 3), result=3, tid=101),
              KernelRow(WRITE, 14 * US, 15 * US, (1, 2, 3), result=3, tid=100)],
        lives=[Life(0, tid=100), Life(1, tid=101)])
    assert [(row["thread"], row["t_enter"]) for row in decode(tmp_path, run)] == [(0, 14 * US), (1, 12 * US)]


def went_on(leaves: int) -> Run:
    """Thread 0 begins as task 101, clones task 102 and leaves; as 102 it goes on at once, and makes the same calls."""
    before = [LoggedCall(GETPPID, 10 * US, 11 * US, (), result=1), LoggedCall(EXIT, leaves * US, 0)]
    after = [LoggedCall(WRITE, (30 + n) * US, (30 + n) * US + 800, (1, 2, 3), result=3) for n in range(40)]
    rows = [KernelRow(WRITE, (30 + n) * US + 100, (30 + n) * US + 700, (1, 2, 3), result=3, tid=102) for n in range(40)]
    rows += [KernelRow(GETPPID, 10 * US + 100, 10 * US + 300, result=1, tid=101)]
    return Run(logs={0: [*before, *after]}, rows=sorted(rows, key=lambda row: row.exit or row.enter),
               lives=[Life(0, tid=101), Life(0, tid=102, begin=25 * US)])


@pytest.mark.parametrize("leaves", [20, 50, 20_000])
def test_a_thread_that_goes_on_as_another_task_has_all_its_calls(tmp_path: Path, leaves: int) -> None:
    """However long the task takes to end that it was before."""
    rows = decode(tmp_path, went_on(leaves))
    assert [row["index"] for row in rows] == list(range(42)) and {row["thread"] for row in rows} == {0}
    assert [row["source"] for row in rows] == ["both", "engine", *["both"] * 40]
    assert [row["tid"] for row in rows][2:] == [102] * 40 and rows[0]["tid"] == 101


@pytest.mark.parametrize(("flags", "lost"), [(RESTARTED, {}), (0, {"no_kernel_row": 1})])
def test_a_call_that_a_signal_kept_from_the_kernel_and_that_is_made_again_lacks_no_row(
        tmp_path: Path, flags: int, lost: dict[str, int]) -> None:
    """The control: a call that was not made again does."""
    calls = [LoggedCall(WRITE, 10 * US, None, (1, 2, 3), flags=flags),
             LoggedCall(WRITE, 50 * US, 90 * US, (1, 2, 3), result=3)]
    bundle = make_bundle(tmp_path, Run(logs={0: calls}, rows=[KernelRow(WRITE, 51 * US, 89 * US, (1, 2, 3), result=3)]))
    decode_syscalls(bundle)
    assert [(row["source"], row["result"]) for row in decoded(bundle)] == [("engine", None), ("both", 3)]
    assert bundle.ledger()["syscalls/joined"].lost == lost


@pytest.mark.parametrize(("exit_", "lost"), [(0, {}), (31 * US, {"no_kernel_row": 1})])
def test_a_call_that_its_task_was_killed_before_lacks_no_row(tmp_path: Path, exit_: int, lost: dict[str, int]) -> None:
    """The control: a last call that returned does."""
    calls = [LoggedCall(GETPPID, 10 * US, 11 * US), LoggedCall(GETPPID, 30 * US, exit_)]
    bundle = make_bundle(tmp_path, Run(logs={0: calls}, rows=[KernelRow(GETPPID, 10 * US + 100, 10 * US + 300)]))
    decode_syscalls(bundle)
    assert bundle.ledger()["syscalls/joined"].lost == lost


@pytest.mark.parametrize("apart", [-3 * MS, -200 * US, 0, 200 * US, 3 * MS])
def test_clocks_that_are_apart_are_found_out(tmp_path: Path, apart: int) -> None:
    begin = 10 * MS
    calls = [LoggedCall(GETPPID if index % 3 else WRITE, begin + index * 4 * US, begin + index * 4 * US + 2 * US,
                        () if index % 3 else (1, index, 0)) for index in range(300)]
    rows = [KernelRow(call.number, call.enter + apart + 500, call.enter + apart + 900, call.args) for call in calls]
    got = decode(tmp_path, Run(logs={0: calls}, rows=rows))
    assert [row["t_enter"] for row in got] == [row.enter for row in rows]


def test_rows_the_recorder_lost_leave_their_neighbours_in_place(tmp_path: Path) -> None:
    begin = 10 * MS
    calls = [LoggedCall(GETPPID, begin + index * 4 * US, begin + index * 4 * US + 2 * US) for index in range(300)]
    kept = [index for index in range(300) if not 100 <= index < 180]
    rows = [KernelRow(GETPPID, calls[index].enter + 500, calls[index].enter + 900) for index in kept]
    bundle = make_bundle(tmp_path, Run(logs={0: calls}, rows=rows))
    decode_syscalls(bundle)
    got = decoded(bundle)
    assert [row["index"] for row in got if row["source"] == "both"] == kept
    assert bundle.ledger()["syscalls/joined"].lost == {"no_kernel_row": 80}


def test_a_recording_cut_off_in_the_middle_is_read_to_its_last_whole_batch(tmp_path: Path) -> None:
    rows = [KernelRow(GETPPID, index * US, index * US + 1) for index in range(1, 71)]
    bundle = make_bundle(tmp_path, Run(rows=rows))
    path = bundle.events / "syscalls.arrow"
    whole = path.read_bytes()
    counts, cut = set(), 0
    for size in [*range(0, len(whole), 37), len(whole)]:
        path.write_bytes(whole[:size])
        try:
            counts.add(decode_syscalls(bundle))
            ledger = bundle.ledger()
            cut += "syscalls/recording" in ledger and ledger["syscalls/recording"].total_lost
        except BadInput:
            assert size < 1500  # not even the schema is there
    assert counts == set(range(0, 71, 7))
    assert cut > len(whole) // 37 // 2
    assert "syscalls/recording" not in bundle.ledger() or bundle.ledger()["syscalls/recording"].total_lost == 0


def test_what_is_no_recording_is_refused(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path, Run(rows=[]))
    (bundle.events / "syscalls.arrow").write_bytes(b"no arrow at all" * 100)
    with pytest.raises(BadInput, match=r"syscalls\.arrow"):
        decode_syscalls(bundle)
    assert not (bundle.decoded / "syscalls.parquet").exists()
    assert list(bundle.decoded.iterdir()) == []


def test_decoding_again_gives_the_same_account(tmp_path: Path) -> None:
    run = Run(logs={0: [LoggedCall(GETPPID, 10 * US, 20 * US)]},
              rows=[KernelRow(GETPPID, 12 * US, 13 * US), KernelRow(FUTEX, 30 * US, 31 * US)])
    bundle = make_bundle(tmp_path, run)
    decode_syscalls(bundle)
    first = bundle.ledger().to_json()
    decode_syscalls(bundle)
    assert bundle.ledger().to_json() == first


def test_absurd_times_and_values_in_a_log_do_no_harm(tmp_path: Path) -> None:
    huge = 2**62
    run = Run(
        logs={0: [LoggedCall(2**32 - 1, 5, huge, [2**64 - 1] * 6, result=-2**63),
                  LoggedCall(GETPPID, huge, 1), LoggedCall(GETPPID, 0, huge)]},
        rows=[KernelRow(-1, -2**63, 2**63 - 1), KernelRow(GETPPID, 2**63 - 1, -2**63)])
    assert len(decode(tmp_path, run)) == 3


# --- any run ---------------------------------------------------------------------------------------------------------


@dataclass
class Expected:
    source: str
    path: str | None
    result: int


@dataclass
class Scene:
    run: Run
    expected: dict[int, list[Expected]]
    own: int


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    """Threads under the engine: program calls, asked or answered, and the engine's own calls anywhere around them."""
    run = Run(rows=[], lives=[])
    scene = Scene(run, {}, 0)
    rows: list[KernelRow] = []
    mark = 0
    for thread in range(draw(st.integers(1, 3))):
        tid = 100 + thread
        run.lives.append(Life(thread, tid=tid))
        now = MS
        calls, expected = [], []

        def own(at: int, room: int, tid: int = tid) -> int:
            """Some calls of the engine's; returns when they are over."""
            nonlocal mark
            for _ in range(draw(st.integers(0, 3))):
                mark += 1
                rows.append(KernelRow(draw(st.sampled_from([OPENAT, EXECVE, GETPPID + 1])), at, at + 200,
                                      (7, 1 << 40 | mark, 0, 0), tid=tid, paths=[b"/own"], result=-2))
                at += 200 + draw(st.integers(1, room))
                scene.own += 1
            return at

        for _ in range(draw(st.integers(0, 25))):
            now = own(now, 2 * US) + draw(st.integers(1, 20 * US))
            mark += 1
            path = f"/p/{mark}"
            args = (7, draw(st.integers(1, 3)), mark if draw(st.booleans()) else 0, 0)
            answered = draw(st.booleans())
            result = draw(st.integers(-3, 100))
            call = LoggedCall(OPENAT, now, None, args, result=result, flags=ANSWERED if answered else 0)
            now = own(now + draw(st.integers(100, 5 * US)), US)
            if not answered:
                end = now + draw(st.integers(50, 100 * US))
                rows.append(KernelRow(OPENAT, now, end, args, result, [path.encode()], tid=tid))
                now = end + draw(st.integers(100, US))
            now = own(now, US) + 100
            call.exit = now
            calls.append(call)
            expected.append(Expected("engine" if answered else "both", None if answered else path, result))
            now += draw(st.integers(100, 50 * US))
        own(now, US)
        run.logs[thread] = calls
        scene.expected[thread] = expected
    run.rows = sorted(rows, key=lambda row: row.exit or 0)
    return scene


@pytest.fixture(params=[1 << 17, 5])
def block_size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(syscalls, "_BLOCK", request.param)
    yield request.param


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture,
                                                                 HealthCheck.too_slow])
@given(scene=scenes())
def test_in_any_run_no_call_of_the_engine_leaks_and_no_call_of_the_program_is_missing(
        scene: Scene, tmp_path: Path, block_size: int) -> None:
    shutil.rmtree(tmp_path / "run.ptw", ignore_errors=True)
    bundle = make_bundle(tmp_path, scene.run)
    decode_syscalls(bundle)
    got: dict[int, list[Expected]] = {thread: [] for thread in scene.expected}
    for row in decoded(bundle):
        assert row["index"] == len(got[row["thread"]])
        got[row["thread"]].append(Expected(row["source"], row["paths"][0], row["result"]))
    assert got == scene.expected
    ledger = bundle.ledger()
    assert (("syscalls/engine_own" in ledger and ledger["syscalls/engine_own"].stored) or 0) == scene.own
    assert ledger.losses == []
