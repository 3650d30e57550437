# SPDX-License-Identifier: MIT
"""The control server against clients of every kind: right, wrong, forged, many, silent."""

from __future__ import annotations

import fcntl
import math
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ptweave.data import Bundle, Ledger
from ptweave.data.evl import EVL_HEADER, EVL_HEADER_SIZE, Operation
from ptweave.data.handshake import SOCKET_VARIABLE, VERSION, Hello, Status
from ptweave.data.lists import LIST_NONE, LIST_SIZE, LISTS_BYTES, LISTS_HEAD_SIZE, ListState
from ptweave.preload import library_path
from ptweave.wrapper.control import CLIENTS_MAX, DRAIN_SECONDS, MESSAGES_PER_CALL, ControlServer
from support.client import Client, address, descriptors, hello, leftovers, lists_memfd, write_list
from support.control import new_bundle, serve
from support.evl import record

NOBODY = 65534


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return new_bundle(tmp_path)


@pytest.fixture
def server(bundle: Bundle) -> Iterator[ControlServer]:
    numbers = iter(range(10**6))
    made = ControlServer(bundle, lambda pid, tid, tsc: next(numbers))
    yield made
    made.finish(Ledger())


def good(server: ControlServer, fd: int | None = None) -> Client:
    """A client that shook hands as a process."""
    client = Client(server)
    memfd = lists_memfd() if fd is None else fd
    client.send(hello(), [client.write, memfd])
    assert client.answer() == (Status.GO, 0)
    if fd is None:
        os.close(memfd)
    return client


# --- set-up and end ---

def test_environment_names_socket_and_library(server: ControlServer) -> None:
    assert server.environment({"LD_PRELOAD": "/x.so:/y.so"})["LD_PRELOAD"] == f"{library_path()}:/x.so:/y.so"
    assert server.environment({})["LD_PRELOAD"] == str(library_path())
    path = Path(server.environment()[SOCKET_VARIABLE])
    assert path.is_socket() and path.parent.stat().st_mode & 0o777 == 0o700


def test_a_long_tmpdir_is_not_used_for_the_socket(bundle: Bundle, tmp_path: Path,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("x" * 120)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    server = ControlServer(bundle, lambda *_: 0)
    assert len(address(server)) < 108 and not list(long.iterdir())
    server.finish(Ledger())


def test_finish_leaves_nothing_behind_and_may_be_repeated(bundle: Bundle) -> None:
    before = descriptors()
    server = ControlServer(bundle, lambda *_: 0)
    client = good(server)
    ledger = Ledger()
    server.finish(ledger)
    server.finish(ledger)
    server.service()
    client.close()
    assert not leftovers(server) and server.fds() == [] and descriptors() == before


# --- handshakes ---

def test_a_process_and_its_threads_get_numbers_and_files(server: ControlServer, bundle: Bundle) -> None:
    memfd = lists_memfd()
    write_list(memfd, 0, state=ListState.OPEN, serial=1)
    write_list(memfd, 5, state=ListState.OPEN, serial=9)
    client = good(server, memfd)
    os.close(memfd)
    client.send(hello(Hello.THREAD, index=5, marker=0x77))
    assert client.answer() == (Status.GO, 1)
    process, = server.processes
    assert (process.pid, process.threads, process.began_by) == (os.getpid(), [0, 1], Hello.PROCESS)
    serve(server, (bundle.dependence / "1.evl").exists, 5)  # written with the next drain, nobody waits for it
    head = EVL_HEADER.unpack((bundle.dependence / "1.evl").read_bytes())
    assert head[:3] == (b"PTWEVL1\0", os.getpid(), threading.get_native_id())
    assert head[3:7] == (1, Hello.THREAD, 5, 0x77)
    client.close()


def test_many_threads_may_ask_at_once_over_one_connection(server: ControlServer) -> None:
    client = good(server)
    for _ in range(100):
        client.send(hello(Hello.THREAD, index=LIST_NONE))
    assert [client.answer() for _ in range(100)] == [(Status.GO, n) for n in range(1, 101)]
    client.close()


@pytest.fixture
def strict(bundle: Bundle) -> Iterator[ControlServer]:
    """A server whose threads wait."""
    numbers = iter(range(10**6))
    made = ControlServer(bundle, lambda pid, tid, tsc: next(numbers), threads_wait=True)
    yield made
    made.finish(Ledger())


def test_threads_that_wait_are_answered_through_the_pipe_of_the_first_if_they_bring_none(strict: ControlServer) -> None:
    server, client = strict, good(strict)
    for number in range(1, 4):
        client.send(hello(Hello.THREAD, index=LIST_NONE), [])
        assert client.answer() == (Status.GO, number)
    client.close()
    alone = Client(server)
    alone.send(hello(Hello.THREAD, index=LIST_NONE), [])
    assert alone.dropped() and server.refused.malformed == 1
    alone.close()


def test_threads_that_do_not_wait_get_numbers_and_no_answer(server: ControlServer) -> None:
    client = good(server)
    for _ in range(100):
        client.send(hello(Hello.THREAD, index=LIST_NONE), [])
    assert client.answer(5) is None
    serve(server, lambda: len(server.processes[0].threads) == 101, 5)
    assert server.processes[0].threads == list(range(101)) and server.refused.total == 0
    client.close()


def test_many_that_do_not_wait_wake_the_server_once(server: ControlServer) -> None:
    """Its descriptor is ready for the first hello after a drain only; patience says when the others are due."""
    client = good(server)
    drain(server)
    drain(server)
    assert select.select(server.fds(), [], [], 0)[0] == [] and server.patience() == math.inf
    client.send(hello(Hello.THREAD, index=LIST_NONE), [])
    assert select.select(server.fds(), [], [], 0)[0] == server.fds()
    server._drained_at = time.monotonic()  # it has just been drained
    server.service()
    client.send(hello(Hello.THREAD, index=LIST_NONE), [])
    assert select.select(server.fds(), [], [], 0)[0] == []
    assert 0 <= server.patience() <= DRAIN_SECONDS
    drain(server)
    assert len(server.processes[0].threads) == 3 and server.patience() == math.inf
    client.send(hello(Hello.THREAD, index=LIST_NONE), [])
    assert select.select(server.fds(), [], [], 0)[0] == server.fds()
    client.close()


def test_a_thread_that_ended_before_its_hello_was_read_is_known_all_the_same(
        server: ControlServer, bundle: Bundle) -> None:
    """And so is one whose whole process ended."""
    pid = os.fork()
    if pid == 0:
        client, memfd = Client(server), lists_memfd()
        write_list(memfd, 0, state=ListState.OPEN, serial=1)
        write_list(memfd, 1, state=ListState.LAST, serial=2, data=records(3), count=3)
        socket.send_fds(client.socket, [hello(pid=os.getpid(), tid=os.getpid())], [client.write, memfd])
        os.read(client.read, 16)

        def thread() -> None:
            client.send(hello(Hello.THREAD, index=1, pid=os.getpid()), [])

        one = threading.Thread(target=thread)
        one.start()
        one.join()
        os._exit(0)
    deadline = time.monotonic() + 10
    while not server.processes and time.monotonic() < deadline:
        server.service()  # up to the first answer; what follows is read when all are gone
    assert os.waitpid(pid, 0)[1] == 0
    ledger = Ledger()
    server.finish(ledger)
    assert (server.processes[0].threads, server.refused.total) == ([0, 1], 0)
    assert stored(bundle, 1) == records(3) and ledger["dependence/1"].stored == 3


def test_what_nobody_claims_is_counted(bundle: Bundle) -> None:
    """Lists of a thread that never said hello."""
    server, memfd, ledger = ControlServer(bundle, lambda *_: 0), lists_memfd(), Ledger()
    write_list(memfd, 0, state=ListState.OPEN, serial=1)
    write_list(memfd, 1, state=ListState.LAST, serial=2, data=records(3), count=3)
    client = good(server, memfd)
    server.finish(ledger)
    assert ledger["dependence/unlisted"].lost == {"no list": 3}
    os.close(memfd)
    client.close()


def test_a_thread_of_another_process_is_refused_though_nobody_waits(server: ControlServer) -> None:
    client = good(server)
    client.send(hello(Hello.THREAD, tid=1, index=LIST_NONE), [])
    assert client.dropped() and server.refused.forged == 1
    client.close()


def test_a_thread_may_bring_a_connection_of_its_own(server: ControlServer) -> None:
    client, other = good(server), Client(server)
    other.send(hello(Hello.THREAD, index=LIST_NONE))
    assert other.answer() == (Status.GO, 1)
    client.close()
    other.close()


def test_an_exec_replaces_the_image_of_its_process(server: ControlServer) -> None:
    one, two = good(server), Client(server)
    memfd = lists_memfd()
    two.send(hello(), [two.write, memfd])
    assert two.answer() == (Status.GO, 1)
    assert [process.ended for process in server.processes] == [True, False]
    os.close(memfd)
    one.close()
    two.close()


def test_assign_may_refuse(bundle: Bundle) -> None:
    server = ControlServer(bundle, lambda *_: -1)
    client, memfd = Client(server), lists_memfd()
    client.send(hello(), [client.write, memfd])
    assert client.answer() == (Status.REFUSED, -1)
    assert server.refused.overload == 1 and client.dropped()
    os.close(memfd)
    client.close()
    ledger = Ledger()
    server.finish(ledger)
    assert ledger["handshakes"].lost == {"refused": 1}


# --- wrong clients ---

WRONG = {
    "garbage": b"x" * 48, "short": b"PTW1", "long": hello() + b"x", "another version": hello(version=VERSION + 1),
    "unknown kind": hello(9), "magic": hello(magic=1), "a thread of nobody": hello(Hello.THREAD),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_message_that_is_no_hello_is_refused(server: ControlServer, what: str) -> None:
    client = Client(server)
    client.send(WRONG[what])
    assert client.answer() == (Status.REFUSED, -1)
    assert server.refused.malformed == 1 and client.dropped()
    client.close()


@pytest.mark.parametrize("data", [hello(pid=1, tid=1), hello(tid=1), hello(pid=0, tid=0), hello(tid=2**32 - 1)],
                         ids=["another process", "another thread", "nobody", "no thread"])
def test_a_message_in_anothers_name_is_refused(server: ControlServer, data: bytes) -> None:
    client, memfd = Client(server), lists_memfd()
    client.send(data, [client.write, memfd])
    assert client.answer() == (Status.REFUSED, -1)
    assert server.refused.forged == 1 and client.dropped() and server.processes == []
    os.close(memfd)
    client.close()


def test_one_that_was_killed_while_it_waited_is_refused_and_nothing_is_missing(bundle: Bundle) -> None:
    """The control is above: one that lives, in the name of no thread of its own."""
    server, ledger = ControlServer(bundle, lambda *_: 0), Ledger()
    memfd = lists_memfd()
    child = os.fork()
    if child == 0:
        client = Client(server)
        client.send(hello(pid=os.getpid(), tid=os.getpid()), [client.write, memfd])
        os._exit(0)
    os.waitpid(child, 0)
    serve(server, lambda: server.refused.gone == 1, 5)
    server.finish(ledger)
    assert (server.refused.total, server.processes, "handshakes" in ledger) == (0, [], False)
    os.close(memfd)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_another_user_is_refused(server: ControlServer) -> None:
    folder = Path(address(server)).parent
    folder.chmod(0o755)
    os.chmod(address(server), 0o777)
    folder.parent.stat()
    pid = os.fork()
    if pid == 0:
        try:
            os.setresuid(NOBODY, NOBODY, NOBODY)
            client = Client(server)
            client.socket.settimeout(5)
            socket.send_fds(client.socket, [hello(pid=os.getpid(), tid=os.getpid())], [client.write])
            os._exit(0 if client.socket.recv(1) == b"" else 1)
        finally:
            os._exit(2)
    deadline = time.monotonic() + 10
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None and time.monotonic() < deadline:
        server.service()
        time.sleep(0.002)
    assert os.waitpid(pid, 0)[1] == 0
    assert (server.refused.foreign, server.processes) == (1, [])


@pytest.mark.parametrize("make", [
    lambda: lists_memfd(seals=0), lambda: lists_memfd(size=LISTS_BYTES // 2), lambda: lists_memfd(magic=3),
    lambda: lists_memfd(seals=fcntl.F_SEAL_SHRINK), lambda: os.open("/dev/zero", os.O_RDWR),
    lambda: os.open("/dev/null", os.O_RDONLY), lambda: os.pipe()[0]])
def test_a_descriptor_that_is_no_sealed_memfd_of_lists_is_refused(server: ControlServer, make: object) -> None:
    client = Client(server)
    fd = make()  # type: ignore[operator]
    client.send(hello(), [client.write, fd])
    assert client.answer() == (Status.REFUSED, -1)
    assert server.refused.malformed == 1 and server.processes == []
    os.close(fd)
    client.close()


def test_answers_go_into_pipes_with_room_only(server: ControlServer, tmp_path: Path) -> None:
    """A full pipe, a file, a read end: the server neither blocks nor writes there."""
    file = os.open(tmp_path / "precious", os.O_RDWR | os.O_CREAT)
    read, write = os.pipe()
    os.set_blocking(write, False)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(write, bytes(65536))
    os.set_blocking(write, True)
    for fd in (file, write, read):
        client = Client(server)
        client.send(b"junk", [fd])
        assert client.dropped()
        client.close()
    assert (tmp_path / "precious").stat().st_size == 0 and server.refused.malformed == 3
    for fd in (file, read, write):
        os.close(fd)


def test_no_descriptor_that_was_sent_stays_open(server: ControlServer) -> None:
    client = Client(server)
    server.service()
    before = len(descriptors())
    for count in (1, 3, 8, 20, 200):
        other = Client(server)
        other.send(b"junk", [other.write] * count)
        assert other.dropped()
        other.close()
    server.service()
    assert len(descriptors()) == before
    client.close()


# --- many, slow and silent clients ---

def test_silent_and_half_connected_clients_disturb_nobody(server: ControlServer) -> None:
    silent = [Client(server) for _ in range(50)]
    for one in silent[:25]:
        one.socket.close()
    client = good(server)
    for one in silent:
        one.close()
    client.close()


def test_a_flood_is_served_a_bounded_number_of_messages_a_call(server: ControlServer) -> None:
    flooding = Client(server)
    server.service()
    flooding.socket.setblocking(False)
    sent = 0
    with pytest.raises(BlockingIOError):
        while sent < 10_000:
            flooding.socket.send(b"x" * 10)
            sent += 1
    began = time.monotonic()
    server.service()
    assert time.monotonic() - began < 0.5
    assert server.refused.malformed <= MESSAGES_PER_CALL
    assert good(server).dropped() is False
    flooding.close()


def test_a_hello_that_never_comes_is_given_up(server: ControlServer, monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(server)
    server.service()
    now = time.monotonic()
    monkeypatch.setattr("ptweave.wrapper.control.time.monotonic", lambda: now + 31)
    assert client.dropped() and server.refused.malformed == 1
    client.close()


def test_too_many_connections_are_turned_away(server: ControlServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ptweave.wrapper.control.CLIENTS_MAX", 3)
    assert CLIENTS_MAX > 3
    clients = [Client(server) for _ in range(5)]
    assert clients[4].dropped() and server.refused.overload == 2
    for one in clients:
        one.close()


def test_without_descriptors_left_clients_are_turned_away_and_the_server_goes_on(bundle: Bundle) -> None:
    """In a process of its own: the limit of open files is reached."""
    script = """
import os, resource, socket, sys
from pathlib import Path
from support.client import Client, address
from support.control import new_bundle, serve
from ptweave.wrapper.control import ControlServer
server = ControlServer(new_bundle(Path(sys.argv[1])), lambda *_: 0)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
hoard = []
try:
    while True:
        hoard.append(os.dup(0))
except OSError:
    pass
peer.connect(address(server))
server.service()
peer.settimeout(5)
assert peer.recv(1) == b"" and server.refused.overload == 1
for fd in hoard:
    os.close(fd)
client = Client(server)
server.service()
assert not client.dropped()
"""
    folder = bundle.path.parent / "other"
    folder.mkdir()
    path = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run([sys.executable, "-c", script, folder], capture_output=True, text=True, check=False,
                          timeout=60, env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0, done.stderr


# --- draining ---

def records(count: int, serial: int = 0) -> bytes:
    return b"".join(record(Operation.SEM_POST, enter=n, obj=n, version=serial, stack=(1, 2)) for n in range(count))


def stored(bundle: Bundle, thread: int = 0) -> bytes:
    return (bundle.dependence / f"{thread}.evl").read_bytes()[EVL_HEADER_SIZE:]


def drain(server: ControlServer) -> None:
    time.sleep(0.006)
    server.service()


def test_an_open_list_is_copied_as_far_as_it_is_committed(server: ControlServer, bundle: Bundle) -> None:
    memfd, data = lists_memfd(), records(10)
    half = len(data) // 2
    write_list(memfd, 0, state=ListState.OPEN, serial=1, data=data, committed=half, count=5)
    client = good(server, memfd)
    drain(server)
    assert stored(bundle) == data[:half]
    write_list(memfd, 0, state=ListState.OPEN, serial=1, data=data, count=10)
    drain(server)
    assert stored(bundle) == data
    client.close()
    os.close(memfd)


def test_full_lists_are_copied_in_order_and_given_back_clean(server: ControlServer, bundle: Bundle) -> None:
    memfd = lists_memfd()
    first, second, third = records(3), records(4), records(5)
    write_list(memfd, 70, state=ListState.FULL, serial=1, data=first, count=3, sequence=0)
    write_list(memfd, 2, state=ListState.FULL, serial=1, data=second, count=4, sequence=1)
    write_list(memfd, 1, state=ListState.OPEN, serial=1, data=third, count=5, sequence=2)
    client = Client(server)
    client.send(hello(index=70), [client.write, memfd])
    assert client.answer() == (Status.GO, 0)
    drain(server)
    drain(server)
    assert stored(bundle) == first + second + third
    for index in (70, 2):
        assert os.pread(memfd, 64, LISTS_HEAD_SIZE + index * 64) == bytes(64)
        assert os.pread(memfd, len(second), LISTS_BYTES - (1024 - index) * LIST_SIZE) == bytes(len(second))
    assert int.from_bytes(os.pread(memfd, 8, 64), "little") == 2  # freed
    assert os.fstat(memfd).st_blocks * 512 < 4 * LIST_SIZE
    client.close()
    os.close(memfd)


def test_the_end_of_a_process_reads_its_lists_to_the_last_finished_record(bundle: Bundle) -> None:
    """A child shakes hands, is killed, and leaves an unfinished record between finished ones."""
    numbers = iter(range(10))
    server = ControlServer(bundle, lambda pid, tid, tsc: next(numbers))
    begun = record(Operation.SEM_POST, open_=True)
    tail = begun + record(Operation.SEM_POST, obj=77)
    data, memfd = records(3), lists_memfd()
    write_list(memfd, 0, state=ListState.OPEN, serial=1, data=data + tail, committed=len(data), count=3, attempts=8,
               lost=2)
    pid = os.fork()
    if pid == 0:
        client = Client(server)
        socket.send_fds(client.socket, [hello(pid=os.getpid(), tid=os.getpid())], [client.write, memfd])
        os.read(client.read, 16)
        signal.pause()
    while not server.processes:
        server.service()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    while not server.processes[0].ended:
        server.service()
    assert stored(bundle) == data + record(Operation.SEM_POST, obj=77)
    assert EVL_HEADER.unpack((bundle.dependence / "0.evl").read_bytes()[:EVL_HEADER_SIZE])[8] == 2  # lost
    ledger = Ledger()
    server.finish(ledger)
    stream = ledger["dependence/0"]
    assert (stream.produced, stream.stored, stream.lost) == (8, 4, {"dropped": 2, "unfinished": 2})
    os.close(memfd)


def test_a_producer_whose_account_does_not_balance_shows_in_the_ledger(bundle: Bundle) -> None:
    server = ControlServer(bundle, lambda *_: 0)
    memfd = lists_memfd()
    write_list(memfd, 0, state=ListState.LAST, serial=1, data=records(3), count=3, attempts=500)
    client = good(server, memfd)
    ledger = Ledger()
    server.finish(ledger)
    assert ledger.check() == ["dependence/0"]
    client.close()
    os.close(memfd)


@pytest.mark.parametrize("change", [
    {"committed": 2**63}, {"committed": 4}, {"committed": LIST_SIZE + 8, "reserved": 2**40}, {"reserved": 8},
    {"sequence": 2**64 - 1}, {"count": 2**64 - 1, "attempts": 0}])
def test_descriptors_of_any_content_do_no_harm(server: ControlServer, bundle: Bundle, change: dict[str, int]) -> None:
    memfd = lists_memfd()
    fields = {"count": 3, **change}
    write_list(memfd, 0, state=ListState.FULL, serial=1, data=records(3), **fields)
    write_list(memfd, 1, state=ListState.OPEN, serial=2, data=records(3), count=3)
    client = good(server, memfd)
    client.send(hello(Hello.THREAD, index=1))
    assert client.answer() == (Status.GO, 1)
    drain(server)
    assert stored(bundle, 1) == records(3)  # its neighbour is whole
    assert len(stored(bundle, 0)) <= LIST_SIZE
    os.pwrite(memfd, b"\xff" * 4096, LISTS_HEAD_SIZE)
    os.pwrite(memfd, b"\xff" * 4, 16)
    drain(server)
    client.close()
    os.close(memfd)


def test_a_full_disk_is_an_error_once_and_the_account_says_what_is_missing(
        bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    server = ControlServer(bundle, lambda *_: 0)
    memfd, data = lists_memfd(), records(10)
    write_list(memfd, 0, state=ListState.OPEN, serial=1, data=data, committed=len(data) // 2, count=5)
    client = good(server, memfd)
    drain(server)
    write_list(memfd, 0, state=ListState.OPEN, serial=1, data=data, count=10)
    real = os.pwrite

    def full(fd: int, part: bytes, offset: int) -> int:
        if offset > EVL_HEADER_SIZE + len(data) // 2:
            raise OSError(28, "No space left on device")
        return real(fd, bytes(part)[:100], offset)

    with monkeypatch.context() as patch:
        patch.setattr("ptweave.wrapper.dependence.os.pwrite", full)
        with pytest.raises(OSError, match="No space"):
            drain(server)
    ledger = Ledger()
    server.finish(ledger)
    assert stored(bundle) == data[:len(data) // 2]
    assert (ledger["dependence/0"].stored, ledger["dependence/0"].lost) == (5, {"not written": 5})
    assert ledger.check() == [] and not leftovers(server)
    client.close()
    os.close(memfd)


def test_a_disk_without_room_for_one_more_file_is_an_error_at_the_end_too(
        bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lists are given up while the error is on its way: it must not hold them."""
    server = ControlServer(bundle, lambda *_: 0)
    memfd, data = lists_memfd(), records(10)
    write_list(memfd, 0, state=ListState.OPEN, serial=1, data=data, committed=len(data) // 2, count=10)
    client = good(server, memfd)
    real = os.open

    def full(path: str | Path, *rest: int, **more: int) -> int:
        if str(path).endswith(".evl"):
            raise OSError(28, "No space left on device", path)
        return real(path, *rest, **more)

    ledger = Ledger()
    with monkeypatch.context() as patch:
        patch.setattr("ptweave.wrapper.dependence.os.open", full)
        with pytest.raises(OSError, match="No space"):
            server.finish(ledger)
    assert not leftovers(server)
    client.close()
    os.close(memfd)


def test_a_descriptor_that_contradicts_itself_costs_its_list_and_is_counted(bundle: Bundle) -> None:
    server = ControlServer(bundle, lambda *_: 0)
    memfd = lists_memfd()
    write_list(memfd, 0, state=ListState.FULL, serial=1, data=records(3), count=3, committed=LIST_SIZE + 8)
    write_list(memfd, 1, state=ListState.FULL, serial=1, data=records(4), count=4, sequence=1)
    client = good(server, memfd)
    ledger = Ledger()
    server.finish(ledger)
    assert stored(bundle) == records(4)
    assert ledger["dependence/0"].lost == {"corrupt": 3} and ledger.check() == []
    client.close()
    os.close(memfd)


def test_an_open_list_that_grows_while_it_is_looked_at_is_not_corrupt(server: ControlServer, bundle: Bundle) -> None:
    """The descriptor's fields are read one after the other: more can be committed than was reserved before."""
    memfd, data = lists_memfd(), records(10)
    write_list(memfd, 0, state=ListState.OPEN, serial=1, data=data, reserved=len(data) - 72, count=9)
    client = good(server, memfd)
    drain(server)
    write_list(memfd, 0, state=ListState.FULL, serial=1, data=data, count=10)
    drain(server)
    assert stored(bundle) == data
    client.close()
    os.close(memfd)
