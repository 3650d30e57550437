# SPDX-License-Identifier: MIT
"""Processes that were killed before the soft engine, which they began in, had them do anything.

The engine runs in a fork's child before the program does: it makes files, and says what is mapped there. A child that
is killed meanwhile has a kernel's record of that, and no thread. So has what a program makes that runs without the
engine: there each call is the program's. They are told apart by who made them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ptweave.data import syscall_table
from ptweave.decode.raw_syscalls import NO_THREAD, ROW_RETURNED, Numbers, Rows

_MAKING = tuple(syscall_table.NUMBERS[name] for name in ("fork", "vfork", "clone", "clone3"))


class Births:
    """The processes that a recording's tasks made.

    `sure`: each that did anything under the engine has a thread, in the numbers that the recording has.
    `execs_sure`: so has each program that the engine was executed for.
    """

    def __init__(self, *, sure: bool, execs_sure: bool) -> None:
        self._sure = sure
        self.execs_sure = execs_sure
        self._made: dict[int, list[tuple[int, int]]] = {}  # by pid: when, by which thread
        self._native_from: dict[int, int] = {}

    def note(self, rows: Rows, threads: Numbers) -> None:
        """Take rows of the recording, and the threads that made the calls."""
        making = np.isin(rows["number"], _MAKING) & (rows["result"] > 0) & ((rows["flags"] & ROW_RETURNED) != 0)
        for row, thread in zip(rows[making], threads[making].tolist(), strict=True):
            self._made.setdefault(int(row["result"]), []).append((int(row["t_enter"]), thread))

    def went_native(self, thread: int, time: int) -> None:
        """From then on a thread runs without the engine."""
        self._native_from[thread] = time

    def under_engine(self, rows: Rows) -> npt.NDArray[np.bool_]:
        """Of rows of tasks without a thread: which are of a process that was made by one the engine ran then."""
        found = np.zeros(len(rows), np.bool_)
        if not self._sure:
            return found
        for pid in np.unique(rows["pid"]).tolist():
            made = sorted(self._made.get(pid, ()))
            where = np.flatnonzero(rows["pid"] == pid)
            before = np.searchsorted([time for time, _ in made], rows["t_enter"][where], side="right")
            ran = np.array([False, *(self._ran(*one) for one in made)])  # one whose maker is not known is nobody's
            found[where] = ran[before]
        return found

    def _ran(self, time: int, thread: int) -> bool:
        native = self._native_from.get(thread)
        return thread != NO_THREAD and (native is None or time < native)
