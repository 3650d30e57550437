# SPDX-License-Identifier: MIT
"""Walking one thread's flow in parts at a time: all but the first begin without knowing the stack they begin with.

What such a part needs of that stack it takes for granted (part.h). The parts are joined in their order. Where the
stack is not as a part took for granted, or the part could not go on, what it found is dropped, and the walker that has
come so far walks it, too: what is found is what one walker finds.

Memory: each part has a tree of stacks and what it remembers of paths, some 200 MB at most.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from ptweave.merge.walk import Stretch, Unfit, Walker

Progress = Callable[[int], None]


class Parts:
    """The parts of one thread behind its first one. Use as a context manager: leaving it stops what is under way."""

    def __init__(self, stretches: list[Stretch], make: Callable[[], Walker], progress: Progress) -> None:
        """`make` makes the walkers that help."""
        self._progress = progress
        self._pool = ThreadPoolExecutor(len(stretches), thread_name_prefix="walk")
        self._parts: list[tuple[Stretch, Walker, Future[bool]]] = []
        try:
            for stretch in stretches:
                helper = make()
                self._parts.append((stretch, helper, self._pool.submit(self._walk, helper, stretch)))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for _, helper, _ in self._parts:
            helper.stop()
        self._pool.shutdown(cancel_futures=True)
        for _, helper, _ in self._parts:
            helper.close()
        self._parts.clear()

    def __enter__(self) -> Parts:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _walk(self, helper: Walker, stretch: Stretch) -> bool:
        """Whether it could."""
        try:
            helper.begin_within(stretch)
            helper.go(stretch, progress=self._progress)
        except Unfit:
            return False
        helper.forget()
        return True

    def take(self, walker: Walker) -> None:
        """Join the next part to what `walker` has walked, or have it walk that part: with the helper's memory free.

        Raises what walking the part raises."""
        stretch, helper, could = self._parts.pop(0)
        try:
            joined = could.result() and walker.join(helper, last=stretch.last)
        finally:
            helper.stop()
            could.exception()  # it walks no more
            helper.close()
        if not joined:
            walker.go(stretch, progress=self._progress)
            if stretch.last:
                walker.forget()  # as after joining it: what was counted takes as much memory

    @property
    def left(self) -> bool:
        return bool(self._parts)


def walk_in_parts(walker: Walker, stretches: list[Stretch], make: Callable[[], Walker], progress: Progress) -> None:
    """Walk a thread that `walker` has begun. Raises BadInput and Stopped as `Walker.go` does."""
    with Parts(stretches[1:], make, progress) as parts:
        walker.go(stretches[0], progress=progress)
        while parts.left:
            parts.take(walker)
