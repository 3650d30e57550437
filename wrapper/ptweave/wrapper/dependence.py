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
from typing import NamedTuple

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
    NOTICE_DTYPE,
    NOTICE_TOLD,
    NOTICES,
    NOTICES_AT,
    ListState,
)

KEPT_LISTS = 64
"""Lists above this index give their memory back when they are freed: they were needed in a burst."""
UNFINISHED_LIMIT = 16
"""More missing records than this in a thread are not explained by records under way when it died."""

_SIZE = struct.Struct("<I")
_STATE_SIZE = 4  # the first field of a list's descriptor
_ZEROS = memoryview(bytes(LIST_SIZE))


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
    """`dependence/<thread>.evl`, growing. After a write failed it takes nothing more, and ends after a whole write.

    A section's header waits for the first data: a thread that asks for its number does not wait for its file.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = os.fspath(path)  # one for each thread of the target: a Path costs as much as to write to the file
        self.size = 0
        self.broken = False
        self._header = b""

    @property
    def end(self) -> int:
        """Where the next byte goes."""
        return self.size + len(self._header)

    def announce(self, header: bytes) -> None:
        """Bytes to be written before what is appended next, or by `flush`."""
        self._header += header

    def flush(self) -> None:
        """Write what waits. Raises as `append` does."""
        if self._header:
            self.append(b"")

    def append(self, data: bytes | memoryview) -> None:
        """Raises OSError the first time the file cannot take data; the rest is dropped silently (and accounted).

        The error holds no view of `data`: what it lies in can be unmapped while the error is on its way.
        """
        if self.broken:
            return
        whole, self._header = self._header + bytes(data) if self._header else data, b""
        try:
            with memoryview(whole) as view:
                self._write(view)
        except OSError:
            self.broken = True
            raise

    def _write(self, view: memoryview) -> None:
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            at = 0
            while at < len(view):
                with view[at:] as rest:
                    at += os.pwrite(fd, rest, self.size + at)
            self.size += at
        except OSError:
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
        """Begin a section."""
        log = cls(thread, file, file.end)
        file.announce(EVL_HEADER.pack(EVL_MAGIC, pid, tid, thread, flags, tsc, marker, start_routine, 0, 0))
        return log

    def end(self) -> None:
        """The section is complete: write what was lost into its header. Raises OSError when it cannot be written."""
        if self.ended:
            return
        self.ended = True
        self.file.flush()
        if self.lost:
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
        path = Path(self.file.path)
        if not path.exists():
            return 0
        data = path.read_bytes()
        return len(finished(data, self.header_at + EVL_HEADER.size, len(data)))


class _List(NamedTuple):
    """A list's descriptor as it was read once (`LIST_DTYPE`, less the tid)."""

    number: int
    state: int
    serial: int
    sequence: int
    reserved: int
    committed: int
    records: int
    attempts: int
    lost: int

    def order(self) -> tuple[int, int]:
        return self.serial, self.sequence


@dataclass
class SharedLists:
    """The lists of one process image, mapped. Raises BadInput when the descriptor is not such a memfd."""

    fd: int
    unlisted: int = 0
    untracked: int = 0
    notices_lost: int = 0
    _unclaimed: int = 0  # records of threads that nobody knows
    _noticed: int = 0
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
        self._notices = np.frombuffer(self._map, NOTICE_DTYPE, NOTICES, NOTICES_AT)
        self._data = memoryview(self._map)
        self._states = self._data[LISTS_HEAD_SIZE:LISTS_DATA].cast("I")
        if int(self._head["magic"][0]) != LISTS_MAGIC:
            self.close()
            raise BadInput("is not a memfd of event lists", where="handshake")

    def close(self) -> None:
        self.unlisted = int(self._head["unlisted"][0]) + self._unclaimed
        self.untracked = int(self._head["untracked"][0])
        self.notices_lost = int(self._head["notices_lost"][0])
        del self._head, self._lists, self._notices
        self._states.release()
        self._data.release()
        self._map.close()

    def owner(self, index: int) -> int:
        """Serial of the thread whose list that is; 0 none."""
        return int(self._lists["serial"][index]) if index < LIST_COUNT else 0

    def notices(self, *, final: bool = False) -> list[np.void]:
        """The notices (NOTICE_DTYPE) that came since this was asked last; one that is being written comes later, or
        with `final` never."""
        end = min(int(self._head["notices"][0]), NOTICES)
        came: list[np.void] = []
        for index in range(self._noticed, end):
            if int(self._notices["state"][index]) == NOTICE_TOLD:
                came.append(self._notices[index].copy())
            elif not final:
                break
            self._noticed = index + 1
        return came

    def drain(self, logs: Mapping[int, ThreadLog], *, final: bool = False) -> None:
        """Copy what is committed into the logs (by serial) and free what was handed over.

        `final`: the process is gone (or is given up): lists still open are read to the last finished record.
        Raises OSError when a file cannot be written; the lists are then still consistent.
        """
        high = min(int(self._head["high"][0]), LIST_COUNT)
        states = self._lists["state"][:high].copy()  # before the rest: what is handed over does not change any more
        used = np.flatnonzero(states != ListState.FREE)
        found = [_List(number, state, *fields[2:]) for number, state, fields in
                 zip(used.tolist(), states[used].tolist(), self._lists[used].tolist(), strict=True)]
        for one in sorted(found, key=_List.order):
            log = logs.get(one.serial)
            if log is None:
                self._unclaimed += one.attempts if final else 0
                continue
            if final or one.sequence == log.sequence:
                self._drain_list(one, log, final)
            log.file.flush()

    def _drain_list(self, one: _List, log: ThreadLog, final: bool) -> None:
        base, committed = LISTS_DATA + one.number * LIST_SIZE, one.committed
        # an open list's fields were read while they changed: more may be committed than seemed reserved before
        used = max(min(one.reserved, LIST_SIZE), min(committed, LIST_SIZE))
        whole = committed <= LIST_SIZE and committed % 8 == 0 and committed >= log.drained
        try:
            if not whole:
                log.corrupt = True
            elif committed > log.drained:
                with self._data[base + log.drained:base + committed] as part:
                    log.file.append(part)
                log.drained = committed
            if whole and one.state == ListState.OPEN and final:
                self._read_tail(base, committed, used, log)
        finally:
            if one.state != ListState.OPEN or final:
                log.attempts += one.attempts
                log.lost += one.lost
                if whole:
                    log.stored += len(finished(self._data, base, base + used)) if final else one.records
                log.sequence, log.drained = one.sequence + 1, 0
                if not final:
                    self._free(one.number, used)
                if one.state == ListState.LAST:
                    log.end()

    def _read_tail(self, base: int, committed: int, reserved: int, log: ThreadLog) -> None:
        for at, size in finished(self._data, base + committed, base + reserved):
            with self._data[at:at + size] as part:
                log.file.append(part)

    def _free(self, index: int, used: int) -> None:
        base, at = LISTS_DATA + index * LIST_SIZE, LISTS_HEAD_SIZE + index * LIST_DTYPE.itemsize
        if index < KEPT_LISTS:
            self._data[base:base + used] = _ZEROS[:used]
        else:
            self._map.madvise(mmap.MADV_REMOVE, base, LIST_SIZE)
        self._data[at + _STATE_SIZE:at + LIST_DTYPE.itemsize] = _ZEROS[:LIST_DTYPE.itemsize - _STATE_SIZE]
        # last, and in one store: it is the target's from now on (struct's pack_into stores twice, and the target may
        # have claimed the list in between)
        self._states[index * (LIST_DTYPE.itemsize // _STATE_SIZE)] = ListState.FREE
        self._head["freed"] += 1
