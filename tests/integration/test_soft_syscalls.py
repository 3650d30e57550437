# SPDX-License-Identifier: MIT
"""System calls of programs that run under the soft engine: its log and the kernel's record, recorded and joined."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ptweave.data.bundle import Bundle
from ptweave.data.ledger import Ledger
from ptweave.data.manifest import Manifest
from ptweave.data.syscall_table import SYSCALLS
from ptweave.decode.syscalls import decode_syscalls
from ptweave.wrapper.syscalls import SyscallRecorder
from support.bpf import fork_waiting, needs_bpf, record
from support.clocks import moment
from support.programs import compile_program
from support.sysfiles import decoded

soft = pytest.importorskip("ptweave.wrapper.soft", reason="the soft engine is not part of this tree")
tasks = pytest.importorskip("ptweave.wrapper.tasks", reason="the soft engine is not part of this tree")

pytestmark = [pytest.mark.root, needs_bpf]

_WITH_PATHS = {call.name for call in SYSCALLS.values() if call.paths}


def record_soft(words: list[str | Path], folder: Path, *, bpf: bool = True, cwd: Path | None = None) -> Bundle:
    """Run a program to its end under the engine, with the recorder beside it; nothing is decoded yet."""
    argv = [str(word) for word in words]
    bundle = Bundle.create(folder / "soft.ptw", Manifest(command=argv, engine="soft"))
    spool_folder = folder / "spool"
    spool_folder.mkdir(mode=0o700)
    clocks = bundle.manifest.clocks
    clocks.tsc0, clocks.t0_ns = moment()
    spool = soft.Spool(bundle, spool_folder, tasks.TaskRegistry())
    command, extra = soft.SoftEngine().command(argv, spool_folder)
    recorder = SyscallRecorder(bundle)
    if bpf:
        recorder.start()
    pid, go = fork_waiting(command, {**os.environ, **extra}, cwd=cwd, stdout=Path("/dev/null"))
    if bpf:
        recorder.follow(pid)
    os.write(go, b"x")
    os.close(go)
    done = status = 0
    while not done:
        time.sleep(0.02)
        spool.poll()
        recorder.service()
        done, status = os.waitpid(pid, os.WNOHANG)
    ledger = Ledger()
    recorder.finish(ledger)
    clocks.tsc1, clocks.t1_ns = moment()
    spool.exited(pid, status)
    spool.poll()
    spool.finish(ledger)
    bundle.save_manifest()
    bundle.save_ledger(ledger)
    assert status == 0
    return bundle


def decode(bundle: Bundle) -> list[dict[str, Any]]:
    decode_syscalls(bundle)
    assert bundle.ledger().check() == []
    return decoded(bundle)


def test_exactly_the_program_s_calls_are_there(tmp_path: Path) -> None:
    threads, rounds = 3, 2000
    bundle = record_soft([compile_program(tmp_path, "syscall_count"), str(threads), str(rounds)], tmp_path)
    rows = decode(bundle)
    counts = Counter(row["name"] for row in rows)
    assert counts["getppid"] == threads * rounds
    assert len([row for row in rows if row["name"] == "write" and row["args"][2] == 64]) == threads * rounds
    assert len([row for row in rows if row["name"] == "read" and row["args"][2] == 64]) == threads * rounds
    assert {row["source"] for row in rows if row["name"] in ("getppid", "read", "write")} == {"both"}
    assert counts["exit_group"] == 1
    ledger = bundle.ledger()
    assert ledger["syscalls/joined"].lost == {}
    kernel = ledger["syscalls/kernel"]
    assert kernel.stored == ledger["syscalls/joined"].stored + ledger["syscalls/engine_own"].stored
    assert ledger["syscalls/engine_own"].stored > 500  # the control: there was something to leave out


def test_paths_and_results_are_those_of_the_program_run_natively(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for name in ("a", "b/c", "b/d"):
        (tree / name).mkdir(parents=True)
        (tree / name / "file").write_text("text")

    words: list[str | Path] = ["/bin/ls", "-lR", "."]
    native = record([str(word) for word in words], tmp_path, cwd=tree).after_exec()
    ours = decode(record_soft(words, tmp_path, cwd=tree))
    expected = [(row.name, [None if path is None else path.decode() for path in row.paths], row.result)
                for row in native if row.name in _WITH_PATHS]
    got = [(row["name"], row["paths"], row["result"]) for row in ours if row["name"] in _WITH_PATHS]
    begin = [path for _, path, _ in expected].index(["."])
    assert got[[path for _, path, _ in got].index(["."]):] == expected[begin:]
    assert len(expected) - begin > 10


def test_a_pipeline_of_processes_is_joined_process_by_process(tmp_path: Path) -> None:
    rows = decode(record_soft(["/bin/sh", "-c", "/bin/echo one | /bin/cat; exec /bin/true"], tmp_path))
    execs = {row["paths"][0] for row in rows if row["name"] == "execve" and row["result"] == 0}
    assert execs == {"/bin/echo", "/bin/cat", "/bin/true"}
    assert all(row["thread"] is not None for row in rows)
    for thread in {row["thread"] for row in rows}:
        assert [row["index"] for row in rows if row["thread"] == thread] == \
            list(range(len([row for row in rows if row["thread"] == thread])))
        # exit_group ends every process, and nothing of the engine's comes after
        assert [row["name"] for row in rows if row["thread"] == thread][-1] == "exit_group"


def test_where_the_kernel_may_not_be_asked_the_log_is_all(tmp_path: Path) -> None:
    bundle = record_soft([compile_program(tmp_path, "syscall_count"), "2", "500"], tmp_path, bpf=False)
    rows = decode(bundle)
    assert Counter(row["name"] for row in rows)["getppid"] == 1000
    assert {row["source"] for row in rows} == {"engine"}
    assert {path for row in rows for path in row["paths"]} == {None}
    assert bundle.ledger().losses == []
