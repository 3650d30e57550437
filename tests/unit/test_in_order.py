# SPDX-License-Identifier: MIT
"""Rows of a file in another order: the same in memory, where they are few, as by DuckDB, where they are not."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ptweave.data.errors import BadInput
from ptweave.merge import in_order as module
from ptweave.merge.beside import Beside
from ptweave.merge.in_order import in_order
from ptweave.merge.scratch import Scratch
from ptweave.merge.tables import I64

NAME = "rows.parquet"
COLUMNS = pa.schema([("number", pa.int64()), ("text", pa.string()), ("list", pa.list_(pa.uint64()))])


def row_of(number: int) -> dict[str, object]:
    return {"number": None if number % 7 == 0 else number, "text": f"row {number}" if number % 3 else None,
            "list": [number] * (number % 4)}


@pytest.fixture(params=[True, False], ids=["few", "many"])
def few(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if not request.param:
        monkeypatch.setattr(module, "FEW_BYTES", 0)
    return bool(request.param)


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Scratch]:
    rows = pa.Table.from_pylist([{**row_of(number), "other": "x" * 9} for number in range(1000)],
                                pa.schema([*COLUMNS, ("other", pa.string())]))
    pq.write_table(rows, tmp_path / NAME, row_group_size=300)
    with Beside() as beside, Scratch(tmp_path, beside) as made:
        yield made


def taken(scratch: Scratch, rows: I64) -> list[dict[str, object]]:
    return [row for batch in in_order(scratch, NAME, COLUMNS, rows) for row in batch.to_pylist()]


def connected(scratch: Scratch) -> bool:
    return scratch._connecting is not None


def test_they_come_in_the_order_asked_for_and_duckdb_is_there_only_where_they_are_many(scratch: Scratch,
                                                                                       few: bool) -> None:
    rows = random.Random(3).sample(range(1000), 700)
    assert taken(scratch, np.array(rows)) == [row_of(row) for row in rows]
    assert connected(scratch) is not few


def test_control_another_order_is_another_answer(scratch: Scratch, few: bool) -> None:
    rows = random.Random(3).sample(range(1000), 700)
    assert taken(scratch, np.array(rows[::-1])) != [row_of(row) for row in rows]


def test_none_are_asked_for(scratch: Scratch, few: bool) -> None:
    assert taken(scratch, np.empty(0, np.int64)) == []
    assert not connected(scratch)


@pytest.mark.parametrize("at", [4, 200, -200])
def test_a_corrupt_file_is_said_in_one_line(scratch: Scratch, few: bool, at: int) -> None:
    path = scratch.folder / NAME
    raw = bytearray(path.read_bytes())
    raw[at:at + 20] = bytes(20)
    path.write_bytes(raw)
    with pytest.raises(BadInput, match=r"rows\.parquet: is corrupt"):
        taken(scratch, np.arange(1000))
