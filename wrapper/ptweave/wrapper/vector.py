# SPDX-License-Identifier: MIT
"""From a process's event vector to `dependence/vector-<image>.ptv`.

Format: preload/src/vector_format.h, docs/event-vector.md. The consumer is C (wrapper/src/vector_file.h); the memory is
the target's, and nothing in it is believed without a check. The file is made when there is something to write.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptweave.data import BadInput, Ledger
from ptweave.wrapper._vector import ffi, lib

HEAD_SIZE = 4096
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
_HEARD_OFFSET = 32  # of `heard` in the head
_HIGH_OFFSET = 64
_WORD, _HALF = struct.Struct("<Q"), struct.Struct("<I")


@dataclass(frozen=True)
class Totals:
    """`struct ptv_totals`: events begun, and what became of them."""

    begun: int = 0
    stored: int = 0
    lost: int = 0
    unwritten: int = 0
    dropped: int = 0
    overwritten: int = 0
    """Of those stored, what a ring gave up for newer ones."""

    @property
    def unfinished(self) -> int:
        """Events of threads that died in the midst of them; known when all lists were read to the end."""
        return max(0, self.begun - self.stored - self.lost - self.unwritten)


class VectorRecorder:
    """The consumer of one process image's vector. Owns `fd`. Raises BadInput when it is no vector."""

    def __init__(self, fd: int, path: Path, ring: int = 0) -> None:
        """`ring`: bytes that the file may have; the newest events stay. 0: it grows."""
        self.path = path
        self._ring = ring
        self.totals = Totals()
        self._fd = fd
        self._recorder: Any = None
        self._closed = False
        try:
            if fcntl.fcntl(fd, fcntl.F_GET_SEALS) & _SEALS != _SEALS:  # else the mapping could raise SIGBUS
                raise ValueError
            self._head = mmap.mmap(fd, HEAD_SIZE, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        except (OSError, ValueError) as error:
            os.close(fd)
            raise BadInput("is not an event vector", where="handshake") from error

    def poll(self) -> None:
        """Take what is finished. Raises OSError the first time the file cannot take it, BadInput when the memory turns
        out to be no vector."""
        if self._closed:
            return
        if self._recorder is None:
            _WORD.pack_into(self._head, _HEARD_OFFSET, time.clock_gettime_ns(time.CLOCK_MONOTONIC))
            if not _HALF.unpack_from(self._head, _HIGH_OFFSET)[0]:
                return
            self._start()
        _check(lib.ptv_consumer_poll(self._recorder.consumer, True), self.path)

    def _start(self) -> None:
        recorder = ffi.new("struct ptv_recorder *")
        error = lib.ptv_recorder_init(recorder, self._fd, os.fsencode(self.path), self._ring)
        if error == -errno.EINVAL:
            self.close()
            raise BadInput("is not an event vector", where="handshake")
        _check(error, self.path)
        self._recorder = recorder

    def finish(self) -> None:
        """Everybody who logged has ended: read to the end. Raises as `poll`, after everything is closed."""
        if self._closed:
            return
        try:
            self.poll()
            if self._recorder is not None:
                result = lib.ptv_consumer_finish(self._recorder.consumer)
                raw = ffi.new("struct ptv_totals *")
                lib.ptv_consumer_totals(self._recorder.consumer, raw)
                self.totals = Totals(raw.begun, raw.stored, raw.lost, raw.unwritten, sum(raw.dropped),
                                     lib.ptv_file_overwritten(self._recorder.file))
                _check(result, self.path)
        finally:
            self.close()

    def close(self) -> None:
        """Give everything back. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._recorder is not None:
            lib.ptv_recorder_deinit(self._recorder)
        self._head.close()
        os.close(self._fd)

    def account(self, ledger: Ledger) -> None:
        """Add it to the stream `events`: produced is what was begun or dropped."""
        totals = self.totals
        if totals.begun or totals.dropped:
            ledger.add("events", "events", stored=totals.stored - totals.overwritten, lost={
                "overwritten": totals.overwritten,
                "given up": totals.lost, "unfinished": totals.unfinished, "not written": totals.unwritten,
                "no room": totals.dropped}, produced=totals.begun + totals.dropped)


def _check(result: int, path: Path) -> None:
    if result < 0:
        raise OSError(-result, os.strerror(-result), str(path))
