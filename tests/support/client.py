# SPDX-License-Identifier: MIT
"""A client of the control socket, in Python: shakes hands as libtthread does, or as it should not."""

from __future__ import annotations

import fcntl
import os
import select
import socket
import threading
from pathlib import Path

from ptweave.data.handshake import HELLO, MAGIC, SOCKET_VARIABLE, VERSION, WELCOME, Hello
from ptweave.data.lists import LIST_COUNT, LIST_SIZE, LISTS_BYTES, LISTS_DATA, LISTS_HEAD_SIZE, LISTS_MAGIC, ListState
from ptweave.wrapper.control import ControlServer


def address(server: ControlServer) -> str:
    return server.environment({})[SOCKET_VARIABLE]


def hello(kind: Hello | int = Hello.PROCESS, *, pid: int | None = None, tid: int | None = None, index: int = 0,
          magic: int = MAGIC, version: int = VERSION, marker: int = 0x1234) -> bytes:
    return HELLO.pack(magic, version, kind, os.getpid() if pid is None else pid,
                      threading.get_native_id() if tid is None else tid, 5, index, 0, 0, marker)


def lists_memfd(*, size: int = LISTS_BYTES, seals: int = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW,
                magic: int = LISTS_MAGIC) -> int:
    """A memfd of event lists, all free."""
    fd = os.memfd_create("lists", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    os.pwrite(fd, b"".join(value.to_bytes(width, "little") for value, width in (
        (magic, 8), (LIST_SIZE, 4), (LIST_COUNT, 4))), 0)
    if seals:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def write_list(fd: int, index: int, *, state: ListState, serial: int, data: bytes = b"", sequence: int = 0,
               reserved: int | None = None, committed: int | None = None, count: int = 0, attempts: int | None = None,
               lost: int = 0, tid: int = 7) -> None:
    """Fill a list of the memfd and its descriptor."""
    os.pwrite(fd, data, LISTS_DATA + index * LIST_SIZE)
    words = [serial, sequence, len(data) if reserved is None else reserved,
             len(data) if committed is None else committed, count, count + lost if attempts is None else attempts, lost]
    os.pwrite(fd, state.to_bytes(4, "little") + tid.to_bytes(4, "little") + b"".join(
        word.to_bytes(8, "little") for word in words), LISTS_HEAD_SIZE + index * 64)
    high = int.from_bytes(os.pread(fd, 4, 16), "little")
    os.pwrite(fd, max(high, index + 1).to_bytes(4, "little"), 16)


class Client:
    """One connection, and the pipe that answers come through."""

    def __init__(self, server: ControlServer) -> None:
        self.server = server
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(address(server))
        self.read, self.write = os.pipe()

    def send(self, data: bytes, fds: list[int] | None = None) -> None:
        socket.send_fds(self.socket, [data], [self.write] if fds is None else fds)

    def answer(self, rounds: int = 50) -> tuple[int, int] | None:
        """(status, thread) after letting the server work; None when there is none."""
        for _ in range(rounds):
            self.server.service()
            if select.select([self.read], [], [], 0.002)[0]:
                magic, version, status, thread, _ = WELCOME.unpack(os.read(self.read, WELCOME.size))
                assert (magic, version) == (MAGIC, VERSION)
                return status, thread
        return None

    def dropped(self) -> bool:
        """The server closed the connection."""
        for _ in range(50):
            self.server.service()
            if select.select([self.socket], [], [], 0.002)[0]:
                return self.socket.recv(1) == b""
        return False

    def close(self) -> None:
        self.socket.close()
        os.close(self.read)
        os.close(self.write)


def descriptors() -> set[str]:
    """What this process has open now."""
    return set(os.listdir("/proc/self/fd"))


def leftovers(server: ControlServer) -> bool:
    return Path(address(server)).parent.exists()
