# SPDX-License-Identifier: MIT
"""Clocks of all thunks as C reads them: each component as the file has it, in little room also for many threads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ptweave.data.errors import BadInput
from ptweave.data.schemas import DECODED_THUNKS
from ptweave.merge import thunk_rows
from ptweave.merge.beside import Beside
from ptweave.merge.clocks import Clocks
from ptweave.merge.scratch import Scratch
from ptweave.merge.thunk_rows import FILE, ThunkRows

Rows = dict[int, list[list[int]]]
"""A thread's clocks, by thunk."""


def made(threads: int, thunks: int, seed: int) -> Rows:
    """Clocks that grow in a few components at a time, and in length."""
    random = np.random.default_rng(seed)
    rows: Rows = {}
    for thread in range(threads):
        clock = np.zeros(threads, np.int64)
        length = thread + 1
        rows[thread] = []
        for thunk in range(int(random.integers(0, thunks)) + (thread == 0)):
            clock[thread] = thunk + 1
            known = random.integers(0, threads, 3)
            clock[known] += random.integers(0, 5, 3) * (known != thread)
            length = max(length, int(random.integers(0, threads + 1)) if random.random() < 0.1 else 0)
            rows[thread].append(clock[:length].tolist())
    return rows


def write(folder: Path, rows: Rows) -> None:
    flat = [(thread, thunk, clock) for thread, clocks in rows.items() for thunk, clock in enumerate(clocks)]
    table = pa.table({field.name: pa.nulls(len(flat), field.type) for field in DECODED_THUNKS})
    for name, values in zip(("thread", "thunk", "clock"), zip(*flat, strict=True), strict=True):
        at = table.schema.get_field_index(name)
        table = table.set_column(at, DECODED_THUNKS.field(name), pa.array(values, DECODED_THUNKS.field(name).type))
    folder.mkdir(exist_ok=True)
    pq.write_table(table, folder / FILE, row_group_size=1000)


def component(clocks: Clocks, thread: int, thunk: int, of: int) -> int:
    """Read as graph_api.h says."""
    raw = clocks.raw
    blocks = [raw.blocks[number] for number in range(raw.block[thread], raw.block[thread + 1])]
    block = next(block for block in reversed(blocks) if block.first <= thunk)
    if of >> raw.shift >= block.width:
        return 0
    chunk = raw.index[block.begin + (thunk - block.first) * block.width + (of >> raw.shift)]
    return int(raw.chunks[(chunk << raw.shift) + of % (1 << raw.shift)])


def unlike(clocks: Clocks, rows: Rows) -> list[tuple[int, int, int]]:
    """Thread, thunk and component where they say something else, but for what a thread knows of itself."""
    return [(thread, thunk, of) for thread, its in rows.items() for thunk, clock in enumerate(its)
            for of in range(clocks.threads) if component(clocks, thread, thunk, of) != (
                clock[of] if of < len(clock) and of != thread else 0)]


@pytest.mark.parametrize("at_once", [1, 5000, 8 << 20])
@pytest.mark.parametrize("threads", [1, 2, 5, 64, 65, 150])
def test_every_component_is_the_files_but_what_a_thread_knows_of_itself(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int, at_once: int) -> None:
    monkeypatch.setattr(thunk_rows, "CLOCK_BYTES", at_once)
    rows = made(threads, 12, threads)
    write(tmp_path / "decoded", rows)
    with Beside() as beside, Scratch(tmp_path / "decoded", beside) as scratch, \
            Clocks(scratch, ThunkRows(scratch, beside)) as clocks:
        assert clocks.count.tolist() == [len(rows[thread]) for thread in range(clocks.threads)]
        assert unlike(clocks, rows) == []


def test_control_one_component_that_is_not_the_files_is_noticed(tmp_path: Path) -> None:
    rows = made(65, 12, 3)
    write(tmp_path / "decoded", rows)
    thread, thunk = next((thread, len(its) - 1) for thread, its in rows.items() if thread and len(its) > 5)
    rows[thread][thunk][thread - 1] += 1
    with Beside() as beside, Scratch(tmp_path / "decoded", beside) as scratch, \
            Clocks(scratch, ThunkRows(scratch, beside)) as clocks:
        assert unlike(clocks, rows) == [(thread, thunk, thread - 1)]


def test_many_threads_take_a_part_of_what_all_components_would(tmp_path: Path) -> None:
    rows = made(1500, 8, 1)
    write(tmp_path / "decoded", rows)
    components = sum(len(clock) for clocks in rows.values() for clock in clocks)
    with Beside() as beside, Scratch(tmp_path / "decoded", beside) as scratch, \
            Clocks(scratch, ThunkRows(scratch, beside)) as clocks:
        size = sum(array.nbytes for array in clocks.arrays.values())
        assert size < components  # four bytes each


@pytest.mark.parametrize("column, values", [
    ("thunk", [1, 2]), ("thunk", [0, 2]), ("thunk", [0, 0]), ("thread", [-1, 0]), ("thread", [0, 1]),
    ("thread", [0, 2**31 - 1]), ("thread", [0, 10**6])])
@pytest.mark.parametrize("loaded", [True, False])
def test_thunks_that_do_not_follow_each_other_are_an_error(
        tmp_path: Path, column: str, values: list[int], loaded: bool) -> None:
    """Whether that is seen as all rows are gone over for the first time, or later."""
    write(tmp_path / "decoded", {0: [[1], [2]]})
    table = pq.read_table(tmp_path / "decoded" / FILE)
    at = table.schema.get_field_index(column)
    pq.write_table(table.set_column(at, column, pa.array(values, pa.int32())), tmp_path / "decoded" / FILE)
    with Beside() as beside, Scratch(tmp_path / "decoded", beside) as scratch, \
            pytest.raises(BadInput, match="do not follow each other"):
        rows = ThunkRows(scratch, beside)
        if loaded:
            rows.load(["thread", "thunk"], lambda rows, batch: None)
        Clocks(scratch, rows)


def test_rows_that_were_gone_over_say_how_many_thunks_each_thread_has(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = made(5, 12, 5)
    write(tmp_path / "decoded", rows)
    with Beside() as beside, Scratch(tmp_path / "decoded", beside) as scratch:
        loaded = ThunkRows(scratch, beside)
        monkeypatch.setattr(thunk_rows, "BATCH_ROWS", 5)
        loaded.load(["thread", "thunk"], lambda rows, batch: None)
        assert loaded.numbered
        assert {thread: rows.stop - rows.start for thread, rows in loaded.threads.items()} == {
            thread: len(its) for thread, its in rows.items() if its}
        with Clocks(scratch, loaded) as clocks:
            assert clocks.count.tolist() == [len(rows[thread]) for thread in range(clocks.threads)]
