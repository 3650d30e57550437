# SPDX-License-Identifier: MIT
"""What there is to decode: for each thread, which bytes of its trace run in which address space and epoch."""

from __future__ import annotations

import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ptweave.data.bundle import Bundle
from ptweave.data.sideband import SWITCH_TO, TELLERS, SidebandKind, SwitchWhen

NAME = re.compile(r"(cpu-)?[0-9]{1,10}")
"""Names of traces without their suffix."""

LOST_MAX = 1 << 48
"""More lost bytes than that nobody can have counted: the recording is damaged."""


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
    clean: bool = False  # tracing was off there: no packet was cut in two, what follows can be gone on with


@dataclass(frozen=True)
class Switch:
    """From `tsc` on a trace is of `thread` (None: nobody's who is asked for) in (`space`, `epoch`)."""

    tsc: int
    thread: int | None
    space: int
    epoch: int
    when: SwitchWhen = SwitchWhen.AT_TIME


@dataclass(frozen=True)
class Entries:
    """Where the kernel goes from one thread to the next, and where it writes of that before; 0: not known."""

    switch_to: int = 0
    tells: int = 0


@dataclass
class Thread:
    """One thread's trace, or a processor's: then `number` is -1, and its switches say whose it is when.

    `size` is the file's, `end` where the packets end: before it only if it ended orderly.
    """

    number: int
    path: Path
    size: int = 0
    present: bool = False
    finish: int | None = None
    slices: list[Slice] = field(default_factory=list)
    lost: list[Lost] = field(default_factory=list)

    @property
    def of_cpu(self) -> bool:
        return self.number < 0

    @property
    def end(self) -> int:
        return self.size if self.finish is None else min(self.size, self.finish)


@dataclass
class _Notes:
    """The sideband's rows about one thread."""

    slices: list[tuple[int, int, int]] = field(default_factory=list)  # offset, space, epoch
    lost: list[Lost] = field(default_factory=list)
    finish: int | None = None
    first: tuple[int, int] | None = None  # space and epoch of the first switch


def switches_of(sideband: pa.Table) -> dict[str, list[Switch]]:
    """The switches of each trace that has any, by time; its name is that of its file."""
    rows = sideband.filter(pc.equal(sideband["kind"], SidebandKind.SWITCH.value)).select(
        ["tsc", "thread", "space", "epoch", "cpu", "value"])
    found: dict[str, list[Switch]] = {}
    for tsc, thread, space, epoch, cpu, when in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        stem = _stem(thread, cpu)
        if stem is not None:
            found.setdefault(stem, []).append(Switch(tsc, thread, space, epoch or 0, _when(when)))
    for switches in found.values():
        switches.sort(key=lambda switch: switch.tsc)
    return found


def _when(value: int | None) -> SwitchWhen:
    return SwitchWhen(value) if value in list(SwitchWhen) else SwitchWhen.AT_TIME


def entries_of(sideband: pa.Table) -> Entries:
    """The places in the kernel that decide when switches take place."""
    rows = sideband.filter(pc.equal(sideband["kind"], SidebandKind.ENTRY.value)).select(["addr", "detail"])
    found = {name: addr or 0 for addr, name in zip(*(column.to_pylist() for column in rows.columns), strict=True)}
    return Entries(found.get(SWITCH_TO, 0), next((found[name] for name in TELLERS if name in found), 0))


def _stem(thread: int | None, cpu: int | None) -> str | None:
    if cpu is not None:
        return f"cpu-{cpu}" if cpu >= 0 else None
    return str(thread) if thread is not None and thread >= 0 else None


def plan(bundle: Bundle, sideband: pa.Table) -> list[Thread]:
    """All threads that the sideband or the trace folder know, in order of their numbers; then the processors."""
    notes = _notes(sideband)
    cpus = {stem for stem in notes if stem.startswith("cpu-")}
    for path in bundle.trace.glob("*.pt"):
        if NAME.fullmatch(path.stem):
            notes.setdefault(path.stem, _Notes())
            cpus |= {path.stem} & {path.stem if path.stem.startswith("cpu-") else ""}
    for stem, switches in switches_of(sideband).items():
        notes.setdefault(stem, _Notes()).first = (switches[0].space, switches[0].epoch)
    return [_thread(stem, bundle.trace / f"{stem}.pt", notes[stem]) for stem in sorted(notes, key=_order)
            if not (cpus and stem.isdigit() and not (bundle.trace / f"{stem}.pt").exists())]


def _order(stem: str) -> tuple[bool, int]:
    return stem.startswith("cpu-"), int(stem.removeprefix("cpu-"))


def _notes(sideband: pa.Table) -> dict[str, _Notes]:
    kinds = [SidebandKind.THREAD, SidebandKind.SLICE, SidebandKind.LOST, SidebandKind.FINISH]
    rows = sideband.filter(pc.is_in(sideband["kind"], pa.array([kind.value for kind in kinds])))
    notes: dict[str, _Notes] = {}
    for row in rows.to_pylist():
        stem = _stem(row["thread"], row["cpu"])
        if stem is not None:
            _note(notes.setdefault(stem, _Notes()), row)
    return notes


def _note(notes: _Notes, row: dict[str, Any]) -> None:
    offset = row["offset"] or 0
    if row["kind"] == SidebandKind.SLICE:
        notes.slices.append((offset, row["space"], row["epoch"] or 0))
    elif row["kind"] == SidebandKind.LOST:
        notes.lost.append(Lost(offset, min(row["size"] or 0, LOST_MAX), row["detail"] or "packets were lost",
                               row["value"] == 1))
    elif row["kind"] == SidebandKind.FINISH:
        notes.finish = offset


def _thread(stem: str, path: Path, notes: _Notes) -> Thread:
    if notes.first is not None and not notes.slices:
        notes.slices = [(0, *notes.first)]
    thread = Thread(int(stem) if stem.isdigit() else -1, path, finish=notes.finish,
                    lost=sorted(notes.lost, key=lambda lost: lost.offset))
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
    marks += [(lost.offset, None) for lost in thread.lost if not lost.clean]
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
