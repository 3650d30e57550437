# SPDX-License-Identifier: MIT
"""What the hardware recorder spools becomes sideband, ledger and images' names: of a recorder that lived, and of one
that died; damage costs what it hit and no more."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptweave.data import BadInput, Bundle, Ledger, Manifest
from ptweave.data.perf.format import AuxFlag, RecordType
from ptweave.data.perf.records import Comm, ItraceStart, Mmap, Task
from ptweave.data.sideband import read_sideband
from ptweave.wrapper import pt_spool
from ptweave.wrapper.perf import synthesis
from ptweave.wrapper.perf.synthesis import Moment
from ptweave.wrapper.pt_spool import Losses, Trace

PSB = b"\x02\x82" * 8 + b"\x02\x23"


def aux(when: Moment, offset: int, size: int, flags: int) -> bytes:
    return synthesis._record(RecordType.AUX, 0, struct.pack("<QQQ", offset, size, flags), when)


def lost(when: Moment, count: int) -> bytes:
    return synthesis._record(RecordType.LOST, 0, struct.pack("<QQ", 1, count), when)


class Spool:
    """A bundle with a spool of times that are TSC ticks."""

    def __init__(self, folder: Path) -> None:
        self.bundle = Bundle.create(folder / "run.ptw", Manifest(engine="intel_pt"))
        self.folder = self.bundle.path / "spool"
        self.folder.mkdir()
        (self.folder / pt_spool.DESCRIPTION).write_text(json.dumps(
            {"version": 1, "type": 8, "zero": 0, "mult": 1, "shift": 0}))

    def trace(self, trace: Trace, records: bytes, packets: bytes = PSB) -> None:
        (self.folder / f"{trace.name}.rec").write_bytes(trace.header + records)
        (self.bundle.trace / f"{trace.name}.pt").write_bytes(packets)

    def image(self, device: tuple[int, int] | None, inode: int, name: str) -> None:
        with (self.folder / pt_spool.IMAGES).open("a") as out:
            out.write(json.dumps({"device": device, "inode": inode, "image": name}) + "\n")

    def finish(self, losses: Mapping[str, Losses] | None = None) -> tuple[list[dict[str, object]], Ledger]:
        ledger = Ledger()
        pt_spool.finish(self.bundle, self.folder, ledger, losses)
        assert not self.folder.exists()
        assert ledger.check() == []
        return read_sideband(self.bundle.sideband).to_pylist(), ledger


def kinds(rows: list[dict[str, object]], kind: str, *columns: str) -> list[tuple[object, ...]]:
    return [tuple(row[column] for column in columns) for row in rows if row["kind"] == kind]


def test_made_up_records_read_as_the_kernels_do() -> None:
    when = Moment(7, 8, 1000)
    made = (synthesis.mmap2(when, 0x1000, 0x2000, 0x3000, (8, 1), 55, b"/bin/a b") +
            synthesis.comm(when, b"a-name-that-is-too-long", execed=True) + synthesis.fork(when, 3, 4) +
            synthesis.itrace_start(when))
    mapping, name, child, began = pt_spool.parse_records(made)
    assert isinstance(mapping, Mmap) and isinstance(name, Comm) and isinstance(child, Task)
    assert isinstance(began, ItraceStart)
    assert (mapping.pid, mapping.start, mapping.size, mapping.offset) == (7, 0x1000, 0x2000, 0x3000)
    assert (mapping.device, mapping.inode, mapping.path, mapping.executable) == ((8, 1), 55, "/bin/a b", True)
    assert (name.name, name.exec) == ("a-name-that-is-", True)
    assert (child.pid, child.tid, child.parent_pid, child.parent_tid) == (7, 8, 3, 4)
    assert {(one.when.pid, one.when.tid, one.when.time, one.when.cpu) for one in (mapping, name, child, began)} == {
        (7, 8, 1000, -1)}


def test_a_thread_has_its_space_its_maps_and_their_images(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    when = Moment(10, 10, 100)
    spool.trace(Trace("0", 0, 10, 10, -1), synthesis.comm(when, b"prog", execed=True) + synthesis.mmap2(
        when, 0x1000, 0x1000, 0, (8, 1), 5, b"/bin/prog") + synthesis.mmap2(
            when, 0x9000, 0x1000, 0, (0, 0), 0, b"[vdso]") + synthesis.itrace_start(when))
    spool.image((8, 1), 5, "one")
    spool.image(None, 0, "two")
    rows, ledger = spool.finish({"0": Losses()})
    assert kinds(rows, "thread", "thread", "tid") == [(0, 10)]
    assert kinds(rows, "process", "pid", "path", "detail") == [(10, "/bin/prog", "exec")]
    assert kinds(rows, "map", "addr", "image") == [(0x1000, "one"), (0x9000, "two")]
    assert ledger["trace/0"].stored == len(PSB)


def test_a_forked_thread_that_runs_another_program_changes_its_space_then(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    parent, child = Moment(10, 10, 100), Moment(11, 11, 200)
    spool.trace(Trace("0", 0, 10, 10, -1), synthesis.comm(parent, b"a", execed=True) + synthesis.mmap2(
        parent, 0x1000, 0x1000, 0, (8, 1), 5, b"/a") + synthesis.fork(Moment(11, 11, 150), 10, 10))
    later = Moment(11, 11, 300)
    spool.trace(Trace("1", 1, 11, 11, -1), synthesis.itrace_start(child) + synthesis.comm(
        later, b"b", execed=True) + synthesis.mmap2(later, 0x1000, 0x1000, 0, (8, 1), 6, b"/b"))
    rows, _ = spool.finish({"0": Losses(), "1": Losses()})
    spaces = dict(kinds(rows, "process", "space", "detail"))
    switches = kinds(rows, "switch", "tsc", "space", "thread")
    own = [(tsc, spaces[space]) for tsc, space, thread in switches if thread == 1]
    assert own == [(200, "fork"), (300, "exec")]
    assert kinds(rows, "thread", "thread", "value") == [(0, 0), (1, 10)]


def test_a_task_that_leaves_a_processor_and_comes_back_is_not_there_in_between(tmp_path: Path) -> None:
    def switch(time: int, cpu: int, *, out: bool) -> bytes:
        made = bytearray(synthesis._record(RecordType.SWITCH, 1 << 13 if out else 0, b"", Moment(10, 10, time)))
        made[-8:-4] = struct.pack("<I", cpu)
        return bytes(made)

    spool = Spool(tmp_path)
    when = Moment(10, 10, 1)
    spool.trace(Trace("cpu-0", -1, -1, -1, 0), synthesis.comm(when, b"a", execed=True) + synthesis.mmap2(
        when, 0x1000, 0x1000, 0, (8, 1), 5, b"/a") + switch(2, 0, out=False) + switch(20, 0, out=True) + switch(
            60, 0, out=False))
    spool.trace(Trace("cpu-1", -1, -1, -1, 1), switch(30, 1, out=False) + switch(50, 1, out=True))
    rows, _ = spool.finish({})
    assert kinds(rows, "switch", "tsc", "cpu", "thread") == [
        (2, 0, 0), (20, 0, None), (30, 1, 0), (50, 1, None), (60, 0, 0)]


def test_what_the_kernel_left_out_and_what_could_not_be_written_is_told_in_its_place(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    when = Moment(10, 10, 100)
    spool.trace(Trace("0", 0, 10, 10, -1), synthesis.itrace_start(when) + aux(when, 0, 8, 0) + aux(
        when, 8, 8, AuxFlag.TRUNCATED) + lost(when, 7))
    rows, ledger = spool.finish({"0": Losses({"no space left on device": 99}, [(5, "packets could not be written")])})
    assert kinds(rows, "lost", "offset", "detail") == [
        (5, "packets could not be written"), (16, "the kernel marked the trace TRUNCATED here")]
    assert ledger["trace/0"].lost == {"no space left on device": 99}
    assert ledger["sideband"].lost == {"the kernel's ring was full": 7}


def test_of_a_recorder_that_died_everything_whole_is_kept_and_the_rest_is_counted(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    when = Moment(10, 10, 100)
    whole = synthesis.comm(when, b"a", execed=True) + synthesis.mmap2(when, 0x1000, 0x1000, 0, (8, 1), 5, b"/a")
    told = aux(when, 0, 1000, 0)
    spool.trace(Trace("0", 0, 10, 10, -1), whole + told + synthesis.itrace_start(when)[:-3])
    spool.image((8, 1), 5, "one")
    with (spool.folder / pt_spool.IMAGES).open("a") as out:
        out.write('{"device": [8, 1], "ino')
    rows, ledger = spool.finish()
    assert kinds(rows, "map", "addr", "image") == [(0x1000, "one")]
    assert ledger["trace/0"].lost == {"the recorder died": 1000 - len(PSB)}


def test_a_recorder_that_died_before_anything_was_traced_leaves_an_empty_bundle(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    (spool.folder / pt_spool.DESCRIPTION).unlink()
    (spool.folder / "0.rec").write_bytes(b"PT")
    rows, _ = spool.finish()
    assert rows == []


@pytest.mark.parametrize("damage", [
    "null", "[]", '{"type": 1}', '{"type": 1, "zero": "x", "mult": 1, "shift": 1}', "{"])
def test_a_description_that_makes_no_sense_is_bad_input(tmp_path: Path, damage: str) -> None:
    spool = Spool(tmp_path)
    (spool.folder / pt_spool.DESCRIPTION).write_text(damage)
    with pytest.raises(BadInput, match=r"pt\.json"):
        spool.finish()


@given(st.binary(max_size=400), st.integers(0, 200), st.integers(0, 255))
def test_no_bytes_break_the_reading_of_records(tail: bytes, at: int, value: int) -> None:
    when = Moment(7, 8, 1000)
    good = bytearray(synthesis.mmap2(when, 1, 2, 3, (8, 1), 5, b"/a") + synthesis.fork(when, 3, 4))
    good[at % len(good)] = value
    for record in pt_spool.parse_records(bytes(good) + tail):
        assert record is None or record.when.time >= 0


def test_a_flight_recorder_that_died_leaves_snapshots_that_are_not_decoded_across(tmp_path: Path) -> None:
    """Its ring is gone, and how far the processor came in it says nothing of how much."""
    spool = Spool(tmp_path)
    when = Moment(7, 7, 1000)
    off = PSB + b"\x01"  # tracing is off at its end: without a cut there, decoding would go on behind it
    spool.trace(Trace("0", 0, 7, 7, -1), synthesis.itrace_start(when) + aux(when, 4096, 65536, 2), off + PSB)
    with (spool.folder / pt_spool.SNAPSHOTS).open("w") as out:
        for place in (0, len(off)):
            out.write(json.dumps({"trace": "0", "offset": place, "why": "SIGUSR2"}) + "\n")
        out.write('{"trace": "0", "off')
    rows, ledger = spool.finish()
    before = "snapshot (SIGUSR2): what is missing before it is not known: the recorder died"
    assert kinds(rows, "lost", "offset", "detail", "value") == [
        (0, before, 0), (len(off), before, 0),
        (len(off + PSB), "the recorder died: packets that are in no snapshot", 0)]
    assert ledger["trace/0"].lost == {}


def test_the_place_where_tracing_was_off_can_be_gone_on_from_without_a_snapshot(tmp_path: Path) -> None:
    """The control of the one above."""
    spool = Spool(tmp_path)
    when = Moment(7, 7, 1000)
    off = PSB + b"\x01"
    spool.trace(Trace("0", 0, 7, 7, -1), synthesis.itrace_start(when), off + PSB)
    rows, _ = spool.finish({"0": Losses(breaks=[(len(off), "lost")])})
    assert kinds(rows, "lost", "offset", "value") == [(len(off), 1)]
