# SPDX-License-Identifier: MIT
"""Where the kernel describes its tracepoints. A machine without systemd may have tracefs mounted nowhere: then root
reads it through a mount that is in no directory tree (fsopen(2), fsmount(2), Linux 5.2): nobody else sees a change."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from ptweave.data.errors import MachineLacks

MOUNT_POINTS = (Path("/sys/kernel/tracing"), Path("/sys/kernel/debug/tracing"))
REMEDY = f"mount -t tracefs tracefs {MOUNT_POINTS[0]}, and run as root"
_SYS_FSOPEN, _SYS_FSCONFIG, _SYS_FSMOUNT = 430, 431, 432  # x86-64, and every other
_CLOEXEC = 1  # FSOPEN_CLOEXEC, FSMOUNT_CLOEXEC (linux/mount.h)
_CMD_CREATE = 6  # FSCONFIG_CMD_CREATE


def mounted() -> Path | None:
    """The first place where tracefs is mounted."""
    return next((path for path in MOUNT_POINTS if (path / "events").is_dir()), None)


@contextlib.contextmanager
def unseen_mount() -> Iterator[int]:
    """A descriptor of tracefs's root, mounted for us alone. Raises OSError: EPERM (not root), ENODEV (the kernel has
    none), ENOSYS (before Linux 5.2)."""
    context = _syscall(_SYS_FSOPEN, ctypes.c_char_p(b"tracefs"), ctypes.c_uint(_CLOEXEC))
    try:
        _syscall(_SYS_FSCONFIG, ctypes.c_int(context), ctypes.c_uint(_CMD_CREATE), None, None, ctypes.c_int(0))
        root = _syscall(_SYS_FSMOUNT, ctypes.c_int(context), ctypes.c_uint(_CLOEXEC), ctypes.c_uint(0))
    finally:
        os.close(context)
    try:
        yield root
    finally:
        os.close(root)


@cache  # who gives up privileges looks it up before
def tracepoint_number(name: str) -> int:
    """What perf_event_open's `config` calls the tracepoint `SYSTEM/EVENT`. Raises MachineLacks where tracefs cannot be
    read."""
    reason = "tracefs is not mounted"
    for path in MOUNT_POINTS:
        try:
            return int((path / "events" / name / "id").read_text())
        except FileNotFoundError:
            continue
        except OSError as error:
            reason = f"tracefs cannot be read ({error.strerror})"
    try:
        with unseen_mount() as root:
            file = os.open(f"events/{name}/id", os.O_RDONLY | os.O_CLOEXEC, dir_fd=root)
            try:
                return int(os.read(file, 32))
            finally:
                os.close(file)
    except OSError as error:
        raise MachineLacks(f"the kernel's tracepoints cannot be looked up: {reason}, and not by us ({error.strerror})",
                           where=name, remedy=REMEDY) from error


def _syscall(number: int, *args: object) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    result = int(libc.syscall(ctypes.c_long(number), *args))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result
