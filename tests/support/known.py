# SPDX-License-Identifier: MIT
"""Runs of programs that know their own answer: recorded, decoded, merged and open."""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ptweave.decode.thunks import decode_thunks
from ptweave.merge import Run, merge_run
from support.command import ptweave
from support.modes import Mode, process_mode, run

NATIVE_RUNS, ENGINE_RUNS = (20, 20) if "PTWEAVE_LONG" in os.environ else (5, 2)
EXACT = process_mode("exact", "shared")


@dataclass
class Known:
    """A run, and what it said of itself. Thread k of the program is `threads[k]` of the run."""

    run: Run
    said: str
    threads: list[int]

    def page(self, number: int) -> int:
        return int(re.findall(rf"page {number} (0x[0-9a-f]+)", self.said)[0], 16)

    def races(self) -> dict[int, set[str]]:
        """Pages of the program that raced, by number, and what is known of them."""
        numbers = {self.page(number): number for number in map(int, re.findall(r"page (\d+) 0x", self.said))}
        found: dict[int, set[str]] = {}
        for page, overlap in self.run.sql("select distinct page, overlap from races"):
            if page in numbers:
                found.setdefault(numbers[page], set()).add(overlap)
        return found

    def between(self, page: int) -> Counter[tuple[int, int]]:
        """Data edges of a page: from which of the program's threads to which, how many."""
        names = {thread: number for number, thread in enumerate(self.threads)}
        rows = self.run.sql("select from_thread, to_thread from edges where kind = 'data' and page = ?", page)
        return Counter((names.get(a, -1), names.get(b, -1)) for a, b in rows)


def threads_of(opened: Run) -> list[int]:
    """The threads that main created, in that order: the object of a create is that of the start."""
    rows = opened.sql("""select start.thread from thunks as made join thunks as start using (object)
                         where made.operation = 'create' and start.operation = 'start' order by made.thunk""")
    return [thread for thread, in rows]


@contextmanager
def merged(path: Path, said: bytes) -> Iterator[Known]:
    with Run(path) as opened:
        yield Known(opened, said.decode(), threads_of(opened))


@contextmanager
def natively(program: Path, folder: Path, mode: Mode, which: str) -> Iterator[Known]:
    ran = run(mode, folder, [program, which])
    assert (ran.status, ran.err) == (0, "") and ran.traced
    bundle = ran.traced.bundle
    bundle.manifest.view = mode.view
    decode_thunks(bundle)
    merge_run(bundle)
    with merged(bundle.path, ran.out) as known:
        yield known
    shutil.rmtree(bundle.path)


@contextmanager
def wrapped(program: Path, folder: Path, *words: str) -> Iterator[Known]:
    path = folder / "run.ptw"
    done = ptweave("wrap", "--access", "exact", "-o", path, "--", program, *words, cwd=folder)
    assert (done.status, done.lines) == (0, [f"ptweave: {path}: nothing lost"])
    with merged(path, done.out) as known:
        yield known
