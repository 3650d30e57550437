# SPDX-License-Identifier: MIT
"""The whole way from a program to the tables is exact: what is stored is what ran, instruction by instruction.

The oracle is the engine's own log of every executed instruction, which knows nothing of packets; that log itself is
held to a native ptrace single-step log elsewhere. The addresses compared here come out of the stored tables: flow,
paths, blocks, expanded to instructions.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from ptweave.data import Clocks
from ptweave.data.sideband import read_sideband
from ptweave.decode.expand import Expansion, instruction_hash
from ptweave.decode.flow import decode_flow
from ptweave.preload import library_path
from support.command import compile_c
from support.engine import PROGRAMS, Ran, Recording, record_all
from support.inputs import text_file

SQL = "create table t(a,b); with recursive c(x) as (select 1 union all select x+1 from c where x<3000) " \
      "insert into t select x, x*x%97 from c; select count(*), sum(a*b) from t where b>7; " \
      "select * from t order by b,a limit 3;"


def programs(folder: Path) -> dict[str, list[str]]:
    source = text_file(folder / "input", 120_000)
    four = compile_c(PROGRAMS / "bench_threads.c", folder / "four")
    return {
        "ls": ["ls", "-lR", "/usr/share/doc/valgrind"],
        "gzip": ["gzip", "-c", str(source)],
        "python3": [sys.executable, "-S", "-c", "print(sum(hash(str(i)) % 7 for i in range(2000)) > 0)"],
        "sqlite3": ["sqlite3", ":memory:", SQL],
        "four threads": [str(four), "20"],
    }


def decoded(recording: Recording) -> None:
    recording.bundle.manifest.clocks = Clocks(0, 0, 1 << 40, 1 << 40)
    recording.bundle.save_manifest()
    decode_flow(recording.bundle)


def gaps(recording: Recording) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = pq.read_table(recording.bundle.tables / "gaps").to_pylist()
    return rows


def tasks_of_threads(recording: Recording) -> dict[int, list[Ran]]:
    """The engine's logs of each thread number: of one task, or of the task that made it a process and of that process;
    only for runs without exec."""
    sideband = read_sideband(recording.bundle.sideband)
    threads = sideband.filter(pc.equal(sideband["kind"], "thread"))
    numbers = {(pid, tid): thread for pid, tid, thread in zip(
        threads["pid"].to_pylist(), threads["tid"].to_pylist(), threads["thread"].to_pylist(), strict=True)}
    logs = {(pid, tid): ran for pid, tid, ran in recording.logs}
    found: dict[int, list[Ran]] = {}
    for task, thread in numbers.items():  # in the order they began
        found.setdefault(thread, []).append(logs.pop(task))
    assert not logs
    return found


def by_thread(recording: Recording) -> dict[int, Ran]:
    """The engine's log of each thread number; only for runs where a thread is one task."""
    return {thread: ran for thread, (ran,) in tasks_of_threads(recording).items()}


def rows_of(recording: Recording, thread: int, instructions: int) -> int:
    """How many rows of a thread's flow have so many instructions."""
    expansion = Expansion(recording.bundle)
    total = expansion.hash(thread)[0]
    skip = 1
    while (left := expansion.hash(thread, skip)[0]) > total - instructions:
        skip += 1
    assert left == total - instructions, "a row lies across the border of two tasks"
    return skip


@pytest.mark.parametrize("name", ["ls", "gzip", "python3", "sqlite3", "four threads"])
def test_the_stored_flow_is_what_the_engine_logged(name: str, tmp_path: Path) -> None:
    recording = record_all(programs(tmp_path)[name], tmp_path, log=True)
    assert recording.status == 0
    decoded(recording)
    expected = by_thread(recording)
    assert len(expected) == (5 if name == "four threads" else 1)
    assert sum(ran.count for ran in expected.values()) > 300_000
    for thread, ran in expected.items():
        assert instruction_hash(recording.bundle, thread) == (ran.count, ran.hash), f"thread {thread}"
    assert gaps(recording) == []


@pytest.mark.parametrize("access", ["held", "exact"])
def test_the_stored_flow_of_threads_as_processes_is_what_the_engine_logged(access: str, tmp_path: Path) -> None:
    """Every thread is a process of its own, is traced from its first instruction, and faults in its midst."""
    recording = record_all(programs(tmp_path)["four threads"], tmp_path, log=True, env={
        **os.environ, "LD_PRELOAD": str(library_path()), "PTWEAVE_THREADS": "process", "PTWEAVE_ACCESS": access})
    assert (recording.status, recording.stderr) == (0, b"")
    decoded(recording)
    expected = tasks_of_threads(recording)
    processes = {pid for pid, _, ran in recording.logs if ran.count > 100_000}
    assert len(processes) == 5 and sorted(map(len, expected.values()))[-4:] == [2] * 4
    for thread, (*before, ran) in expected.items():
        skip = rows_of(recording, thread, before[0].count) if before else 0
        assert instruction_hash(recording.bundle, thread, skip) == (ran.count, ran.hash), f"thread {thread}"
    assert gaps(recording) == []


def test_control_a_changed_packet_byte_is_noticed(tmp_path: Path) -> None:
    recording = record_all(["ls", "/"], tmp_path, log=True)
    trace = recording.bundle.trace / "0.pt"
    data = bytearray(trace.read_bytes())
    at = next(i for i in range(len(data) // 2, len(data)) if data[i] == 0x02 and data[i + 1] == 0xA3) + 4
    data[at] ^= 0x10  # a branch in a long TNT packet goes the other way
    trace.write_bytes(data)
    decoded(recording)
    ran = by_thread(recording)[0]
    assert instruction_hash(recording.bundle, 0) != (ran.count, ran.hash)
