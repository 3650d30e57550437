# SPDX-License-Identifier: MIT
"""The control socket: answers libtthread's handshakes and drains its event lists into the bundle.

Protocol: `ptweave.data.handshake`. The socket lies in a fresh folder of mode 0700. Whoever connects is believed to be
who the kernel says (SCM_CREDENTIALS); a foreign user, or a message in another process's name, is refused and counted.
Nothing a client does blocks the server: every descriptor is non-blocking, and one call serves a bounded number of
messages of each client.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import shutil
import socket
import stat
import struct
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ptweave.data import BadInput, Bundle, Ledger, MachineLacks
from ptweave.data.handshake import (
    HELLO,
    MAGIC,
    SOCKET_VARIABLE,
    TIMEOUT_SECONDS,
    VERSION,
    WELCOME,
    Hello,
    Status,
)
from ptweave.data.lists import LIST_NONE
from ptweave.preload import library_path
from ptweave.wrapper.dependence import SharedLists, ThreadFile, ThreadLog

SOCKET_NAME = "control"
SOCKET_PATH_MAX = 107  # sun_path, less its NUL
BACKLOG = 512
CLIENTS_MAX = 4096
ACCEPTS_PER_CALL = 256
MESSAGES_PER_CALL = 16
DESCRIPTORS_MAX = 8  # in one message: more are closed by the kernel (MSG_CTRUNC)
DRAIN_SECONDS = 0.005
_CREDENTIALS = struct.Struct("3i")


@dataclass
class Refusals:
    """Who was turned away, and why."""

    foreign: int = 0  # another user
    forged: int = 0  # a message in the name of another process or of no thread of it
    malformed: int = 0  # not a hello
    overload: int = 0  # too many connections

    @property
    def total(self) -> int:
        return self.foreign + self.forged + self.malformed + self.overload


@dataclass
class Process:
    """A process image that shook hands. `threads` are thread numbers, in the order of their handshakes."""

    pid: int
    image: int
    began_by: Hello
    threads: list[int] = field(default_factory=list)
    ended: bool = False


@dataclass
class _Image:
    process: Process
    lists: SharedLists
    pidfd: int
    logs: dict[int, ThreadLog] = field(default_factory=dict)  # by serial


@dataclass
class _Client:
    socket: socket.socket
    since: float
    pid: int = 0  # once a first message was accepted


@dataclass
class _Message:
    data: bytes
    pid: int
    uid: int
    fds: list[int]


class _Refused(Exception):
    """A message that is not answered with GO; names the counter in Refusals."""


class ControlServer:
    """The supervisor's end of every handshake. `service` never blocks; call it when `fds` are ready, and often.

    `assign(pid, tid, tsc)` gives the thread's number; a negative one refuses it.
    `processes` lists who shook hands, `refused` who was turned away.
    """

    def __init__(self, bundle: Bundle, assign: Callable[[int, int, int], int]) -> None:
        """Raises MachineLacks when libtthread is not built or the socket cannot be made."""
        self.bundle = bundle
        self.processes: list[Process] = []
        self.refused = Refusals()
        self._assign = assign
        self._library = library_path()
        self._images: dict[int, _Image] = {}  # by pid
        self._past: list[_Image] = []
        self._files: dict[int, ThreadFile] = {}
        self._clients: dict[int, _Client] = {}
        self._pidfds: dict[int, int] = {}  # descriptor → pid
        self._drained_at = 0.0
        self._closed = False
        self._folder = self._make_folder()
        try:
            self._epoll = select.epoll(flags=select.EPOLL_CLOEXEC)
            self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            self._listener.bind(str(self._folder / SOCKET_NAME))
            self._listener.listen(BACKLOG)
            self._epoll.register(self._listener.fileno(), select.EPOLLIN)
        except OSError as error:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise MachineLacks(f"no control socket ({error.strerror})", where=str(self._folder),
                               remedy="check TMPDIR and the limit of open files") from error

    @staticmethod
    def _make_folder() -> Path:
        try:
            folder = Path(tempfile.mkdtemp(prefix="ptweave-"))
            if len(os.fsencode(folder / SOCKET_NAME)) > SOCKET_PATH_MAX:
                folder.rmdir()
                folder = Path(tempfile.mkdtemp(prefix="ptweave-", dir="/tmp"))
        except OSError as error:
            raise MachineLacks(f"no folder for the control socket ({error.strerror})",
                               remedy="make TMPDIR writable") from error
        return folder

    # --- what the supervisor uses ---

    def environment(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """What the target's environment must have; LD_PRELOAD keeps what `base` (default os.environ) has in it."""
        before = (os.environ if base is None else base).get("LD_PRELOAD", "")
        preload = f"{self._library}:{before}" if before else str(self._library)
        return {SOCKET_VARIABLE: str(self._folder / SOCKET_NAME), "LD_PRELOAD": preload}

    def fds(self) -> list[int]:
        """One descriptor: readable when there is something to serve."""
        return [] if self._closed else [self._epoll.fileno()]

    def service(self) -> None:
        """Serve what is ready, drain what was logged. Raises OSError when the bundle cannot be written."""
        if self._closed:
            return
        for fd, events in self._epoll.poll(0):
            if fd == self._listener.fileno():
                self._accept()
            elif fd in self._clients:
                self._serve(self._clients[fd], events)
            elif fd in self._pidfds:
                self._end(self._images[self._pidfds[fd]])
        now = time.monotonic()
        if now - self._drained_at >= DRAIN_SECONDS:
            self._drained_at = now
            self._expire(now)
            for image in self._images.values():
                image.lists.drain(image.logs)

    def finish(self, ledger: Ledger) -> None:
        """Last drain; account `dependence/<thread>`; close and remove everything. Idempotent.

        Raises OSError when the bundle cannot be written, after all that is done.
        """
        if self._closed:
            return
        failed: OSError | None = None
        try:
            self.service()
        except OSError as error:
            failed = error
        for image in list(self._images.values()):
            try:
                self._end(image)
            except OSError as error:
                failed = failed or error
        self._account(ledger)
        self._close()
        if failed is not None:
            raise failed

    # --- clients ---

    def _accept(self) -> None:
        for _ in range(ACCEPTS_PER_CALL):
            try:
                peer, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError:  # no descriptor left: take the spare one to turn the peer away
                self._turn_away()
                return
            if len(self._clients) >= CLIENTS_MAX:
                self.refused.overload += 1
                peer.close()
                continue
            peer.setblocking(False)
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            self._clients[peer.fileno()] = _Client(peer, time.monotonic())
            self._epoll.register(peer.fileno(), select.EPOLLIN | select.EPOLLRDHUP)

    def _turn_away(self) -> None:
        os.close(self._spare)
        with contextlib.suppress(OSError):
            self._listener.accept()[0].close()
            self.refused.overload += 1
        self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _drop(self, client: _Client) -> None:
        fd = client.socket.fileno()
        self._epoll.unregister(fd)
        del self._clients[fd]
        client.socket.close()
        image = self._images.get(client.pid)
        if image is not None and image.pidfd < 0:  # nothing else will say that it ended
            self._end(image)

    def _expire(self, now: float) -> None:
        for client in [one for one in self._clients.values()
                       if not one.pid and now - one.since > TIMEOUT_SECONDS]:
            self.refused.malformed += 1
            self._drop(client)

    def _serve(self, client: _Client, events: int) -> None:
        for _ in range(MESSAGES_PER_CALL):
            try:
                message = self._receive(client)
            except BlockingIOError:
                break
            except OSError:
                message = None
            if message is None:
                self._drop(client)
                return
            if not self._handle(client, message):
                self._drop(client)
                return
        else:
            return
        if events & (select.EPOLLHUP | select.EPOLLERR | select.EPOLLRDHUP):
            self._drop(client)

    @staticmethod
    def _receive(client: _Client) -> _Message | None:
        room = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(DESCRIPTORS_MAX * 4)
        data, ancillary, flags, _ = client.socket.recvmsg(HELLO.size + 1, room, socket.MSG_CMSG_CLOEXEC)
        fds: list[int] = []
        pid = uid = -1
        for level, kind, value in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds += struct.unpack_from(f"{len(value) // 4}i", value)
            elif level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS and len(value) >= _CREDENTIALS.size:
                pid, uid, _ = _CREDENTIALS.unpack_from(value)
        if not data and not ancillary:
            return None
        if not data and not fds and not flags:
            return None  # the end of the connection comes with credentials on some kernels
        return _Message(data, pid, uid, fds)

    def _handle(self, client: _Client, message: _Message) -> bool:
        """Answer one hello. False: the client is to be dropped."""
        status, thread = Status.REFUSED, -1
        keep = list(message.fds)
        try:
            thread = self._welcome(client, message)
            status = Status.GO
        except _Refused as refused:
            setattr(self.refused, str(refused), getattr(self.refused, str(refused)) + 1)
        finally:
            if keep:
                self._answer(keep[0], status, thread)
            for fd in keep:
                os.close(fd)
        return status is Status.GO

    @staticmethod
    def _answer(pipe: int, status: Status, thread: int) -> None:
        """Into the pipe, if it is one and has room: a client that sent something else waits for nothing."""
        mode = os.fstat(pipe).st_mode
        with contextlib.suppress(OSError):
            if stat.S_ISFIFO(mode) and fcntl.fcntl(pipe, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY:
                os.set_blocking(pipe, False)
                os.write(pipe, WELCOME.pack(MAGIC, VERSION, status, thread, 0))

    # --- handshakes ---

    def _welcome(self, client: _Client, message: _Message) -> int:
        if len(message.data) != HELLO.size or not message.fds:
            raise _Refused("malformed")
        magic, version, kind, pid, tid, tsc, index, main, start_routine, marker = HELLO.unpack(message.data)
        if magic != MAGIC or version != VERSION or kind not in iter(Hello):
            raise _Refused("malformed")
        if client.pid == 0 and message.uid != os.geteuid():
            raise _Refused("foreign")
        owner = main if kind == Hello.PSEUDO_THREAD else pid
        if message.pid <= 0 or pid != message.pid or client.pid not in (0, pid, owner) or not _is_thread(pid, tid):
            raise _Refused("forged")
        if owner != pid and _parent(pid) != owner:
            raise _Refused("forged")
        if kind in (Hello.THREAD, Hello.PSEUDO_THREAD):
            image = self._images.get(owner)
            if image is None:
                raise _Refused("malformed")
        else:
            image = self._begin(message, pid, Hello(kind))
        client.pid = owner
        thread = self._assign(pid, tid, tsc)
        if thread < 0:
            raise _Refused("overload")
        serial = 0 if index == LIST_NONE else image.lists.owner(index)
        image.process.threads.append(thread)
        if serial and serial not in image.logs:
            file = self._files.setdefault(thread, ThreadFile(self.bundle.dependence / f"{thread}.evl"))
            image.logs[serial] = ThreadLog.begin(
                file, pid=pid, tid=tid, thread=thread, flags=kind | (image.process.image & 0xFFFFFF) << 8, tsc=tsc,
                marker=marker, start_routine=start_routine)
        return thread

    def _begin(self, message: _Message, pid: int, kind: Hello) -> _Image:
        """A process image: what the pid ran before has been replaced."""
        before = self._images.get(pid)
        if before is not None:
            self._end(before)
        if len(message.fds) != 2:
            raise _Refused("malformed")
        try:
            lists = SharedLists(message.fds[1])
        except BadInput as error:
            raise _Refused("malformed") from error
        process = Process(pid, len(self.processes), kind)
        try:
            pidfd = os.pidfd_open(pid)
            self._epoll.register(pidfd, select.EPOLLIN)
            self._pidfds[pidfd] = pid
        except OSError:
            pidfd = -1  # it died already, or there is no descriptor left: its connection tells
        self.processes.append(process)
        image = self._images[pid] = _Image(process, lists, pidfd)
        return image

    def _end(self, image: _Image) -> None:
        """The image is gone: read its lists to the end."""
        if image.process.ended:
            return
        image.process.ended = True
        del self._images[image.process.pid]
        self._past.append(image)
        if image.pidfd >= 0:
            self._epoll.unregister(image.pidfd)
            del self._pidfds[image.pidfd]
            os.close(image.pidfd)
        try:
            image.lists.drain(image.logs, final=True)
            for log in image.logs.values():
                log.end()
        finally:
            image.lists.close()

    # --- the end ---

    def _account(self, ledger: Ledger) -> None:
        unlisted = sum(image.lists.unlisted for image in self._past)
        untracked = sum(image.lists.untracked for image in self._past)
        attempts = 0
        for image in self._past:
            for log in image.logs.values():
                log.account(ledger)
                attempts += log.attempts
        if unlisted:
            ledger.add("dependence/unlisted", "events", lost={"no list": unlisted})
        if untracked:
            ledger.add("object_versions", "events", stored=max(0, attempts - untracked),
                       lost={"object table full": untracked})
        if self.refused.total:
            ledger.add("handshakes", "handshakes", stored=sum(len(one.threads) for one in self.processes),
                       lost={"refused": self.refused.total})

    def _close(self) -> None:
        self._closed = True
        for client in list(self._clients.values()):
            client.socket.close()
        self._clients.clear()
        self._listener.close()
        self._epoll.close()
        os.close(self._spare)
        shutil.rmtree(self._folder, ignore_errors=True)


def _parent(pid: int) -> int:
    """A process's parent; 0 when it is gone."""
    try:
        status = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return 0
    return int(status.rpartition(b")")[2].split()[1])


def _is_thread(pid: int, tid: int) -> bool:
    return Path(f"/proc/{pid}/task/{tid}").exists()
