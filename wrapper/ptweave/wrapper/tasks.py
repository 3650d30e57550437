# SPDX-License-Identifier: MIT
"""Thread numbers: every task of a run gets one, dense, in the order in which they become known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class Task:
    """A kernel thread of the run. `tsc_end` is 0 while it lives; `parent_tid` 0 where unknown."""

    thread: int
    pid: int
    tid: int
    parent_tid: int
    tsc_start: int
    tsc_end: int = 0


class TaskRegistry:
    """Who is who. A (pid, tid) keeps its number while it lives, across exec too; the kernel may use it again later,
    and it is another task then."""

    def __init__(self) -> None:
        self.tasks: list[Task] = []
        self._live: dict[tuple[int, int], Task] = {}
        self._last: dict[int, Task] = {}  # by tid

    def start(self, pid: int, tid: int, tsc: int, parent_tid: int = 0) -> int:
        """The number of a task that begins, or of the live one that it is."""
        task = self._live.get((pid, tid))
        if task is None:
            task = Task(len(self.tasks), pid, tid, parent_tid, tsc)
            self.tasks.append(task)
            self._live[pid, tid] = self._last[tid] = task
        elif parent_tid and not task.parent_tid:
            task.parent_tid = parent_tid
        return task.thread

    def go_on(self, pid: int, tid: int, before: int) -> bool:
        """The task with the tid `before` goes on as another one, whether its end is known already or not; it keeps its
        number. False when there is none."""
        task = self._last.pop(before, None)
        if task is None:
            return False
        self._live.pop((task.pid, task.tid), None)
        task.pid, task.tid, task.tsc_end = pid, tid, 0
        self._live[pid, tid] = self._last[tid] = task
        return True

    def exit(self, pid: int, tid: int, tsc: int) -> None:
        """A task ended. Nothing happens when it is not known, or ended before."""
        task = self._live.pop((pid, tid), None)
        if task is not None:
            task.tsc_end = tsc

    def lookup(self, pid: int, tid: int) -> int | None:
        """The number of a live task."""
        task = self._live.get((pid, tid))
        return None if task is None else task.thread

    def find(self, pid: int, tid: int) -> int | None:
        """The number of a live task, or of the last one that was called so."""
        task = self._live.get((pid, tid)) or self._last.get(tid)
        return task.thread if task is not None and task.pid == pid else None

    def greeted(self, pid: int, tid: int, tsc: int, look: Callable[[], None]) -> int:
        """The number of a task that said hello. It need not wait for it, and may have ended.

        `look` reads what an engine wrote, which saw the task first, and with it who created it. It costs as much as
        there are processes, and a thousand may say hello at once: so only for one that is not known yet."""
        if self.lookup(pid, tid) is None:
            look()
        known = self.find(pid, tid)
        return self.start(pid, tid, tsc) if known is None else known

    def live(self, pid: int) -> list[Task]:
        """The live tasks of a process."""
        return [task for task in self._live.values() if task.pid == pid]
