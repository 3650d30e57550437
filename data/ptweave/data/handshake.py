# SPDX-License-Identifier: MIT
"""The handshake between libtthread and the supervisor (SOCK_SEQPACKET, one message each way at most).

The library connects to the socket named by PTWEAVE_SOCKET, sends one `hello` with descriptors attached
(SCM_RIGHTS: [write end of a pipe], or that and the memfd of its event lists, and perhaps that of its event vector),
and blocks on the read end of that pipe for one `welcome`. Later hellos on a connection may come without descriptors:
they are answered through the pipe of the last welcome, or not at all when that welcome had the flag NO_WAIT: then such
threads do not wait, and may have ended when their hello is read. The kernel says who the peer is (SCM_CREDENTIALS,
SO_PASSCRED); the supervisor believes nobody else. The connection stays open while the process lives: its end tells the
other side.

    hello    u32 magic "PTW1", u16 version, u16 kind; u32 pid, tid; u64 tsc; u32 list (index of the thread's
             first event list), u32 flags (of a pseudo-thread: pid of its program's main process);
             u64 start_routine, u64 marker                                                         48 bytes
    welcome  u32 magic, u16 version, u16 status; i32 thread, u32 flags (NO_WAIT)                    16 bytes
"""

from __future__ import annotations

import struct
from enum import IntEnum

HELLO = struct.Struct("<IHHIIQIIQQ")
WELCOME = struct.Struct("<IHHiI")
MAGIC = 0x31575450  # "PTW1"
VERSION = 2
SOCKET_VARIABLE = "PTWEAVE_SOCKET"
TIMEOUT_SECONDS = 30
NO_WAIT = 1
"""A welcome's flag: later hellos without descriptors are not answered."""


class Hello(IntEnum):
    """Who shakes hands."""

    PROCESS = 1  # first thread of a process image; brings the memfd
    THREAD = 2
    FORK = 3  # first thread of a fork child; brings a memfd of its own
    PSEUDO_THREAD = 4  # a thread that is a process: logs to the main process's lists, over its connection


class Status(IntEnum):
    """The supervisor's answer."""

    GO = 0
    REFUSED = 1
