# SPDX-License-Identifier: MIT
"""The control socket: answers libtthread's handshakes and drains its event lists into the bundle.

Protocol: `ptweave.data.handshake`. The socket lies in a fresh folder of mode 0700. Whoever connects is believed to be
who the kernel says (SCM_CREDENTIALS); a foreign user, or a message in another process's name, is refused and counted.
Nothing a client does blocks the server: every descriptor is non-blocking, and one call serves a bounded number of
messages of each client.

Threads do not wait for an answer unless they must (`threads_wait`). The first hello on such a connection wakes the
server; those that follow within DRAIN_SECONDS wake nobody and are read together, before what their threads logged.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
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
from typing import NamedTuple

from ptweave.data import BadInput, Bundle, Ledger, MachineLacks
from ptweave.data.handshake import (
    HELLO,
    MAGIC,
    NO_WAIT,
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
from ptweave.wrapper.notices import Notices
from ptweave.wrapper.vector import VectorRecorder
from ptweave.wrapper.watches.processor import count_hits, is_event

SOCKET_NAME = "control"
SOCKET_PATH_MAX = 107  # sun_path, less its NUL
BACKLOG = 512
CLIENTS_MAX = 4096
ACCEPTS_PER_CALL = 256
MESSAGES_PER_CALL = 16
HELLOS_PER_CALL = 1024
"""The same for who shook hands and is not waited for."""
DESCRIPTORS_MAX = 8  # in one message: more are closed by the kernel (MSG_CTRUNC)
DRAIN_SECONDS = 0.005
_CREDENTIALS = struct.Struct("3i")
PATIENTLY = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLONESHOT


@dataclass
class Refusals:
    """Who was turned away, and why."""

    foreign: int = 0  # another user
    forged: int = 0  # a message in the name of another process or of no thread of it
    malformed: int = 0  # not a hello
    overload: int = 0  # too many connections
    gone: int = 0  # killed while it waited for the answer: it has logged nothing

    @property
    def total(self) -> int:
        """Those of whom something is missing."""
        return self.foreign + self.forged + self.malformed + self.overload


@dataclass
class Process:
    """A process image that shook hands. `threads` are thread numbers, in the order of their handshakes."""

    pid: int
    image: int
    began_by: Hello
    tsc: int  # when it said so
    threads: list[int] = field(default_factory=list)
    ended: bool = False


@dataclass
class _Image:
    process: Process
    lists: SharedLists
    pidfd: int
    logs: dict[int, ThreadLog] = field(default_factory=dict)  # by serial
    vector: VectorRecorder | None = None
    watches: list[int] = field(default_factory=list)  # perf events of its watchpoints: they live while these are open


@dataclass
class _Client:
    socket: socket.socket
    since: float
    pid: int = 0  # once a first message was accepted
    pipe: int = -1  # ours, of a message that was accepted: for answers to messages that bring none
    patient: bool = False  # those who say hello over it do not wait: it wakes the server once, and is read at a drain


@dataclass
class _Message:
    data: bytes
    pid: int
    uid: int
    fds: list[int]


class _Greeting(NamedTuple):
    """A hello's fields, without magic and version."""

    kind: int
    pid: int
    tid: int
    tsc: int
    first_list: int
    main: int
    start_routine: int
    marker: int

    @property
    def owner(self) -> int:
        """The process whose lists and connection it uses."""
        return self.main if self.kind == Hello.PSEUDO_THREAD else self.pid


_KINDS = frozenset(Hello)


class _Refused(Exception):
    """A message that is not answered with GO; names the counter in Refusals."""


class ControlServer:
    """The supervisor's end of every handshake. `service` never blocks; call it when `fds` are ready, and often.

    `assign(pid, tid, tsc)` gives the thread's number; a negative one refuses it.
    `processes` lists who shook hands, `refused` who was turned away.
    """

    def __init__(self, bundle: Bundle, assign: Callable[[int, int, int], int],
                 say: Callable[[str], None] = lambda line: None,
                 observe: Callable[[Hello, int, int, int], None] | None = None, *, threads_wait: bool = False,
                 ring: int = 0) -> None:
        """`ring`: bytes that each process's file of events may have (the newest stay), 0: it grows.
        `say` gets a line for each notice that libtthread gave; `notices` has them all.
        `observe(kind, pid, tid, owner)` is called for each thread that said hello; `owner` is its program's main
        process. `threads_wait`: no thread runs before it was assigned its number, and observed.

        Raises MachineLacks when libtthread is not built or the socket cannot be made."""
        self.bundle = bundle
        self._logs = os.fspath(bundle.dependence)
        self.processes: list[Process] = []
        self.refused = Refusals()
        self.notices = Notices(say)
        self.watch_hits: int | None = None  # of the processor's debug registers, when the run is over and it had some
        self._assign = assign
        self._threads_wait = threads_wait
        self._ring = ring
        self._said_hello: set[int] = set()  # patient clients that have something to say, by descriptor
        self._observe = observe
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
            elif fd in self._clients and self._clients[fd].patient:
                self._said_hello.add(fd)
            elif fd in self._clients:
                self._serve(self._clients[fd], events)
            elif fd in self._pidfds:
                self._end(self._images[self._pidfds[fd]])
        now = time.monotonic()
        if now - self._drained_at >= DRAIN_SECONDS:
            self._drained_at = now
            self._expire(now)
            self._listen()
            for image in self._images.values():
                image.lists.drain(image.logs)
                self._take_events(image)
                self.notices.take(image.process.pid, image.lists.notices())

    def patience(self) -> float:
        """Seconds after which `service` should be called though `fds` is not ready; infinite when there is no need."""
        if self._closed or not self._said_hello:
            return math.inf
        return max(0.0, self._drained_at + DRAIN_SECONDS - time.monotonic())

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
        self._count_watches()
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

    def _listen(self) -> None:
        """Read what patient clients said, and have the next hello wake the server again."""
        for fd in list(self._said_hello):
            client = self._clients[fd]
            if self._hear(client):
                self._said_hello.discard(fd)
                self._epoll.modify(fd, PATIENTLY)
            else:
                self._drop(client)

    def _hear(self, client: _Client) -> bool:
        """Handle the messages that are there. False: the client is to be dropped."""
        for _ in range(HELLOS_PER_CALL):
            try:
                message = self._receive(client)
            except BlockingIOError:
                return True
            except OSError:
                message = None
            if message is None or not self._handle(client, message):
                return False
        return True  # there are more: it wakes the server at once

    def _drop(self, client: _Client) -> None:
        fd = client.socket.fileno()
        self._epoll.unregister(fd)
        del self._clients[fd]
        self._said_hello.discard(fd)
        client.socket.close()
        if client.pipe >= 0:
            os.close(client.pipe)
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
            if not events & ~select.EPOLLIN:
                return  # who shook hands has nothing more to say, nearly always; else this is called again
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
        status, thread, fds = Status.REFUSED, -1, message.fds
        hello = image = None
        try:
            hello = self._check(client, message)
            image = self._image_of(client, message, hello)
            thread = self._assign(hello.pid, hello.tid, hello.tsc)
            if thread < 0:
                raise _Refused("overload")
            if self._observe is not None:
                self._observe(Hello(hello.kind), hello.pid, hello.tid, hello.owner)
            status = Status.GO
        except _Refused as refused:
            setattr(self.refused, str(refused), getattr(self.refused, str(refused)) + 1)
        finally:
            pipe = _writable_pipe(fds[0]) if fds else client.pipe
            if pipe >= 0 and not (client.patient and not fds):
                flags = 0 if self._threads_wait else NO_WAIT
                with contextlib.suppress(OSError):  # no room: the client sent something else, and waits for nothing
                    os.write(pipe, WELCOME.pack(MAGIC, VERSION, status, thread, flags))
            if fds and pipe >= 0 and status is Status.GO:
                if client.pipe >= 0:
                    os.close(client.pipe)
                client.pipe = fds.pop(0)
                self._be_patient(client)
            for fd in fds:
                os.close(fd)
        if status is Status.GO and hello is not None and image is not None:
            self._enlist(image, hello, thread)  # after the answer: nobody waits for it
        return status is Status.GO

    def _be_patient(self, client: _Client) -> None:
        if not self._threads_wait and not client.patient:
            client.patient = True
            self._epoll.modify(client.socket.fileno(), PATIENTLY)

    # --- handshakes ---

    def _check(self, client: _Client, message: _Message) -> _Greeting:
        """What the message says, if it may be said by who sent it."""
        if len(message.data) != HELLO.size or (not message.fds and client.pipe < 0):
            raise _Refused("malformed")
        magic, version, kind, *fields = HELLO.unpack(message.data)
        if magic != MAGIC or version != VERSION or kind not in _KINDS:
            raise _Refused("malformed")
        hello = _Greeting(kind, *fields)
        if client.pid == 0 and message.uid != os.geteuid():
            raise _Refused("foreign")
        if message.pid <= 0 or hello.pid != message.pid or client.pid not in (0, hello.pid, hello.owner):
            raise _Refused("forged")
        if kind != Hello.PSEUDO_THREAD:
            late = client.patient and not message.fds
            if not _is_thread(hello.pid, hello.tid) and not (late and not Path(f"/proc/{hello.tid}").exists()):
                raise _refusal(message)  # one that nobody waited for may have ended
        elif hello.tid != hello.pid or (client.pid == 0 and _parent(hello.pid) != hello.owner):
            raise _refusal(message)  # over a connection of its program's it is believed: it was given that
        return hello

    def _image_of(self, client: _Client, message: _Message, hello: _Greeting) -> _Image:
        """The process image that the thread belongs to, begun if it is the first."""
        if hello.kind in (Hello.THREAD, Hello.PSEUDO_THREAD):
            image = self._images.get(hello.owner)
            if image is None:
                raise _Refused("malformed")
        else:
            image = self._begin(message, hello)
        client.pid = hello.owner
        return image

    def _enlist(self, image: _Image, hello: _Greeting, thread: int) -> None:
        """Begin the thread's section of its file."""
        serial = 0 if hello.first_list == LIST_NONE else image.lists.owner(hello.first_list)
        image.process.threads.append(thread)
        if not serial or serial in image.logs:
            return
        file = self._files.get(thread)
        if file is None:
            file = self._files[thread] = ThreadFile(f"{self._logs}/{thread}.evl")
        image.logs[serial] = ThreadLog.begin(
            file, pid=hello.pid, tid=hello.tid, thread=thread,
            flags=hello.kind | (image.process.image & 0xFFFFFF) << 8, tsc=hello.tsc, marker=hello.marker,
            start_routine=hello.start_routine)

    def _begin(self, message: _Message, hello: _Greeting) -> _Image:
        """A process image: what the pid ran before has been replaced."""
        pid = hello.pid
        before = self._images.get(pid)
        if before is not None:
            self._end(before)
        if not 2 <= len(message.fds) <= DESCRIPTORS_MAX or not all(is_event(fd) for fd in message.fds[3:]):
            raise _Refused("malformed")
        process = Process(pid, len(self.processes), Hello(hello.kind), hello.tsc)
        lists = None
        try:
            lists = SharedLists(message.fds[1])
            watches = [os.dup(fd) for fd in message.fds[3:]]
            vector = None if len(message.fds) == 2 else VectorRecorder(
                os.dup(message.fds[2]), self.bundle.dependence / f"vector-{process.image}.ptv", self._ring)
        except BadInput as error:
            if lists is not None:
                lists.close()
            raise _Refused("malformed") from error
        except OSError as error:  # no descriptor left
            if lists is not None:
                lists.close()
            raise _Refused("overload") from error
        try:
            pidfd = os.pidfd_open(pid)
            self._epoll.register(pidfd, select.EPOLLIN)
            self._pidfds[pidfd] = pid
        except OSError:
            pidfd = -1  # it died already, or there is no descriptor left: its connection tells
        self.processes.append(process)
        image = self._images[pid] = _Image(process, lists, pidfd, vector=vector, watches=watches)
        return image

    def _end(self, image: _Image) -> None:
        """The image is gone: read its lists to the end."""
        if image.process.ended:
            return
        image.process.ended = True
        for client in [one for one in self._clients.values() if one.patient and one.pid == image.process.pid]:
            self._hear(client)  # its last threads' hellos; dropped once the kernel says that it hung up
        if self._images.get(image.process.pid) is image:
            del self._images[image.process.pid]
        self._past.append(image)
        if image.pidfd >= 0:
            self._epoll.unregister(image.pidfd)
            del self._pidfds[image.pidfd]
            os.close(image.pidfd)
        try:
            image.lists.drain(image.logs, final=True)
            self.notices.take(image.process.pid, image.lists.notices(final=True))
            for log in image.logs.values():
                log.end()
            self._take_events(image, final=True)
        finally:
            if image.vector is not None:
                image.vector.close()
            image.lists.close()

    def _take_events(self, image: _Image, *, final: bool = False) -> None:
        if image.vector is None:
            return
        try:
            image.vector.finish() if final else image.vector.poll()
        except BadInput:  # what the target gave is no vector after all
            self.refused.malformed += 1
            image.vector.close()

    # --- the end ---

    def _count_watches(self) -> None:
        """How often debug registers were hit: libtthread stored those it was told of. All that inherited them ended."""
        events = [fd for image in self._past for fd in image.watches]
        if events:
            self.watch_hits = count_hits(events)
        for fd in events:
            os.close(fd)

    def _account(self, ledger: Ledger) -> None:
        unlisted = sum(image.lists.unlisted for image in self._past)
        untracked = sum(image.lists.untracked for image in self._past)
        attempts = 0
        for image in self._past:
            for log in image.logs.values():
                log.account(ledger)
                attempts += log.attempts
            if image.vector is not None:
                image.vector.account(ledger)
        if unlisted:
            ledger.add("dependence/unlisted", "events", lost={"no list": unlisted})
        if untracked:
            ledger.add("object_versions", "events", stored=max(0, attempts - untracked),
                       lost={"object table full": untracked})
        lost = sum(image.lists.notices_lost for image in self._past)
        if lost:
            ledger.add("notices", "notices", stored=len(self.notices.all), lost={"no room": lost})
        if self.refused.total:
            ledger.add("handshakes", "handshakes", stored=sum(len(one.threads) for one in self.processes),
                       lost={"refused": self.refused.total})

    def _close(self) -> None:
        self._closed = True
        for client in list(self._clients.values()):
            client.socket.close()
            if client.pipe >= 0:
                os.close(client.pipe)
        self._clients.clear()
        self._listener.close()
        self._epoll.close()
        os.close(self._spare)
        shutil.rmtree(self._folder, ignore_errors=True)


def _writable_pipe(fd: int) -> int:
    """The descriptor, not to be blocked on; -1 when it is no pipe's end that can be written."""
    try:
        if stat.S_ISFIFO(os.fstat(fd).st_mode) and fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY:
            os.set_blocking(fd, False)
            return fd
    except OSError:
        return -1
    return -1


def _parent(pid: int) -> int:
    """A process's parent; 0 when it is gone."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        status = os.read(fd, 1024)
    except OSError:
        return 0
    finally:
        os.close(fd)
    return int(status.rpartition(b")")[2].split()[1])


def _refusal(message: _Message) -> _Refused:
    """Why one is refused that is no thread of its process: the kernel vouches for the process."""
    return _Refused("forged" if Path(f"/proc/{message.pid}").exists() else "gone")


def _is_thread(pid: int, tid: int) -> bool:
    return Path(f"/proc/{pid}/task/{tid}").exists()
