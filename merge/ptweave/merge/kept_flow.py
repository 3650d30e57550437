# SPDX-License-Identifier: MIT
"""A thread's flow, read once and gone over twice: kept in memory where it is short enough, or read again.

Decompressing a row of flow takes longer than most of what is done with it. Where paths follow each other without a
hole, an ordinal is the one before and its path's length, so four bytes a row are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ptweave.merge.program import Program
from ptweave.merge.tables import I32, I64

KEPT_ROWS = 1 << 24
"""Rows of flow that are kept: at 4 bytes each, for a thread without gaps."""

Batch = tuple[I64, I32]


class KeptFlow:
    """Batches (ordinals, paths) of one thread's flow.

    `read` reads them from the start. The first going over keeps them, up to `limit` rows (of 4 bytes; those of a batch
    with holes count for 3); a thread with more is read again.
    """

    def __init__(self, read: Callable[[], Iterator[Batch]], program: Program, limit: int = KEPT_ROWS) -> None:
        self._read = read
        self._program = program
        self._room = limit
        self._kept: list[tuple[I64, I32]] | None = []

    def first(self) -> Iterator[Batch]:
        """All batches, to be gone over once, and to the end."""
        for seqs, paths in self._read():
            self._keep(seqs, paths)
            yield seqs, paths

    def again(self) -> Iterator[Batch]:
        """The same batches, after `first`."""
        if self._kept is None:
            yield from self._read()
            return
        for seqs, paths in self._kept:
            yield seqs if len(seqs) == len(paths) else self._program.ordinals(int(seqs[0]), paths), paths

    def _keep(self, seqs: I64, paths: I32) -> None:
        if self._kept is None:
            return
        whole = not self._program.follow(seqs, paths)
        self._room -= len(paths) * (3 if whole else 1)
        if self._room < 0:
            self._kept = None
        else:
            # what the batch lies in is read into again
            self._kept.append((seqs.copy() if whole else seqs[:1].copy(), paths.copy()))
