# SPDX-License-Identifier: MIT
"""Notices: what a recording met that it could not carry, or carried less well, said once by symbol or address."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class NoticeKind(StrEnum):
    """What was met. In the order of `enum ptw_notice_kind` (preload/src/notice.h), from 1; a test keeps them equal."""

    FALLBACK = "fallback"  # threads stay threads
    ATOMIC = "atomic"  # atomic instructions on memory that is private to a thread until it releases
    FUTEX = "futex"  # a futex call that is not ours to redirect
    CALL = "call"  # a system call instruction of the program's own
    CLONE = "clone"  # a thread or process made without the C library
    IO_URING = "io_uring"  # the kernel works on memory by itself
    TRACER = "tracer"  # ptrace and its kin see processes where they expect threads
    FAULTS = "faults"  # userfaultfd, or protections of the program's own
    LIMIT = "limit"  # a documented limit of process mode was reached
    SHARED = "shared"  # what --shared names cannot be found
    PROBE = "probe"  # a probe could not be installed, or was switched off
    WATCH = "watch"  # a watchpoint could not be set
    SCOPE = "scope"  # names that a library uses are looked up in another order

    @classmethod
    def of(cls, number: int) -> NoticeKind | None:
        """The kind with that number in C; None when there is none."""
        return list(cls)[number - 1] if 0 < number <= len(cls) else None


@dataclass(frozen=True)
class Notice:
    """One notice, as the manifest keeps it. `where` is code, `about` memory: a symbol and its file, or an address; ""
    none. `times` counts the processes of the run that told it."""

    kind: NoticeKind
    text: str
    where: str = ""
    about: str = ""
    remedy: str = ""
    pid: int = 0
    times: int = 1

    def line(self) -> str:
        """What, where, what to do."""
        what = f"{self.text} ({self.about})" if self.about else self.text
        place = f" at {self.where}" if self.where else ""
        return f"{what}{place}" + (f": {self.remedy}" if self.remedy else "")
