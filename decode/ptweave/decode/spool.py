# SPDX-License-Identifier: MIT
"""Batches of rows that come thread by thread in any order, kept in a file until they are written in thread order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import pyarrow as pa

from ptweave.data.parquet_writer import ParquetWriter
from ptweave.data.table_writer import PAGES, ROW_GROUP

GROUP_BYTES = 64 << 20
"""Rows held back for one row group."""

_ENCODINGS = dict.fromkeys(("record", "thunk", "t", "tsc"), "DELTA_BINARY_PACKED") | {
    "wait": "BYTE_STREAM_SPLIT", "clock.list.element": "BYTE_STREAM_SPLIT"}
"""Of columns of numbers that follow each other, and of those that are alike but for their low bytes."""

class Spool:
    """Use as a context manager: the file at `path` goes away with it. A batch is of one thread (its first column)."""

    def __init__(self, path: Path, schema: pa.Schema, *, compressed: bool = False) -> None:
        self._path = path
        self._schema = schema
        self._options = pa.ipc.IpcWriteOptions(compression="lz4" if compressed else None)
        self._where: dict[int, list[int]] = defaultdict(list)
        self._written = 0
        self.rows = 0

    def __enter__(self) -> Spool:
        self._sink = pa.OSFile(str(self._path), "wb")
        self._out = pa.ipc.new_file(self._sink, self._schema, options=self._options)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._close()
        self._path.unlink(missing_ok=True)

    def _close(self) -> None:
        if not self._sink.closed:
            self._out.close()
            self._sink.close()

    def add(self, batch: pa.RecordBatch) -> None:
        """Keep a batch."""
        self._out.write_batch(batch)
        self._where[batch["thread"][0].as_py()].append(self._written)
        self._written += 1
        self.rows += batch.num_rows

    def _in_thread_order(self) -> Iterator[pa.RecordBatch]:
        with pa.OSFile(str(self._path), "rb") as source:
            reader = pa.ipc.open_file(source)
            for thread in sorted(self._where):
                for index in self._where[thread]:
                    yield reader.get_batch(index)

    def write(self, target: Path) -> None:
        """Write all batches to a Parquet file, each thread's in the order they came. Nothing can be added any more."""
        self._close()
        partial = target.with_name(f".{target.name}.partial")
        pending: list[pa.RecordBatch] = []
        size = 0
        words = [field.name for field in self._schema if pa.types.is_string(field.type)]
        with ParquetWriter(str(partial), self._schema, compression="zstd", compression_level=1,
                              use_dictionary=["thread", *words],
                              column_encoding={leaf: encoding for leaf, encoding in _ENCODINGS.items()
                                               if leaf.partition(".")[0] in self._schema.names} or None,
                              **PAGES) as writer:
            for batch in self._in_thread_order():
                pending.append(batch)
                size += batch.nbytes
                if size >= GROUP_BYTES:
                    writer.write_table(pa.Table.from_batches(pending, self._schema), row_group_size=ROW_GROUP)
                    pending, size = [], 0
            if pending:
                writer.write_table(pa.Table.from_batches(pending, self._schema), row_group_size=ROW_GROUP)
        partial.replace(target)
