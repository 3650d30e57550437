# SPDX-License-Identifier: MIT
"""File descriptors as a run's system calls made them: what each stood for, and where in it the next byte was.

What the kernel says in memory alone (the two descriptors of a pipe) is not followed: such descriptors are met when they
are used. Which pipe or socket they are is known by the kernel's name for it, where that was recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

O_CLOEXEC = 0o2000000
O_APPEND = 0o2000
O_TRUNC = 0o1000
O_ACCMODE = 0o3
_DUPLICATE = (0, 1030)  # fcntl: F_DUPFD, F_DUPFD_CLOEXEC
_SET_CLOSING, _GET_STATUS, _SET_STATUS = 2, 3, 4  # fcntl: F_SETFD, F_GETFL, F_SETFL
_SEEK_END = 2
_CLOSE_RANGE_CLOEXEC = 4
_KEEP_SIZE = 1  # fallocate
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

_NEEDED = {"dup": 1, "dup2": 1, "dup3": 1, "fcntl": 2, "close": 1, "close_range": 3, "lseek": 1,
           "ftruncate": 2, "fallocate": 4}
"""Arguments without which nothing can be made of a call."""

_STANDARD = ("stdin", "stdout", "stderr")


@dataclass(eq=False)
class Writers:
    """Who has files of one name open for writing: `several`, once one was opened while another was."""

    several: bool = False


Written = WeakValueDictionary[str, Writers]
"""The last part of a path → who writes to files of that name, as long as somebody does."""


@dataclass
class OpenFile:
    """What a descriptor stands for: descriptors that are copies of each other share it. `position`: of the next byte;
    None unknown. `stream`: what comes in and goes out is counted apart. `appends`: what goes out goes to the file's
    end, wherever the position is; `size`: where that is, None unknown, if nobody but this one (`writers`) moves it."""

    path: str | None
    stream: bool
    position: int | None = 0
    appends: bool = False
    size: int | None = None
    writers: Writers | None = None
    received: int | None = 0
    sent: int | None = 0

    def take(self, size: int | None, *, incoming: bool, appending: bool = False) -> int | None:
        """`size` bytes (None: not known) are moved at the position, or to the end: the offset of the first."""
        if self.stream:
            before = self.received if incoming else self.sent
            if incoming:
                self.received = _behind(before, size)
            else:
                self.sent = _behind(before, size)
            return before
        offset = self._end() if appending or (self.appends and not incoming) else self.position
        self.position = _behind(offset, size)
        if not incoming:
            self._grow(self.position)
        return offset

    def put(self, size: int | None, offset: int, *, appending: bool = False) -> int | None:
        """`size` bytes go out at an offset of their own, or to the end: the offset of the first."""
        where = self._end() if appending or self.appends else offset
        self._grow(_behind(where, size))
        return where

    def _end(self) -> int | None:
        return self.size if self.writers and not self.writers.several else None

    def _grow(self, end: int | None) -> None:
        self.size = None if self.size is None or end is None else max(self.size, end)


Streams = WeakValueDictionary[str, OpenFile]
"""The kernel's name of a pipe or socket → what its descriptors stand for."""

_STREAMS = ("pipe:[", "socket:[")


@dataclass
class Known:
    """What a run's programs share."""

    written: Written = field(default_factory=Written)
    streams: Streams = field(default_factory=Streams)


@dataclass
class Descriptors:
    """Those of one program. `known`: of the run."""

    known: Known
    files: dict[int, OpenFile] = field(default_factory=dict)
    closing: set[int] = field(default_factory=set)  # go away at exec

    @classmethod
    def initial(cls, known: Known) -> Descriptors:
        """Of a program that nothing is known of."""
        return cls(known, {number: OpenFile(name, stream=True) for number, name in enumerate(_STANDARD)})

    def copy(self) -> Descriptors:
        """A child's: its descriptors are copies."""
        return Descriptors(self.known, dict(self.files), set(self.closing))

    def get(self, number: int, name: str | None = None) -> OpenFile:
        """What a descriptor stands for; one that is met first now was there from the start, or made by a call that says
        it in memory alone. `name`: the kernel's for what it refers to."""
        file = self.files.get(number)
        if file is None:
            stream = name if name is not None and name.startswith(_STREAMS) else None
            file = self.known.streams.get(stream) if stream else None
            if file is None:
                file = OpenFile(None, stream=True)
            if stream:
                self.known.streams[stream] = file
            self.files[number] = file
        return file

    def first(self, file: OpenFile) -> int:
        """The lowest number of an open file's: of libtthread's copies (their numbers are high) it is the program's."""
        return min(number for number, one in self.files.items() if one is file)

    def note(self, name: str, args: Sequence[int], path: str | None, result: int, file_name: str | None = None) -> None:
        """A call that succeeded. One that lacks arguments is none. `file_name`: the kernel's for its descriptor."""
        if len(args) < _NEEDED.get(name, 0):
            return
        if name in _OPENING:
            self._open(name, args, path, result)
        elif name in _MAKING:
            self.files[result] = OpenFile("socket" if name in ("socket", "accept", "accept4") else None, stream=True)
            self._made(result, closing=name == "pidfd_open" or _closes(name, args))
        elif name in ("dup", "dup2", "dup3") or (name == "fcntl" and args[1] in _DUPLICATE):
            self.files[result] = self.get(args[0], file_name)
            self._made(result, closing=_closes(name, args))
        elif name == "fcntl" and args[1] == _SET_CLOSING and len(args) > 2:
            self._made(args[0], closing=bool(args[2] & 1))
        elif name == "fcntl" and args[1] == _GET_STATUS:
            self.get(args[0]).appends = bool(result & O_APPEND)
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
            file.position, file.stream = result, False  # in a stream nobody can seek
            if len(args) > 2 and args[2] == _SEEK_END:
                file.size = result - args[1]
        elif name == "ftruncate":
            self.get(args[0]).size = args[1]
        elif name == "fallocate" and not args[1] & _KEEP_SIZE:
            self.get(args[0]).size = None
        elif name == "truncate":
            self._several(path)
        elif name in ("execve", "execveat"):
            for number in self.closing:
                self.files.pop(number, None)
            self.closing.clear()

    def _open(self, name: str, args: Sequence[int], path: str | None, result: int) -> None:
        place = _OPENING[name]
        flags = args[place] if place is not None and place < len(args) else O_TRUNC if name == "creat" else 0
        reading = place is not None and place < len(args) and not flags & (O_ACCMODE | O_TRUNC)
        self.files[result] = OpenFile(path, stream=False, appends=bool(flags & O_APPEND),
                                      size=0 if flags & O_TRUNC else None,
                                      writers=None if reading else self._several(path))
        self._made(result, closing=bool(flags & O_CLOEXEC))

    def _several(self, path: str | None) -> Writers | None:
        """Who writes to files of that name, now that one more does."""
        if path is None:
            return None
        name = path.rpartition("/")[2]
        writers = self.known.written.get(name)
        if writers is None:
            writers = self.known.written[name] = Writers()
        else:
            writers.several = True
        return writers

    def _made(self, number: int, *, closing: bool) -> None:
        """A descriptor goes away at exec, or stays."""
        if closing:
            self.closing.add(number)
        else:
            self.closing.discard(number)


def _behind(offset: int | None, size: int | None) -> int | None:
    """The offset behind so many bytes."""
    return None if offset is None or size is None else offset + size


def _closes(name: str, args: Sequence[int]) -> bool:
    """Whether exec closes the descriptor that a call made."""
    place, bit = _CLOSING.get(name, (0, 0))
    return place < len(args) and bool(args[place] & bit)
