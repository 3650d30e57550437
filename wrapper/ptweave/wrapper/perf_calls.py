# SPDX-License-Identifier: MIT
"""System calls through perf's raw tracepoints (`raw_syscalls:sys_enter`, `sys_exit`): numbers, arguments and results.

For each processor there is one ring, into which the events of all followed tasks on it go; what a task creates inherits
them. A task that is followed by itself and inherited too is recorded by each of its events: of its records those of the
events opened last are taken. A call's two records may be in different rings: records are put in order of their times,
up to a moment before the rings were read, and enters wait for their exits. What the kernel had no room for it counts
(PERF_RECORD_LOST).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ptweave.data.errors import MachineLacks
from ptweave.data.ledger import Ledger
from ptweave.wrapper import call_rows
from ptweave.wrapper._perf_ring import ffi, lib
from ptweave.wrapper.call_rows import NEVER, Calls
from ptweave.wrapper.perf.abi import Ioctl, PerfEventAttr
from ptweave.wrapper.perf.event import PAGE, RECORDS_MAX, perf_event_open
from ptweave.wrapper.tracefs import tracepoint_number

_TYPE_TRACEPOINT = 2
_SAMPLE_TID, _SAMPLE_TIME, _SAMPLE_ID, _SAMPLE_RAW, _SAMPLE_REGS_USER = 1 << 1, 1 << 2, 1 << 6, 1 << 10, 1 << 12
_REG_IP = 1 << 8  # arch/x86/include/uapi/asm/perf_regs.h
_ABI_64 = 2  # PERF_SAMPLE_REGS_ABI_64
_LOST, _EXIT, _SAMPLE = 2, 4, 9
_RINGS = tuple(8 << 20 >> i for i in range(8))  # bytes of each ring: the first that may be locked
_ENDS = (60, 231)  # exit, exit_group
_MAKES_TASKS = (56, 57, 58, 435)  # clone, fork, vfork, clone3: they return in the new task, too
_EXECS = (59, 322)
_FORGOTTEN = -1  # the number of what rt_sigreturn returns from

_HEAD = [("head", "<u8"), ("pid", "<i4"), ("tid", "<i4"), ("t", "<i8"), ("id", "<u8"), ("size", "<u4"),
         ("common", "<u8"), ("number", "<i8")]
_ENTER = np.dtype([*_HEAD, ("args", "<u8", 6), ("pad", "<u4"), ("abi", "<u8"), ("ip", "<u8")])
_LEAVE = np.dtype([*_HEAD, ("result", "<i8"), ("pad", "<u4"), ("abi", "<u8"), ("ip", "<u8")])
"""Samples as the kernel writes them: perf's head, the tracepoint's fields, the registers (linux/perf_event.h)."""


class PerfCalls:
    """Use: `follow`, `batches` now and then, `stop`, `batches` once more, `account`, `close`. Not thread-safe."""

    name = "perf"
    lacks = "memory that arguments point to (paths, data), and what descriptors refer to: perf tells arguments only"

    def __init__(self, *, everybody: bool) -> None:
        """Raises MachineLacks when this machine, or our privileges, do not allow it."""
        self._ids = tracepoint_number("raw_syscalls/sys_enter"), tracepoint_number("raw_syscalls/sys_exit")
        self._cpus = list(_online())
        self._fds: tuple[list[int], list[int]] = [], []  # of enters, of exits
        self._first: dict[int, int] = {}  # by processor: the event whose ring the others write to
        self._maps: list[mmap.mmap] = []
        self._rings: list[Any] = []
        self._out: Any = ffi.new("uint8_t[]", RECORDS_MAX)
        self._followed: set[int] = set()
        self._starts: list[int] = []  # the first event's identifier of each _open: the kernel counts them up
        self._latest: dict[int, int] = {}  # by tid: which _open's events record it
        self._later: list[tuple[npt.NDArray[Any], npt.NDArray[Any]]] = []
        self._begun = np.empty(0, _ENTER)  # enters that wait for their exits
        self._seen: set[int] = set()
        self._ended: dict[int, int] = {}
        self.produced = 0
        self._no_exit = self._no_enter = self._compat = self._lost_records = self._malformed = 0
        self._stopped = False
        self._end = int(np.iinfo(np.int64).max)  # when the events began to be switched off, enters first
        self._since = 0  # when the last event was opened: the processors' are, one after the other
        self._try()
        if everybody:
            self._open(-1)

    # --- events ---

    def _attr(self, which: int) -> PerfEventAttr:
        attr = PerfEventAttr()
        attr.type, attr.config, attr.sample_period = _TYPE_TRACEPOINT, self._ids[which], 1
        attr.sample_type = _SAMPLE_TID | _SAMPLE_TIME | _SAMPLE_ID | _SAMPLE_RAW | _SAMPLE_REGS_USER
        attr.sample_regs_user = _REG_IP
        attr.inherit, attr.use_clockid, attr.clockid = 1, 1, time.CLOCK_MONOTONIC
        attr.task = int(which == 0)
        attr.watermark, attr.wakeup_watermark = 1, 1 << 16
        return attr

    def _event(self, which: int, tid: int, cpu: int) -> int:
        try:
            return perf_event_open(self._attr(which), tid, cpu)
        except OSError as error:
            raise MachineLacks(
                f"system calls cannot be recorded with perf ({error.strerror})", where="perf_event_open",
                remedy="run as root or with CAP_PERFMON, or set kernel.perf_event_paranoid to -1") from error

    def _try(self) -> None:
        """See whether it is allowed, by an event of our own."""
        os.close(self._event(0, 0, -1))

    def _open(self, tid: int) -> None:
        first = len(self._fds[1])
        for which in (1, 0):  # exits first: an enter that is seen then has one
            for cpu in self._cpus:
                fd = self._event(which, tid, cpu)
                self._fds[which].append(fd)
                if which == 1 and len(self._fds[1]) == first + 1:
                    self._starts.append(_identifier(fd))
                if cpu in self._first:
                    fcntl.ioctl(fd, Ioctl.SET_OUTPUT, self._first[cpu])
                else:
                    self._map(fd)
                    self._first[cpu] = fd
        self.settle()

    def settle(self) -> None:
        """All that is to be followed is: what is called from now on is recorded whole. A task that was made while its
        maker's events were opened, one after the other, inherited some of them and ended, has calls without an end."""
        self._since = time.clock_gettime_ns(time.CLOCK_MONOTONIC)

    def _map(self, fd: int) -> None:
        reason = ""
        for size in _RINGS:
            try:
                memory = mmap.mmap(fd, PAGE + size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
            except OSError as error:
                reason = str(error.strerror)
                if error.errno not in (errno.EPERM, errno.EAGAIN, errno.ENOMEM):
                    break
                continue
            ring = ffi.new("struct ptw_ring *")
            ring.page, ring.mapped, ring.file = ffi.from_buffer(memory), PAGE + size, -1
            self._maps.append(memory)
            self._rings.append(ring)
            return
        raise MachineLacks(f"perf's ring cannot be mapped ({reason})", where="perf_event_open",
                           remedy="raise kernel.perf_event_mlock_kb, or ulimit -l")

    def follow(self, tid: int) -> bool:
        """Record a task and all that it will create; False when that is so already."""
        if tid in self._followed or self._stopped:
            return False
        self._followed.add(tid)
        self._open(tid)
        return True

    def fds(self) -> list[int]:
        """Descriptors that are readable when there is something to take."""
        return list(self._first.values()) if not self._stopped else []

    # --- records ---

    def _read(self) -> None:
        """What is in the rings, into `_later`."""
        for ring in self._rings:
            while True:
                taken = lib.ptw_ring_records(ring, self._out, RECORDS_MAX)
                if taken < 0:
                    raise MachineLacks(f"perf's ring makes no sense ({os.strerror(-taken)})", remedy="report it")
                if not taken:
                    break
                self._later.append(self._split(bytes(ffi.buffer(self._out, taken))))

    def _split(self, data: bytes) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        at, enters, leaves = 0, [], []
        head = struct.Struct("<IHH")
        while at < len(data):
            kind, _, size = head.unpack_from(data, at)
            if kind == _SAMPLE and size == _ENTER.itemsize:
                enters.append(data[at:at + size])
            elif kind == _SAMPLE and size == _LEAVE.itemsize:
                leaves.append(data[at:at + size])
            elif kind == _LOST:
                self._lost_records += struct.unpack_from("<Q", data, at + 16)[0]
            elif kind == _EXIT:
                _, _, tid, _, moment = struct.unpack_from("<IIIIQ", data, at + 8)
                self._ended[tid] = moment
            elif kind == _SAMPLE:
                self._malformed += 1
            at += size
        return np.frombuffer(b"".join(enters), _ENTER), np.frombuffer(b"".join(leaves), _LEAVE)

    def batches(self, *, everything: bool) -> Iterator[pa.RecordBatch]:
        """Calls that have returned, as rows of RAW_SYSCALLS, in the order of their exits."""
        until = np.iinfo(np.int64).max if everything else time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        self._read()
        if not self._later and not everything:
            return
        enters, leaves = (np.concatenate(parts) if parts else np.empty(0, kind) for parts, kind in zip(
            zip(*self._later, strict=True) if self._later else ((), ()), (_ENTER, _LEAVE), strict=True))
        self._later = [(enters[enters["t"] >= until], leaves[leaves["t"] >= until])]
        if not len(self._later[0][0]) and not len(self._later[0][1]):
            self._later = []
        enters, leaves = self._ours(enters[enters["t"] < until], leaves[leaves["t"] < until])
        calls = self._pair(enters, leaves, until)
        if len(calls):
            yield call_rows.batch(calls)

    def _ours(self, enters: npt.NDArray[Any], leaves: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Without 32-bit calls, whose numbers mean something else, our own, and those before all was switched on; each
        once."""
        enters, leaves = self._once(enters, leaves)
        enters = enters[(enters["pid"] != os.getpid()) & (enters["t"] >= self._since)]
        leaves = leaves[leaves["pid"] != os.getpid()]
        compat = enters["abi"] != _ABI_64
        self._compat += int(compat.sum())
        self.produced += len(enters)
        return enters[~compat], leaves[leaves["abi"] == _ABI_64]

    def _once(self, enters: npt.NDArray[Any], leaves: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Without what another event of the same task tells, too. The events opened last for a task, or for whom it
        comes from, are complete: it was followed itself when it was made while they were opened."""
        if len(self._starts) < 2:
            return enters, leaves
        tids, which = np.unique(np.concatenate([enters["tid"], leaves["tid"]]), return_inverse=True)
        opened = np.searchsorted(np.array(self._starts, np.uint64), np.concatenate([enters["id"], leaves["id"]]),
                                 side="right")
        latest = np.array([self._latest.get(int(tid), 0) for tid in tids], np.int64)
        np.maximum.at(latest, which, opened)
        self._latest.update(zip(tids.tolist(), latest.tolist(), strict=True))
        kept = opened == latest[which]
        return enters[kept[:len(enters)]], leaves[kept[len(enters):]]

    def _pair(self, new: npt.NDArray[Any], leaves: npt.NDArray[Any], until: int) -> Calls:
        enters = np.concatenate([self._begun, new])
        tid = np.concatenate([enters["tid"], leaves["tid"]])
        t = np.concatenate([enters["t"], leaves["t"]])
        leaving = np.concatenate([np.zeros(len(enters), np.int8), np.ones(len(leaves), np.int8)])
        number = np.concatenate([enters["number"], leaves["number"]])
        which = np.concatenate([np.arange(len(enters)), np.arange(len(leaves))])
        order = np.lexsort((leaving, t, tid))
        tid, leaving, number, which = tid[order], leaving[order], number[order], which[order]
        same = (number[1:] == number[:-1]) | (number[1:] == _FORGOTTEN)
        pairs = (leaving[1:] == 1) & (leaving[:-1] == 0) & (tid[1:] == tid[:-1]) & same
        first, second = which[:-1][pairs], which[1:][pairs]
        alone = np.ones(len(which), np.bool_)
        alone[:-1][pairs] = False
        alone[1:][pairs] = False
        last = np.append(tid[1:] != tid[:-1], np.True_)[:len(tid)]  # of its task, so far
        lonely = alone & (leaving == 0)
        ends = lonely & np.isin(number, _ENDS)
        waiting, left = which[lonely & ~ends & last], which[lonely & ~ends & ~last]
        strays = list(which[alone & (leaving == 1)])
        more_first, more_second, waiting = self._across_exec(enters, leaves, waiting, strays)
        ended_by_exec = np.isin(enters["tid"][left], leaves["tid"][more_second])  # the first thread's, by another's
        self._no_exit += int((~ended_by_exec).sum())
        never, waiting = self._dead(enters, waiting, until)
        self._begun = enters[waiting]
        self._seen.update(int(one) for one in np.unique(enters["tid"]))
        return _calls(enters, leaves, np.concatenate([first, more_first]), np.concatenate([second, more_second]),
                      np.concatenate([which[ends], left[ended_by_exec], never]))

    def _across_exec(self, enters: npt.NDArray[Any], leaves: npt.NDArray[Any], waiting: npt.NDArray[Any],
                     strays: list[int]) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
        """Exits without an enter. An exec by another thread than the first returns with the first one's tid."""
        first, second = [], []
        for one in strays:
            leave = leaves[one]
            number, tid = int(leave["number"]), int(leave["tid"])
            same = [at for at in waiting if number in _EXECS and enters[at]["pid"] == leave["pid"]
                    and enters[at]["number"] == number]
            if same:
                first.append(same[0])
                second.append(one)
                waiting = waiting[waiting != same[0]]
            elif leave["t"] < self._end and tid in self._seen and number != _FORGOTTEN and (
                    number not in _MAKES_TASKS or leave["result"]):
                self._no_enter += 1
        return np.array(first, np.int64), np.array(second, np.int64), waiting

    def _dead(self, enters: npt.NDArray[Any], waiting: npt.NDArray[Any], until: int
              ) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Of the calls that wait, those whose task ended in them, and the others."""
        ended = {tid: moment for tid, moment in self._ended.items() if moment < until}
        if not ended:
            return np.empty(0, np.int64), waiting
        gone = np.array([ended.get(int(one["tid"]), -1) >= one["t"] for one in enters[waiting]], np.bool_)
        self._seen -= ended.keys()
        for tid in ended:
            self._latest.pop(tid, None)  # another task may be called so
        self._ended = {tid: moment for tid, moment in self._ended.items() if moment >= until}
        return waiting[gone], waiting[~gone]

    # --- the end ---

    def stop(self) -> None:
        """Record no more; what was recorded stays to be taken."""
        self._end = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        for fd in (*self._fds[0], *self._fds[1]):  # enters first
            fcntl.ioctl(fd, Ioctl.DISABLE, 0)
        self._stopped = True

    def account(self, ledger: Ledger, stream: str, stored: int, not_written: int) -> None:
        """What became of every call whose enter was seen, and of records that were not."""
        ledger.add(stream, "calls", stored=stored, produced=self.produced + self._no_enter, lost={
            "no_enter_seen": self._no_enter, "no_exit_seen": self._no_exit, "compat": self._compat,
            "in_flight": len(self._begun), "not_written": not_written})
        if self._lost_records or self._malformed:
            ledger.add(f"{stream}/records", "records", lost={"ring_full": self._lost_records,
                                                              "malformed": self._malformed})

    def close(self) -> None:
        """Free everything. Idempotent."""
        self._rings.clear()
        for memory in self._maps:
            with contextlib.suppress(BufferError):  # a view of it that is still about goes with the process
                memory.close()
        self._maps.clear()
        for fds in self._fds:
            for fd in fds:
                os.close(fd)
            fds.clear()


def _calls(enters: npt.NDArray[Any], leaves: npt.NDArray[Any], first: npt.NDArray[Any], second: npt.NDArray[Any],
           never: npt.NDArray[Any]) -> Calls:
    """Pairs and enters without an exit, in the order in which they ended."""
    begun = enters[np.concatenate([first, never]).astype(np.int64)]
    ended = leaves[second.astype(np.int64)]
    nothing = np.zeros(len(never), np.int64)
    t_exit = np.concatenate([ended["t"], nothing + NEVER])
    order = np.argsort(np.where(t_exit == NEVER, begun["t"], t_exit), kind="stable")
    pid = np.concatenate([ended["pid"], begun["pid"][len(first):]])
    tid = np.concatenate([ended["tid"], begun["tid"][len(first):]])
    result = np.concatenate([ended["result"], nothing])
    return Calls(begun["t"][order].astype(np.int64), t_exit[order].astype(np.int64), pid[order].astype(np.int32),
                 tid[order].astype(np.int32), begun["number"][order].astype(np.int32),
                 begun["ip"][order].astype(np.uint64), begun["args"][order].astype(np.uint64),
                 result[order].astype(np.int64))


def _identifier(fd: int) -> int:
    """What an event, and those that are inherited from it, are called in their samples."""
    return int.from_bytes(fcntl.ioctl(fd, Ioctl.ID, bytes(8)), "little")


def _online() -> Iterator[int]:
    """Processors that are switched on."""
    for part in Path("/sys/devices/system/cpu/online").read_text().strip().split(","):
        low, _, high = part.partition("-")
        yield from range(int(low), int(high or low) + 1)


__all__ = ["PerfCalls"]
