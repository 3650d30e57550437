# SPDX-License-Identifier: MIT
"""Two threads that hand a lock over: the smallest run in which one waits for the other, and is waited for in turn."""

from __future__ import annotations

from support.bundle_writer import BundleWriter


def write_hand_over(writer: BundleWriter, lock: int) -> None:
    """Thunks of threads 0 and 1, 10 to 910 ns: 0 creates and joins 1, which waits from 200 to 415 for `lock`."""
    def thunk(thread: int, operation: str, t: int, wait: int, clock: list[int], *, acquire: bool = False,
              release: bool = False, at: int = lock) -> None:
        writer.thunk(thread, t=t, wait=wait, operation=operation, clock=clock, acquire=acquire, release=release,
                     object_=at)

    thunk(0, "start", 10, 0, [1], at=0)
    thunk(0, "mutex_lock", 100, 5, [2], acquire=True)
    thunk(0, "create", 150, 10, [3], release=True, at=0x9000)
    thunk(0, "mutex_unlock", 400, 5, [4], release=True)
    thunk(0, "join", 450, 460, [5, 3], acquire=True, at=0x9000)
    thunk(1, "start", 170, 0, [2, 1], acquire=True, at=0x9000)
    thunk(1, "mutex_lock", 200, 215, [3, 2], acquire=True)
    thunk(1, "exit", 880, 0, [3, 3], release=True, at=0x9000)
