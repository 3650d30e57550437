# SPDX-License-Identifier: MIT
"""Compares recorded accesses of memory with the truth: is anything missing?

Accesses may say more than the truth (a page held open, a window opened ahead), never less. A row that says "written"
covers reads too: a page that is open for writing lets reads pass unseen.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ptweave.data.evl import EVL_HEADER
from support.truth import BITS, PAGE, Truth

Array = npt.NDArray[Any]
_THUNKS = 1 << 32


@dataclass(frozen=True)
class Accesses:
    """Recorded accesses, column by column: page `page` (its address) was open to `thread` from thunk `thunk` to thunk
    `until` (both included), for writing if `write`. `bytes`: which bytes were written, a bit for each as in Truth
    (rows x 512); None where they are not recorded."""

    thread: Array
    thunk: Array
    until: Array
    page: Array
    write: Array
    bytes: Array | None = None

    def __len__(self) -> int:
        return len(self.thread)

    def without(self, index: int | list[int]) -> Accesses:
        """All rows but one, or some."""
        return Accesses(*(None if one is None else np.delete(one, index, 0) for one in (  # type: ignore[arg-type]
            self.thread, self.thunk, self.until, self.page, self.write, self.bytes)))


def accesses_of(table: pa.Table) -> Accesses:
    """From the table `accesses` (thread, thunk, until_thunk, page, write, and bytes where they are recorded), or one
    with its columns."""
    bits = None
    if "bytes" in table.column_names and table["bytes"].null_count < len(table):
        flags = np.zeros((len(table), PAGE), np.uint8)
        for row, runs in enumerate(table["bytes"].to_pylist()):
            for run in runs or ():
                flags[row, run["offset"]:run["offset"] + run["length"]] = 1
        bits = np.packbits(flags, axis=1, bitorder="little")
    return Accesses(*(table[name].to_numpy(zero_copy_only=False) if name == "write" else table[name].to_numpy()
                      for name in ("thread", "thunk", "until_thunk", "page", "write")), bits)


# --- where a true access lies in the recording ---

@dataclass(frozen=True)
class Placed:
    """True accesses with the threads and thunks of a recording: a row's accesses lie in thunks `first` to `last`
    (one thunk, unless the recording ends thunks where the truth does not). `begin` and `end`: TSC. `own`: the page lies
    in the thread's own stack, which is always open to it: accesses of it are known without being recorded."""

    thread: Array
    first: Array
    last: Array
    page: Array
    read: Array
    write: Array
    changed: Array
    begin: Array
    end: Array
    own: Array

    def __len__(self) -> int:
        return len(self.thread)

    def describe(self, row: int) -> str:
        kinds = [name for name in ("read", "write", "changed") if getattr(self, name)[row].any()]
        return (f"thread {self.thread[row]} thunk {self.first[row]} page {int(self.page[row]):#x}: "
                f"{' '.join(kinds)}")


def thread_numbers(dependence: Path) -> dict[int, int]:
    """The recording's thread number of each kernel thread id."""
    found = {}
    for path in dependence.glob("*.evl"):
        _, _, tid, thread, *_ = EVL_HEADER.unpack(path.read_bytes()[:EVL_HEADER.size])
        found[tid] = thread
    return found


def place(truth: Truth, numbers: dict[int, int], thunks: pa.Table) -> Placed:
    """Find the thunks of the truth's tracked rows. `thunks`: thread, thunk, tsc (of the record that began it).

    Raises KeyError when a thread of the truth is not in the recording.
    """
    rows = truth.tracked()
    thread = np.array([numbers[int(truth.threads[one]["tid"])] for one in rows["thread"]], "<i4")
    threads, tscs = thunks["thread"].to_numpy(), thunks["tsc"].to_numpy()
    first, last = np.zeros(len(rows), "<i8"), np.zeros(len(rows), "<i8")
    for one in np.unique(thread):
        began = np.sort(tscs[threads == one])
        mine = thread == one
        first[mine] = np.searchsorted(began, rows["begin"][mine], "right") - 1
        last[mine] = np.searchsorted(began, rows["end"][mine], "right") - 1
    return Placed(thread, np.maximum(first, 0), np.maximum(last, 0), rows["page"], rows["read"], rows["write"],
                  rows["changed"], rows["begin"], rows["end"], truth.on_own_stack(rows))


# --- pages ---

def _groups(truth: Placed, accesses: Accesses) -> tuple[Array, Array]:
    """The same number for the same thread and page, in both."""
    keys = np.concatenate([np.stack([truth.thread.astype("<u8"), truth.page.astype("<u8")], 1),
                           np.stack([accesses.thread.astype("<u8"), accesses.page.astype("<u8")], 1)])
    _, numbers = np.unique(keys, axis=0, return_inverse=True)
    numbers = numbers.reshape(-1).astype("<i8")
    return numbers[:len(truth)], numbers[len(truth):]


def covered(truth: Placed, accesses: Accesses, *, writes: bool) -> Array:
    """Of each true row, whether an access of its thread to its page reaches into its thunks; one for writing if so
    wanted. Rows of a thread's own stack are."""
    if not len(accesses) or not len(truth):
        return truth.own.copy()
    wanted, group = _groups(truth, accesses)
    keep = accesses.write.astype(bool) if writes else np.ones(len(accesses), bool)
    group, thunk, until = group[keep], accesses.thunk[keep].astype("<i8"), accesses.until[keep].astype("<i8")
    order = np.lexsort((thunk, group))
    group, starts = group[order], group[order] * _THUNKS + thunk[order]
    reach = np.maximum.accumulate(group * _THUNKS + until[order])  # the furthest end up to here, within the group
    at = np.searchsorted(starts, wanted * _THUNKS + truth.last, "right") - 1
    there = truth.own.copy()
    some = (at >= 0) & ~there
    there[some] = (group[at[some]] == wanted[some]) & (reach[at[some]] >= wanted[some] * _THUNKS + truth.first[some])
    return there


def covering(truth: Placed, row: int, accesses: Accesses, *, write: bool) -> list[int]:
    """Accesses that say that a true row's page was read, or written."""
    there = (accesses.thread == truth.thread[row]) & (accesses.page == truth.page[row])
    there &= (accesses.thunk <= truth.last[row]) & (accesses.until >= truth.first[row])
    return [int(index) for index in np.flatnonzero(there & accesses.write.astype(bool) if write else there)]


def missing_pages(truth: Placed, accesses: Accesses) -> list[int]:
    """True rows of which a page was read or written and no access says so."""
    reads, writes = truth.read.any(axis=1), truth.write.any(axis=1)
    lacking = (reads & ~covered(truth, accesses, writes=False)) | (writes & ~covered(truth, accesses, writes=True))
    return [int(row) for row in np.flatnonzero(lacking)]


def missing_bytes(truth: Placed, accesses: Accesses) -> list[tuple[int, int]]:
    """(row, bytes) of true rows of which so many changed bytes are in no access's bytes."""
    assert accesses.bytes is not None, "these accesses say nothing of bytes"
    by_page: dict[tuple[int, int], list[int]] = {}
    for index in np.flatnonzero(accesses.write):
        by_page.setdefault((int(accesses.thread[index]), int(accesses.page[index])), []).append(int(index))
    found = []
    for row in np.flatnonzero(truth.changed.any(axis=1) & ~truth.own):
        known = np.zeros(BITS, np.uint8)
        for index in by_page.get((int(truth.thread[row]), int(truth.page[row])), ()):
            if accesses.thunk[index] <= truth.last[row] and accesses.until[index] >= truth.first[row]:
                known |= accesses.bytes[index]
        lacking = int(np.unpackbits(truth.changed[row] & ~known).sum())
        if lacking:
            found.append((int(row), lacking))
    return found


# --- dependences ---

@dataclass(frozen=True)
class Dependence:
    """True rows: `reader` read bytes that `writer`, another thread's, was the last to write."""

    writer: int
    reader: int
    bytes: int


def dependences(truth: Placed) -> list[Dependence]:
    """Every true dependence between threads, for a program without data races: a write is over before a read that
    sees it begins."""
    found: list[Dependence] = []
    for page in np.unique(truth.page):
        rows = np.flatnonzero(truth.page == page)
        if len(np.unique(truth.thread[rows])) == 1:
            continue
        events = sorted([(int(truth.end[row]), 0, int(row)) for row in rows if truth.write[row].any()]
                        + [(int(truth.begin[row]), 1, int(row)) for row in rows if truth.read[row].any()])
        last = np.full(PAGE, -1, "<i8")
        for _, is_read, row in events:
            bits = np.unpackbits(truth.read[row] if is_read else truth.write[row], bitorder="little").astype(bool)
            if not is_read:
                last[bits] = row
                continue
            writers, counts = np.unique(last[bits], return_counts=True)
            found += [Dependence(int(writer), row, int(count)) for writer, count in zip(writers, counts, strict=True)
                      if writer >= 0 and truth.thread[writer] != truth.thread[row]]
    return found


def missing_dependences(truth: Placed, true: list[Dependence], accesses: Accesses) -> list[Dependence]:
    """Those of which the write or the read is in no access."""
    written, seen = covered(truth, accesses, writes=True), covered(truth, accesses, writes=False)
    return [one for one in true if not (written[one.writer] and seen[one.reader])]
