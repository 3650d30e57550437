# SPDX-License-Identifier: MIT
"""What the merge does beside its walk: reading ahead keeps order and errors, and a pool changes no file."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from ptweave.data.schemas import STACKS
from ptweave.data.table_writer import TableWriter
from ptweave.merge.beside import Beside, side_by_side


def counted(until: int, made: list[int], broken: int = -1) -> Generator[int, None, None]:
    try:
        for number in range(until):
            if number == broken:
                raise ValueError("broken here")
            made.append(number)
            yield number
    finally:
        made.append(-1)


def test_items_read_ahead_come_in_order_and_all() -> None:
    made: list[int] = []
    with Beside() as beside:
        assert list(beside.ahead(counted(1000, made))) == list(range(1000))
    assert made[-1] == -1


def test_one_item_is_made_while_another_is_used() -> None:
    made: list[int] = []
    with Beside() as beside:
        for item in beside.ahead(counted(4, made)):
            limit = time.monotonic() + 10
            while item < 3 and item + 1 not in made and time.monotonic() < limit:
                time.sleep(0.001)
            assert item == 3 or item + 1 in made
            assert item + 2 not in made  # one, and no more


def test_an_error_while_reading_ahead_comes_behind_the_items_before_it() -> None:
    made: list[int] = []
    got: list[int] = []
    with Beside() as beside, pytest.raises(ValueError, match="broken here"):
        for item in beside.ahead(counted(9, made, broken=5)):
            got.append(item)
    assert got == [0, 1, 2, 3, 4]


def test_reading_ahead_that_is_given_up_closes_what_it_reads() -> None:
    made: list[int] = []
    with Beside() as beside:
        items = beside.ahead(counted(1000, made))
        assert next(items) == 0
        items.close()  # type: ignore[attr-defined]
        assert made[-1] == -1 and len(made) <= 3


def until(true: Callable[[], bool]) -> None:
    limit = time.monotonic() + 10
    while not true():
        assert time.monotonic() < limit
        time.sleep(0.001)


def test_items_made_soon_are_made_at_once_so_many_of_them_and_come_in_order() -> None:
    made: list[int] = []
    with Beside() as beside:
        items = beside.soon(counted(100, made), 5)
        until(lambda: len(made) == 5)
        time.sleep(0.02)
        assert made == [0, 1, 2, 3, 4]
        for item, number in enumerate(items):
            assert item == number and len([one for one in made if one >= 0]) <= item + 1 + 5
    assert item == 99 and made[-1] == -1
    assert list(items) == []  # and it stays over


def test_an_error_of_what_is_made_soon_comes_behind_the_items_before_it() -> None:
    made: list[int] = []
    with Beside() as beside:
        items = beside.soon(counted(9, made, broken=5), 7)
        until(lambda: made[-1:] == [-1])
        got: list[int] = []
        with pytest.raises(ValueError, match="broken here"):
            for item in items:
                got.append(item)
    assert got == [0, 1, 2, 3, 4]


def test_what_is_made_soon_and_never_asked_for_keeps_nobody_waiting() -> None:
    made: list[int] = []
    with Beside() as beside:
        items = beside.soon(counted(1 << 40, made), 3)
        until(lambda: len(made) == 3)
        items.close()
    assert made[:4] == [0, 1, 2]
    with Beside() as beside:  # closed while one is being made
        going = threading.Event()

        def slow() -> Generator[int, None, None]:
            for number in range(1 << 40):
                going.set()
                time.sleep(0.01)
                yield number

        items = beside.soon(slow(), 1 << 40)
        going.wait()
        items.close()


def test_leaving_waits_for_what_has_begun() -> None:
    begun, done = threading.Event(), []

    def work() -> None:
        begun.set()
        time.sleep(0.05)
        done.append(True)

    with Beside() as beside:
        beside.start(work)
        begun.wait()
    assert done == [True]


def rows(first: int, count: int) -> pa.Table:
    numbers = np.arange(first, first + count, dtype=np.int32)
    return pa.table({"stack": numbers, "parent": numbers, "depth": numbers % 7, "image": numbers % 3, "block": numbers,
                     "function": [f"f{n % 5}" for n in numbers]}, schema=STACKS.schema)


def written(folder: Path, pool: ThreadPoolExecutor | None) -> bytes:
    with TableWriter(folder, STACKS, row_group=1000, pool=pool) as writer:
        for first in range(0, 12_345, 345):
            writer.write(rows(first, min(345, 12_345 - first)))
    assert writer.rows == 12_345
    return (folder / STACKS.name / "0.parquet").read_bytes()


def test_a_table_compressed_in_a_pool_is_the_same_file(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        assert written(tmp_path / "pool", pool) == written(tmp_path / "alone", None)


class _Full:
    """A file that no row group fits into."""

    def __init__(self) -> None:
        self.is_closed = False

    def write_table(self, *_: object, **__: object) -> None:
        raise OSError("no space left")

    def close(self) -> None:
        self.is_closed = True


def test_an_error_in_the_pool_is_raised_and_leaves_no_file(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        with pytest.raises(OSError, match="no space left"), TableWriter(
                tmp_path, STACKS, row_group=1000, pool=pool) as writer:
            writer._writer.close()
            writer._writer = _Full()
            writer.write(rows(0, 1500))
        assert list((tmp_path / STACKS.name).iterdir()) == []


def test_work_side_by_side_comes_in_order_whichever_is_done_first() -> None:
    def work(number: int) -> int:
        time.sleep(0.002 * (number % 3 == 0))
        return number

    assert list(side_by_side(work, range(100), 3)) == list(range(100))
    assert list(side_by_side(work, [], 3)) == []


def test_work_side_by_side_is_of_two_items_at_once() -> None:
    both = threading.Barrier(2, timeout=10)
    assert list(side_by_side(lambda number: both.wait() >= 0, range(2), 2)) == [True, True]  # alone it would be broken


def test_no_more_is_made_ahead_than_was_said() -> None:
    made: list[int] = []
    for item in side_by_side(lambda number: made.append(number) or number, range(100), 2):
        assert len(made) <= item + 5


def test_an_error_side_by_side_comes_in_its_place_and_ends_it() -> None:
    got: list[int] = []
    with pytest.raises(ZeroDivisionError):
        for item in side_by_side(lambda number: number // (number != 5), range(100), 2):
            got.append(item)
    assert got == [0, 1, 2, 3, 4]
