# SPDX-License-Identifier: MIT
"""Keeps the maps of generated code (`/tmp/perf-PID.map`) that just-in-time compilers leave for profilers.

The file is the target's, or whoever's can write in /tmp: it is opened without following links, and taken only when
it is a regular file of the process's user, written during the recording. A process in another mount namespace, or
with another root folder, has another /tmp: it is found through /proc while the process lives, and held.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from ptweave.data.bundle import perf_map_name
from ptweave.data.ledger import Ledger

SIZE_MAX = 64 << 20
CHUNK = 1 << 20
HELD_MAX = 256
"""Folders that are held open at the same time."""
CLOCK_SLACK_NS = 2_000_000_000
"""File times may lag behind the clock, and clocks are set."""
TMP = Path("/tmp")


@dataclass
class _Process:
    """A process whose map may come: users it has been, and its own /tmp (−1: the one we see)."""

    users: set[int] = field(default_factory=set)
    folder: int = -1
    looked: bool = False
    kept: bool = False


class PerfMaps:
    """The maps of one recording. Not thread-safe; `finish` closes what is held open."""

    def __init__(self, images: Path, since_ns: int = 0, tmp: Path = TMP) -> None:
        """Keep maps in `images` that were written since a time of CLOCK_REALTIME."""
        self._images = images
        self._since = since_ns - CLOCK_SLACK_NS
        self._tmp = tmp
        self._processes: dict[int, _Process] = {}
        self._stored = 0
        self._lost: dict[str, int] = {}

    def watch(self, pid: int, user: int | None = None) -> None:
        """A process lives; `user` is one of whom its files are known to be."""
        known = self._processes.setdefault(pid, _Process())
        if user is not None:
            known.users.add(user)
        try:
            known.users.add(Path(f"/proc/{pid}").stat().st_uid)
            if not known.looked:
                known.looked = True
                known.folder = self._own_tmp(pid)
        except OSError:
            return  # it is gone: what its files said must do

    def ended(self, pid: int) -> None:
        """A process is over: its map is whole."""
        known = self._processes.get(pid)
        if known is not None and not known.kept:
            self._keep(pid, known)
            self._close(known)

    def finish(self, ledger: Ledger) -> None:
        """The recording is over: keep what is still there, and account for it."""
        for pid in self._processes:
            self.ended(pid)
        if self._stored or self._lost:
            ledger.add("perf maps", "bytes", stored=self._stored, lost=self._lost)

    def _own_tmp(self, pid: int) -> int:
        """A descriptor of the process's /tmp if it may be another one than ours, else −1."""
        proc = Path(f"/proc/{pid}")
        same = (proc / "ns/mnt").readlink() == Path("/proc/self/ns/mnt").readlink()
        root, ours = (proc / "root").stat(), Path("/").stat()
        if same and (root.st_dev, root.st_ino) == (ours.st_dev, ours.st_ino):
            return -1
        if sum(known.folder >= 0 for known in self._processes.values()) >= HELD_MAX:
            return -1
        return os.open(proc / "root/tmp", os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)

    @staticmethod
    def _close(known: _Process) -> None:
        if known.folder >= 0:
            os.close(known.folder)
            known.folder = -1

    def _keep(self, pid: int, known: _Process) -> None:
        name = perf_map_name(pid)
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        try:
            own = known.folder >= 0
            fd = os.open(name, flags, dir_fd=known.folder) if own else os.open(self._tmp / name, flags)
        except OSError:
            return  # there is none, or a link that could lead anywhere
        try:
            status = os.fstat(fd)
            if status.st_mtime_ns < self._since:
                return  # of another process that had this number
            if not stat.S_ISREG(status.st_mode) or status.st_uid not in known.users:
                self._lose("not a file of the process's user", max(status.st_size, 1))
                return
            self._copy(fd, name, status.st_size)
            known.kept = True
        finally:
            os.close(fd)

    def _copy(self, fd: int, name: str, size: int) -> None:
        partial = self._images / f".{name}.partial"
        offset = 0
        try:
            with partial.open("wb") as out:
                while offset < SIZE_MAX and (chunk := os.pread(fd, min(CHUNK, SIZE_MAX - offset), offset)):
                    out.write(chunk)
                    offset += len(chunk)
            partial.replace(self._images / name)
        except OSError as error:
            partial.unlink(missing_ok=True)
            self._lose(f"cannot be written ({error.strerror})", size)
            return
        self._stored += offset
        if size > offset:
            self._lose(f"beyond {SIZE_MAX >> 20} MiB", size - offset)

    def _lose(self, why: str, size: int) -> None:
        self._lost[why] = self._lost.get(why, 0) + size
