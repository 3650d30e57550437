# SPDX-License-Identifier: MIT
"""A spool becomes a bundle: exact ends, joined streams, rows in order; whatever a target writes there."""

from __future__ import annotations

import signal
import struct
from pathlib import Path

import numpy as np
import pytest

from ptweave.data import Bundle, Ledger, Manifest
from ptweave.data.sideband import read_sideband
from ptweave.data.syslog import SYSLOG_DTYPE
from ptweave.wrapper.host import moment
from ptweave.wrapper.soft import Spool
from ptweave.wrapper.spool_format import Began, Ended, Hold, Kind
from ptweave.wrapper.tasks import TaskRegistry
from support.spools import FakeProcess, FakeStream, pending, psb


class Room:
    """A bundle and a spool."""

    def __init__(self, folder: Path) -> None:
        self.bundle = Bundle.create(folder / "run.ptw", Manifest())
        self.path = folder / "spool"
        self.path.mkdir()
        self.tasks = TaskRegistry()
        self.spool = Spool(self.bundle, self.path, self.tasks)
        self.ledger = Ledger()

    def finish(self) -> list[dict[str, object]]:
        self.spool.finish(self.ledger)
        assert not self.path.exists()
        assert self.ledger.check() == []
        rows: list[dict[str, object]] = read_sideband(self.bundle.sideband).to_pylist()
        return rows

    def trace(self, thread: int) -> bytes:
        return (self.bundle.trace / f"{thread}.pt").read_bytes()


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path)


def test_a_trace_ends_where_its_thread_was_killed(room: Room) -> None:
    fake = FakeProcess(room.path, 5, ended=Ended.RUNNING)
    fake.begin_stream(FakeStream(5, b"A" * 1000, b"B" * 20, pending("110"), calls=4))
    fake.write()
    rows = room.finish()
    assert room.trace(0) == b"A" * 1000 + b"B" * 20 + bytes([0b1110 << 1])
    assert len(np.fromfile(room.bundle.trace / "0.sys", SYSLOG_DTYPE)) == 4
    assert [row["kind"] for row in rows] == ["process", "thread", "slice", "process_exit"]
    assert room.ledger["trace/0"].stored == 1021


@pytest.mark.parametrize("stream, expected", [
    (FakeStream(5, b"A" * 9, b"B" * 5, pending("1"), torn=True), b"A" * 9 + b"B" * 5),
    (FakeStream(5, b"A" * 9, b"B" * 5, pending("1"), Hold.STORED), b"A" * 9 + b"\x06"),
    (FakeStream(5, b"A" * 9, b"B" * 5, pending("1"), Hold.VOID, nowhere=70, lost=30), b"A" * 9 + b"B" * 5),
], ids=["branches written", "buffer written", "no room"])
def test_every_state_a_stream_can_be_left_in(room: Room, stream: FakeStream, expected: bytes) -> None:
    fake = FakeProcess(room.path, 5, ended=Ended.RUNNING)
    fake.begin_stream(stream)
    fake.write()
    rows = room.finish()
    assert room.trace(0) == expected
    lost = [(row["offset"], row["size"]) for row in rows if row["kind"] == "lost"]
    assert lost == ([(14, 100)] if stream.hold == Hold.VOID else [])
    assert room.ledger["trace/0"].total_lost == sum(size for _, size in lost)  # type: ignore[misc]


def test_streams_over_exec_are_joined(room: Room) -> None:
    first = FakeProcess(room.path, 5, ended=Ended.EXECING)
    first.begin_stream(FakeStream(5, psb(1) + b"x" * 74, b"", calls=2))
    first.write()
    second = FakeProcess(room.path, 5, life=1, tsc=2000)
    second.begin_stream(FakeStream(5, psb(2), b"y" * 10, calls=3))
    second.record(Kind.SLICE, 0, 30, 1)
    second.end_stream(0)
    second.write(tsc=2000)
    rows = room.finish()
    assert room.trace(0) == psb(1) + b"x" * 74 + psb(2) + b"y" * 10
    assert [(row["offset"], row["space"], row["epoch"]) for row in rows if row["kind"] == "slice"] == [
        (0, 0, 0), (100, 1, 0), (130, 1, 1)]
    assert [row["offset"] for row in rows if row["kind"] == "finish"] == [136]
    assert [row["detail"] for row in rows if row["kind"] == "process"] == ["start", "exec"]
    calls = np.fromfile(room.bundle.trace / "0.sys", SYSLOG_DTYPE)
    assert calls["stream"].tolist() == [1, 2, 101, 102, 103]
    assert list(struct.iter_unpack("<QQ", (room.bundle.trace / "0.psb").read_bytes())) == [(0, 1), (100, 2)]


@pytest.mark.parametrize("ended, status, lost", [
    (Ended.EXECING, signal.SIGKILL, 0), (Ended.EXECING, signal.SIGTERM, 0),
    (Ended.UNRECORDED, signal.SIGKILL, 1),  # it said that it began
    (Ended.EXECING, signal.SIGSEGV, 1), (Ended.EXECING, 1 << 8, 1), (Ended.EXECING, 0, 1),  # the engine's own failure
])
@pytest.mark.parametrize("ours", [True, False], ids=["child", "grandchild"])
def test_a_process_killed_in_its_exec_lacks_nothing_and_one_that_ended_otherwise_does(
        room: Room, ended: Ended, status: int, lost: int, ours: bool) -> None:
    process = FakeProcess(room.path, 5, ended=ended)
    process.begin_stream(FakeStream(5, psb(1), b"", calls=2))
    process.write()
    if ours:
        room.spool.exited(5, status)
    else:
        room.spool.ended_by = lambda pid: status & 0x7f
    room.finish()
    assert room.ledger["processes"].total_lost == lost


def test_a_process_of_which_nobody_knows_how_it_ended_in_its_exec_is_counted(room: Room) -> None:
    FakeProcess(room.path, 5, ended=Ended.EXECING).write()
    room.finish()
    assert room.ledger["processes"].lost == {"what it executed left no file": 1}


def test_a_process_that_the_engine_ended_is_a_loss_and_what_it_said_is_kept(room: Room) -> None:
    said = ("--5-- VALGRIND INTERNAL ERROR: Valgrind received a signal 11 (SIGSEGV) - exiting\n"
            "valgrind: the 'impossible' happened:\n"
            "valgrind: m_signals.c:2545 (async_signalhandler): Assertion 'tst->status == VgTs_WaitSys' failed.\n"
            "==6== EXEC FAILED: I can't recover from execve() failing, so I'm dying.\n")
    for pid in (4, 5, 6, 7):
        fake = FakeProcess(room.path, pid, ended=Ended.RUNNING)
        fake.begin_stream(FakeStream(pid, b"A"))
        fake.write()
    (room.path / "engine.log").write_text(said)
    room.finish()
    assert room.ledger["engine"].stored == 1 and list(room.ledger["engine"].lost.values()) == [3]
    assert (room.bundle.trace / "engine.log").read_text() == said


def test_an_engine_that_had_nothing_to_say_leaves_no_log(room: Room) -> None:
    fake = FakeProcess(room.path, 5)
    fake.begin_stream(FakeStream(5, b"A"))
    fake.write()
    room.finish()
    assert room.ledger["engine"].stored == 1 and not room.ledger["engine"].lost
    assert not (room.bundle.trace / "engine.log").exists()


def test_a_pid_used_again_is_another_thread(room: Room) -> None:
    one = FakeProcess(room.path, 5, ended=Ended.RUNNING)  # killed
    one.begin_stream(FakeStream(5, b"1"))
    one.write()
    room.spool.poll()
    assert room.tasks.lookup(5, 5) == 0
    two = FakeProcess(room.path, 5, life=1, began=Began.FORKED, tsc=3000)
    two.begin_stream(FakeStream(5, b"2"))
    two.write(tsc=3000)
    room.spool.poll()
    assert room.tasks.lookup(5, 5) == 1
    room.spool.exited(5, 9)
    rows = room.finish()
    assert (room.trace(0), room.trace(1)) == (b"1", b"2")
    assert [row["value"] for row in rows if row["kind"] == "process_exit"] == [9]


def test_a_killed_process_ended_when_that_was_noticed_not_when_it_last_wrote_a_record(room: Room) -> None:
    fake = FakeProcess(room.path, 5, ended=Ended.RUNNING)
    fake.begin_stream(FakeStream(5, b"1"))
    fake.write()
    before = moment().tsc
    room.spool.exited(5, 9)
    (end,) = [row["tsc"] for row in room.finish() if row["kind"] == "process_exit"]
    assert isinstance(end, int) and before <= end <= moment().tsc


def test_a_process_that_says_when_it_ends_ended_then(room: Room) -> None:
    fake = FakeProcess(room.path, 5)
    fake.begin_stream(FakeStream(5, b"1"))
    fake.write()
    room.spool.exited(5, 9)
    (end,) = [row["tsc"] for row in room.finish() if row["kind"] == "process_exit"]
    assert isinstance(end, int) and end < moment().tsc // 2


def test_a_number_given_at_a_handshake_is_kept(room: Room) -> None:
    """The supervisor may know a task before its first record was read."""
    room.tasks.start(7, 7, 900)
    assert room.tasks.start(5, 5, 1100) == 1
    fake = FakeProcess(room.path, 5)
    fake.begin_stream(FakeStream(5, b"5"))
    fake.write()
    room.finish()
    assert room.trace(1) == b"5"


def test_records_are_followed_as_they_come(room: Room) -> None:
    fake = FakeProcess(room.path, 5, ended=Ended.RUNNING)
    fake.begin_stream(FakeStream(5, b"A"))
    fake.write()
    room.spool.poll()
    fake.begin_stream(FakeStream(6, b"B"), creator=5)
    fake.record(Kind.COMM, 6, text="worker")
    fake.write()
    room.spool.poll()
    assert room.tasks.lookup(5, 6) == 1
    rows = room.finish()
    assert [row["detail"] for row in rows if row["kind"] == "comm"] == ["worker"]
    assert room.tasks.tasks[1].parent_tid == 5


def test_anonymous_code_is_one_image_with_a_row_a_run(room: Room) -> None:
    fake = FakeProcess(room.path, 5, code=b"abcdefghij")
    fake.begin_stream(FakeStream(5, b"A"))
    fake.record(Kind.CODE, 0x1004, 4, 4, 0)   # efgh, behind
    fake.record(Kind.CODE, 0x1000, 4, 0, 0)   # abcd, before
    fake.record(Kind.CODE, 0x1002, 2, 8, 1)   # ij, in the next epoch
    fake.record(Kind.CODE, 0x9000, 50, 5, 1)  # not there
    fake.write()
    rows = [row for row in room.finish() if row["kind"] == "code"]
    assert [(row["addr"], row["size"], row["epoch"]) for row in rows] == [(0x1000, 8, 0), (0x1002, 2, 1)]
    image = (room.bundle.images / str(rows[0]["image"])).read_bytes()
    assert [image[row["offset"]:row["offset"] + row["size"]] for row in rows] == [  # type: ignore[index, operator, misc]
        b"abcdefgh", b"ij"]


def test_code_that_is_what_its_file_holds_is_left_to_the_file(room: Room, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"0123456789" * 10)
    found = program.stat()
    fake = FakeProcess(room.path, 5, code=b"2345" + b"XX" + b"45")
    fake.record(Kind.MAP, 0x1000, 100, 0, found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size, 0,
                text=str(program))
    fake.record(Kind.CODE, 0x1002, 4, 0, 0)  # as in the file
    fake.record(Kind.CODE, 0x1004, 2, 4, 1)  # patched
    fake.record(Kind.CODE, 0x1004, 2, 6, 2)  # and back: now it must be said
    fake.write()
    rows = room.finish()
    assert [(row["addr"], row["epoch"]) for row in rows if row["kind"] == "code"] == [(0x1004, 1), (0x1004, 2)]
    assert next(row for row in rows if row["kind"] == "map")["image"]


def test_what_the_engine_lost_is_in_the_ledger(room: Room) -> None:
    fake = FakeProcess(room.path, 5, children_lost=2)
    fake.record(Kind.UNTRACED, 5, text="/usr/bin/sudo")
    fake.record(Kind.MAP, 0x1000, 100, 0, 1, 2, 3, 4, 0, text="/gone/for/good")
    fake.write(records_lost=3, code_lost=40, streams=4, streams_lost=1)
    room.finish()
    assert sorted((name, why, count) for name, why, count, _ in room.ledger.losses) == [
        ("code", "disk full", 40), ("images", "gone, or no room for it", 1),
        ("processes", "no file could be made for it", 2), ("processes", "the engine cannot run it", 1),
        ("sideband", "disk full", 3), ("threads", "no file could be made for it", 1),
        ("threads", "the record of it is lost", 3)]


HOSTILE = {
    "records beyond the file": {"records": 1 << 40},
    "code beyond the file": {"code": 1 << 62},
    "streams that are not there": {"streams": 1 << 60},
    "a pid that is none": {"pid": 1 << 31},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_process_page(room: Room, name: str) -> None:
    fake = FakeProcess(room.path, 5)
    fake.begin_stream(FakeStream(5, b"A"))
    fake.record(Kind.CODE, 0x1000, 4, 0, 0)
    fake.write(**HOSTILE[name])
    room.finish()


def test_hostile_records(room: Room) -> None:
    fake = FakeProcess(room.path, 5)
    fake.begin_stream(FakeStream(5, b"A" * 10))
    top = (1 << 64) - 1
    for kind in Kind:
        fake.record(kind, *[top] * 8, text="x" * 100, tsc=top)
        fake.record(kind, *[0] * 8, text="\0/../etc/passwd")
    fake.record(Kind.SLICE, 0, top, top)
    fake.record(Kind.THREAD_EXIT, 0, 5, top)
    fake.records += b"\x01" * 1000
    fake.write()
    rows = room.finish()
    assert all(row["offset"] <= 10 for row in rows if row["kind"] in ("slice", "finish", "lost")  # type: ignore[operator]
               and row["thread"] == 0)


def test_hostile_files(room: Room, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    fake = FakeProcess(room.path, 5)
    fake.begin_stream(FakeStream(5, b"A" * 10, calls=5))
    fake.write()
    for suffix in ("0.pt", "0.sys", "buf", "code"):
        file = room.path / f"5.0.{suffix}"
        file.unlink()
        file.symlink_to(secret)
    (room.path / "6.0.state").symlink_to(secret)
    (room.path / "7.0.state").mkdir()
    room.finish()
    assert b"secret" not in room.trace(0)
    assert secret.read_text() == "secret"


def test_a_state_that_changes_its_pid_is_malformed(room: Room) -> None:
    fake = FakeProcess(room.path, 5, ended=Ended.RUNNING)
    fake.begin_stream(FakeStream(5, b"A"))
    fake.write()
    room.spool.poll()
    fake.write(pid=6)
    room.finish()
    assert ("sideband", "malformed", 1, "records") in room.ledger.losses


def test_an_empty_spool_is_an_empty_bundle(room: Room) -> None:
    assert room.finish() == []
