# SPDX-License-Identifier: MIT
"""Bundles their recorder could not finish: why is said as it is, and what the engine wrote is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptweave.cli import main
from ptweave.data import Bundle, Exit, Ledger, Manifest, State
from ptweave.data.bundle import SPOOL
from ptweave.merge import Run
from ptweave.wrapper.supervisor import STOPPED, Repaired, repair
from support.spools import FakeProcess, FakeStream, psb


def bundle(tmp_path: Path, state: State, lacks: list[str], *, spool: bool = True) -> Bundle:
    made = Bundle.create(tmp_path / "run.ptw", Manifest(engine="soft", state=state, lacks=lacks))
    if spool:
        folder = made.path / SPOOL
        folder.mkdir()
        process = FakeProcess(folder, 100)
        process.end_stream(process.begin_stream(FakeStream(100, stored=psb(1000))))
        process.write()
    return made


def test_a_recorder_that_died(tmp_path: Path) -> None:
    made = bundle(tmp_path, State.RECORDING, [])
    assert repair(made) is Repaired.RECORDER_DIED
    kept = Bundle.open(made.path).manifest
    assert kept.state is State.PARTIAL
    assert kept.lacks == ["the end: the recorder died before the run was over"]
    assert (made.trace / "0.pt").read_bytes() == psb(1000)


def test_one_that_died_before_it_had_begun_leaves_what_decodes_to_nothing(tmp_path: Path) -> None:
    made = bundle(tmp_path, State.RECORDING, [], spool=False)
    assert not made.sideband.exists()
    assert main(["decode", "-q", str(made.path)]) == main(["merge", "-q", str(made.path)]) == Exit.INCOMPLETE
    kept = Bundle.open(made.path)
    assert kept.manifest.state is State.PARTIAL
    with Run(made.path) as run:
        assert run.sql("select count(*) from flow").rows() == [(0,)]


def test_a_recorder_that_had_no_room(tmp_path: Path) -> None:
    made = bundle(tmp_path, State.PARTIAL, [f"trace: {STOPPED}: cannot be written (No space left on device)"])
    ledger = Ledger()
    ledger.add("trace/0", "bytes", stored=7)  # what was accounted for before room ran out
    made.save_ledger(ledger)
    assert repair(made) is Repaired.NO_ROOM
    kept = Bundle.open(made.path).manifest
    assert (kept.state, kept.lacks) == (State.COMPLETE, [])
    assert (made.trace / "0.pt").read_bytes() == psb(1000)
    assert not (made.path / SPOOL).exists()
    assert made.ledger()["trace/0"].stored == len(psb(1000))


def test_what_else_stopped_early_stays_said(tmp_path: Path) -> None:
    line = f"system calls: {STOPPED}: No space left on device"
    made = bundle(tmp_path, State.PARTIAL, [f"trace: {STOPPED}: no room", line])
    assert repair(made) is Repaired.NO_ROOM
    assert (made.manifest.state, made.manifest.lacks) == (State.PARTIAL, [line])


@pytest.mark.parametrize("state", [State.COMPLETE, State.PARTIAL])
def test_a_bundle_that_was_finished_is_left_alone(tmp_path: Path, state: State) -> None:
    made = bundle(tmp_path, state, ["something"], spool=False)
    assert repair(made) is None
    assert Bundle.open(made.path).manifest.lacks == ["something"]


@pytest.mark.parametrize(("state", "said"), [(State.RECORDING, "its recorder died"), (State.PARTIAL, "out of room")])
def test_the_command_says_which_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str], state: State,
                                       said: str) -> None:
    made = bundle(tmp_path, state, [] if state is State.RECORDING else [f"trace: {STOPPED}: no room"])
    main(["decode", "-q", "-j", "1", str(made.path)])
    lines = capsys.readouterr().err.splitlines()
    assert said in lines[0]
    assert state is State.RECORDING or not any("died" in line for line in lines)
