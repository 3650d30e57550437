# SPDX-License-Identifier: MIT
"""Can the processor's debug registers be had here? And how often they were hit (perf_event_open(2))."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Sequence

from ptweave.data import MachineLacks

SYS_PERF_EVENT_OPEN = 298
_ATTR_SIZE = 128
_BREAKPOINT, _WRITES, _BYTES = 5, 2, 8
_FLAGS = 1 << 0 | 1 << 1 | 1 << 5 | 1 << 6 | 1 << 36 | 1 << 37
"""disabled, inherit, exclude_kernel, exclude_hv, remove_on_exec, sigtrap."""
_CLOEXEC = 8
_COUNT = struct.Struct("<Q")
_REMEDIES = {
    errno.EACCES: "lower /proc/sys/kernel/perf_event_paranoid to 2, or run as root",
    errno.EPERM: "lower /proc/sys/kernel/perf_event_paranoid to 2, or run as root; containers may forbid it",
    errno.ENOSPC: "end what uses the debug registers (a debugger, perf), or watch less",
    errno.EINVAL: "use Linux 5.13 or newer, or record with --engine soft",
    errno.ENOSYS: "use a kernel with perf events, or record with --engine soft",
}


def check(slots: int) -> None:
    """Try to open that many, in this thread. Raises MachineLacks."""
    libc = ctypes.CDLL(None, use_errno=True)
    memory = ctypes.create_string_buffer(_BYTES * (slots + 1))
    address = (ctypes.addressof(memory) + _BYTES - 1) & -_BYTES
    opened: list[int] = []
    try:
        for number in range(slots):
            attr = bytearray(_ATTR_SIZE)
            struct.pack_into("<IIQQ", attr, 0, _BREAKPOINT, _ATTR_SIZE, 0, 1)
            struct.pack_into("<QIIQQ", attr, 40, _FLAGS, 0, _WRITES, address + _BYTES * number, _BYTES)
            fd = libc.syscall(SYS_PERF_EVENT_OPEN, bytes(attr), 0, -1, -1, _CLOEXEC)
            if fd < 0:
                raise _lack(ctypes.get_errno())
            opened.append(fd)
    finally:
        for fd in opened:
            os.close(fd)


def _lack(number: int) -> MachineLacks:
    return MachineLacks(f"watchpoints cannot be set: perf_event_open: {os.strerror(number)}", where="--watch",
                        remedy=_REMEDIES.get(number, "record with --engine soft"))


def is_event(fd: int) -> bool:
    """Whether a descriptor that somebody sent is of a perf event."""
    try:
        return os.readlink(f"/proc/self/fd/{fd}") == "anon_inode:[perf_event]"
    except OSError:
        return False


def count_hits(fds: Sequence[int]) -> int:
    """Hits of all of them, with those of every thread and process that inherited them."""
    total = 0
    for fd in fds:
        try:
            data = os.read(fd, _COUNT.size)
        except OSError:
            continue
        total += _COUNT.unpack(data)[0] if len(data) == _COUNT.size else 0
    return total
