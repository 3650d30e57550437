# SPDX-License-Identifier: MIT
"""Holes in recorded traces: bytes of a trace made unreadable, and where what was placed must be afterwards.

The same recording decoded whole is the oracle: before a hole every block keeps its ordinal, behind it all ordinals are
less by as many blocks as the hole swallowed.
"""

from __future__ import annotations

import random
import shutil
import struct
from dataclasses import dataclass
from pathlib import Path

from ptweave.data import Bundle
from ptweave.merge import Run
from support.command import ptweave

UNKNOWN_OPCODE = bytes([0x02, 0x0B])
PSB_BYTES = 16  # of an entry in a .psb file

KEYS = {"thunks": "thread, thunk", "syscalls": "thread, t_enter, number",
        "accesses": 'thread, thunk, until_thunk, page, write, "window", t'}
"""What names a row of each placed table, whatever its place."""

Rows = dict[tuple[int, ...], tuple[int | None, str]]
"""Ordinal of the block and how it was placed, by key."""


@dataclass(frozen=True)
class Hole:
    """Of a thread's flow: the first block behind it (by the damaged flow's ordinals), and how many blocks it took."""

    thread: int
    at: int
    blocks: int

    def true_place(self, thread: int, seq: int) -> int | None:
        """Where a block of the whole flow is now; None: in the hole."""
        if thread != self.thread or seq < self.at:
            return seq
        return seq - self.blocks if seq >= self.at + self.blocks else None


@dataclass(frozen=True)
class Verdict:
    """Of rows that have a place outside the hole: how many, how many of them exact; of all rows: exact and wrong."""

    outside: int
    exact: int
    wrong: int


def rows_of(path: Path, table: str) -> Rows:
    """All rows of a placed table."""
    with Run(path) as run:
        return {tuple(row[:-2]): (row[-2], row[-1])
                for row in run.sql(f"select {KEYS[table]}, seq, placed from {table}")}


def threads_with_room(path: Path) -> list[int]:
    """Threads whose traces have three points at least from which decoding can start again."""
    found = [int(file.stem) for file in (path / "trace").glob("*.psb") if file.stat().st_size >= 3 * PSB_BYTES]
    return sorted(found)


def last_psb(bundle: Path, thread: int) -> int:
    """Where in a thread's trace decoding can start again last."""
    offset, _ = struct.unpack("<QQ", (bundle / "trace" / f"{thread}.psb").read_bytes()[-PSB_BYTES:])
    return int(offset)


def cut_out(whole: Path, copy: Path, draw: random.Random) -> Hole:
    """Copy a bundle, make some bytes of one of its traces unreadable, decode and merge it."""
    thread = draw.choice(threads_with_room(whole))
    size = (whole / "trace" / f"{thread}.pt").stat().st_size
    length = draw.randrange(2, min(size // 10, 60_000)) & ~1
    return cut(whole, copy, thread, draw.randrange(size // 20, size * 8 // 10 - length), length)


def cut(whole: Path, copy: Path, thread: int, start: int, length: int) -> Hole:
    """The same with so many bytes of a thread's trace, an even number."""
    shutil.copytree(whole, copy, ignore=shutil.ignore_patterns("tables", "decoded"))
    trace = copy / "trace" / f"{thread}.pt"
    data = bytearray(trace.read_bytes())
    data[start:start + length] = UNKNOWN_OPCODE * (length // 2)
    trace.write_bytes(data)
    for command in ("decode", "merge"):
        done = ptweave(command, copy)
        assert done.status == 1 and f"of the trace of thread {thread} (decode_error: " in done.err, done.err
    return _hole(whole, copy, thread)


def _hole(whole: Path, copy: Path, thread: int) -> Hole:
    with Run(whole) as before, Run(copy) as after:
        (total,), = before.sql("select blocks from threads where thread = ?", thread)
        (left,), = after.sql("select blocks from threads where thread = ?", thread)
        gaps = after.sql("select thread, seq from gaps").rows()
    assert {tuple(gap) for gap in gaps} == {(thread, gaps[0][1])}, "one hole"
    return Hole(thread, gaps[0][1], total - left)


def judge(whole: Rows, damaged: Rows, hole: Hole) -> Verdict:
    """Compare the rows of a damaged run with those of the whole one."""
    assert whole.keys() == damaged.keys()
    outside = exact = wrong = 0
    for key, (true, _) in whole.items():
        assert true is not None
        place = hole.true_place(key[0], true)
        seq, placed = damaged[key]
        outside += place is not None
        exact += place is not None and placed == "exact"
        wrong += placed == "exact" and seq != place
    return Verdict(outside, exact, wrong)


def shares_of(bundle: Path, tables: tuple[str, ...] = tuple(KEYS)) -> dict[str, float]:
    """What share of each table's rows is exact, as the ledger has it."""
    ledger = Bundle.open(bundle).ledger()
    return {table: ledger[f"placed/{table}"].stored / ledger[f"placed/{table}"].produced for table in tables}
