# SPDX-License-Identifier: MIT
"""What the merge does beside its walk: reading ahead, compressing, and the order of thunks.

All of it is in C libraries that let other Python threads run meanwhile (Arrow) or in our own C, so threads are enough.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Condition
from types import TracebackType
from typing import TypeVar

S = TypeVar("S")
T = TypeVar("T")

_WORKERS = 4
"""Two of them may wait for others: what goes over a flow for who reads it, and who knows the code for who loads it, or
later who writes a table beside the walk for who compresses it."""


class Beside:
    """Threads of the merge's own. Use as a context manager; leaving it waits for what has begun and drops the rest."""

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="merge")

    def close(self) -> None:
        self.pool.shutdown(cancel_futures=True)

    def __enter__(self) -> Beside:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def start(self, work: Callable[[], T]) -> Future[T]:
        """Begin something: its result, or what it raised, is the future's."""
        return self.pool.submit(work)

    def soon(self, items: Iterator[T], most: int) -> Ahead[T]:
        """The same items, so many of which are made ahead, from now on."""
        return Ahead(self.pool, items, most)

    def ahead(self, items: Generator[T, None, None]) -> Generator[T, None, None]:
        """The same items: each is made while the one before it is used. What making one raises comes in its place.

        Closing the iterator closes `items`."""
        done = object()
        following: Future[T | object] = self.pool.submit(next, items, done)
        try:
            while (item := following.result()) is not done:
                following = self.pool.submit(next, items, done)
                yield item  # type: ignore[misc]
        finally:
            if not following.cancel():
                following.exception()  # it is over now: a generator that runs cannot be closed
            items.close()


class Ahead(Iterator[T]):
    """Items of an iterator, made in a pool before they are asked for: up to so many, beginning at once. What making one
    raises comes in its place. No thread of the pool waits for anybody; nothing is made any more after `close`."""

    def __init__(self, pool: ThreadPoolExecutor, items: Iterator[T], most: int) -> None:
        self._pool = pool
        self._items = items
        self._most = most
        self._made: deque[T] = deque()
        self._changed = Condition()
        self._making = self._ended = False
        self._error: BaseException | None = None
        with self._changed:
            self._make_more()

    def _make_more(self) -> None:
        if not self._making and not self._ended and len(self._made) < self._most:
            self._making = True
            self._pool.submit(self._make).add_done_callback(self._stopped)

    def _make(self) -> None:
        for item in self._items:
            with self._changed:
                self._made.append(item)
                self._changed.notify()
                if self._ended or len(self._made) >= self._most:
                    self._making = False
                    return
        self._end(None)

    def _stopped(self, making: Future[None]) -> None:
        error = None if making.cancelled() else making.exception()
        if error:
            self._end(error)

    def _end(self, error: BaseException | None) -> None:
        with self._changed:
            self._ended, self._error = True, error
            self._changed.notify()

    def __next__(self) -> T:
        with self._changed:
            self._changed.wait_for(lambda: self._made or self._ended)
            if self._made:
                item = self._made.popleft()
                self._make_more()
                return item
            error, self._error = self._error, None
        if error:
            raise error
        raise StopIteration

    def close(self) -> None:
        self._end(None)


def side_by_side(work: Callable[[S], T], items: Iterable[S], workers: int) -> Iterator[T]:
    """`work` of each item, in order, of so many at a time and as many more made ahead. What one raises comes in its
    place."""
    pool = ThreadPoolExecutor(workers, thread_name_prefix="merge")
    made: deque[Future[T]] = deque()
    try:
        for item in items:
            made.append(pool.submit(work, item))
            if len(made) > 2 * workers:
                yield made.popleft().result()
        while made:
            yield made.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
