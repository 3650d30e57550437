# SPDX-License-Identifier: MIT
"""Can the processor's debug registers be had here? And how often they were hit (perf_event_open(2))."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Sequence
from pathlib import Path

from ptweave.data import MachineLacks
from ptweave.wrapper.perf.abi import PerfEventAttr
from ptweave.wrapper.perf.event import perf_event_open

_BREAKPOINT, _WRITES, _BYTES = 5, 2, 8  # PERF_TYPE_BREAKPOINT, HW_BREAKPOINT_W
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
    memory = ctypes.create_string_buffer(_BYTES * (slots + 1))
    address = (ctypes.addressof(memory) + _BYTES - 1) & -_BYTES
    opened: list[int] = []
    try:
        for number in range(slots):
            attr = PerfEventAttr(type=_BREAKPOINT, sample_period=1, disabled=1, inherit=1, exclude_kernel=1,
                                 exclude_hv=1, remove_on_exec=1, sigtrap=1, bp_type=_WRITES,
                                 config1=address + _BYTES * number, config2=_BYTES)
            opened.append(perf_event_open(attr, 0, -1))
    except OSError as error:
        raise _lack(error.errno or 0) from error
    finally:
        for fd in opened:
            os.close(fd)


def _lack(number: int) -> MachineLacks:
    return MachineLacks(f"watchpoints cannot be set: perf_event_open: {os.strerror(number)}", where="--watch",
                        remedy=_REMEDIES.get(number, "record with --engine soft"))


def is_event(fd: int) -> bool:
    """Whether a descriptor that somebody sent is of a perf event."""
    try:
        return str(Path(f"/proc/self/fd/{fd}").readlink()) == "anon_inode:[perf_event]"
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
