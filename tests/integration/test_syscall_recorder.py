# SPDX-License-Identifier: MIT
"""The eBPF recorder on real programs, with strace in the same run as the witness."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from ptweave.data.syscall_table import NUMBERS, SYSCALLS, errno_name
from ptweave.wrapper.syscalls import Options, Variant
from support.bpf import Row, kernel_stream, needs_bpf, record
from support.compared import make_tree, program, record_under_strace
from support.programs import compile_program
from support.strace import Call

pytestmark = [pytest.mark.root, needs_bpf]

ENDING = ("exit", "exit_group")
VARIANTS = (Options(variant=Variant.TYPED), Options(variant=Variant.RAW))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tree(tmp_path_factory.mktemp("tree") / "tree")


def outcome_of_row(row: Row) -> object:
    """A result as strace tells it: a number, the name of an error, or None."""
    return None if row.result is None else errno_name(row.result) or row.result & (2**64 - 1)


def outcome_of_call(call: Call) -> object:
    return call.note.split()[0] if call.result == -1 and call.note else \
        None if call.result is None else call.result & (2**64 - 1)


def name_in_strace(row: Row) -> str:
    return f"syscall_{NUMBERS.get(row.name, int(row.name.removeprefix('syscall_'))):#x}" \
        if row.name.startswith("syscall_") else row.name


def was_cut(row: Row) -> bool:
    """A call that has no outcome and is not one that never has; or that ended while strace was told of it, before the
    kernel's own record of its begin: the kernel answers ENOSYS then."""
    skipped = row.t_enter == row.t_exit and outcome_of_row(row) == "ENOSYS"
    return (outcome_of_row(row) is None or skipped) and row.name not in ENDING


def drop_cut_ends(rows: list[Row], calls: list[Call]) -> None:
    """Leave out the last call of a thread that another one's exit ended as it began, where one of the two has not seen
    it."""
    for tid in {call.tid for call in calls}:
        ours, theirs = [row for row in rows if row.tid == tid], [call for call in calls if call.tid == tid]
        if len(ours) == len(theirs) + 1 and was_cut(ours[-1]):
            rows.remove(ours[-1])
        elif len(theirs) == len(ours) + 1 and outcome_of_call(theirs[-1]) is None and theirs[-1].name not in ENDING:
            calls.remove(theirs[-1])


@pytest.mark.parametrize(("ends", "result", "left"), [
    ("futex", None, 1), ("futex", 0, 2), ("exit_group", None, 2), ("exit", None, 2)])
def test_control_only_a_last_call_that_was_cut_is_left_out(ends: str, result: int | None, left: int) -> None:
    rows = [Row(1, 1, name, [], [], ends_with, 0, None, 0, [], []) for name, ends_with in (("read", 0), (ends, result))]
    calls = [Call(1, name, "", ends_with, "") for name, ends_with in (("read", 0), (ends, result))]
    only_ours, only_theirs = list(rows), list(calls)
    drop_cut_ends(only_ours, calls[:1])
    drop_cut_ends(rows[:1], only_theirs)
    assert (len(only_ours), len(only_theirs)) == (left, left)


@pytest.mark.parametrize(("result", "t_exit", "cut"), [(-38, 5, True), (-38, 6, False), (-1, 5, False)])
def test_control_of_calls_with_a_result_only_one_that_did_not_begin_was_cut(result: int, t_exit: int,
                                                                           cut: bool) -> None:
    assert was_cut(Row(1, 1, "futex", [], [], result, 5, t_exit, 0, [], [])) is cut


@pytest.mark.parametrize("options", VARIANTS, ids=lambda options: options.variant.value)
@pytest.mark.parametrize("name", ["ls", "shell", "python", "exec_from_thread", "vfork", "killed", "threads_at_exit",
                                  "restarted", "interrupted", "git", "gcc", "redis"])
def test_every_call_is_strace_s_with_its_arguments_and_its_result(name: str, options: Options, tree: Path,
                                                                 tmp_path: Path) -> None:
    cwd = tree if name in ("ls", "shell") else tmp_path
    _, rows, calls = record_under_strace(program(name, tmp_path), tmp_path, cwd, ["-e", "raw=all"], options)
    drop_cut_ends(rows, calls)
    assert Counter(name_in_strace(row) for row in rows) == Counter(call.name for call in calls)
    for tid in {call.tid for call in calls}:
        ours = [(row.name, tuple(row.args), outcome_of_row(row)) for row in rows if row.tid == tid]
        # rt_sigreturn: strace's raw result is 0 where the kernel gives back the register it restores
        theirs = [(call.name, tuple(call.raw_args), outcome_of_call(call)) for call in calls if call.tid == tid]
        assert [one[0] for one in ours] == [one[0] for one in theirs]
        if ours[-1][2] is None or theirs[-1][2] is None:
            # ended by another thread's exit within a call, or right behind it: strace may see one, we the other
            ours[-1], theirs[-1] = (*ours[-1][:2], None), (*theirs[-1][:2], None)
        assert [one for one in ours if one[0] != "rt_sigreturn"] == [one for one in theirs if one[0] != "rt_sigreturn"]


@pytest.mark.parametrize("name", ["ls", "shell", "python", "git", "gcc"])
def test_every_path_is_strace_s(name: str, tree: Path, tmp_path: Path) -> None:
    cwd = tree if name in ("ls", "shell") else tmp_path
    recorded, rows, calls = record_under_strace(program(name, tmp_path), tmp_path, cwd, ["-xx", "-s", "5000"])
    with_paths = {call.name: len(call.paths) for call in SYSCALLS.values() if call.paths}
    for tid in {call.tid for call in calls}:
        ours = [(row.name, row.paths) for row in rows if row.tid == tid and row.name in with_paths]
        theirs = [(call.name, call.strings[:with_paths[call.name]]) for call in calls
                  if call.tid == tid and call.name in with_paths]
        assert ours == theirs
    assert sum(call.name in with_paths for call in calls) > 40
    assert "unreadable" not in recorded.ledger["syscalls/kernel/paths"].lost


def test_paths_of_every_kind_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "cwd"
    folder.mkdir()
    recorded = record([compile_program(tmp_path, "path_calls")], tmp_path, cwd=folder)
    rows = [row for row in recorded.after_exec() if row.paths]
    names = [(row.name, *row.paths) for row in rows if row.name not in ("execve", "newfstatat", "openat")
             and row.paths != [b"/etc/ld.so.preload"]]
    long = [4094, 4095, 4096, 4096]  # the last two are too long for the kernel; of the last we keep the beginning
    assert names == [
        ("mkdir", b"folder"), ("rename", b"folder", b"renamed"), ("renameat2", b"renamed", b"again"),
        ("symlinkat", b"target", b"name"), ("linkat", b"name", b"second"), ("link", b"missing", b"third"),
        ("mount", b"none", b"/nowhere/at/all"), ("access", b"\xff\xfe name \x01"), ("access", b""),
        *[("access", b"p" * size) for size in long], ("link", b"p" * 4095, b"p" * 4095), ("utimensat", None),
        ("access", None), ("access", b"paged out"), ("link", b"paged out", b"present")]
    results = [errno_name(row.result or 0) for row in rows if row.name == "access" and row.paths[0]
               and row.paths[0].startswith(b"ppp")]
    assert results[2:] == ["ENAMETOOLONG", "ENAMETOOLONG"]
    assert recorded.ledger["syscalls/kernel/paths"].lost == {"truncated": 2}


def test_an_exec_s_path_is_known_though_its_page_was_not_there(tmp_path: Path) -> None:
    folder = tmp_path / "cwd"
    folder.mkdir()
    recorded = record([compile_program(tmp_path, "exec_paged_out"), "/bin/true"], tmp_path, cwd=folder)
    assert recorded.status == 0
    assert [row.paths for row in recorded.of("execve") if row.result == 0][-1] == [b"/bin/true"]


def test_a_killed_call_and_the_end_of_a_process_have_no_result(tmp_path: Path) -> None:
    recorded = record([compile_program(tmp_path, "process_ends"), "killed"], tmp_path)
    (pause,) = recorded.of("pause")
    assert (pause.result, pause.t_exit) == (None, None)
    (end,) = recorded.of("exit_group")
    assert (end.result, end.t_exit) == (None, None)


def test_a_refused_call_a_call_without_a_number_and_32_bit_calls_are_told_apart(tmp_path: Path) -> None:
    recorded = record([compile_program(tmp_path, "odd_calls")], tmp_path)
    assert recorded.status == 0
    (refused,) = recorded.of("unlink")
    assert (errno_name(refused.result or 0), refused.paths) == ("EPERM", [b"refused by seccomp"])
    assert refused.t_enter == refused.t_exit
    (unknown,) = recorded.of("syscall_9999")
    assert (unknown.args, errno_name(unknown.result or 0)) == ([1, 2, 3, 4, 5, 6], "ENOSYS")
    assert kernel_stream(recorded).lost == {"compat": 2}
    assert recorded.ledger.check() == []


@pytest.mark.parametrize("options", VARIANTS, ids=lambda options: options.variant.value)
def test_a_thousand_short_processes_are_all_followed(options: Options, tmp_path: Path) -> None:
    recorded = record([compile_program(tmp_path, "process_ends"), "many", "1000"], tmp_path, options)
    rows = recorded.after_exec()
    assert len([row for row in rows if row.name == "clone"]) == 1000
    assert len({row.pid for row in rows if row.name == "exit_group"}) == 1001
    assert "syscalls/kernel/tasks" not in recorded.ledger
    assert kernel_stream(recorded).total_lost == 0


def test_the_address_is_behind_the_instruction_that_made_the_call(tmp_path: Path) -> None:
    """Every call of a static region: the two bytes before it are `syscall`."""
    recorded = record(["/bin/true"], tmp_path)
    libc = Path("/lib/x86_64-linux-gnu/libc.so.6").read_bytes()
    bases = [(row.result or 0) - row.args[5] for row in recorded.after_exec()
             if row.name == "mmap" and row.args[2] & 4 and (row.result or 0) > 0]
    end = recorded.of("exit_group")[0].ip
    assert any(libc[end - base - 2:end - base] == b"\x0f\x05" for base in bases if 2 <= end - base < len(libc))


def test_a_process_outside_the_tree_is_not_recorded(tmp_path: Path) -> None:
    counter = compile_program(tmp_path, "syscall_count")
    outside: list[subprocess.Popen[bytes]] = []

    def run_another(_: int) -> None:
        outside.append(subprocess.Popen([counter, "2", "20000"], stdout=subprocess.DEVNULL))
        outside[0].wait()

    recorded = record([counter, "1", "50000"], tmp_path, during=run_another)
    assert {row.pid for row in recorded.rows} == {recorded.pid}
    assert len(recorded.of("getppid")) == 50000
    # the control: the same program, inside the tree, is there
    inside = record(["/bin/sh", "-c", f"{counter} 2 2000; true"], tmp_path, name="inside")
    assert len([row for row in inside.of("getppid") if row.pid != inside.pid]) == 4000
    assert len({row.pid for row in inside.rows}) == 2


def test_ls_of_the_documentation_has_the_counts_of_strace_c(tmp_path: Path) -> None:
    """Two runs of their own. Both begin with the exec; strace -c counts no call that has no end (exit_group)."""
    words = ["/bin/ls", "-lR", "/usr/share/doc"]
    summary = tmp_path / "summary"
    subprocess.run(["/usr/bin/strace", "-f", "-c", "-U", "calls,name", "-o", summary, *words],
                   stdout=subprocess.DEVNULL, check=True)
    counted = Counter({line.split()[1]: int(line.split()[0]) for line in summary.read_text().splitlines()
                       if line.split() and line.split()[0].isdigit() and line.split()[1] != "total"})
    recorded = record(words, tmp_path)
    ours = Counter(row.name for row in recorded.after_exec())
    assert ours.pop("exit_group") == 1
    counted.pop("exit_group", None)
    # which shared objects and locale files are mapped is the same; only the heap's size may differ by a step
    assert {name: count for name, count in ours.items() if name != "brk"} == \
        {name: count for name, count in counted.items() if name != "brk"}
    assert abs(ours["brk"] - counted["brk"]) <= 2
    assert sum(ours.values()) > 1000


def test_the_tree_is_listed_with_its_names_that_are_no_utf8(tree: Path, tmp_path: Path) -> None:
    recorded = record(["/bin/ls", "-lR", "."], tmp_path, cwd=tree)
    opened = {row.paths[0] for row in recorded.of("openat")}
    assert b"./bad\xff" in opened
    assert "./outer 0/inner-ä0".encode() in opened


def test_what_is_needed_to_compare_is_here() -> None:
    assert shutil.which("strace") == "/usr/bin/strace"
    assert sys.platform == "linux"
