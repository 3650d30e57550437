# SPDX-License-Identifier: MIT
"""What there is to decode: for each thread, which bytes of its trace run in which address space and epoch."""

from __future__ import annotations

import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ptweave.data.bundle import Bundle
from ptweave.data.sideband import SidebandKind


@dataclass(frozen=True)
class Slice:
    """Bytes `begin` to `end` of a trace; `space` None: the sideband does not say where they ran."""

    begin: int
    end: int
    space: int | None
    epoch: int


@dataclass(frozen=True)
class Lost:
    """Packets the recorder knows are missing at `offset`; `size` 0: how many is not known."""

    offset: int
    size: int
    detail: str


@dataclass
class Thread:
    """One thread's trace. `size` is the file's, `end` where the packets end: before it only if it ended orderly."""

    number: int
    path: Path
    size: int = 0
    present: bool = False
    finish: int | None = None
    slices: list[Slice] = field(default_factory=list)
    lost: list[Lost] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.size if self.finish is None else min(self.size, self.finish)


@dataclass
class _Notes:
    """The sideband's rows about one thread."""

    slices: list[tuple[int, int, int]] = field(default_factory=list)  # offset, space, epoch
    lost: list[Lost] = field(default_factory=list)
    finish: int | None = None


def plan(bundle: Bundle, sideband: pa.Table) -> list[Thread]:
    """All threads that the sideband or the trace folder know, in order of their numbers."""
    notes = _notes(sideband)
    for path in bundle.trace.glob("*.pt"):
        if path.stem.isascii() and path.stem.isdigit() and int(path.stem) < 1 << 31:
            notes.setdefault(int(path.stem), _Notes())
    return [_thread(number, bundle.trace / f"{number}.pt", notes[number]) for number in sorted(notes)]


def _notes(sideband: pa.Table) -> dict[int, _Notes]:
    kinds = [SidebandKind.THREAD, SidebandKind.SLICE, SidebandKind.LOST, SidebandKind.FINISH]
    rows = sideband.filter(pc.is_in(sideband["kind"], pa.array([kind.value for kind in kinds])))
    notes: dict[int, _Notes] = {}
    for row in rows.to_pylist():
        if row["thread"] is not None and row["thread"] >= 0:
            _note(notes.setdefault(row["thread"], _Notes()), row)
    return notes


def _note(notes: _Notes, row: dict[str, Any]) -> None:
    offset = row["offset"] or 0
    if row["kind"] == SidebandKind.SLICE:
        notes.slices.append((offset, row["space"], row["epoch"] or 0))
    elif row["kind"] == SidebandKind.LOST:
        notes.lost.append(Lost(offset, row["size"] or 0, row["detail"] or "packets were lost"))
    elif row["kind"] == SidebandKind.FINISH:
        notes.finish = offset


def _thread(number: int, path: Path, notes: _Notes) -> Thread:
    thread = Thread(number, path, finish=notes.finish, lost=sorted(notes.lost, key=lambda lost: lost.offset))
    try:
        status = path.lstat()
    except OSError:
        return thread
    if stat.S_ISREG(status.st_mode):
        thread.present = True
        thread.size = status.st_size
    thread.slices = _slices(thread, sorted(notes.slices, key=lambda entry: entry[0]))
    return thread


def _slices(thread: Thread, starts: list[tuple[int, int, int]]) -> list[Slice]:
    """Cut the trace where its image set changes, and where packets are missing: nothing is decoded across."""
    where: tuple[int | None, int] = (None, 0)
    marks: list[tuple[int, tuple[int | None, int] | None]] = [(offset, (space, epoch))
                                                              for offset, space, epoch in starts]
    marks += [(lost.offset, None) for lost in thread.lost]
    slices: list[Slice] = []
    begin = 0
    for offset, new in sorted(marks, key=lambda mark: mark[0]):
        offset = min(offset, thread.end)
        if offset > begin:
            slices.append(Slice(begin, offset, *where))
            begin = offset
        where = new or where
    if begin < thread.end:
        slices.append(Slice(begin, thread.end, *where))
    return slices
