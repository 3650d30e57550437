# SPDX-License-Identifier: MIT
"""Distinct call stacks, written as they come: a stack's number is its row."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

import pyarrow as pa

from ptweave.data.parquet_writer import ParquetWriter
from ptweave.data.schemas import DECODED_STACKS
from ptweave.data.table_writer import ROW_GROUP

_GROUP_BYTES = 16 << 20
"""Rows held back for one row group."""


class StackFile:
    """Use as a context manager: the file appears under its name when it is finished."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._partial = path.with_name(f".{path.name}.partial")
        self._pending: list[pa.RecordBatch] = []
        self._size = 0

    def __enter__(self) -> StackFile:
        self._writer = ParquetWriter(str(self._partial), DECODED_STACKS, compression="zstd", compression_level=1)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._writer.close()
        self._partial.unlink(missing_ok=True)

    def add(self, batch: pa.RecordBatch) -> None:
        """Take more stacks (DECODED_STACKS)."""
        self._pending.append(batch)
        self._size += batch.nbytes
        if self._size >= _GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._pending:
            self._writer.write_table(pa.Table.from_batches(self._pending, DECODED_STACKS), row_group_size=ROW_GROUP)
        self._pending, self._size = [], 0

    def finish(self) -> None:
        """Write what is left. Nothing can be added any more."""
        self._flush()
        self._writer.close()
        self._partial.replace(self._path)
