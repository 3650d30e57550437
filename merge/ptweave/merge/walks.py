# SPDX-License-Identifier: MIT
"""Walking several threads' flows at a time, each with a shadow call stack of its own.

What is found is what one walker finds, numbers included. A walker that helps has a tree of call stacks of its own. Its
results are taken in the order of the threads, and what is new in its tree is put into the one tree there is to be then:
in the order in which it was found, which is the order in which one walker would have met it. Where that tree would have
to fold stacks, because there are too many, what helpers find is of no use: from that thread on one walker walks all.

Memory: each helper has its tree and what it remembers of paths, some 200 MB at most (one whose tree has got large gives
way to a new one); results that wait for their turn are bounded by `HELD_BYTES` and what the threads under way bring.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue
from threading import Event
from types import TracebackType
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from ptweave.merge.walk import Stopped, Walked, Walker

T = TypeVar("T")

MOST_WALKS = 8
"""Threads walked at a time are no more: what is done with their results, one after the other, takes about a tenth of a
walk's time, and each takes memory."""

HELD_BYTES = 1 << 26
"""Memory of results that wait for their turn, at which no more walks are begun."""

HELD_WALKS = 64
"""Walks that were begun and not taken yet."""

LARGE_TREE = 7 << 17
"""Stacks in a helper's tree with which it helps no more: what it knows of code helps its next thread, but there may be
too many soon."""

Walk = Callable[[Walker], Walked]
"""Walks one thread. It may be asked again, with another walker."""


@dataclass(eq=False)
class _Helper:
    walker: Walker
    size: int = 0  # stacks handed over
    numbers: npt.NDArray[np.uint32] = field(default_factory=lambda: np.empty(0, np.uint32))


@dataclass(frozen=True)
class _Result:
    walked: Walked
    helper: _Helper
    keys: npt.NDArray[np.uint32]

    @property
    def nbytes(self) -> int:
        return self.walked.nbytes + self.keys.nbytes


@dataclass(frozen=True)
class _Waiting(Generic[T]):
    work: T
    walk: Walk
    result: Future[_Result]


def _held(result: Future[_Result]) -> int:
    return result.result().nbytes if result.done() and not result.exception() else 0


class Walks:
    """`count` walks at a time. `walker` has the tree they all end in; `make` makes those that help. Use as a context
    manager: leaving it stops what is under way."""

    def __init__(self, walker: Walker, make: Callable[[], Walker], count: int) -> None:
        self._walker = walker
        self._make = make
        self._count = count
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="walk") if count > 1 else None
        self._free: SimpleQueue[_Helper] = SimpleQueue()
        self._helpers: list[_Helper] = []
        self._over = Event()

    def __enter__(self) -> Walks:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._dismiss()

    def _dismiss(self) -> None:
        """One walker is left. A helper that is made meanwhile sees that it is over, or is seen here."""
        self._over.set()
        for helper in self._helpers:
            helper.walker.stop()
        if self._pool:
            self._pool.shutdown(cancel_futures=True)
        self._pool = None
        while self._helpers:
            self._helpers.pop().walker.close()

    def of(self, works: Iterator[tuple[T, Walk]]) -> Generator[tuple[T, Walked], None, None]:
        """Each work with its walk, in their order; some are begun before those before them are taken.

        Raises what walking raises, in its place."""
        waiting: deque[_Waiting[T]] = deque()
        while self._pool:
            self._begin_more(waiting, works)
            if not waiting:
                return
            if waiting[0].result.done():
                yield self._take(waiting)
            else:
                wait([one.result for one in waiting if not one.result.done()], return_when=FIRST_COMPLETED)
        while waiting:
            yield self._take(waiting)
        for work, walk in works:
            yield work, walk(self._walker)

    def _begin_more(self, waiting: deque[_Waiting[T]], works: Iterator[tuple[T, Walk]]) -> None:
        """As many as keep the walkers busy, and one for each to go on with."""
        assert self._pool is not None
        under_way = sum(not one.result.done() for one in waiting)
        if waiting and sum(_held(one.result) for one in waiting) >= HELD_BYTES:
            return
        for _ in range(min(2 * self._count - under_way, HELD_WALKS - len(waiting))):
            following = next(works, None)
            if following is None:
                return
            work, walk = following
            waiting.append(_Waiting(work, walk, self._pool.submit(self._help, walk)))

    def _take(self, waiting: deque[_Waiting[T]]) -> tuple[T, Walked]:
        first = waiting.popleft()
        found = self._adopted(first.result.result()) if self._pool else None
        if not found:
            self._dismiss()
            found = first.walk(self._walker)
        return first.work, found

    def _adopted(self, result: _Result) -> Walked | None:
        """The same with the numbers of the one tree; None when that has no room."""
        numbers = self._walker.adopt(result.keys, result.helper.numbers)
        if numbers is None:
            return None
        result.helper.numbers = numbers
        return replace(result.walked, counted=result.walked.counted.numbered(numbers))

    def _help(self, walk: Walk) -> _Result:
        if self._over.is_set():
            raise Stopped
        try:
            helper = self._free.get_nowait()
        except Empty:
            helper = _Helper(self._make())
            self._helpers.append(helper)
            if self._over.is_set():
                helper.walker.stop()
        walked = walk(helper.walker)
        keys = helper.walker.keys(helper.size)
        helper.size += len(keys)
        if helper.size < LARGE_TREE:
            self._free.put(helper)
        else:
            self._helpers.remove(helper)
            helper.walker.close()
        return _Result(walked, helper, keys)
