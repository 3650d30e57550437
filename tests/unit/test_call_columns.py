# SPDX-License-Identifier: MIT
"""Columns of system calls made as dictionaries, against those made as text; and files written from both."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ptweave.data.call_columns import constant, encoded_errnos, encoded_names, errnos, names
from ptweave.data.schemas import SYSCALLS
from ptweave.data.table_writer import TableWriter

KNOWN = np.array([0, 1, 257, 511, 0, 335], np.int32)
UNKNOWN = np.array([0, 512, -1, 100_000], np.int32)
RESULTS = np.array([0, -2, -11, -516, 5, -4095, -4096, -600, -1], np.int64)


@pytest.mark.parametrize("numbers", [KNOWN, UNKNOWN, KNOWN[:0]], ids=["known", "unknown", "none"])
def test_encoded_names_are_the_names(numbers: np.ndarray) -> None:
    assert encoded_names(numbers).cast(pa.string()).equals(names(numbers))


@pytest.mark.parametrize("some", [slice(None), slice(0, 5), slice(0, 0)], ids=["with rare ones", "named", "none"])
def test_encoded_errors_are_the_errors(some: slice) -> None:
    results = RESULTS[some]
    for returned in (np.ones(len(results), np.bool_), np.arange(len(results)) % 2 == 0):
        assert encoded_errnos(results, returned).cast(pa.string()).equals(errnos(results, returned))


def test_a_file_from_dictionaries_reads_as_one_from_text(tmp_path: Path) -> None:
    encoded = ("name", "errno", "source", "placed")
    batches = [(KNOWN, RESULTS[:6]), (UNKNOWN, RESULTS[4:8]), (KNOWN, RESULTS[:6])]  # a dictionary of its own between

    def rows(numbers: np.ndarray, results: np.ndarray, *, text: bool) -> pa.Table:
        returned = np.ones(len(results), np.bool_)
        found = {"name": (names if text else encoded_names)(numbers),
                 "errno": (errnos if text else encoded_errnos)(results, returned),
                 "source": constant("kernel", len(numbers)), "placed": constant("none", len(numbers))}
        return pa.table({field.name: found.get(field.name, pa.nulls(len(numbers), field.type))
                         for field in SYSCALLS.schema})

    for name, columns in {"text.parquet": (), "encoded.parquet": encoded}.items():
        with TableWriter(tmp_path, SYSCALLS, name, row_group=4, encoded=columns) as writer:
            for numbers, results in batches:
                writer.write(rows(numbers, results, text=not columns))
    written = [pq.read_table(tmp_path / "syscalls" / name) for name in ("text.parquet", "encoded.parquet")]
    assert written[0].num_rows == 16
    assert written[0].schema.equals(SYSCALLS.schema) and written[1].schema.equals(SYSCALLS.schema)
    assert written[0].equals(written[1])
