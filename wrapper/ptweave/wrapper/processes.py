# SPDX-License-Identifier: MIT
"""What the kernel says of processes and of the machine (proc(5)). A process that is gone has nothing, and no error."""

from __future__ import annotations

import mmap
import os
import signal
from collections.abc import Mapping
from pathlib import Path

Mapped = tuple[int, int, int, tuple[int, int], int, bytes]
"""Start, size, offset, device, inode, path."""
_STATE, _PARENT, _EXIT_CODE = 0, 1, 49  # fields of /proc/PID/stat behind the name


def memory() -> int:
    """Bytes of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * mmap.PAGESIZE


def online_cpus() -> set[int]:
    found: set[int] = set()
    for part in Path("/sys/devices/system/cpu/online").read_text().strip().split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def tasks(pid: int) -> list[int]:
    """The threads of a process, its first one first; empty when it is gone."""
    try:
        return sorted(int(name) for name in os.listdir(f"/proc/{pid}/task"))  # noqa: PTH208
    except OSError:
        return []


def comm(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/comm").read_bytes().rstrip(b"\n")
    except OSError:
        return b""


def _stat(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return []


def parent(pid: int) -> int:
    """0 when it is gone."""
    fields = _stat(pid)
    return int(fields[_PARENT]) if len(fields) > _PARENT else 0


def ended_by(pid: int, statuses: Mapping[int, int]) -> tuple[bool, str | None]:
    """Whether a process has ended, and what ended it: a signal's name; "" for an exit; None where nobody says (who
    waited for it was not us, and it is gone). `statuses`: wait statuses that are known."""
    status = statuses.get(pid)
    if status is None:
        fields = _stat(pid)
        if not fields:
            return True, None
        if fields[_STATE] not in (b"Z", b"X"):
            return False, None
        status = int(fields[_EXIT_CODE]) if len(fields) > _EXIT_CODE else 0
    return True, signal_name(os.WTERMSIG(status)) if os.WIFSIGNALED(status) else ""


def signal_name(number: int) -> str:
    """Such as SIGSEGV; those without a name as SIG40."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def code_maps(pid: int, path: bytes = b"") -> list[Mapped]:
    """Executable mappings; with a path those of it alone, without a look at the others."""
    try:
        lines = [line for line in Path(f"/proc/{pid}/maps").read_bytes().splitlines() if line.endswith(path)]
    except OSError:
        return []
    found = []
    for line in lines:
        span, protection, offset, device, inode, *file = line.split(None, 5)
        if protection[2:3] != b"x":
            continue
        start, end = (int(word, 16) for word in span.split(b"-"))
        major, minor = (int(word, 16) for word in device.split(b":"))
        found.append((start, end - start, int(offset, 16), (major, minor), int(inode), file[0] if file else b"//anon"))
    return found
