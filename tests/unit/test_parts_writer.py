# SPDX-License-Identifier: MIT
"""A table in several files: all its rows in order, all of the files or none."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ptweave.data import parts_writer
from ptweave.data.parts_writer import PartsWriter
from ptweave.data.schemas import FLOW
from ptweave.data.table_writer import TableWriter

EACH = 1000


def flow(first: int, count: int) -> pa.Table:
    return pa.table({"thread": pa.array([0] * count, pa.int32()),
                     "seq": pa.array(range(first, first + count), pa.int64()),
                     "path": pa.array([i % 7 for i in range(first, first + count)], pa.int32())})


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as made:
        yield made


def written(folder: Path, pool: ThreadPoolExecutor, cuts: list[int]) -> list[pa.Table]:
    with PartsWriter(folder, FLOW, EACH, pool=pool) as writer:
        done = 0
        for count in cuts:
            writer.write(flow(done, count))
            done += count
    files = list((folder / "flow").iterdir())
    return [pq.read_table(folder / "flow" / f"{number}.parquet") for number in range(len(files))]


def test_rows_are_in_order_and_every_file_but_the_last_has_as_many(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    tables = written(tmp_path, pool, [700, 2600, 5, 10_000])
    assert [table.num_rows for table in tables] == [EACH] * 13 + [305]
    assert pa.concat_tables(tables)["seq"].to_pylist() == list(range(13_305))
    assert tables[0].schema.equals(FLOW.schema)


def test_files_are_the_same_however_rows_come(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    chance = random.Random(7)
    once = written(tmp_path / "once", pool, [4321])
    for attempt in range(5):
        cuts = sorted(chance.sample(range(4321), 9))
        cuts = [b - a for a, b in zip([0, *cuts], [*cuts, 4321], strict=True)]
        assert written(tmp_path / str(attempt), pool, cuts) == once
    assert written(tmp_path / "less", pool, [4320]) != once


def test_no_rows_are_one_file_without_any(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    (found,) = written(tmp_path, pool, [])
    assert found.num_rows == 0
    assert len(written(tmp_path / "full", pool, [EACH])) == 1  # and none behind a full one


def test_two_files_are_written_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both, finish = threading.Barrier(2, timeout=20), TableWriter.finish

    def together(self: TableWriter) -> None:
        both.wait()  # alone it would be broken
        finish(self)

    monkeypatch.setattr(TableWriter, "finish", together)
    with ThreadPoolExecutor(4) as pool:
        assert len(written(tmp_path, pool, [500] * 8)) == 4


def test_no_more_files_than_that_are_begun(tmp_path: Path) -> None:
    begun: list[Future[object]] = []

    class Counted(ThreadPoolExecutor):
        def submit(self, *work: Any, **more: Any) -> Future[Any]:
            assert sum(not one.done() for one in begun) < parts_writer.AT_A_TIME
            begun.append(super().submit(*work, **more))
            return begun[-1]

    with Counted(8) as pool:
        written(tmp_path, pool, [EACH] * 9)
    assert len(begun) == 9


@pytest.mark.parametrize("broken", [0, 2, 4])
def test_an_error_in_one_leaves_no_file_of_any(tmp_path: Path, pool: ThreadPoolExecutor, broken: int,
                                              monkeypatch: pytest.MonkeyPatch) -> None:
    finish = TableWriter.finish

    def full(self: TableWriter) -> None:
        if self._path.name == f"{broken}.parquet":
            raise OSError("no space left")
        finish(self)

    monkeypatch.setattr(TableWriter, "finish", full)
    with pytest.raises(OSError, match="no space left"):
        written(tmp_path, pool, [EACH] * 5)
    assert list((tmp_path / "flow").iterdir()) == []


def test_nothing_is_there_until_all_of_it_is(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    with pytest.raises(KeyError), PartsWriter(tmp_path, FLOW, EACH, pool=pool) as writer:
        for number in range(5):
            writer.write(flow(number * EACH, EACH))
        assert not list((tmp_path / "flow").glob("[0-9]*.parquet"))
        raise KeyError
    assert list((tmp_path / "flow").iterdir()) == []


def test_files_that_were_not_begun_when_it_is_given_up_are_not_written(tmp_path: Path) -> None:
    class Late(ThreadPoolExecutor):
        """Begins nothing."""

        def submit(self, *_: object, **__: object) -> Future[object]:  # type: ignore[override]
            return Future()

    with pytest.raises(KeyError), PartsWriter(tmp_path, FLOW, EACH, pool=Late(1)) as writer:
        writer.write(flow(0, EACH))
        raise KeyError
    assert list((tmp_path / "flow").glob("*")) == []
