# SPDX-License-Identifier: MIT
"""Parquet parts of events, and the names of files, on inputs made here."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cffi import FFI

from ptweave.data.errors import MachineLacks
from ptweave.data.event_schemas import BLOCKING
from ptweave.data.schemas import RAW_FILES
from ptweave.wrapper import event_tables
from ptweave.wrapper.event_columns import DTYPES, file_name
from ptweave.wrapper.event_tables import Files, Parts, blocking, signals
from ptweave.wrapper.filters import Kind
from ptweave.wrapper.kernel_events import TURN_SECONDS, KernelEvents


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def rows(count: int) -> pa.Table:
    return pa.table({"t": np.arange(count), "pid": [1] * count, "tid": [1] * count, "name": ["read"] * count,
                     "duration": [5] * count, "run_delay": [0] * count})


def stored(folder: Path) -> list[int]:
    return [pq.read_metadata(path).num_rows for path in sorted((folder / "blocking").glob("[0-9]*.parquet"))]


def test_parts_are_finished_when_they_are_old_and_each_may_be_older(tmp_path: Path) -> None:
    clock = Clock()
    parts = Parts(tmp_path, BLOCKING, clock)
    for seconds in (1, 1, 1, 1, 1, 1):
        parts.write(rows(10))
        clock.now += seconds
        parts.tick()
    assert stored(tmp_path) == [10, 20]  # after 1 s, after 2 more; the third waits 4
    assert parts.stored == 30
    parts.close()
    assert stored(tmp_path) == [10, 20, 30] and parts.stored == 60
    parts.close()


def test_parts_are_finished_when_they_are_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_tables, "PART_ROWS", 100)
    parts = Parts(tmp_path, BLOCKING, Clock())
    for _ in range(5):
        parts.write(rows(60))
    assert stored(tmp_path) == [120, 120]
    parts.close()
    assert sum(stored(tmp_path)) == 300


def test_what_cannot_be_written_is_told_once_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts(tmp_path, BLOCKING, Clock())
    parts.write(rows(10))
    parts.close()
    parts.write(rows(20))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(event_tables.TableWriter, "close", full)
    with pytest.raises(MachineLacks, match="No space left"):
        parts.close()
    parts.write(rows(5))
    parts.close()
    assert (parts.stored, parts.lost) == (10, 25)
    assert stored(tmp_path) == [10]
    assert not list(tmp_path.rglob(".*.partial"))


def definitions(ids: list[int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([
        {"id": number, "path": b"/file %d" % number, "filesystem": "tmpfs", "device": 1, "inode": number,
         "mode": 0o100644, "deleted": False, "t": 0} for number in ids], schema=RAW_FILES)


def test_names_of_files_are_found_and_unknown_ones_counted() -> None:
    files = Files()
    files.define(definitions([3, 1]))
    files.define(definitions([7]))
    assert files.names(np.array([1, 0, 7, 5], np.uint64)).to_pylist() == ["/file 1", None, "/file 7", None]
    assert files.unknown == 1
    assert files.both(np.array([3], np.uint64))[1].to_pylist() == ["file"]


def test_of_many_names_those_used_last_are_kept() -> None:
    files = Files(kept=100)
    for begin in range(1, 2001, 20):
        files.define(definitions(list(range(begin, begin + 20))))
        files.names(np.array([5], np.uint64))  # used all the time
    assert len(files) <= 100
    assert files.names(np.array([5, 2000, 30], np.uint64)).to_pylist() == ["/file 5", "/file 2000", None]


@pytest.mark.parametrize(("filesystem", "components", "name"), [
    ("ext4", [b"c", b"b", b"a"], b"/a/b/c"), ("ext4", [b"/"], b"/"), ("ext4", [], b"/"),
    ("sockfs", [b"TCP"], b"socket:[9]"), ("pipefs", [], b"pipe:[9]"), ("anon_inodefs", [b"[eventfd]"],
     b"anon_inode:[eventfd]"), ("tmpfs", [b"memfd:x"], b"/memfd:x")])
def test_files_are_called_as_proc_calls_them(filesystem: str, components: list[bytes], name: bytes) -> None:
    assert file_name(filesystem, components, 9) == name


def test_run_delay_is_taken_out_of_blocking_and_never_more_than_there_is() -> None:
    made = np.zeros(2, DTYPES[Kind.BLOCKING])
    made["duration"], made["run_delay"] = [100, 100], [30, 101]
    table = blocking(made, Files())
    assert table.column("duration").to_pylist() == [70, 0]
    assert table.column("run_delay").to_pylist() == [30, 100]


def test_a_delivered_signal_has_an_action_and_a_sent_one_a_result() -> None:
    made = np.zeros(4, DTYPES[Kind.SIGNAL])
    made["delivered"], made["handler"], made["result"] = [0, 1, 1, 0], [0, 0x1000, 1, 0], [1, -1, -1, 99]
    made["signal"] = [9, 10, 34, 0]
    table = signals(made, Files())
    assert table.column("result").to_pylist() == ["ignored", None, None, None]
    assert table.column("action").to_pylist() == [None, "handler", "ignored", None]
    assert table.column("handler").to_pylist() == [None, 0x1000, None, None]
    assert table.column("name").to_pylist() == ["SIGKILL", "SIGUSR1", "SIGRT_2", "0"]


class _Endless:
    """The extension, of a recorder whose rows come faster than they are stored."""

    def __init__(self, batches: int) -> None:
        self.left = batches

    def ptw_recorder_take(self, recorder: object, everything: int, ret: object) -> int:
        self.left -= 1
        return int(self.left >= 0)

    def ptw_recorder_release(self, recorder: object, batch: object) -> None:
        time.sleep(TURN_SECONDS / 4)


@pytest.mark.parametrize(("everything", "all_taken"), [(False, False), (True, True)])
def test_a_turn_ends_though_more_is_ready_and_the_last_one_takes_everything(everything: bool, all_taken: bool) -> None:
    events = object.__new__(KernelEvents)
    ffi = FFI()
    ffi.cdef("struct ptw_batch;")
    events.lib, events.ffi, events._recorder = _Endless(20), ffi, None
    assert (len(list(events.batches(everything=everything))) == 20) is all_taken
