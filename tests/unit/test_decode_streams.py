# SPDX-License-Identifier: MIT
"""What was recorded beside the traces is decoded by a process of the decoder's, beside the flow, to the same files."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ptweave.data.bundle import Bundle
from ptweave.data.errors import BadInput, MachineLacks
from ptweave.data.evl import Operation
from ptweave.decode import streams, workers
from ptweave.decode.flow import decode_flow
from support.evl import List
from support.random_program import Machine, random_run
from support.recorded import files
from support.trace_bundle import TraceBundle

MANY = 300
"""Bytes of a range, so that there are many."""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return random_run(77, tmp_path_factory.mktemp("machine"), steps=3000)


def build(path: Path, machine: Machine) -> Bundle:
    bundle = TraceBundle(path).map(machine.code.data, machine.code.base, name="code").thread(machine.packets.data)
    written = bundle.write()
    for thread in range(2):
        log = List(thread)
        log.add(Operation.START, 1000 + thread)
        log.add(Operation.MUTEX_LOCK, 2000, obj=0x60, version=1)
        log.save(written.dependence)
    return written


# What processes do in place of it, which may be started anew: they get it by name.


def who(path: Path) -> dict[str, float]:
    (path / "who").write_text(str(os.getpid()))
    return {}


def broken(path: Path) -> dict[str, float]:
    raise BadInput("is broken", where="events", remedy="none")


def killed(path: Path) -> dict[str, float]:
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def instead(monkeypatch: pytest.MonkeyPatch, work: Callable[[Path], dict[str, float]]) -> None:
    monkeypatch.setattr(workers, "streams", work)
    monkeypatch.setattr(workers, "decode_streams", lambda bundle: work(bundle.path))


def test_processes_leave_the_same_files_and_the_same_account(tmp_path: Path, machine: Machine) -> None:
    found = []
    for jobs in (1, 2):
        bundle = build(tmp_path / f"{jobs}.ptw", machine)
        report = decode_flow(bundle, jobs=jobs, size=MANY, streams=True)
        assert report.seconds.keys() >= {"system calls", "thunks", "tags", "decode"}
        ledger = bundle.ledger()
        assert ledger["thunks"].stored == 4 and "decode/0" in ledger
        decoded = {path.name: pq.read_table(path) for path in bundle.decoded.glob("*.parquet")}
        found.append((files(bundle.path), decoded))
    assert found[0] == found[1]
    assert found[0][1]["thunks.parquet"].num_rows == 4


def test_control_they_are_not_decoded_unless_asked_for(tmp_path: Path, machine: Machine) -> None:
    bundle = build(tmp_path / "run.ptw", machine)
    report = decode_flow(bundle, jobs=2, size=MANY)
    assert "thunks" not in report.seconds and "thunks" not in bundle.ledger()
    assert not list(bundle.decoded.glob("thunks*"))


@pytest.mark.parametrize(("jobs", "size", "long", "beside"), [
    (1, MANY, 0, False), (2, MANY, 1 << 40, True), (2, 1 << 40, 0, True), (2, 1 << 40, 1 << 40, False)],
    ids=["one process", "many ranges", "one range, much else", "one range, little else"])
def test_another_process_does_it_where_there_is_one_or_it_is_worth_one(
        tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch, jobs: int, size: int, long: int,
        beside: bool) -> None:
    monkeypatch.setattr(streams, "_LONG_BYTES", long)
    instead(monkeypatch, who)
    decode_flow(build(tmp_path / "run.ptw", machine), jobs=jobs, size=size, streams=True)
    assert (int((tmp_path / "run.ptw" / "who").read_text()) != os.getpid()) == beside


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_fails_there_is_raised_when_the_flow_is_decoded(tmp_path: Path, machine: Machine, jobs: int,
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    instead(monkeypatch, broken)
    bundle = build(tmp_path / "run.ptw", machine)
    with pytest.raises(BadInput, match="is broken"):
        decode_flow(bundle, jobs=jobs, size=MANY, streams=True)
    assert list((bundle.tables / "flow").iterdir()) and "decode/0" in bundle.ledger()
    assert not (bundle.decoded / "tasks").exists()


def test_a_process_that_is_killed_over_it_is_one_error(tmp_path: Path, machine: Machine,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    instead(monkeypatch, killed)
    with pytest.raises(MachineLacks, match="was killed"):
        decode_flow(build(tmp_path / "run.ptw", machine), jobs=2, size=MANY, streams=True)
