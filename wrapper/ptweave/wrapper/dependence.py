# SPDX-License-Identifier: MIT
"""From a process's shared event lists to `dependence/<thread>.evl`.

Formats: `ptweave.data.lists` (what is read; written by the target, so nothing in it is believed without a check) and
`ptweave.data.evl` (what is written). Records are copied as they are: the decoder checks them one by one.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ptweave.data import BadInput, Ledger
from ptweave.data.evl import EVL_HEADER, EVL_LOST_OFFSET, EVL_MAGIC, EVL_MAX_FRAMES, EVL_OPEN, EVL_RECORD_SIZE
from ptweave.data.lists import (
    LIST_COUNT,
    LIST_DTYPE,
    LIST_SIZE,
    LISTS_BYTES,
    LISTS_DATA,
    LISTS_HEAD,
    LISTS_HEAD_SIZE,
    LISTS_MAGIC,
    ListState,
)

KEPT_LISTS = 64
"""Lists above this index give their memory back when they are freed: they were needed in a burst."""
UNFINISHED_LIMIT = 16
"""More missing records than this in a thread are not explained by records under way when it died."""

_SIZE = struct.Struct("<I")
_ZEROS = bytes(LIST_SIZE)


def finished(data: bytes | memoryview, start: int, end: int) -> list[tuple[int, int]]:
    """(offset, size) of the finished records in data[start:end]; stops where no record was begun."""
    found, at = [], start
    while at + EVL_RECORD_SIZE <= end:
        word, = _SIZE.unpack_from(data, at)
        size = word & ~EVL_OPEN
        if size < EVL_RECORD_SIZE or size % 8 or size > EVL_RECORD_SIZE + 8 * EVL_MAX_FRAMES or at + size > end:
            break
        if not word & EVL_OPEN:
            found.append((at, size))
        at += size
    return found


class ThreadFile:
    """`dependence/<thread>.evl`, growing. After a write failed it takes nothing more, and ends after a whole write."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self.broken = False

    def append(self, data: bytes | memoryview) -> None:
        """Raises OSError the first time the file cannot take data; the rest is dropped silently (and accounted)."""
        if self.broken:
            return
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            view, at = memoryview(data), self.size
            while len(view):
                done = os.pwrite(fd, view, at)
                view, at = view[done:], at + done
            self.size = at
        except OSError:
            self.broken = True
            os.ftruncate(fd, self.size)
            raise
        finally:
            os.close(fd)

    def patch(self, offset: int, data: bytes) -> None:
        """Overwrite bytes that are there already."""
        if offset + len(data) <= self.size:
            fd = os.open(self.path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                os.pwrite(fd, data, offset)
            finally:
                os.close(fd)


@dataclass
class ThreadLog:
    """One thread in one process image: its section of the file and its account."""

    thread: int
    file: ThreadFile
    header_at: int
    sequence: int = 0  # of the list being drained
    drained: int = 0  # bytes of that list
    stored: int = 0
    attempts: int = 0
    lost: int = 0
    corrupt: bool = False  # a descriptor contradicted itself: that list was not copied
    ended: bool = False

    @classmethod
    def begin(cls, file: ThreadFile, *, pid: int, tid: int, thread: int, flags: int, tsc: int, marker: int,
              start_routine: int) -> ThreadLog:
        """Begin a section. Raises OSError when it cannot be written."""
        log = cls(thread, file, file.size)
        file.append(EVL_HEADER.pack(EVL_MAGIC, pid, tid, thread, flags, tsc, marker, start_routine, 0, 0))
        return log

    def end(self) -> None:
        """Write what was lost into the header."""
        if not self.ended:
            self.ended = True
            self.file.patch(self.header_at + EVL_LOST_OFFSET, struct.pack("<Q", self.lost))

    def account(self, ledger: Ledger) -> None:
        """Add this section to `dependence/<thread>`: produced is the producer's own count of attempts."""
        lost = {"dropped": self.lost}
        missing = self.attempts - self.stored - self.lost
        if self.file.broken:
            kept = self._kept()
            lost["not written"] = max(0, self.attempts - self.lost - kept)
            self.stored = kept
        elif self.corrupt:
            lost["corrupt"] = max(0, missing)
        elif 0 < missing <= UNFINISHED_LIMIT:
            lost["unfinished"] = missing
        ledger.add(f"dependence/{self.thread}", "events", stored=self.stored, lost=lost, produced=self.attempts)

    def _kept(self) -> int:
        if not self.file.path.exists():
            return 0
        data = self.file.path.read_bytes()
        return len(finished(data, self.header_at + EVL_HEADER.size, len(data)))


@dataclass
class SharedLists:
    """The lists of one process image, mapped. Raises BadInput when the descriptor is not such a memfd."""

    fd: int
    unlisted: int = 0
    untracked: int = 0
    _map: mmap.mmap = field(init=False, repr=False)

    def __post_init__(self) -> None:
        try:
            seals = fcntl.fcntl(self.fd, fcntl.F_GET_SEALS)
        except OSError as error:
            raise BadInput("is not a memfd", where="handshake") from error
        wanted = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
        if seals & wanted != wanted or seals & fcntl.F_SEAL_WRITE or os.fstat(self.fd).st_size != LISTS_BYTES:
            raise BadInput("is not a sealed memfd of event lists", where="handshake")
        try:
            self._map = mmap.mmap(self.fd, LISTS_BYTES, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        except OSError as error:
            raise BadInput(f"event lists cannot be mapped ({error.strerror})", where="handshake") from error
        self._head = np.frombuffer(self._map, LISTS_HEAD, 1)
        self._lists = np.frombuffer(self._map, LIST_DTYPE, LIST_COUNT, LISTS_HEAD_SIZE)
        self._data = memoryview(self._map)
        if int(self._head["magic"][0]) != LISTS_MAGIC:
            self.close()
            raise BadInput("is not a memfd of event lists", where="handshake")

    def close(self) -> None:
        self.unlisted, self.untracked = int(self._head["unlisted"][0]), int(self._head["untracked"][0])
        del self._head, self._lists
        self._data.release()
        self._map.close()

    def owner(self, index: int) -> int:
        """Serial of the thread whose list that is; 0 none."""
        return int(self._lists["serial"][index]) if index < LIST_COUNT else 0

    def drain(self, logs: Mapping[int, ThreadLog], *, final: bool = False) -> None:
        """Copy what is committed into the logs (by serial) and free what was handed over.

        `final`: the process is gone (or is given up): lists still open are read to the last finished record.
        Raises OSError when a file cannot be written; the lists are then still consistent.
        """
        high = min(int(self._head["high"][0]), LIST_COUNT)
        states = self._lists["state"][:high].copy()  # before the rest: what is handed over does not change any more
        lists = self._lists[:high].copy()
        order = np.lexsort((lists["sequence"], lists["serial"]))
        for index in order[states[order] != ListState.FREE]:
            log = logs.get(int(lists["serial"][index]))
            if log is not None and (final or int(lists["sequence"][index]) == log.sequence):
                self._drain_list(int(index), int(states[index]), lists[index], log, final)

    def _drain_list(self, index: int, state: int, one: np.void, log: ThreadLog, final: bool) -> None:
        base, committed = LISTS_DATA + index * LIST_SIZE, int(one["committed"])
        # an open list's fields were read while they changed: more may be committed than seemed reserved before
        used = max(min(int(one["reserved"]), LIST_SIZE), min(committed, LIST_SIZE))
        whole = committed <= LIST_SIZE and committed % 8 == 0 and committed >= log.drained
        try:
            if not whole:
                log.corrupt = True
            elif committed > log.drained:
                log.file.append(self._data[base + log.drained:base + committed])
                log.drained = committed
            if whole and state == ListState.OPEN and final:
                self._read_tail(base, committed, used, log)
        finally:
            if state != ListState.OPEN or final:
                log.attempts += int(one["attempts"])
                log.lost += int(one["lost"])
                if whole:
                    log.stored += len(finished(self._data, base, base + used)) if final else int(one["count"])
                log.sequence, log.drained = int(one["sequence"]) + 1, 0
                if not final:
                    self._free(index, used)
                if state == ListState.LAST:
                    log.end()

    def _read_tail(self, base: int, committed: int, reserved: int, log: ThreadLog) -> None:
        for at, size in finished(self._data, base + committed, base + reserved):
            log.file.append(self._data[at:at + size])

    def _free(self, index: int, used: int) -> None:
        base = LISTS_DATA + index * LIST_SIZE
        if index < KEPT_LISTS:
            self._data[base:base + used] = _ZEROS[:used]
        else:
            self._map.madvise(mmap.MADV_REMOVE, base, LIST_SIZE)
        one = self._lists[index:index + 1]
        for name in LIST_DTYPE.names or ():
            if name != "state":
                one[name] = 0
        one["state"] = ListState.FREE
        self._head["freed"] += 1
