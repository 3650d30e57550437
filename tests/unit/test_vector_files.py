# SPDX-License-Identifier: MIT
"""Files of events: what the C reader makes of them is what a second reader makes of them; while they grow, after a
crash, in a ring, and when they are damaged."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from ptweave.data import BadInput
from ptweave.decode.vector import EventFile, Kind
from support.ctests import build
from support.vector_reader import CHUNKS_AT, Event, read

SOURCES = ("preload/src/vector.c", "preload/src/vector_names.c", "wrapper/src/vector_consumer.c",
           "wrapper/src/vector_file.c")
LIST_BYTES = 131072
EVENTS = 1200


def write(path: Path, *, events: int = EVENTS, ring: int = 0, stop: bool = False) -> subprocess.CompletedProcess[str]:
    return subprocess.run([build("vector_write", SOURCES), path, str(events), str(ring), str(LIST_BYTES),
                           *(["stop"] if stop else [])], capture_output=True, text=True, timeout=60, check=False)


def first(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Rows by kind, as the C reader has them."""
    with EventFile(path) as file:
        return {kind.name: table.drop_columns(["t"]).to_pylist() for kind, table in file.tables().items()}


def second(events: list[Event]) -> dict[str, list[dict[str, Any]]]:
    rows = defaultdict(list)
    for event in events:
        fields = {("t_" if name == "t" else name): value for name, value in event.fields.items()}
        rows[event.kind].append({"pid": event.pid, "tid": event.tid, "tsc": event.tsc, **fields, "data": event.pairs,
                                 "truncated": event.truncated})
    return dict(rows)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("vector") / "events"
    assert write(path).returncode == 0
    return path


def test_both_readers_agree_on_every_event(whole: Path) -> None:
    rows = first(whole)
    assert rows == second(read(whole).events)
    assert {name: len(of) for name, of in rows.items()} == {"all": 3 * EVENTS, "few": 3 * EVENTS}


def test_the_events_are_those_that_were_logged(whole: Path) -> None:
    rows = first(whole)
    numbers = sorted(row["number"] for row in rows["few"])
    assert numbers == [start + i for start in (0, 1000000, 2000000) for i in range(EVENTS)]
    one = next(row for row in rows["all"] if row["i"] == -1000010)
    assert one["u"] == 1000010 * 0x100000001 and one["f"] == 1000010 / 7 and one["t_"] == 42
    assert one["stack"] == [1000010 + i for i in range(1000010 % 6)]
    assert dict(one["data"])["delta"] == "-1000010" and dict(one["data"])["name"] == "café \\xff\\x00 end"
    cut = [row for row in rows["all"] if row["truncated"]]
    assert len(cut) == 3 and all(len(row["text"]) > 100000 for row in cut)
    assert len({row["tid"] for row in rows["few"]}) == 3 and len({row["pid"] for row in rows["few"]}) == 2


def test_missing_fields_are_null(whole: Path) -> None:
    rows = first(whole)["all"]
    assert all((row["f"] is None) == (-row["i"] % 3 == 0) for row in rows)
    assert all((row["raw"] is None) == (-row["i"] % 2 == 0) for row in rows)


def test_times_are_the_clocks(whole: Path) -> None:
    head = read(whole).head
    with EventFile(whole) as file:
        for table in file.tables().values():
            assert all(head["t0"] <= t <= head["t1"] for t in table["t"].to_pylist())


def test_a_file_whose_writer_was_killed_is_read(tmp_path: Path) -> None:
    path = tmp_path / "events"
    assert write(path, stop=True).returncode == -signal.SIGKILL
    assert first(path) == second(read(path).events)
    assert len(first(path)["few"]) == 3 * EVENTS
    with EventFile(path) as file:
        assert not file.account().closed


def test_a_file_that_is_cut_anywhere_gives_what_is_there_whole(whole: Path, tmp_path: Path) -> None:
    data, path = whole.read_bytes(), tmp_path / "cut"
    everything = {row["number"] for row in first(whole)["few"]}
    random.seed(7)
    for end in sorted(random.sample(range(CHUNKS_AT, len(data)), 12)):
        path.write_bytes(data[:end])
        rows = first(path)
        assert {row["number"] for row in rows.get("few", [])} <= everything
        assert rows == second(read(path).events)


def test_a_file_is_read_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "events"
    writer = subprocess.Popen([build("vector_write", SOURCES), path, "15000", "0", str(LIST_BYTES)])
    seen = 0
    try:
        while writer.poll() is None:
            if not path.exists() or path.stat().st_size < CHUNKS_AT:
                continue
            with EventFile(path) as file:
                came = sum(batch.num_rows for _, batch in file.batches())
                assert file.account().corrupt == 0
            assert came >= seen
            seen = came
    finally:
        assert writer.wait() == 0
    assert seen > 0 and len(first(path)["few"]) == 45000


def test_a_ring_keeps_the_newest_and_counts_the_others(tmp_path: Path) -> None:
    path, ring = tmp_path / "events", CHUNKS_AT + 10 * (LIST_BYTES + 4096)
    assert write(path, events=8000, ring=ring).returncode == 0
    assert path.stat().st_size <= ring
    rows, head = first(path), read(path).head
    assert rows == second(read(path).events)
    assert head["overwritten"] > 0
    assert head["stored"] - head["overwritten"] == sum(len(of) for of in rows.values())
    newest = [row["number"] for row in rows["few"]]
    assert max(newest) == 2000000 + 7999 and min(newest) >= 1000000  # the last one's end, not the first's
    with EventFile(path) as file:
        assert file.account().overwritten == head["overwritten"]


def test_a_ring_that_is_too_small_is_refused(tmp_path: Path) -> None:
    done = write(tmp_path / "events", ring=CHUNKS_AT + 2 * LIST_BYTES)
    assert done.returncode == 1 and "range" in done.stderr
    assert not (tmp_path / "events").exists()


def test_damaged_files_are_read_without_a_crash(whole: Path, tmp_path: Path) -> None:
    data, path = bytearray(whole.read_bytes()), tmp_path / "damaged"
    random.seed(int(os.environ.get("PTWEAVE_SEED", "11")))
    worse = 0
    for _ in range(40):
        copy = bytearray(data)
        for _ in range(random.choice([1, 8, 200])):
            at = random.choice([random.randrange(4096), random.randrange(4096, 9000),
                                random.randrange(CHUNKS_AT, len(copy))])
            copy[at] = random.randrange(256)
        path.write_bytes(copy)
        try:
            with EventFile(path) as file:
                for _, batch in file.batches():
                    batch.validate(full=True)
                account = file.account()
                worse += account.corrupt + account.unread > 0
        except BadInput:
            worse += 1
    assert worse > 5


def test_other_files_are_refused(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"no events" * 1000)
    (tmp_path / "link").symlink_to(other)
    for path, words in ((other, "is no file of events"), (tmp_path / "link", "is a symbolic link"),
                        (tmp_path / "none", "No such file")):
        with pytest.raises(BadInput, match=words):
            EventFile(path)


def test_a_field_with_the_name_of_a_common_column_gets_another() -> None:
    from ptweave.decode.vector import Field, FieldType
    kind = Kind("one", (Field("pid", FieldType.I64), Field("data", FieldType.STRING)))
    assert len(set(kind.schema.names)) == len(kind.schema.names)
    assert "pid_" in kind.schema.names and "data_" in kind.schema.names
