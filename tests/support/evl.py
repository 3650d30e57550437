# SPDX-License-Identifier: MIT
"""Writes event lists (`ptweave.data.evl`) as libtthread would, with times and versions chosen by the test."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ptweave.data.evl import EVL_HEADER, EVL_MAGIC, EVL_RECORD, EVL_RECORD_SIZE, Operation
from ptweave.data.handshake import Hello


def header(thread: int, *, pid: int = 100, tid: int | None = None, image: int = 0, kind: Hello = Hello.THREAD,
           tsc: int = 0, marker: int = 0x1000, start_routine: int = 0, lost: int = 0) -> bytes:
    return EVL_HEADER.pack(EVL_MAGIC, pid, pid + thread if tid is None else tid, thread, kind | image << 8, tsc,
                           marker, start_routine, lost, 0)


def record(operation: Operation | int, *, enter: int = 0, leave: int | None = None, obj: int = 0, result: int = 0,
           version: int = 0, argument: int = 0, stack: tuple[int, ...] = (), open_: bool = False) -> bytes:
    size = EVL_RECORD_SIZE + 8 * len(stack)
    return EVL_RECORD.pack(size | open_, operation, len(stack), enter, enter + 1 if leave is None else leave, obj,
                           result, version, argument) + b"".join(ip.to_bytes(8, "little") for ip in stack)


@dataclass
class List:
    """One thread's list in the making; `now` is its clock, one tick an operation."""

    thread: int
    data: bytearray = field(default_factory=bytearray)

    def __post_init__(self) -> None:
        if not self.data:
            self.data += header(self.thread)

    def add(self, operation: Operation, at: int, **fields: int) -> List:
        """Append a record that took from `at` to `at` + 1, unless `leave` says otherwise."""
        self.data += record(operation, enter=at, **fields)  # type: ignore[arg-type]
        return self

    def save(self, folder: Path) -> Path:
        path = folder / f"{self.thread}.evl"
        path.write_bytes(self.data)
        return path
