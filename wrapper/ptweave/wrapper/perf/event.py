# SPDX-License-Identifier: MIT
"""One perf event: opened, mapped, drained, closed. What goes wrong is said with what to do about it."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import resource
from pathlib import Path
from typing import Any

from ptweave.data import MachineLacks
from ptweave.wrapper._perf_ring import ffi, lib
from ptweave.wrapper.perf.abi import PERF_FLAG_FD_CLOEXEC, SYSCALL_PERF_EVENT_OPEN, AttrSize, Ioctl, PerfEventAttr

PAGE = mmap.PAGESIZE
RECORDS_MAX = 1 << 18
"""Bytes of records that one read takes; a record has at most 65535."""
_SYSCTL = Path("/proc/sys/kernel")


def perf_event_open(attr: PerfEventAttr, pid: int, cpu: int, group: int = -1) -> int:
    """Open an event; returns its descriptor, closed on exec. Raises OSError.

    An older kernel that does not know the attribute's end takes it where that is zero, and says what it knows where
    it is not (E2BIG): then, too, if what it does not know is zero.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    attr.size = AttrSize.VER8
    for _ in range(2):
        fd = int(libc.syscall(SYSCALL_PERF_EVENT_OPEN, ctypes.byref(attr), pid, cpu, group,
                              ctypes.c_ulong(PERF_FLAG_FD_CLOEXEC)))
        if fd >= 0:
            return fd
        number = ctypes.get_errno()
        known = attr.size
        if number != errno.E2BIG or not AttrSize.VER0 <= known < AttrSize.VER8 or any(bytes(attr)[known:]):
            break
    raise OSError(number, os.strerror(number))


def explain_open(error: OSError, pid: int) -> MachineLacks:
    """Why an Intel PT event could not be opened, and the remedy."""
    where = f"pid {pid}" if pid >= 0 else "intel_pt"
    level = _sysctl("perf_event_paranoid")
    match error.errno:
        case errno.EACCES | errno.EPERM:
            return MachineLacks(
                f"the kernel refuses to trace it (perf_event_paranoid is {level}; {error.strerror})", where=where,
                remedy="setcap cap_perfmon=ep on the interpreter, or sysctl kernel.perf_event_paranoid=1, or be root; "
                "another user's processes need CAP_PERFMON and CAP_SYS_PTRACE")
        case errno.EBUSY:
            return MachineLacks("the processor's Intel PT is in use by somebody else", where=where,
                                remedy="end the other tracer (perf, a debugger, a hypervisor that traces)")
        case errno.ESRCH:
            return MachineLacks("there is no such process (any more)", where=where, remedy="check the pid")
        case errno.EMFILE | errno.ENFILE:
            soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            return MachineLacks(f"too many open files ({soft} are allowed; one for each thread is needed)", where=where,
                                remedy="ulimit -n to more")
        case errno.ENOENT | errno.ENODEV | errno.EOPNOTSUPP:
            return MachineLacks("this kernel cannot trace with Intel PT here", where=where,
                                remedy="use --engine soft, which emits the same packets")
        case errno.EINVAL:
            return MachineLacks("the kernel does not take these settings of Intel PT", where=where,
                                remedy="compare them with /sys/bus/event_source/devices/intel_pt/caps")
    return MachineLacks(f"the event cannot be opened ({error.strerror})", where=where, remedy="run ptweave doctor")


def explain_map(error: OSError, data: int, aux: int) -> MachineLacks:
    """Why an event's memory could not be had, with the numbers, and the remedy."""
    wanted = f"{data >> 10} KiB of records and {aux >> 10} KiB of packets"
    match error.errno:
        case errno.EPERM | errno.EAGAIN:
            soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
            limit = "unlimited" if soft == resource.RLIM_INFINITY else f"{soft >> 10} KiB"
            return MachineLacks(
                f"{wanted} are more memory than may be locked (perf_event_mlock_kb is {_sysctl('perf_event_mlock_kb')} "
                f"for each CPU, and ulimit -l is {limit})", where="intel_pt",
                remedy="a smaller --aux-size, or sysctl kernel.perf_event_mlock_kb to more, or CAP_IPC_LOCK")
        case errno.ENOMEM:
            return MachineLacks(f"there is no memory for {wanted}", where="intel_pt", remedy="a smaller --aux-size")
        case errno.EBUSY:
            return MachineLacks("the processor's Intel PT is in use by somebody else", where="intel_pt",
                                remedy="end the other tracer (perf, a debugger, a hypervisor that traces)")
        case errno.EINVAL:
            return MachineLacks(f"the kernel does not take {aux} bytes for packets: a power of two of pages is needed",
                                where="intel_pt", remedy="choose --aux-size 64K, 1M, 16M, …")
    return MachineLacks(f"{wanted} cannot be mapped ({error.strerror})", where="intel_pt",
                        remedy="a smaller --aux-size")


def _sysctl(name: str) -> str:
    try:
        return (_SYSCTL / name).read_text().strip()
    except OSError:
        return "not known"


class Event:
    """An open event with its rings mapped. `file` takes the AUX bytes and stays the caller's."""

    def __init__(self, attr: PerfEventAttr, pid: int, cpu: int, *, data: int, aux: int, file: int,
                 overwrite: bool = False, filters: str = "") -> None:
        """Sizes are bytes; `aux` 0: records only. Raises MachineLacks."""
        try:
            self.fd = perf_event_open(attr, pid, cpu)
        except OSError as error:
            raise explain_open(error, pid) from error
        self._maps: list[mmap.mmap] = []
        self.ring: Any = ffi.new("struct ptw_ring *")
        self._records: Any = ffi.new("uint8_t[]", RECORDS_MAX)
        try:
            if filters:
                self._filter(filters)
            self._map(data, aux, file, overwrite)
        except BaseException:
            self.close()
            raise

    def _filter(self, filters: str) -> None:
        try:
            fcntl.ioctl(self.fd, Ioctl.SET_FILTER, filters.encode() + b"\0")
        except OSError as error:
            raise MachineLacks(f"the kernel does not take the filter ({error.strerror})", where=filters,
                               remedy="see nr_addr_filters in /sys/bus/event_source/devices/intel_pt") from error

    def _map(self, data: int, aux: int, file: int, overwrite: bool) -> None:
        try:
            first = mmap.mmap(self.fd, PAGE + data, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
            self._maps.append(first)
            self.ring.page, self.ring.mapped = ffi.from_buffer(first), PAGE + data
            self.ring.file = file
            if not aux:
                return
            base = ffi.cast("uint64_t *", ffi.from_buffer(first))
            base[(1024 + 48) // 8], base[(1024 + 56) // 8] = PAGE + data, aux  # aux_offset, aux_size
            protection = mmap.PROT_READ if overwrite else mmap.PROT_READ | mmap.PROT_WRITE
            second = mmap.mmap(self.fd, aux, mmap.MAP_SHARED, protection, offset=PAGE + data)
            self._maps.append(second)
        except OSError as error:
            raise explain_map(error, data, aux) from error
        self.ring.aux, self.ring.aux_size = ffi.cast("uint8_t *", ffi.from_buffer(second)), aux

    def renew(self) -> None:
        """Exchange an AUX area that is overwritten for a fresh one, which is zero; tracing has to be off. The kernel
        goes on in it where it was in the old one. Raises MachineLacks."""
        data, aux = int(self.ring.mapped) - PAGE, int(self.ring.aux_size)
        self.ring.aux = ffi.NULL
        self._maps.pop().close()
        try:
            fresh = mmap.mmap(self.fd, aux, mmap.MAP_SHARED, mmap.PROT_READ, offset=PAGE + data)
        except OSError as error:
            raise explain_map(error, data, aux) from error
        self._maps.append(fresh)
        self.ring.aux = ffi.cast("uint8_t *", ffi.from_buffer(fresh))

    def share(self, attr: PerfEventAttr, pid: int, cpu: int) -> int:
        """Open another event that writes into this one's rings; returns its descriptor, the caller's. Raises
        MachineLacks."""
        try:
            fd = perf_event_open(attr, pid, cpu)
        except OSError as error:
            raise explain_open(error, pid) from error
        try:
            fcntl.ioctl(fd, Ioctl.SET_OUTPUT, self.fd)
        except OSError as error:
            os.close(fd)
            raise explain_map(error, 0, 0) from error
        return fd

    def ioctl(self, request: Ioctl) -> None:
        """Raises OSError."""
        fcntl.ioctl(self.fd, request, 0)

    def records(self) -> bytes:
        """Whole records that are new, as the kernel wrote them; empty when there are none. Raises ValueError for a ring
        that makes no sense."""
        taken = lib.ptw_ring_records(self.ring, self._records, RECORDS_MAX)
        if taken < 0:
            raise ValueError(f"a perf ring that makes no sense ({os.strerror(-taken)})")
        return bytes(ffi.buffer(self._records, taken))

    def drain(self) -> int:
        """Write the new AUX bytes to the file; returns how many there were."""
        return int(lib.ptw_ring_aux(self.ring))

    def snapshot(self) -> int:
        """Write the AUX area, oldest first; tracing has to be off."""
        return int(lib.ptw_ring_snapshot(self.ring))

    @property
    def aux_head(self) -> int:
        return int(lib.ptw_ring_aux_head(self.ring))

    def time(self) -> tuple[int, int, int] | None:
        """(zero, multiplier, shift) between perf's times and the TSC; None where the kernel does not say."""
        found = ffi.new("struct ptw_time *")
        if lib.ptw_ring_time(self.ring, found) < 0:
            return None
        return int(found.zero), int(found.mult), int(found.shift)

    def close(self) -> None:
        """Idempotent. The rings are gone then."""
        self.ring = None
        for one in reversed(self._maps):
            one.close()
        self._maps.clear()
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
