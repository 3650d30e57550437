# SPDX-License-Identifier: MIT
"""Made-up schedules of threads, and what follows from them by definition: the oracle for edges and races.

Order is what can be reached from one thunk to another along the schedule's own steps; vector clocks are made from that,
not the other way round. Everything is found by looking at every pair.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field

Thunk = tuple[int, int]
"""Thread and ordinal."""

LAST_BYTE = 64
"""Bytes of pages that are looked at one by one: made-up writes of bytes lie before it."""


@dataclass(frozen=True)
class Span:
    """A page open to a thread over thunks; with bytes (half-open ranges), what was written in thunk `first`."""

    thread: int
    first: int
    until: int
    page: int
    write: bool
    site: int
    address: int
    bytes: tuple[tuple[int, int], ...] | None = None
    window: int = 0


@dataclass
class Schedule:
    """Thunks of each thread, what each acquired or released, and which step leads to which."""

    threads: int
    operations: list[list[str]] = field(default_factory=list)
    steps: dict[Thunk, set[Thunk]] = field(default_factory=lambda: defaultdict(set))
    spans: list[Span] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.operations = [["start"] for _ in range(self.threads)]
        self._released: dict[int, list[Thunk]] = defaultdict(list)

    def begin(self, thread: int, operation: str, lock: int) -> None:
        """The thread's next thunk, begun by acquiring or releasing a lock, or by something else."""
        thunk = len(self.operations[thread])
        if operation == "release":
            self._released[lock].append((thread, thunk - 1))
        self.operations[thread].append(operation)
        self.steps[thread, thunk].add((thread, thunk - 1))
        if operation == "acquire":
            self.steps[thread, thunk].update(self._released[lock])

    def pasts(self) -> dict[Thunk, set[Thunk]]:
        """All thunks that happen before each."""
        found: dict[Thunk, set[Thunk]] = {}

        def past(thunk: Thunk) -> set[Thunk]:
            if thunk not in found:
                mine: set[Thunk] = set()
                for step in self.steps[thunk]:
                    mine |= {step} | past(step)
                found[thunk] = mine
            return found[thunk]

        for thread, operations in enumerate(self.operations):
            for thunk in range(len(operations)):
                past((thread, thunk))
        return found

    def end(self, span: Span) -> int:
        """The last thunk of a span that is one."""
        return min(span.until, len(self.operations[span.thread]) - 1)


def clock(schedule: Schedule, pasts: dict[Thunk, set[Thunk]], thunk: Thunk) -> list[int]:
    """A thunk's vector clock."""
    known = [0] * schedule.threads
    for thread, number in pasts[thunk]:
        known[thread] = max(known[thread], number + 1)
    known[thunk[0]] = thunk[1] + 1
    return known


def make_up(draw: random.Random, threads: int, length: int, locks: int) -> Schedule:
    """A schedule without accesses. Locks are no mutexes: any thread acquires and releases any."""
    schedule = Schedule(threads)
    for _ in range(length):
        schedule.begin(draw.randrange(threads), draw.choice(["acquire", "release", "other"]), draw.randrange(locks))
    return schedule


def maximal(thunks: set[Thunk], pasts: dict[Thunk, set[Thunk]]) -> set[Thunk]:
    """Those that come before no other of them."""
    return {one for one in thunks if not any(one in pasts[other] for other in thunks)}


def sync_edges(schedule: Schedule, pasts: dict[Thunk, set[Thunk]]) -> set[tuple[Thunk, Thunk]]:
    """From what an acquire came to know to the acquire, but for what it knows through other such."""
    found = set()
    for thread, operations in enumerate(schedule.operations):
        for thunk, operation in enumerate(operations):
            if operation == "acquire":
                new = {one for one in pasts[thread, thunk] - pasts.get((thread, thunk - 1), set())
                       if one[0] != thread}
                found |= {(one, (thread, thunk)) for one in maximal(new, pasts)}
    return found


def data_edges(schedule: Schedule, pasts: dict[Thunk, set[Thunk]]) -> dict[tuple[Thunk, Thunk, int], set[int]]:
    """(writer, reader, page) → bytes whose last writer that is (all of them where a span does not know), for spans of
    one thunk each."""
    found: dict[tuple[Thunk, Thunk, int], set[int]] = defaultdict(set)
    for reader in schedule.spans:
        if reader.bytes is not None:
            continue
        thunk = (reader.thread, reader.first)
        writers = [one for one in schedule.spans
                   if one.page == reader.page and one.write and (one.thread, one.first) in pasts[thunk]]
        for byte in range(LAST_BYTE) if any(one.bytes is not None for one in writers) else (0,):
            mine = {(one.thread, one.first) for one in writers
                    if one.bytes is None or any(a <= byte < b for a, b in one.bytes)}
            for writer in maximal(mine, pasts):
                found[writer, thunk, reader.page].add(byte)
    return dict(found)


def concurrent(a: Thunk, b: Thunk, pasts: dict[Thunk, set[Thunk]]) -> bool:
    return a != b and a not in pasts[b] and b not in pasts[a]


def races(schedule: Schedule, pasts: dict[Thunk, set[Thunk]]) -> dict[tuple[object, ...], int]:
    """(page, (thread, site, write), (thread, site, write)) → pairs of first thunks, threads ascending."""
    found: dict[tuple[object, ...], int] = defaultdict(int)
    known = [span for span in schedule.spans if not span.window]
    for a in known:
        for b in known:
            if (a.thread < b.thread and a.page == b.page and (a.write or b.write)
                    and concurrent((a.thread, a.first), (b.thread, b.first), pasts)):
                found[a.page, (a.thread, a.site, a.write, a.address), (b.thread, b.site, b.write, b.address)] += 1
    return dict(found)
