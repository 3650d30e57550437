# SPDX-License-Identifier: MIT
"""The tests' own reader of accesses, on lists made by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ptweave.data.evl import Operation
from support.evl import List, record
from support.evl_accesses import ACCESS_COMMIT, ACCESS_END, ACCESS_READ, ACCESS_WRITE, PAGE, read_accesses

A, B = 0x100_0000_0000, 0x100_0000_5000


def rows(folder: Path) -> set[tuple[int, int, int, int, bool]]:
    found = read_accesses(folder)
    return set(zip(found.thread.tolist(), found.thunk.tolist(), found.until.tolist(), found.page.tolist(),
                   found.write.tolist(), strict=True))


def listed(folder: Path, thread: int, *records: tuple[int, int, int]) -> None:
    """Records as (operation, object, argument)."""
    one = List(thread)
    for operation, obj, argument in records:
        one.data += record(operation, obj=obj, argument=argument)
    one.save(folder)


START, LOCK, UNLOCK = (int(one) for one in (Operation.START, Operation.MUTEX_LOCK, Operation.MUTEX_UNLOCK))


def test_a_page_is_open_from_its_first_access_until_it_is_closed(tmp_path: Path) -> None:
    listed(tmp_path, 0, (START, 0, 0), (ACCESS_READ, A + 100, 1), (LOCK, 1, 0), (ACCESS_WRITE, B + 4095, 1),
           (ACCESS_END, A, 1), (UNLOCK, 1, 0), (LOCK, 1, 0), (ACCESS_END, B, 1), (UNLOCK, 1, 0))
    assert rows(tmp_path) == {(0, 0, 1, A, False), (0, 1, 3, B, True)}


def test_what_is_never_closed_is_open_to_the_end(tmp_path: Path) -> None:
    listed(tmp_path, 3, (START, 0, 0), (ACCESS_WRITE, A, 1), (LOCK, 1, 0), (UNLOCK, 1, 0))
    assert rows(tmp_path) == {(3, 0, 2, A, True)}


def test_a_window_opens_and_an_end_closes_several_pages(tmp_path: Path) -> None:
    listed(tmp_path, 0, (START, 0, 0), (ACCESS_READ, A + 8, 3), (LOCK, 1, 0), (ACCESS_END, A + PAGE, 2))
    assert rows(tmp_path) == {(0, 0, 1, A, False), (0, 0, 1, A + PAGE, False), (0, 0, 1, A + 2 * PAGE, False)}
    listed(tmp_path, 0, (START, 0, 0), (ACCESS_READ, A, 2), (LOCK, 1, 0), (ACCESS_END, A + PAGE, 1), (LOCK, 1, 0))
    assert rows(tmp_path) == {(0, 0, 2, A, False), (0, 0, 1, A + PAGE, False)}


def test_an_end_of_no_page_closes_all(tmp_path: Path) -> None:
    listed(tmp_path, 0, (START, 0, 0), (ACCESS_READ, A, 1), (ACCESS_WRITE, B, 1), (ACCESS_END, 0, 0), (LOCK, 1, 0),
           (ACCESS_READ, A, 1))
    assert rows(tmp_path) == {(0, 0, 0, A, False), (0, 0, 0, B, True), (0, 1, 1, A, False)}


def test_a_page_that_was_read_first_has_a_row_for_each_kind(tmp_path: Path) -> None:
    listed(tmp_path, 0, (START, 0, 0), (ACCESS_READ, A, 1), (LOCK, 1, 0), (ACCESS_WRITE, A, 1), (LOCK, 1, 0),
           (ACCESS_END, A, 1))
    assert rows(tmp_path) == {(0, 0, 2, A, False), (0, 1, 2, A, True)}


def test_threads_are_read_one_by_one(tmp_path: Path) -> None:
    listed(tmp_path, 0, (START, 0, 0), (ACCESS_READ, A, 1))
    listed(tmp_path, 1, (START, 0, 0), (LOCK, 1, 0), (ACCESS_WRITE, A, 1))
    assert rows(tmp_path) == {(0, 0, 0, A, False), (1, 1, 1, A, True)}


def committed(folder: Path, runs: int, stack: tuple[int, ...], count: int) -> list[int]:
    """The bytes that a list with one commit, in thunk 1, says were changed."""
    one = List(0)
    one.data += (record(START) + record(ACCESS_WRITE, obj=A + 9, argument=1) + record(LOCK, obj=1)
                 + record(ACCESS_COMMIT, obj=A, result=runs, version=1, argument=count, stack=stack))
    one.save(folder)
    found = read_accesses(folder)
    assert found.bytes is not None
    (row,) = np.flatnonzero(found.bytes.any(axis=1))
    assert (found.thunk[row], found.until[row], found.page[row], found.write[row]) == (1, 1, A, True)
    return [int(one) for one in np.flatnonzero(np.unpackbits(found.bytes[row], bitorder="little"))]


def test_a_commit_says_which_bytes_its_thunk_changed(tmp_path: Path) -> None:
    assert committed(tmp_path, 1, (8 | 3 << 16,), 3) == [8, 9, 10]
    runs = (0 | 1 << 16) | (100 | 2 << 16) << 32, 4095 | 1 << 16
    assert committed(tmp_path, 3, runs, 4) == [0, 100, 101, 4095]
    assert committed(tmp_path, 1, (4096 << 16,), 4096) == list(range(4096))


def test_a_commit_of_many_runs_is_a_bitmap(tmp_path: Path) -> None:
    words = [0] * 64
    words[1], words[63] = 0b101, 1 << 63
    assert committed(tmp_path, 0, tuple(words), 3) == [64, 66, 4095]


def test_a_commit_whose_bytes_are_not_as_many_as_it_says_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        committed(tmp_path, 1, (8 | 3 << 16,), 4)
