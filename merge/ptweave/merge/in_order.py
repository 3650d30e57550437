# SPDX-License-Identifier: MIT
"""Rows of a file between the stages in another order than it has them: taken in memory where they are few, by DuckDB
where they are not, which takes a twelfth of a second to be there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ptweave.merge.scratch import Queries
from ptweave.merge.tables import BATCH_ROWS, I64, corrupt, open_parquet

FEW_BYTES = 16 << 20
"""Of the columns asked for, as they are before they are compressed."""


def in_order(queries: Queries, name: str, columns: pa.Schema, rows: I64) -> Iterator[pa.RecordBatch]:
    """Columns of rows of the Parquet file `name` in the folder of `queries`, in the order of `rows`, which are numbers
    of rows that it has, each once at most. Raises BadInput when the file is corrupt."""
    if not len(rows):
        return
    path = queries.folder / name
    with open_parquet(path, columns) as file:
        few = is_little(file.metadata, columns)
        if few:
            yield from _taken(file, path, columns, rows)
    if not few:
        names = ", ".join(f'source."{column}"' for column in columns.names)
        wanted = pa.table({"row": rows, "place": np.arange(len(rows))})
        query = f"select {names} from source join wanted on source.file_row_number = wanted.row order by wanted.place"
        yield from queries.batches(name, query, wanted=wanted)


def is_little(metadata: pq.FileMetaData, columns: pa.Schema) -> bool:
    """Whether columns of a file may be held in memory."""
    if metadata.num_rows > BATCH_ROWS:
        return False
    groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    parts = (group.column(number) for group in groups for number in range(group.num_columns))
    size: int = sum(part.total_uncompressed_size for part in parts
                    if part.path_in_schema.partition(".")[0] in columns.names)
    return size <= FEW_BYTES


def _taken(file: pq.ParquetFile, path: Path, columns: pa.Schema, rows: I64) -> Iterator[pa.RecordBatch]:
    try:
        found = file.read(columns.names, use_threads=False).select(columns.names).take(pa.array(rows))
    except (OSError, pa.ArrowException, ValueError) as error:
        raise corrupt(path, error) from error
    yield from found.to_batches()
