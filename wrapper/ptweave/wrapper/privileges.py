# SPDX-License-Identifier: MIT
"""Started as root, become the user whose program is recorded, and keep of root's capabilities the few that recording
needs.

Recorder and target are then processes of one user: the bundle is theirs, and the recorder may see and end what it
started, as without root. The target gets no capability of the recorder's: a user's exec drops them. One that is to be
root is forked before, and keeps root's.

Capabilities are a thread's own. Of a process that becomes another user all threads lose them, the calling one apart;
one that stays root must do this while it has one thread. So nothing here imports a library that makes threads
(pyarrow, numpy).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from ptweave.data.errors import BadInput, MachineLacks

_SYS_CAPGET, _SYS_CAPSET = 125, 126  # x86-64
_LINUX_CAPABILITY_VERSION_3 = 0x20080522
_PR_SET_DUMPABLE, _PR_SET_KEEPCAPS = 4, 8


class Capability(IntEnum):
    """The ones that are dealt with here (include/uapi/linux/capability.h)."""

    DAC_READ_SEARCH = 2
    IPC_LOCK = 14
    SYS_PTRACE = 19
    SYS_ADMIN = 21
    SYS_NICE = 23
    PERFMON = 38
    BPF = 39


RECORDING = frozenset({Capability.BPF, Capability.PERFMON, Capability.SYS_NICE})
"""To load and attach the programs, to read the kernel's memory with them, to drain the ring in time."""


OF_ROOT_S_PROGRAM = frozenset({Capability.DAC_READ_SEARCH, Capability.SYS_PTRACE})
"""To read the files that a program of root's has mapped, whosever they are, and what the kernel tells of a process that
has more capabilities than we: its namespaces and folders, what it maps."""


@dataclass(frozen=True)
class Identity:
    """A user as processes have it."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    environment: Mapping[str, str]
    """Variables that say who one is: HOME, USER, LOGNAME, SHELL."""


def _identity(entry: pwd.struct_passwd, gid: int | None = None) -> Identity:
    group = entry.pw_gid if gid is None else gid
    return Identity(entry.pw_uid, group, tuple(os.getgrouplist(entry.pw_name, group)), {
        "HOME": entry.pw_dir, "USER": entry.pw_name, "LOGNAME": entry.pw_name, "SHELL": entry.pw_shell or "/bin/sh"})


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and int(text) < (1 << 32) - 1 else None


def target_identity(user: str | None, environment: Mapping[str, str]) -> Identity | None:
    """Who the target shall be: `user` (a name or number), else who called sudo; None: who we are.

    Raises BadInput for a user that does not exist, and when one is asked for without root.
    """
    if user is None:
        uid, gid = (_number(environment.get(name, "")) for name in ("SUDO_UID", "SUDO_GID"))
        if os.geteuid() != 0 or not uid or gid is None:
            return None
        try:
            return _identity(pwd.getpwuid(uid), gid)
        except KeyError:
            return Identity(uid, gid, (gid,), {})
    number = _number(user)
    try:
        entry = pwd.getpwnam(user) if number is None else pwd.getpwuid(number)
    except KeyError as error:
        raise BadInput("there is no such user", where=f"--user {user}", remedy="give a name or number that "
                       "getent passwd shows") from error
    if os.geteuid() != 0 and entry.pw_uid != os.geteuid():
        raise BadInput("only root can run a program as another user", where=f"--user {user}",
                       remedy="run it with sudo, or leave --user out")
    return _identity(entry)


# --- capabilities ----------------------------------------------------------------------------------------------------


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def permitted() -> int:
    """The calling thread's permitted capabilities, a bit each."""
    header = ctypes.create_string_buffer(struct.pack("<Ii", _LINUX_CAPABILITY_VERSION_3, 0), 8)
    data = ctypes.create_string_buffer(24)
    if _libc().syscall(ctypes.c_long(_SYS_CAPGET), header, data) != 0:
        raise OSError(ctypes.get_errno(), "capget")
    low, high = struct.unpack_from("<I", data, 4)[0], struct.unpack_from("<I", data, 16)[0]
    return int(low | high << 32)


def _keep_only(bits: int) -> None:
    header = ctypes.create_string_buffer(struct.pack("<Ii", _LINUX_CAPABILITY_VERSION_3, 0), 8)
    low, high = bits & 0xFFFFFFFF, bits >> 32
    data = ctypes.create_string_buffer(struct.pack("<6I", low, low, 0, high, high, 0), 24)
    if _libc().syscall(ctypes.c_long(_SYS_CAPSET), header, data) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def _wanted(there: int, also: frozenset[Capability]) -> int:
    """What to keep of the capabilities that are there. CAP_SYS_ADMIN stands for two that an old kernel, or whoever
    made the container, does not know; what is left without them needs others: perf CAP_IPC_LOCK for its
    rings, ptrace CAP_SYS_PTRACE for what gains privileges, or the kernel would withhold those."""
    keep = RECORDING | also
    if not (there >> Capability.BPF & 1 and there >> Capability.PERFMON & 1):
        keep |= {Capability.SYS_ADMIN, Capability.SYS_PTRACE, Capability.IPC_LOCK}
    return sum(1 << one for one in keep) & there


def changes(identity: Identity | None) -> bool:
    """Whether becoming this one makes root another user."""
    return os.geteuid() == 0 and identity is not None and identity.uid != 0


def reduce(identity: Identity | None, also: frozenset[Capability] = frozenset()) -> None:
    """Become `identity` (None: stay who we are) with RECORDING's capabilities and `also`. Does nothing without root.

    For one that stays root: to be called before anything made a thread. Files that the other user may not read must be
    read, and modules imported, before. Raises MachineLacks when it is impossible.
    """
    if os.geteuid() != 0:
        return
    if not changes(identity) and len(list(Path("/proc/self/task").iterdir())) != 1:
        raise AssertionError("threads were made before privileges were given up")
    libc = _libc()
    try:
        keep = _wanted(permitted(), also)
        if identity is not None and changes(identity):
            if libc.prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0) != 0:
                raise OSError(ctypes.get_errno(), "prctl")
            os.setgroups(identity.groups)
            os.setresgid(identity.gid, identity.gid, identity.gid)
            os.setresuid(identity.uid, identity.uid, identity.uid)
        _keep_only(keep)
        libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)  # else /proc/self would be root's; who lacks the three cannot trace us
    except OSError as error:
        raise MachineLacks(f"root's privileges cannot be given up ({error.strerror})",
                           remedy="run as the user whose program it is, with CAP_BPF and CAP_PERFMON") from error
    if identity is not None:
        os.environ.update(identity.environment)


def make_folder(path: Path, identity: Identity | None) -> bool:
    """Make the bundle's folder for `identity`, also where only root can. Call it before `reduce`.

    Returns False when there is no need to: whoever makes the bundle can. Raises BadInput when it exists, or when the
    user could not reach it.
    """
    if os.geteuid() != 0 or path.exists() or path.is_symlink() or not path.parent.is_dir():
        return False
    path.mkdir(mode=0o700)
    if identity is None or not identity.uid:
        return True
    os.chown(path, identity.uid, identity.gid)
    if not _reachable(path, identity):
        path.rmdir()
        raise BadInput(f"cannot be reached by the user the program runs as (uid {identity.uid})", where=str(path),
                       remedy="choose another place with -o")
    return True


@contextlib.contextmanager
def _seen_as(identity: Identity) -> Iterator[None]:
    """Files are accessed as that user for a moment."""
    groups, gid = os.getgroups(), os.getegid()
    os.setgroups(identity.groups)
    os.setegid(identity.gid)
    os.seteuid(identity.uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(gid)
        os.setgroups(groups)


def _reachable(path: Path, identity: Identity) -> bool:
    """Whether a user can write in a folder."""
    with _seen_as(identity):
        return os.access(path, os.W_OK | os.X_OK, effective_ids=True)


def readable_by(paths: Iterable[Path], identity: Identity) -> dict[Path, bool]:
    """Which of these a user can read. For root to ask."""
    with _seen_as(identity):
        return {path: os.access(path, os.R_OK, effective_ids=True) for path in paths}


def give_up() -> None:
    """Drop what `reduce` kept, when the recording is over: of the calling thread, and of those it makes from now on."""
    if os.geteuid() != 0 and permitted():
        _keep_only(0)


__all__ = ["OF_ROOT_S_PROGRAM", "RECORDING", "Capability", "Identity", "changes", "give_up", "make_folder", "permitted",
           "readable_by", "reduce", "target_identity"]
