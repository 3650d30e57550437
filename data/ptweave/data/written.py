# SPDX-License-Identifier: MIT
"""A table that was just written, for who asks for it next in the same process: it need not be read again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pyarrow as pa


def _identity(path: Path) -> tuple[int, int, int, int]:
    found = path.lstat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


@dataclass(frozen=True)
class Written:
    """Rows of the one file of a table, in their order: some of its columns."""

    rows: list[pa.Table]
    _file: tuple[int, int, int, int]

    @classmethod
    def to(cls, path: Path, rows: list[pa.Table]) -> Self:
        """Rows that are in a file, which has its name already. Raises OSError."""
        return cls(rows, _identity(path))

    def are_in(self, files: list[Path]) -> bool:
        """Whether a table's files are still that one alone, as it was."""
        try:
            return len(files) == 1 and _identity(files[0]) == self._file
        except OSError:
            return False
