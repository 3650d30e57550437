# SPDX-License-Identifier: MIT
"""Threads and processes of a run, from its sideband: who they were, when they lived, which image they ran."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ptweave.data.bundle import Bundle
from ptweave.data.manifest import Manifest
from ptweave.data.schemas import PROCESSES
from ptweave.data.sideband import SERVANT, SidebandKind, read_sideband


@dataclass
class Task:
    """A traced thread. Times are ns on CLOCK_MONOTONIC, None unknown; `spaces` its address spaces and since when."""

    thread: int
    pid: int
    tid: int
    creator: int = 0  # tid of the thread that created it, 0 unknown
    t_start: int | None = None
    t_end: int | None = None
    spaces: list[tuple[int, int]] = field(default_factory=list)
    own: bool = False  # libtthread's, not the program's
    former: int = 0  # tid of the task that went on as this one
    told_end: bool = True  # it said when it ended; else it did when its process was seen to be gone, or later


@dataclass
class Process:
    """A process image."""

    space: int
    pid: int
    parent: int | None
    began_by: str
    exe: str | None
    t_start: int | None
    t_end: int | None = None
    exit_status: int | None = None


@dataclass
class Tasks:
    """All of a run's tasks; empty when it has no sideband."""

    threads: dict[int, Task] = field(default_factory=dict)
    processes: list[Process] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock, repr=False, compare=False)

    def parent(self, thread: int) -> int | None:
        """Number of the thread that created a thread: the last one with that tid that began before it. What libtthread
        put in between is passed over."""
        task = self.threads.get(thread)
        if task is None:
            return None
        passed = {thread}
        creator = self._creator(task)
        while creator and creator.own and not task.own and creator.thread not in passed:
            passed.add(creator.thread)
            creator = self._creator(creator)
        return creator.thread if creator else None

    def _creator(self, task: Task) -> Task | None:
        if not task.creator:
            return None
        earlier = [other for other in self.threads.values()
                   if task.creator in (other.tid, other.former) and other.thread != task.thread
                   and (other.t_start or 0) <= (task.t_start or 0)]
        return max(earlier, key=lambda other: other.t_start or 0, default=None)

    def program(self, thread: int) -> int | None:
        """Process id of the program a thread belongs to: of its main process, where threads run as processes."""
        task = self.threads.get(thread)
        if task is None:
            return None
        image = next((process for process in self.processes
                      if task.spaces and process.space == task.spaces[-1][1]), None)
        return image.parent if image and image.began_by == "thread" and image.parent else task.pid

    def lived(self, thread: int, t: int) -> None:
        """A thread did something then: one that was killed, and could not say when, was there still. Several threads of
        ours may tell so at a time."""
        with self._lock:
            self._lived(thread, t)

    def _lived(self, thread: int, t: int) -> None:
        task = self.threads.get(thread)
        if task is None or task.told_end or task.t_end is None or task.t_end >= t:
            return
        task.t_end = t
        images = [process for process in self.processes if process.pid == task.pid]
        last = max(images, key=lambda process: process.space, default=None)
        if last is not None and last.t_end is not None:
            last.t_end = max(last.t_end, t)

    def exit_status(self, thread: int) -> int | None:
        """Wait status of the thread's program."""
        task = self.threads.get(thread)
        if task is None:
            return None
        pid = self.program(thread)
        images = [process for process in self.processes if process.pid == pid]
        return max(images, key=lambda process: process.space).exit_status if images else None

    def learn_exits(self, codes: dict[int, int]) -> None:
        """Wait statuses of processes whose end nobody waited for, from what they gave exit_group (by pid)."""
        last = {process.pid: process for process in sorted(self.processes, key=lambda process: process.space)}
        for pid, process in last.items():
            if process.exit_status is None and pid in codes:
                process.exit_status = (codes[pid] & 0xff) << 8

    def process_table(self) -> pa.Table:
        """The table `processes`: a thread that runs as one is none."""
        rows = sorted((vars(process) for process in self.processes if process.began_by != "thread"),
                      key=lambda row: int(row["space"]))
        return pa.Table.from_pylist(rows, schema=PROCESSES.schema)


def load_tasks(bundle: Bundle) -> Tasks:
    """Read the sideband. A bundle without one has no tasks; raises BadInput for one that cannot be read."""
    tasks = Tasks()
    if not bundle.sideband.exists():
        return tasks
    wanted = [kind.value for kind in (SidebandKind.PROCESS, SidebandKind.PROCESS_EXIT, SidebandKind.THREAD,
                                      SidebandKind.THREAD_EXIT, SidebandKind.COMM)]
    table = read_sideband(bundle.sideband)
    for batch in table.filter(pc.is_in(table.column("kind"), pa.array(wanted))).to_batches():
        for row in batch.to_pylist():
            _note(tasks, row, bundle.manifest)
    _finish(tasks, bundle.manifest)
    return tasks


def _note(tasks: Tasks, row: dict[str, Any], manifest: Manifest) -> None:
    t = manifest.clocks.to_ns(row["tsc"])
    match SidebandKind(row["kind"]):
        case SidebandKind.PROCESS:
            _begin_process(tasks, row, t)
        case SidebandKind.PROCESS_EXIT:
            status = row["value"]
            for process in _open_processes(tasks, row["pid"]):
                process.t_end = t
                process.exit_status = None if status is None or status < 0 else status
        case SidebandKind.THREAD if row["thread"] is not None:
            _begin_thread(tasks, row, t)
        case SidebandKind.THREAD_EXIT if row["thread"] in tasks.threads:
            task = tasks.threads[row["thread"]]
            if task.tid == (row["tid"] or row["pid"]):  # else it went on as another
                task.t_end = t
        case SidebandKind.COMM if row["detail"] == SERVANT:
            for task in tasks.threads.values():
                task.own |= task.tid == row["tid"] and task.pid == row["pid"] and task.t_end is None
        case _:
            pass


def _begin_thread(tasks: Tasks, row: dict[str, Any], t: int) -> None:
    pid, tid, place = row["pid"], row["tid"] or row["pid"], (t, row["space"])
    task = tasks.threads.get(row["thread"])
    if task is None:
        tasks.threads[row["thread"]] = Task(row["thread"], pid, tid, row["value"] or 0, t, None, [place])
    else:
        task.pid, task.tid, task.former, task.t_end = pid, tid, task.tid, None
        task.spaces.append(place)


def _open_processes(tasks: Tasks, pid: int) -> list[Process]:
    return [process for process in tasks.processes if process.pid == pid and process.t_end is None]


def _begin_process(tasks: Tasks, row: dict[str, Any], t: int) -> None:
    began_by = row["detail"] or "start"
    if began_by == "exec":
        for process in _open_processes(tasks, row["pid"]):
            process.t_end = t
        for task in tasks.threads.values():
            if task.pid == row["pid"] and task.t_end is None:
                task.spaces.append((t, row["space"]))
    tasks.processes.append(Process(row["space"], row["pid"], row["value"] or None, began_by, row["path"], t))


def _finish(tasks: Tasks, manifest: Manifest) -> None:
    """What the manifest knows of the target's own process, and ends that follow from their process's."""
    for process in tasks.processes:
        if process.pid == manifest.pid and process.exit_status is None and not any(
                other.pid == process.pid and other.space > process.space for other in tasks.processes):
            process.exit_status = manifest.status
    ends = {process.pid: process.t_end for process in tasks.processes}
    for task in tasks.threads.values():
        if task.t_end is None:
            task.t_end, task.told_end = ends.get(task.pid), False
