# SPDX-License-Identifier: MIT
"""A Parquet file that cannot be written is told once, by an exception, and not again when its writer is collected."""

from __future__ import annotations

import gc
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ptweave.data.parquet_writer import ParquetWriter
from ptweave.data.schemas import GAPS
from ptweave.data.table_writer import TableWriter

ROWS = pa.table({"number": pa.array(range(1000), pa.int64())})


@pytest.fixture
def ignored(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Exceptions that nobody could be told, which Python prints with a traceback."""
    seen: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda one: seen.append(str(one.exc_value)))
    yield seen
    gc.collect()


@contextmanager
def no_longer_than(size: int) -> Iterator[None]:
    """Files cannot get longer than that. (Python ignores SIGXFSZ.)"""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def close_below(path: Path) -> None:
    """The descriptor under a writer's file."""
    (number,) = [int(link.name) for link in Path("/proc/self/fd").iterdir() if os.path.realpath(link) == str(path)]
    os.close(number)


def fail_to_close(kind: type[pq.ParquetWriter], path: Path) -> None:
    writer = kind(str(path), ROWS.schema)
    writer.write_table(ROWS)
    close_below(path)
    with pytest.raises(OSError, match="lseek failed"):
        writer.close()
    del writer
    gc.collect()


def test_a_file_that_cannot_be_closed_is_told_once(ignored: list[str], tmp_path: Path) -> None:
    fail_to_close(ParquetWriter, tmp_path / "file")
    assert not ignored


def test_control_pyarrows_own_writer_tells_it_again(ignored: list[str], tmp_path: Path) -> None:
    fail_to_close(pq.ParquetWriter, tmp_path / "file")
    assert ignored


@pytest.mark.parametrize("size", [0, 4])
def test_a_table_that_cannot_be_written_is_told_once_and_leaves_nothing(size: int, ignored: list[str],
                                                                        tmp_path: Path) -> None:
    """Not even its first bytes, or these alone."""
    with no_longer_than(size), pytest.raises(OSError, match="File too large"), TableWriter(tmp_path, GAPS):
        pass
    gc.collect()
    assert not ignored and not list((tmp_path / GAPS.name).iterdir())
