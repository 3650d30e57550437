# SPDX-License-Identifier: MIT
"""The supervisor's consumer of event vectors: what a target gives it, honest or not, and what becomes of it."""

from __future__ import annotations

import fcntl
import os
import random
import resource
import signal
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ptweave.data import BadInput, Ledger
from ptweave.decode.vector import EventFile
from ptweave.wrapper.vector import VectorRecorder

HEAD, KINDS, KEYS_END = 4096, 256 * 1088, 4096 * 64
LIST, LISTS = 131072, 16
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
NAMES_END = HEAD + KINDS + KEYS_END
DATA = (NAMES_END + LISTS * 128 + 4095) // 4096 * 4096
MAGIC = int.from_bytes(b"PTWVEC1\0", "little")


def memory(*, magic: int = MAGIC, version: int = 1, size: int = DATA + LISTS * LIST, list_size: int = LIST,
           seals: int = SEALS) -> int:
    """A vector with one kind `few` (number u64), made from the words of docs/event-vector.md."""
    fd = os.memfd_create("vector", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    os.pwrite(fd, struct.pack("<QIIIIII", magic, version, list_size, LISTS, 1, 1, 7), 0)
    kind = struct.pack("<II56s", 2, 1, b"few") + struct.pack("<B31s", 2, b"number")
    os.pwrite(fd, kind, HEAD)
    if seals:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def event(number: int) -> bytes:
    return struct.pack("<IHHQIIQ", 32, 0, 0, 1000 + number, 1, 0, number)


def fill(fd: int, index: int, numbers: list[int], *, state: int = 2, committed: int | None = None,
         count: int | None = None, begun: int | None = None, producer: int = 1, sequence: int = 0) -> None:
    """Write a list and its descriptor, and raise `high`."""
    data = b"".join(event(number) for number in numbers)
    os.pwrite(fd, data, DATA + index * LIST)
    owner = state | 77 << 8 | 66 << 32
    word = (len(data) if committed is None else committed) | (len(numbers) if count is None else count) << 32
    os.pwrite(fd, struct.pack("<QQQQIIQ", owner, word, len(numbers) if begun is None else begun, 0,
                              producer, 0, sequence),
              NAMES_END + index * 128)
    os.pwrite(fd, struct.pack("<I", LISTS), 64)


def numbers(path: Path) -> list[int]:
    with EventFile(path) as file:
        return [number for table in file.tables().values() for number in table["number"].to_pylist()]


def test_what_is_committed_is_taken_and_counted(tmp_path: Path) -> None:
    fd, path, ledger = memory(), tmp_path / "vector-0.ptv", Ledger()
    recorder = VectorRecorder(fd, path)
    fill(fd, 0, [1, 2, 3])
    fill(fd, 1, [4, 5], state=1, begun=3)  # still written to, with an event under way
    recorder.poll()
    assert sorted(numbers(path)) == [1, 2, 3, 4, 5]
    assert os.pread(fd, 8, NAMES_END) == bytes(8), "a list that was handed over is given back"
    recorder.finish()
    recorder.account(ledger)
    assert (ledger["events"].produced, ledger["events"].stored) == (6, 5)
    assert ledger["events"].lost == {"unfinished": 1}


RING = NAMES_END + 10 * (LIST + 4096)
"""Ten slots."""


def test_a_ring_keeps_the_newest_lists_in_whatever_order_they_come(tmp_path: Path) -> None:
    """Four lists a poll, the newest of them first; `fill` makes numbers times."""
    fd, path, ledger = memory(), tmp_path / "vector-0.ptv", Ledger()
    recorder = VectorRecorder(fd, path, RING)
    for turn in range(4):
        for index in range(4):
            fill(fd, index, [10 * (4 * turn + 3 - index) + k for k in range(10)])
        recorder.poll()
    recorder.finish()
    recorder.account(ledger)
    assert sorted(numbers(path)) == list(range(60, 160))
    assert ledger["events"].lost == {"overwritten": 60}


def test_a_ring_keeps_a_list_that_was_long_under_way_by_its_newest_event(tmp_path: Path) -> None:
    fd, path = memory(), tmp_path / "vector-0.ptv"
    recorder = VectorRecorder(fd, path, RING)
    fill(fd, 0, [1], state=1)
    recorder.poll()
    for number in range(2, 11):
        fill(fd, 1, [number])
        recorder.poll()
    fill(fd, 0, [1, 11])
    recorder.poll()
    fill(fd, 1, [12])
    recorder.finish()
    assert sorted(numbers(path)) == [1, *range(3, 13)], "the oldest went, which is 2"


def test_a_ring_lets_go_of_what_a_thread_wrote_before_first_though_it_was_under_way(tmp_path: Path) -> None:
    """A thread's list is under way in the ring; when it is looked at next, the thread has gone on in more lists than
    the ring has slots, all of which stand before it in memory. Another thread's list is still written to: it stays."""
    fd, path, ledger = memory(), tmp_path / "vector-0.ptv", Ledger()
    recorder = VectorRecorder(fd, path, RING)
    fill(fd, 15, [0], state=1)
    fill(fd, 14, [1], state=1, producer=2)
    recorder.poll()
    for index in range(12):
        fill(fd, index, [10 + index], sequence=1 + index)
    fill(fd, 15, [0, 2])
    recorder.poll()
    recorder.finish()
    recorder.account(ledger)
    assert sorted(numbers(path)) == [1, *range(13, 22)], "a list is missing between others of its thread"
    assert (ledger["events"].produced, ledger["events"].stored) == (15, 10)
    assert ledger["events"].lost == {"overwritten": 5}


class Threads:
    """Threads that write events into whatever lists are free."""

    def __init__(self, fd: int, count: int, choose: random.Random) -> None:
        self.fd, self._choose = fd, choose
        self.written: list[list[int]] = [[] for _ in range(count)]
        self._at: list[int | None] = [None] * count
        self._sequence = [0] * count
        self._list: list[list[int]] = [[] for _ in range(count)]

    def free(self) -> list[int]:
        return [i for i in range(LISTS) if i not in self._at and os.pread(self.fd, 8, NAMES_END + 128 * i) == bytes(8)]

    def go_on(self, who: int) -> None:
        """In another list."""
        at = self._choose.choice(self.free())
        self.hand_over(who)
        self._at[who], self._list[who] = at, []

    def hand_over(self, who: int) -> None:
        self._show(who, state=2)
        self._sequence[who] += self._at[who] is not None

    def write(self, who: int, number: int) -> None:
        if self._at[who] is None:
            self.go_on(who)
        self.written[who].append(number)
        self._list[who].append(number)
        self._show(who, state=1)

    def _show(self, who: int, *, state: int) -> None:
        at = self._at[who]
        if at is not None:
            fill(self.fd, at, self._list[who], state=state, producer=1 + who, sequence=self._sequence[who])

    def last_are_kept(self, path: Path) -> int:
        """Of each thread the last events are there, without a hole. Returns how many of all."""
        kept = set(numbers(path))
        for mine in self.written:
            left = [number for number in mine if number in kept]
            assert left == mine[len(mine) - len(left):]
        return len(kept)


@pytest.mark.parametrize("count", [3, 12])
@pytest.mark.parametrize("seed", range(12))
def test_a_ring_keeps_of_each_thread_its_last_events_without_a_hole(tmp_path: Path, seed: int, count: int) -> None:
    """One thread is faster than the others, of which there may be more than the ring has slots; the consumer looks now
    and then. A thread whose last list found no slot has nothing left."""
    choose = random.Random(seed)
    fd, path, ledger = memory(), tmp_path / "vector-0.ptv", Ledger()
    recorder, threads = VectorRecorder(fd, path, RING), Threads(fd, count, choose)
    for number in range(600):
        if not threads.free() or choose.random() < 0.02:
            recorder.poll()
            if number:
                threads.last_are_kept(path)
        who = choose.choices(range(count), [20, *[1] * (count - 1)])[0]
        if choose.random() < 0.7:
            threads.go_on(who)
        threads.write(who, number)
    for who in range(count):
        threads.hand_over(who)
    recorder.finish()
    recorder.account(ledger)
    kept = threads.last_are_kept(path)
    assert ledger["events"].produced == 600 and ledger["events"].stored == kept > 0
    assert ledger["events"].lost == {"overwritten": 600 - kept}


def test_times_of_a_ring_that_cannot_be_do_not_keep_a_list_for_ever(tmp_path: Path) -> None:
    fd, path = memory(), tmp_path / "vector-0.ptv"
    recorder = VectorRecorder(fd, path, RING)
    for number in [1 << 63, *range(20)]:
        fill(fd, 1, [number])
        recorder.poll()
    recorder.finish()
    assert sorted(numbers(path)) == list(range(10, 20))


def test_there_is_no_file_before_there_are_events(tmp_path: Path) -> None:
    path, ledger = tmp_path / "vector-0.ptv", Ledger()
    recorder = VectorRecorder(memory(), path)
    recorder.poll()
    recorder.finish()
    recorder.account(ledger)
    assert not path.exists() and "events" not in ledger


def test_producers_hear_of_it(tmp_path: Path) -> None:
    fd = memory()
    recorder = VectorRecorder(fd, tmp_path / "vector-0.ptv")
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    for used in (False, True):
        if used:
            fill(fd, 0, [1])
            recorder.poll()
        recorder.poll()
        heard, = struct.unpack("<Q", os.pread(fd, 8, 32))
        assert before <= heard <= time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        before = heard
    recorder.close()


@pytest.mark.parametrize("seals", [0, fcntl.F_SEAL_GROW])
def test_memory_that_could_shrink_is_refused(tmp_path: Path, seals: int) -> None:
    with pytest.raises(BadInput, match="is not an event vector"):
        VectorRecorder(memory(seals=seals), tmp_path / "vector-0.ptv")


@pytest.mark.parametrize("wrong", ["magic", "version", "list_size", "size"])
def test_memory_that_is_no_vector_is_refused(tmp_path: Path, wrong: str) -> None:
    fd = memory(**{wrong: {"magic": 5, "version": 9, "list_size": 4096, "size": DATA}[wrong]})
    os.pwrite(fd, struct.pack("<I", 1), 64)
    recorder = VectorRecorder(fd, tmp_path / "vector-0.ptv")
    with pytest.raises(BadInput, match="is not an event vector"):
        recorder.poll()
    recorder.poll()  # and nothing more comes of it


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    read, write = os.pipe()
    with pytest.raises(BadInput):
        VectorRecorder(read, tmp_path / "vector-0.ptv")
    os.close(write)


@pytest.mark.parametrize(("committed", "count"), [(LIST + 8, 1), (33, 1), (32, 99), (0xFFFFFFF8, 1)])
def test_descriptors_that_lie_cost_their_list_only(tmp_path: Path, committed: int, count: int) -> None:
    fd, path = memory(), tmp_path / "vector-0.ptv"
    recorder = VectorRecorder(fd, path)
    fill(fd, 0, [1], committed=committed, count=count)
    fill(fd, 1, [2, 3])
    recorder.poll()
    recorder.finish()
    assert numbers(path) == [2, 3]
    with EventFile(path) as file:
        assert file.account().stored == 2


@contextmanager
def no_room(size: int) -> Iterator[None]:
    """No file may be larger."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_ends_the_file_and_is_counted(tmp_path: Path) -> None:
    fd, path, ledger = memory(), tmp_path / "vector-0.ptv", Ledger()
    recorder = VectorRecorder(fd, path)
    fill(fd, 0, list(range(10)))
    recorder.poll()
    fill(fd, 1, list(range(10, 500)))
    with no_room(path.stat().st_size + 100), pytest.raises(OSError, match="File too large"):
        recorder.poll()
    fill(fd, 2, [500])
    recorder.poll()  # said once
    recorder.finish()
    recorder.account(ledger)
    assert numbers(path) == list(range(10))
    assert ledger["events"].stored == 10 and ledger["events"].lost == {"not written": 491}
