# SPDX-License-Identifier: MIT
"""File descriptors as a run's system calls made them: what each stood for, and where in it the next byte was.

What the kernel says in memory alone (the two descriptors of a pipe) is not recorded: those descriptors are known by
their numbers only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

O_CLOEXEC = 0o2000000
O_APPEND = 0o2000
O_TRUNC = 0o1000
_DUPLICATE = (0, 1030)  # fcntl: F_DUPFD, F_DUPFD_CLOEXEC
_OPENING = {"open": 1, "openat": 2, "creat": None, "openat2": None}
"""Which argument of a call that opens a path has the flags."""

_MAKING = ("socket", "accept", "accept4", "memfd_create", "eventfd2", "epoll_create1", "timerfd_create", "signalfd4",
           "inotify_init1", "pidfd_open", "userfaultfd", "perf_event_open")
_NEEDED = {"dup": 1, "dup2": 1, "dup3": 1, "fcntl": 2, "close": 1, "close_range": 3, "lseek": 1}
"""Arguments without which nothing can be made of a call."""

_STANDARD = ("stdin", "stdout", "stderr")


@dataclass
class OpenFile:
    """What a descriptor stands for: descriptors that are copies of each other share it. `position`: of the next byte;
    None unknown. `stream`: what comes in and goes out is counted apart."""

    path: str | None
    stream: bool
    position: int | None = 0
    received: int = 0
    sent: int = 0

    def take(self, size: int, *, incoming: bool) -> int | None:
        """`size` bytes are moved: the offset of the first."""
        if self.stream:
            before = self.received if incoming else self.sent
            if incoming:
                self.received += size
            else:
                self.sent += size
            return before
        offset = self.position
        if offset is not None:
            self.position = offset + size
        return offset


@dataclass
class Descriptors:
    """Those of one program."""

    files: dict[int, OpenFile] = field(default_factory=dict)
    closing: set[int] = field(default_factory=set)  # go away at exec

    @classmethod
    def initial(cls) -> Descriptors:
        """Of a program that nothing is known of."""
        return cls({number: OpenFile(name, stream=True) for number, name in enumerate(_STANDARD)})

    def copy(self) -> Descriptors:
        """A child's: its descriptors are copies."""
        return Descriptors(dict(self.files), set(self.closing))

    def get(self, number: int) -> OpenFile:
        """What a descriptor stands for; one that is met first now was there from the start, or made by a call that says
        it in memory alone."""
        return self.files.setdefault(number, OpenFile(None, stream=True))

    def note(self, name: str, args: Sequence[int], path: str | None, result: int) -> None:
        """A call that succeeded. One that lacks arguments is none."""
        if len(args) < _NEEDED.get(name, 0):
            return
        if name in _OPENING:
            self._open(name, args, path, result)
        elif name in _MAKING:
            self.files[result] = OpenFile("socket" if name in ("socket", "accept", "accept4") else None, stream=True)
            self.closing.discard(result)
        elif name in ("dup", "dup2", "dup3") or (name == "fcntl" and args[1] in _DUPLICATE):
            self.files[result] = self.get(args[0])
            self.closing.discard(result)
        elif name == "close":
            self.files.pop(args[0], None)
        elif name == "close_range" and not args[2]:
            for number in [one for one in self.files if args[0] <= one <= args[1]]:
                del self.files[number]
        elif name == "lseek":
            self.get(args[0]).position = result
        elif name in ("execve", "execveat"):
            for number in self.closing:
                self.files.pop(number, None)
            self.closing.clear()

    def _open(self, name: str, args: Sequence[int], path: str | None, result: int) -> None:
        place = _OPENING[name]
        flags = args[place] if place is not None and place < len(args) else O_TRUNC if name == "creat" else 0
        appends = flags & O_APPEND and not flags & O_TRUNC
        self.files[result] = OpenFile(path, stream=False, position=None if appends else 0)
        if flags & O_CLOEXEC:
            self.closing.add(result)
        else:
            self.closing.discard(result)
