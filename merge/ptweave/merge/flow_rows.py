# SPDX-License-Identifier: MIT
"""The table `flow`, read one thread at a time: paths' numbers first, their ordinals only where somebody asks for them.

Ordinals are a third to two thirds of what reading a row takes, and say nothing where paths follow each other without a
hole: the first and the last of a row group, which its statistics have, tell whether they do.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ptweave.data.bundle import Bundle
from ptweave.data.schemas import FLOW
from ptweave.merge.tables import CACHED_ROWS, I32, I64, RowGroup, ThreadRows, numbers, read_group


@dataclass(frozen=True)
class FlowStretch:
    """Executed paths that a thread has one after the other in the table: their numbers, and how to come by their
    ordinals. `span`: those of the first and the last one, None where they are not known without reading all.
    `ordinals` raises BadInput for a file that is corrupt."""

    paths: I32
    span: tuple[int, int] | None
    ordinals: Callable[[], I64]


class FlowRows(ThreadRows):
    """The table `flow`. Memory: a row group's paths, 4 bytes a row, and 8 more where ordinals are asked for."""

    def __init__(self, bundle: Bundle) -> None:
        super().__init__(bundle, FLOW, ["seq", "path"])

    def stretches(self, thread: int, skip: int = 0) -> Generator[FlowStretch, None, None]:
        """All rows of a thread, but for the first ones. Raises BadInput for a file that is corrupt or unsorted."""
        return self._locked(self._stretches(thread, skip))

    def _stretches(self, thread: int, skip: int) -> Iterator[FlowStretch]:
        for group, first, last in self._groups_of(thread, skip):
            if group.first == group.last and group.rows <= CACHED_ROWS:
                span = self._bounds(group.file, group.group, "seq") if (first, last) == (0, group.rows) else None
                yield FlowStretch(self._column(group, "path")[first:last], span,
                                  partial(self._ordinals, group, first, last))
                continue
            for batch in self._rows_in(group, first, last):
                paths = numbers(batch, "path", -1).astype(np.int32, copy=False)
                yield FlowStretch(paths, None, partial(numbers, batch, "seq", -1))

    def _ordinals(self, group: RowGroup, first: int, last: int) -> I64:
        with self._lock:
            return self._column(group, "seq")[first:last]

    def _column(self, group: RowGroup, name: str) -> npt.NDArray[Any]:
        table = read_group(self._files[group.file], self._paths[group.file], group.group, [name])
        return numbers(table, name, -1)
