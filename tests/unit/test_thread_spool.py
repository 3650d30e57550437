# SPDX-License-Identifier: MIT
"""Rows that come thread by thread in any order are written in thread order, whatever the file between holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ptweave.decode.spool import Spool

SCHEMA = pa.schema([("thread", pa.int32()), ("thunk", pa.int32()), ("clock", pa.list_(pa.uint32()))])
THREADS, ROWS, COMPONENTS = 3, 50, 900


def batch_of(thread: int, first: int) -> pa.RecordBatch:
    """ROWS thunks of a run with COMPONENTS threads: a clock is the one before but for the thread's own component."""
    clocks = np.tile(np.arange(COMPONENTS, dtype=np.uint32) * 7, (ROWS, 1))
    clocks[:, thread] = np.arange(first, first + ROWS) + 1
    offsets = pa.array(np.arange(ROWS + 1, dtype=np.int32) * COMPONENTS)
    return pa.RecordBatch.from_arrays([
        pa.array(np.full(ROWS, thread, np.int32)), pa.array(np.arange(first, first + ROWS, dtype=np.int32)),
        pa.ListArray.from_arrays(offsets, pa.array(clocks.ravel()))], schema=SCHEMA)


def spooled(folder: Path, *, compressed: bool) -> tuple[int, pa.Table]:
    """Bytes of the file between, and what was written in the end."""
    path, target = folder / "spool", folder / "rows.parquet"
    with Spool(path, SCHEMA, compressed=compressed) as spool:
        for turn in range(4):
            for thread in reversed(range(THREADS)):
                spool.add(batch_of(thread, turn * ROWS))
        spool.write(target)
        size = path.stat().st_size
    assert not path.exists()
    return size, pq.read_table(target)


@pytest.mark.parametrize("compressed", [False, True])
def test_rows_are_written_in_thread_order(tmp_path: Path, compressed: bool) -> None:
    _, table = spooled(tmp_path, compressed=compressed)
    wanted = [batch_of(thread, turn * ROWS) for thread in range(THREADS) for turn in range(4)]
    assert table.equals(pa.Table.from_batches(wanted, SCHEMA))


def test_clocks_of_many_threads_take_a_small_part_of_their_size_until_then(tmp_path: Path) -> None:
    clocks = 4 * THREADS * ROWS * COMPONENTS * 4
    assert spooled(tmp_path, compressed=True)[0] < clocks / 20
    assert spooled(tmp_path, compressed=False)[0] > clocks  # control
