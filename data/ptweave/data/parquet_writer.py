# SPDX-License-Identifier: MIT
"""pyarrow's writer of a Parquet file, which is silent once it is given up."""

from __future__ import annotations

import pyarrow.parquet as pq


class ParquetWriter(pq.ParquetWriter):  # type: ignore[misc]
    """To be closed by whoever makes it: pyarrow's own tries to close again when it is collected what could not be
    closed (no room, no memory), and prints a traceback for an error that was told already."""

    def __del__(self) -> None:
        """The file is closed by what holds it."""
