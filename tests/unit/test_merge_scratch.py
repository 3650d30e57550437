# SPDX-License-Identifier: MIT
"""The merge's DuckDB: several threads ask it at a time, each with views of its own."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ptweave.data.errors import BadInput
from ptweave.merge.beside import Beside
from ptweave.merge.scratch import Queries, Scratch

ROWS = 1 << 19


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, factor in (("one", 1), ("two", 2)):
        pq.write_table(pa.table({"value": pa.array([factor * (row * 7919 % ROWS) for row in range(ROWS)])}),
                       tmp_path / f"{name}.parquet")
    return tmp_path


def ordered(queries: Queries, name: str, factor: int, begun: threading.Barrier) -> bool:
    """Whether a file's rows, sorted, are the multiples of a factor; the first of them when others have theirs, too."""
    rows = queries.batches(f"{name}.parquet", "select value + bias as value from source, biases order by value",
                           biases=pa.table({"bias": [factor]}))
    found = [next(rows)]
    begun.wait(60)
    found += rows
    return pa.concat_arrays([batch.column(0) for batch in found]).to_pylist() == [
        factor * (row + 1) for row in range(ROWS)]


def test_two_threads_ask_at_a_time_and_each_has_its_own_views_and_tables(folder: Path) -> None:
    begun = threading.Barrier(2)
    with Beside() as beside, Scratch(folder, beside) as scratch, scratch.another() as other, \
            ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(ordered, queries, name, factor, begun)
                 for queries, name, factor in ((scratch, "one", 1), (other, "two", 2))]
        assert [one.result() for one in asked] == [True, True]


def test_control_the_same_rows_are_not_those_of_the_other_file(folder: Path) -> None:
    with Beside() as beside, Scratch(folder, beside) as scratch, scratch.another() as other:
        assert not ordered(other, "one", 2, threading.Barrier(1))
        assert ordered(scratch, "one", 1, threading.Barrier(1))


def test_an_error_in_one_leaves_the_other_as_it_was(folder: Path) -> None:
    (folder / "bad.parquet").write_bytes(b"PAR1 or not")
    with Beside() as beside, Scratch(folder, beside) as scratch:
        with scratch.another() as other, pytest.raises(BadInput, match="is corrupt"):
            other.table("bad.parquet", "select * from source")
        assert ordered(scratch, "two", 2, threading.Barrier(1))
