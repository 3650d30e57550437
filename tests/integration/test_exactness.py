# SPDX-License-Identifier: MIT
"""The whole way from a program to the tables is exact: what is stored is what ran, instruction by instruction.

The oracle is the engine's own log of every executed instruction, which knows nothing of packets; that log itself is
held to a native ptrace single-step log elsewhere. The addresses compared here come out of the stored tables: flow,
paths, blocks, expanded to instructions.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from ptweave.data import Clocks
from ptweave.data.sideband import read_sideband
from ptweave.decode.expand import instruction_hash
from ptweave.decode.flow import decode_flow
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


def by_thread(recording: Recording) -> dict[int, Ran]:
    """The engine's log of each thread number; only for runs without exec, where a thread is one stream."""
    sideband = read_sideband(recording.bundle.sideband)
    threads = sideband.filter(pc.equal(sideband["kind"], "thread"))
    numbers = {(pid, tid): thread for pid, tid, thread in zip(
        threads["pid"].to_pylist(), threads["tid"].to_pylist(), threads["thread"].to_pylist(), strict=True)}
    return {numbers[pid, tid]: ran for pid, tid, ran in recording.logs}


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
