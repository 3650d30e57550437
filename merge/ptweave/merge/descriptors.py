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
_SET_CLOSING, _SET_STATUS = 2, 4  # fcntl: F_SETFD, F_SETFL
_SEEK_END = 2
_CLOSE_RANGE_CLOEXEC = 4
_OPENING = {"open": 1, "openat": 2, "creat": None, "openat2": None}
"""Which argument of a call that opens a path has the flags."""

_MAKING = ("socket", "accept", "accept4", "memfd_create", "eventfd2", "epoll_create1", "timerfd_create", "signalfd4",
           "inotify_init1", "pidfd_open", "userfaultfd", "perf_event_open")
_CLOSING = {"socket": (1, O_CLOEXEC), "accept4": (3, O_CLOEXEC), "memfd_create": (1, 1), "eventfd2": (1, O_CLOEXEC),
            "epoll_create1": (0, O_CLOEXEC), "timerfd_create": (1, O_CLOEXEC), "signalfd4": (3, O_CLOEXEC),
            "inotify_init1": (0, O_CLOEXEC), "userfaultfd": (0, O_CLOEXEC), "perf_event_open": (4, 8),
            "dup3": (2, O_CLOEXEC), "fcntl": (1, 1024)}
"""Of calls that make a descriptor: the argument, and the bit of it that has exec close what is made. fcntl's tells
F_DUPFD_CLOEXEC from F_DUPFD."""

_NEEDED = {"dup": 1, "dup2": 1, "dup3": 1, "fcntl": 2, "close": 1, "close_range": 3, "lseek": 1}
"""Arguments without which nothing can be made of a call."""

_STANDARD = ("stdin", "stdout", "stderr")


@dataclass
class OpenFile:
    """What a descriptor stands for: descriptors that are copies of each other share it. `position`: of the next byte;
    None unknown. `stream`: what comes in and goes out is counted apart. `appends`: what goes out goes to the file's
    end, wherever the position is; `size`: where that is, None unknown."""

    path: str | None
    stream: bool
    position: int | None = 0
    appends: bool = False
    size: int | None = None
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
        appending = self.appends and not incoming
        offset = self.size if appending else self.position
        self.position = None if offset is None else offset + size
        if appending:
            self.size = self.position
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
            self._made(result, closing=name == "pidfd_open" or _closes(name, args))
        elif name in ("dup", "dup2", "dup3") or (name == "fcntl" and args[1] in _DUPLICATE):
            self.files[result] = self.get(args[0])
            self._made(result, closing=_closes(name, args))
        elif name == "fcntl" and args[1] == _SET_CLOSING and len(args) > 2:
            self._made(args[0], closing=bool(args[2] & 1))
        elif name == "fcntl" and args[1] == _SET_STATUS and len(args) > 2:
            self.get(args[0]).appends = bool(args[2] & O_APPEND)
        elif name == "close":
            self.files.pop(args[0], None)
            self.closing.discard(args[0])
        elif name == "close_range" and not args[2]:
            for number in [one for one in self.files if args[0] <= one <= args[1]]:
                del self.files[number]
        elif name == "close_range" and args[2] & _CLOSE_RANGE_CLOEXEC:
            self.closing |= {one for one in self.files if args[0] <= one <= args[1]}
        elif name == "lseek":
            file = self.get(args[0])
            file.position = result
            if len(args) > 2 and args[2] == _SEEK_END:
                file.size = result - args[1]
        elif name in ("execve", "execveat"):
            for number in self.closing:
                self.files.pop(number, None)
            self.closing.clear()

    def _open(self, name: str, args: Sequence[int], path: str | None, result: int) -> None:
        place = _OPENING[name]
        flags = args[place] if place is not None and place < len(args) else O_TRUNC if name == "creat" else 0
        self.files[result] = OpenFile(path, stream=False, appends=bool(flags & O_APPEND),
                                      size=0 if flags & O_TRUNC else None)
        self._made(result, closing=bool(flags & O_CLOEXEC))

    def _made(self, number: int, *, closing: bool) -> None:
        """A descriptor goes away at exec, or stays."""
        if closing:
            self.closing.add(number)
        else:
            self.closing.discard(number)


def _closes(name: str, args: Sequence[int]) -> bool:
    """Whether exec closes the descriptor that a call made."""
    place, bit = _CLOSING.get(name, (0, 0))
    return place < len(args) and bool(args[place] & bit)
