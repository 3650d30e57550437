# SPDX-License-Identifier: MIT
"""Structures that system calls read and write, as text; layouts are those of the x86-64 system-call interface.

Source: Linux 6.18, `include/uapi`. Of the larger ones the fields that tell most. Data may be cut anywhere, or be
anything: what does not fit is shown as bytes.
"""

from __future__ import annotations

import ipaddress
import os
import stat
import struct
from collections.abc import Callable, Iterator

from ptweave.data.syscall_flags import SETS, signal_name

_SHOWN = 32  # elements of an array
_EVENTS = {1: "POLLIN", 2: "POLLPRI", 4: "POLLOUT", 8: "POLLERR", 0x10: "POLLHUP", 0x20: "POLLNVAL",
           0x40: "POLLRDNORM", 0x80: "POLLRDBAND", 0x100: "POLLWRNORM", 0x200: "POLLWRBAND", 0x2000: "POLLRDHUP"}
_CODES = {0: "SI_USER", 0x80: "SI_KERNEL", -1: "SI_QUEUE", -2: "SI_TIMER", -6: "SI_TKILL"}
_CHILD_CODES = {1: "CLD_EXITED", 2: "CLD_KILLED", 3: "CLD_DUMPED", 4: "CLD_TRAPPED", 5: "CLD_STOPPED",
                6: "CLD_CONTINUED"}
_TYPES = {stat.S_IFREG: "S_IFREG", stat.S_IFDIR: "S_IFDIR", stat.S_IFLNK: "S_IFLNK", stat.S_IFCHR: "S_IFCHR",
          stat.S_IFBLK: "S_IFBLK", stat.S_IFIFO: "S_IFIFO", stat.S_IFSOCK: "S_IFSOCK"}
SOL_SOCKET, SCM_RIGHTS = 1, 1
SIGCHLD = 17
SIGSET_BITS = 64


def _bits(value: int, names: dict[int, str]) -> str:
    words = [name for bit, name in names.items() if value & bit]
    rest = value & ~sum(names)
    return "|".join([*words, *([f"{rest:#x}"] if rest or not words else [])])


def _quoted(data: bytes) -> str:
    return '"' + "".join(chr(byte) if 0x20 <= byte < 0x7F and byte not in (0x22, 0x5C) else f"\\x{byte:02x}"
                         for byte in data) + '"'


def mode(value: int) -> str:
    """st_mode: `S_IFREG|0644`."""
    kind = _TYPES.get(stat.S_IFMT(value))
    return f"{kind}|0{stat.S_IMODE(value):o}" if kind else f"0{value:o}"


def device(value: int) -> str:
    """A device number as stat gives it."""
    return f"makedev({os.major(value):#x}, {os.minor(value):#x})"


def _stat(data: bytes) -> str:
    dev, ino, _, mode_, _, _, _, rdev, size = struct.unpack_from("<QQQIIIIQq", data)
    more = f"st_rdev={device(rdev)}" if stat.S_IFMT(mode_) in (stat.S_IFCHR, stat.S_IFBLK) else f"st_size={size}"
    return f"{{st_dev={device(dev)}, st_ino={ino}, st_mode={mode(mode_)}, {more}}}"


def _statx(data: bytes) -> str:
    mode_, = struct.unpack_from("<H", data, 28)
    ino, size = struct.unpack_from("<QQ", data, 32)
    return f"{{stx_ino={ino}, stx_mode={mode(mode_)}, stx_size={size}}}"


def _two(first: str, second: str) -> Callable[[bytes], str]:
    def show(data: bytes) -> str:
        one, two = struct.unpack_from("<qq", data)
        return f"{{{first}={one}, {second}={two}}}"
    return show


_timespec, _timeval = _two("tv_sec", "tv_nsec"), _two("tv_sec", "tv_usec")


def _pair_of(show: Callable[[bytes], str], names: tuple[str, str] | None = None) -> Callable[[bytes], str]:
    def both(data: bytes) -> str:
        one, two = show(data[:16]), show(data[16:])
        return f"{{{names[0]}={one}, {names[1]}={two}}}" if names else f"[{one}, {two}]"
    return both


def _limit(value: int) -> str:
    return "RLIM_INFINITY" if value == (1 << 64) - 1 else str(value)


def _rlimit(data: bytes) -> str:
    soft, hard = struct.unpack_from("<QQ", data)
    return f"{{rlim_cur={_limit(soft)}, rlim_max={_limit(hard)}}}"


def _sigset(data: bytes) -> str:
    value, = struct.unpack_from("<Q", data)
    names = [signal_name(number).removeprefix("SIG") for number in range(1, SIGSET_BITS + 1)
             if value >> (number - 1) & 1]
    if len(names) > SIGSET_BITS // 2:
        absent = [signal_name(number).removeprefix("SIG") for number in range(1, SIGSET_BITS + 1)
                  if not value >> (number - 1) & 1]
        return "~[" + " ".join(absent) + "]"
    return "[" + " ".join(names) + "]"


def _sigaction(data: bytes) -> str:
    handler, flags, restorer = struct.unpack_from("<QQQ", data)
    name = {0: "SIG_DFL", 1: "SIG_IGN"}.get(handler, f"{handler:#x}")
    return f"{{sa_handler={name}, sa_mask={_sigset(data[24:])}, sa_flags={flags:#x}, sa_restorer={restorer:#x}}}"


def _siginfo(data: bytes) -> str:
    number, error, code = struct.unpack_from("<iii", data)
    name = _CHILD_CODES.get(code) if number == SIGCHLD else None
    shown = [f"si_signo={signal_name(number)}", f"si_code={name or _CODES.get(code, code)}"]
    if error:
        shown.append(f"si_errno={error}")
    pid, uid, status = struct.unpack_from("<iIi", data, 16)
    if code in (0, -1, -6) or name:
        shown += [f"si_pid={pid}", f"si_uid={uid}"]
    if name:
        shown.append(f"si_status={status}")
    return "{" + ", ".join(shown) + "}"


def _pollfd(data: bytes) -> str:
    fd, events, revents = struct.unpack_from("<ihh", data)
    back = f", revents={_bits(revents & 0xFFFF, _EVENTS)}" if revents else ""
    return f"{{fd={fd}, events={_bits(events & 0xFFFF, _EVENTS)}{back}}}"


def _epoll_event(data: bytes) -> str:
    events, value = struct.unpack_from("<IQ", data)
    names = {bit: name.replace("POLL", "EPOLL", 1) for bit, name in _EVENTS.items()}
    names |= {1 << 31: "EPOLLET", 1 << 30: "EPOLLONESHOT", 1 << 29: "EPOLLWAKEUP", 1 << 28: "EPOLLEXCLUSIVE"}
    return f"{{events={_bits(events, names)}, data={value:#x}}}"


def _sockaddr(data: bytes) -> str:
    family, = struct.unpack_from("<H", data)
    name = SETS["family"].text(family)
    if name == "AF_UNIX":
        path = data[2:]
        shown = "@" + _quoted(path[1:]) if path[:1] == b"\0" and len(path) > 1 else _quoted(path.split(b"\0")[0])
        return f"{{sa_family={name}, sun_path={shown}}}" if len(data) > 2 else f"{{sa_family={name}}}"
    if name == "AF_INET":
        port, = struct.unpack_from(">H", data, 2)
        return f"{{sa_family={name}, sin_port=htons({port}), sin_addr={ipaddress.IPv4Address(data[4:8])}}}"
    if name == "AF_INET6":
        port, = struct.unpack_from(">H", data, 2)
        return f"{{sa_family={name}, sin6_port=htons({port}), sin6_addr={ipaddress.IPv6Address(data[8:24])}}}"
    if name == "AF_NETLINK":
        pid, groups = struct.unpack_from("<II", data, 4)
        return f"{{sa_family={name}, nl_pid={pid}, nl_groups={groups:#x}}}"
    return f"{{sa_family={name}, sa_data={_quoted(data[2:])}}}"


def _fd_set(data: bytes) -> str:
    members = [8 * at + bit for at, byte in enumerate(data) for bit in range(8) if byte >> bit & 1]
    return "[" + " ".join(str(member) for member in members) + "]"


def _integer(code: str) -> Callable[[bytes], str]:
    return lambda data: str(struct.unpack_from(code, data)[0])


def _dirents(data: bytes, head: str, name_at: int) -> str:
    """Names of directory entries (struct linux_dirent, linux_dirent64)."""
    names: list[str] = []
    at = 0
    while at + name_at < len(data):
        size = struct.unpack_from(head, data, at + 16)[0]
        if size < name_at or len(names) >= _SHOWN:
            break
        names.append(_quoted(data[at + name_at:at + size].split(b"\0")[0]))
        at += size
    return "[" + ", ".join(names) + "]"


def _utsname(data: bytes) -> str:
    words = [data[at:at + 65].split(b"\0")[0] for at in range(0, 390, 65)]
    return "{" + ", ".join(f"{name}={_quoted(word)}" for name, word in
                           zip(("sysname", "nodename", "release"), words, strict=False)) + "}"


_ELEMENTS: dict[str, tuple[int, Callable[[bytes], str]]] = {
    "i32": (4, _integer("<i")), "u32": (4, _integer("<I")), "u64": (8, _integer("<Q")), "pollfd": (8, _pollfd),
    "epoll_event": (12, _epoll_event),
}
"""Types of which there may be arrays."""

_WHOLE: dict[str, Callable[[bytes], str]] = {
    "stat": _stat, "statx": _statx, "timespec": _timespec, "timeval": _timeval,
    "timespec2": _pair_of(_timespec), "timeval2": _pair_of(_timeval),
    "itimerspec": _pair_of(_timespec, ("it_interval", "it_value")),
    "itimerval": _pair_of(_timeval, ("it_interval", "it_value")), "rlimit": _rlimit, "sigset": _sigset,
    "sigaction": _sigaction, "siginfo": _siginfo, "sockaddr": _sockaddr, "fd_set": _fd_set, "utsname": _utsname,
    "utimbuf": _two("actime", "modtime"), "sched_param": lambda data: f"[{_integer('<i')(data)}]",
    "dirent64": lambda data: _dirents(data, "<H", 19), "linux_dirent": lambda data: _dirents(data, "<H", 18),
    "pair": lambda data: "[{}, {}]".format(*struct.unpack_from("<ii", data)),
}


def _elements(kind: str, data: bytes) -> Iterator[str]:
    size, show = _ELEMENTS[kind]
    for at in range(0, min(len(data) // size, _SHOWN) * size, size):
        yield show(data[at:at + size])


def text(kind: str, data: bytes, size: int) -> str:
    """A structure or an array of them as text; `size` is what it has in the program."""
    try:
        if kind in _ELEMENTS:
            shown = list(_elements(kind, data))
            more = ", ..." if size > len(data) or len(shown) < len(data) // _ELEMENTS[kind][0] else ""
            return f"[{', '.join(shown)}{more}]"
        if kind in _WHOLE:
            return _WHOLE[kind](data)
    except (struct.error, ValueError):
        pass  # shorter than its type, or nonsense: shown as what it is
    return _quoted(data) + ("..." if size > len(data) else "")


def wait_status(data: bytes) -> str:
    """The status that wait4 stores."""
    if len(data) < 4:
        return _quoted(data)
    value = struct.unpack_from("<i", data)[0]  # an int, and what the W… functions take: hostile bytes may be negative
    if os.WIFEXITED(value):
        return f"[WIFEXITED && WEXITSTATUS == {os.WEXITSTATUS(value)}]"
    if os.WIFSIGNALED(value):
        core = " && WCOREDUMP" if os.WCOREDUMP(value) else ""
        return f"[WIFSIGNALED && WTERMSIG == {signal_name(os.WTERMSIG(value))}{core}]"
    if os.WIFSTOPPED(value):
        return f"[WIFSTOPPED && WSTOPSIG == {signal_name(os.WSTOPSIG(value) & 0x7F)}]"
    return "[WIFCONTINUED]" if value == 0xFFFF else f"[{value & 0xFFFFFFFF:#x}]"


def vector_lengths(data: bytes) -> list[int]:
    """iov_len of each element of a struct iovec[]."""
    return [struct.unpack_from("<Q", data, at + 8)[0] for at in range(0, len(data) - 15, 16)]


def messages(data: bytes) -> list[tuple[bytes, int]]:
    """Of each element of a struct mmsghdr[]: its msg_hdr, its msg_len."""
    return [(data[at:at + 56], struct.unpack_from("<I", data, at + 56)[0]) for at in range(0, len(data) - 63, 64)]


def message_flags(data: bytes) -> int:
    """msg_flags of a struct msghdr."""
    return int(struct.unpack_from("<I", data, 48)[0]) if len(data) >= 52 else 0


def control(data: bytes) -> str:
    """Control messages (cmsg(3)); descriptors of SCM_RIGHTS by number."""
    shown: list[str] = []
    at = 0
    while at + 16 <= len(data) and len(shown) < _SHOWN:
        length, level, kind = struct.unpack_from("<Qii", data, at)
        if length < 16:
            break
        body = data[at + 16:at + length]
        if (level, kind) == (SOL_SOCKET, SCM_RIGHTS):
            shown.append("SCM_RIGHTS[" + ", ".join(_elements("i32", body)) + "]")
        else:
            shown.append(f"{{level={SETS['sol'].text(level)}, type={kind}, data={_quoted(body)}}}")
        at += (length + 7) & ~7
    return "[" + ", ".join(shown) + "]"
