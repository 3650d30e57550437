# SPDX-License-Identifier: MIT
"""Event lists to thunks: clocks against a reference model, and input of every wrong kind."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ptweave.data import BadInput, Bundle, Clocks, Ledger, Manifest
from ptweave.data.evl import BARRIER_SERIAL, EVL_HEADER_SIZE, Operation
from ptweave.data.schemas import DECODED_STACKS, DECODED_THUNKS
from ptweave.decode.thunks import decode_thunks
from support.ctests import build, run_case
from support.evl import List, header, record

OP = Operation
MUTEX, COND, BARRIER, SEM, RWLOCK = 0x1000, 0x2000, 0x3000, 0x4000, 0x5000


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return Bundle.create(tmp_path / "x.ptw", Manifest(clocks=Clocks(0, 0, 1 << 40, 1 << 40)))


ACCESSES = (OP.ACCESS_READ, OP.ACCESS_WRITE, OP.ACCESS_END, OP.ACCESS_COMMIT, OP.ALLOCATION)


def decode(bundle: Bundle, *lists: List) -> dict[int, list[dict[str, object]]]:
    """Thunks by thread."""
    for one in lists:
        one.save(bundle.dependence)
    rows = decode_thunks(bundle)
    table = pq.read_table(bundle.decoded / "thunks.parquet")
    assert table.schema.equals(DECODED_THUNKS) and table.num_rows == rows
    found: dict[int, list[dict[str, object]]] = {one.thread: [] for one in lists}
    for row in table.to_pylist():
        found.setdefault(row["thread"], []).append(row)
    return found


def stacks_of(bundle: Bundle, rows: list[dict[str, object]]) -> list[object]:
    """Rows' call stacks."""
    stacks = pq.read_table(bundle.decoded / "stacks.parquet")
    assert stacks.schema.equals(DECODED_STACKS)
    known = stacks["stack"].to_pylist()
    return [None if row["stack"] is None else known[row["stack"]] for row in rows]  # type: ignore[index]


def clocks(rows: list[dict[str, object]]) -> list[object]:
    return [row["clock"] for row in rows]


def created(child: List, parent: List, at: int, serial: int) -> None:
    """The parent creates the child's thread at a time."""
    parent.add(OP.CREATE, at, obj=0x7000 + serial, version=serial, argument=100 + child.thread)
    child.add(OP.START, at + 1, obj=0x7000 + serial, version=serial, argument=100)


# --- what the columns say ---

def test_columns_of_a_record(bundle: Bundle) -> None:
    bundle.manifest.clocks = Clocks(1000, 5_000_000, 3000, 5_001_000)  # a tick is half a nanosecond
    one = List(0, bytearray(header(0, marker=0xABC)))
    one.add(OP.START, 1000).data += record(OP.MUTEX_LOCK, enter=1200, leave=2200, obj=MUTEX, result=0, version=0,
                                           stack=(7, 8, 9))
    one.data += record(OP.MUTEX_TRYLOCK, enter=2300, leave=2200, obj=MUTEX, result=16)
    start, lock, busy = decode(bundle, one)[0]
    assert (start["operation"], start["object"], start["thunk"], start["clock"]) == ("start", None, 0, [1])
    assert lock == {"thread": 0, "thunk": 1, "operation": "mutex_lock", "object": MUTEX, "result": 0, "t": 5_000_100,
                    "wait": 500, "acquire": True, "release": False, "clock": [2], "stack": 0, "tsc": 1200,
                    "marker": 0xABC}
    assert (busy["acquire"], busy["result"], busy["wait"]) == (False, 16, 0)  # a time that runs backwards is no wait
    assert stacks_of(bundle, [start, lock, busy]) == [None, [7, 8, 9], None]


@pytest.mark.parametrize("operation", ACCESSES)
def test_an_access_begins_no_thunk_and_is_not_missing(bundle: Bundle, operation: Operation) -> None:
    one = List(0).add(OP.MUTEX_LOCK, 5)
    one.data += record(operation, enter=6, obj=0x1000, result=1, argument=3, stack=(8 | 3 << 16,))
    one.add(OP.MUTEX_UNLOCK, 7)
    ledger = bundle.ledger()
    ledger.add("dependence/0", "events", stored=3)
    bundle.save_ledger(ledger)
    assert [row["operation"] for row in decode(bundle, one)[0]] == ["mutex_lock", "mutex_unlock"]
    assert bundle.ledger().losses == []


@pytest.mark.parametrize("operation", [one for one in Operation if one not in ACCESSES])
def test_every_operation_has_its_name(bundle: Bundle, operation: Operation) -> None:
    row, = decode(bundle, List(0).add(operation, 5))[0]
    assert row["operation"] == operation.name.lower()


def test_times_are_as_the_manifest_converts_them(bundle: Bundle) -> None:
    bundle.manifest.clocks = Clocks(10**6, 10**9, 10**6 + 7919, 10**9 + 3163)
    one = List(0)
    moments = [0, 1, 999_999, 10**6, 10**6 + 1, 10**12, 2**63, 2**64 - 10]
    for at in moments:
        one.add(OP.DETACH, at, leave=at + 1)
    rows = decode(bundle, one)[0]
    wrapped = [(bundle.manifest.clocks.to_ns(at) + 2**63) % 2**64 - 2**63 for at in moments]
    assert [row["t"] for row in rows] == wrapped


# --- clocks, by hand ---

def test_a_mutex_orders_its_critical_sections(bundle: Bundle) -> None:
    a, b = List(0), List(1)
    a.add(OP.START, 0).add(OP.MUTEX_LOCK, 10, obj=MUTEX).add(OP.MUTEX_UNLOCK, 20, obj=MUTEX, version=1)
    b.add(OP.START, 5).add(OP.MUTEX_LOCK, 12, leave=25, obj=MUTEX, version=1)
    assert clocks(decode(bundle, a, b)[1]) == [[0, 1], [2, 2]]  # a's thunks 0 and 1 are before: not 2, which follows


def test_create_and_join(bundle: Bundle) -> None:
    a, b = List(0), List(1)
    a.add(OP.START, 0)
    created(b, a, 10, serial=2)
    b.add(OP.EXIT, 20, obj=0x7002, version=2)
    a.add(OP.JOIN, 15, leave=30, obj=0x7002, version=2, argument=101)
    found = decode(bundle, a, b)
    assert clocks(found[1]) == [[1, 1], [1, 2]]
    assert clocks(found[0]) == [[1], [2], [3, 2]]


def test_a_fork_child_begins_with_its_parents_clock(bundle: Bundle) -> None:
    a, b = List(0), List(1, bytearray(header(1, pid=101, tid=101, image=1)))
    a.data[:] = header(0, pid=100, tid=100)
    a.add(OP.START, 0).add(OP.FORK, 10, result=101, version=3, argument=101)
    a.add(OP.MUTEX_UNLOCK, 30, obj=MUTEX, version=1)
    b.add(OP.START, 12, version=3, argument=100).add(OP.MUTEX_LOCK, 40, obj=MUTEX, version=1)
    found = decode(bundle, a, b)
    assert clocks(found[1]) == [[1, 1], [1, 2]]  # the mutex is another one: memory was copied


def test_exec_goes_on_in_the_same_thread_with_other_objects(bundle: Bundle) -> None:
    a, b = List(0), List(1, bytearray(header(1, image=1)))
    a.add(OP.START, 0).add(OP.MUTEX_UNLOCK, 10, obj=MUTEX, version=1)
    a.data += header(0, image=1, marker=0x2000)
    a.add(OP.START, 20).add(OP.MUTEX_UNLOCK, 30, obj=MUTEX, version=1)
    b.add(OP.START, 25).add(OP.MUTEX_LOCK, 40, obj=MUTEX, version=1)
    found = decode(bundle, a, b)
    assert [row["thunk"] for row in found[0]] == [0, 1, 2, 3]
    assert [row["marker"] for row in found[0]] == [0x1000, 0x1000, 0x2000, 0x2000]
    assert clocks(found[1]) == [[0, 1], [3, 2]]


def test_readers_of_a_lock_do_not_order_each_other_but_order_writers(bundle: Bundle) -> None:
    r1, r2, w = List(0), List(1), List(2)
    for reader, at in ((r1, 10), (r2, 30)):
        reader.add(OP.START, 0).add(OP.RDLOCK, at, obj=RWLOCK, version=at // 30)
        reader.add(OP.RWUNLOCK, at + 5, obj=RWLOCK, version=at // 30 + 1)
    w.add(OP.START, 0).add(OP.WRLOCK, 50, obj=RWLOCK, version=2).add(OP.RWUNLOCK, 60, obj=RWLOCK, version=3)
    r1.add(OP.RDLOCK, 70, obj=RWLOCK, version=3)
    found = decode(bundle, r1, r2, w)
    assert clocks(found[1])[1] == [0, 2]
    assert clocks(found[2])[1] == [2, 2, 2]
    assert clocks(found[0])[3] == [4, 2, 2]  # sees the writer, and through it the readers before


def test_the_first_to_take_a_lock_orders_readers_when_it_writes(bundle: Bundle) -> None:
    writer, reader = List(0), List(1)
    writer.add(OP.WRLOCK, 10, obj=RWLOCK, version=0).add(OP.RWUNLOCK, 20, obj=RWLOCK, version=1)
    reader.add(OP.START, 0).add(OP.RDLOCK, 15, leave=25, obj=RWLOCK, version=1)
    found = decode(bundle, writer, reader)
    assert clocks(found[1])[1] == [1, 2]


def test_control_the_first_to_take_a_lock_orders_no_readers_when_it_reads(bundle: Bundle) -> None:
    one, other = List(0), List(1)
    one.add(OP.RDLOCK, 10, obj=RWLOCK, version=0).add(OP.RWUNLOCK, 20, obj=RWLOCK, version=1)
    other.add(OP.START, 0).add(OP.RDLOCK, 25, obj=RWLOCK, version=1)
    found = decode(bundle, one, other)
    assert clocks(found[1])[1] == [0, 2]


def test_a_condition_wait_joins_the_signal_and_the_mutex(bundle: Bundle) -> None:
    waiter, signaller, other = List(0), List(1), List(2)
    waiter.add(OP.MUTEX_LOCK, 0, obj=MUTEX).add(OP.COND_WAIT_BEGIN, 5, obj=MUTEX, version=1, argument=COND)
    signaller.add(OP.START, 1).add(OP.COND_SIGNAL, 10, obj=COND, version=1)  # without the mutex
    other.add(OP.MUTEX_LOCK, 11, obj=MUTEX, version=1).add(OP.MUTEX_UNLOCK, 12, obj=MUTEX, version=2)
    waiter.add(OP.COND_WAIT, 5, leave=20, obj=COND, version=1, argument=MUTEX)
    waiter.add(OP.COND_RELOCK, 20, obj=MUTEX, version=2, argument=COND)
    found = decode(bundle, waiter, signaller, other)
    assert clocks(found[0])[2:] == [[3, 1], [4, 1, 1]]


def test_a_timed_out_wait_joins_the_mutex_only(bundle: Bundle) -> None:
    waiter, signaller = List(0), List(1)
    signaller.add(OP.COND_SIGNAL, 1, obj=COND, version=1)
    waiter.add(OP.COND_TIMEDWAIT, 5, leave=20, obj=COND, result=110, argument=MUTEX)
    row, = decode(bundle, waiter, signaller)[0]
    assert (row["acquire"], row["clock"]) == (False, [1])


@pytest.mark.parametrize("count", [2, 3, 300])
def test_a_barrier_joins_exactly_its_generation(bundle: Bundle, count: int) -> None:
    lists = [List(thread) for thread in range(count)]
    for generation in range(3):
        base = generation * 10_000
        for thread, one in enumerate(lists):
            one.add(OP.BARRIER_ARRIVE, base + thread, obj=BARRIER, version=generation * count + thread + 1,
                    argument=count)
        for thread, one in enumerate(lists):  # the last sees arrivals of the next generation already
            seen = min((generation + 1) * count + thread, 3 * count)
            one.add(OP.BARRIER_WAIT, base + thread, leave=base + 5000 + thread * 20, obj=BARRIER, version=seen,
                    argument=count | (BARRIER_SERIAL if thread == 0 else 0), result=-1 if thread == 0 else 0)
    found = decode(bundle, *lists)
    for thread in range(count):
        own = [2 * generation + 2 for generation in range(3)]
        for generation in range(3):
            expected = [2 * generation] * count
            expected[thread] = own[generation]
            assert clocks(found[thread])[2 * generation + 1] == trimmed(expected)
    assert bundle.ledger()["clocks"].lost == {}


def test_a_barrier_shared_by_more_threads_than_its_count_joins_all_it_saw(bundle: Bundle) -> None:
    lists = [List(thread) for thread in range(4)]
    for thread, one in enumerate(lists):
        one.add(OP.START, 0).add(OP.BARRIER_ARRIVE, thread, obj=BARRIER, version=thread + 1, argument=2)
    for thread, one in enumerate(lists):
        one.add(OP.BARRIER_WAIT, thread, leave=20 + thread, obj=BARRIER, version=4, argument=2)
    found = decode(bundle, *lists)
    assert clocks(found[0])[2] == [3, 1, 1, 1]  # whose generation was whose is not known: all of them


def test_a_semaphore_acquires_what_was_posted_before(bundle: Bundle) -> None:
    a, b = List(0), List(1)
    a.add(OP.START, 0).add(OP.SEM_POST, 10, obj=SEM, version=1).add(OP.SEM_POST, 30, obj=SEM, version=2)
    b.add(OP.SEM_WAIT, 5, leave=40, obj=SEM, version=1).add(OP.SEM_WAIT, 41, obj=SEM, version=2)
    assert clocks(decode(bundle, a, b)[1]) == [[1, 1], [2, 2]]  # though the second post was earlier than the return


def test_an_owner_that_died_is_acquired_from(bundle: Bundle) -> None:
    a, b = List(0), List(1)
    a.add(OP.MUTEX_LOCK, 0, obj=MUTEX).add(OP.MUTEX_UNLOCK, 1, obj=MUTEX, version=1)
    b.add(OP.MUTEX_LOCK, 5, obj=MUTEX, result=130, version=1)
    assert decode(bundle, a, b)[1][0]["acquire"] is True


def test_threads_that_logged_nothing_leave_holes_in_clocks(bundle: Bundle) -> None:
    a, b = List(2), List(5)
    a.add(OP.MUTEX_UNLOCK, 0, obj=MUTEX, version=1)
    b.add(OP.MUTEX_LOCK, 5, obj=MUTEX, version=1)
    assert clocks(decode(bundle, a, b)[5]) == [[0, 0, 0, 0, 0, 1]]  # a's first record published the empty clock


# --- clocks, against a model ---

class Model:
    """Vector clocks the plain way: a program run step by step, every release seen by who comes after it."""

    def __init__(self, threads: int) -> None:
        self.lists = [List(thread) for thread in range(threads)]
        self.clock = [[0] * threads for _ in range(threads)]
        self.expected: list[list[list[int]]] = [[] for _ in range(threads)]
        self.versions: dict[int, list[list[int]]] = {}  # joins of all releases so far
        self.now = 0

    def joined(self, obj: int, version: int) -> list[int]:
        return self.versions[obj][version - 1] if version else [0] * len(self.clock)

    def step(self, thread: int, operation: Operation, obj: int, *, stale: int = 0, result: int = 0) -> None:
        """One operation; an acquire may have looked `stale` versions ago."""
        self.now += 10
        mine, made = self.clock[thread], self.versions.setdefault(obj, [])
        releases = operation in (OP.MUTEX_UNLOCK, OP.SEM_POST, OP.COND_BROADCAST)
        version = 0
        if releases:
            before = self.joined(obj, len(made))
            made.append([max(pair) for pair in zip(before, mine, strict=True)] if result == 0 else before)
            version = len(made)
        elif result == 0:
            version = max(0, len(made) - stale)
            mine[:] = [max(pair) for pair in zip(mine, self.joined(obj, version), strict=True)]
        mine[thread] = len(self.expected[thread]) + 1
        self.expected[thread].append(list(mine))
        self.lists[thread].add(operation, self.now, obj=obj, version=version, result=result)


STEP = st.tuples(st.integers(0, 3), st.sampled_from([
    OP.MUTEX_LOCK, OP.MUTEX_UNLOCK, OP.SEM_WAIT, OP.SEM_POST, OP.COND_BROADCAST, OP.COND_WAIT]),
    st.integers(0, 2), st.integers(0, 5), st.sampled_from([0, 0, 0, 16]))
KIND = {OP.MUTEX_LOCK: MUTEX, OP.MUTEX_UNLOCK: MUTEX, OP.SEM_WAIT: SEM, OP.SEM_POST: SEM, OP.COND_BROADCAST: COND,
        OP.COND_WAIT: COND}


def trimmed(clock: list[int]) -> list[int]:
    while clock and clock[-1] == 0:
        clock = clock[:-1]
    return clock


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEP, max_size=60))
def test_clocks_agree_with_the_model(tmp_path_factory: pytest.TempPathFactory,
                                     steps: list[tuple[int, Operation, int, int, int]]) -> None:
    bundle = Bundle.create(tmp_path_factory.mktemp("evl") / "x.ptw", Manifest(clocks=Clocks(0, 0, 1 << 40, 1 << 40)))
    model = Model(4)
    for thread, operation, which, stale, result in steps:
        exclusive = operation in (OP.MUTEX_LOCK, OP.MUTEX_UNLOCK)
        model.step(thread, operation, KIND[operation] + which * 64, stale=0 if exclusive else stale, result=result)
    found = decode(bundle, *model.lists)
    for thread, expected in enumerate(model.expected):
        assert clocks(found[thread]) == [trimmed(clock) for clock in expected]
    assert bundle.ledger()["clocks"].lost == {} and bundle.ledger()["thunks"].lost == {}


def test_the_model_notices_a_dropped_release(bundle: Bundle) -> None:
    """The control: without one record, clocks differ, and the ledger says that a release is missing."""
    model = Model(2)
    for _ in range(5):
        for thread in range(2):
            model.step(thread, OP.MUTEX_LOCK, MUTEX)
            model.step(thread, OP.MUTEX_UNLOCK, MUTEX)
    size = len(record(OP.MUTEX_LOCK))
    for one in model.lists:
        one.add(OP.EXIT, 1000)
    del model.lists[0].data[EVL_HEADER_SIZE + size:EVL_HEADER_SIZE + 2 * size]  # thread 0's first unlock
    found = decode(bundle, *model.lists)
    assert clocks(found[1])[:-1] != [trimmed(clock) for clock in model.expected[1]]
    assert bundle.ledger()["clocks"].lost["release not recorded"] >= 1


def test_a_missing_release_does_not_hold_the_others_up(bundle: Bundle) -> None:
    """A thread that waits for a release nobody logged goes on once the others are far beyond it."""
    a, b, c = List(0), List(1), List(2)
    a.add(OP.MUTEX_LOCK, 10, obj=MUTEX, version=3)
    far = 10**9
    for n in range(1, 50):
        b.add(OP.SEM_POST, far * n, obj=SEM, version=n)
        c.add(OP.SEM_WAIT, far * n + 5, obj=SEM, version=n)
    for one in (a, b, c):
        one.add(OP.EXIT, far * 60)
    found = decode(bundle, a, b, c)
    assert len(found[0]) == 2 and clocks(found[2])[-2] == [0, 48, 49]
    assert bundle.ledger()["clocks"].lost == {"release not recorded": 1}


@pytest.mark.parametrize("operation", [OP.BARRIER_ARRIVE, OP.SEM_POST, OP.RWUNLOCK])
@pytest.mark.parametrize(("leave", "lost"), [(30 * 10**6, {}), (11, {"release not recorded": 1})])
def test_a_thread_that_stood_still_between_its_time_and_its_version_has_lost_nothing(
        bundle: Bundle, operation: Operation, leave: int, lost: dict[str, int]) -> None:
    """b took its time first and its version last. The control: had its operation ended before a's began, a release
    would be missing in between."""
    a, b = List(0), List(1)
    b.add(OP.START, 0).add(operation, 10, leave=leave, obj=SEM, version=2).add(OP.EXIT, 40 * 10**6)
    a.add(OP.START, 0).add(operation, 20 * 10**6, obj=SEM, version=1).add(OP.EXIT, 40 * 10**6)
    decode(bundle, a, b)
    assert bundle.ledger()["clocks"].lost == lost


@pytest.mark.parametrize(("exits", "lost"), [(True, {"release not recorded": 1}), (False, {})])
def test_a_release_that_the_end_of_the_process_cut_off_is_not_missing(bundle: Bundle, exits: bool,
                                                                      lost: dict[str, int]) -> None:
    """b unlocked, a locked and ended the process before b could log that: b has no exit."""
    a, b = List(0), List(1)
    b.add(OP.START, 0).add(OP.MUTEX_LOCK, 5, obj=MUTEX)
    a.add(OP.START, 0).add(OP.MUTEX_LOCK, 20, obj=MUTEX, version=1).add(OP.EXIT, 30)
    if exits:
        b.add(OP.EXIT, 25)
    decode(bundle, a, b)
    assert bundle.ledger()["clocks"].lost == lost


def test_many_threads_and_batches_stay_in_order(bundle: Bundle) -> None:
    """More rows than one batch holds, of several threads, interleaved: thread order, thunk order, one clock each."""
    threads, each = 3, 12_000
    model = Model(threads)
    choose = random.Random(1)
    for n in range(threads * each):
        model.step(n % threads, choose.choice([OP.SEM_POST, OP.SEM_WAIT]), SEM)
    for one in model.lists:
        one.save(bundle.dependence)
    assert decode_thunks(bundle) == threads * each
    table = pq.read_table(bundle.decoded / "thunks.parquet")
    keys = list(zip(table["thread"].to_pylist(), table["thunk"].to_pylist(), strict=True))
    assert keys == [(thread, thunk) for thread in range(threads) for thunk in range(each)]
    flat = [trimmed(clock) for expected in model.expected for clock in expected]
    assert table["clock"].to_pylist() == flat


# --- call stacks ---

def test_each_stack_is_stored_once_and_every_thunk_has_its_own(bundle: Bundle) -> None:
    some = random.Random(5)
    stacks = [tuple(some.randrange(1 << 64) for _ in range(some.randrange(5))) for _ in range(300)]
    lists, wanted = [List(0), List(1)], ([], [])
    for at in range(4000):
        thread, stack = some.randrange(2), some.choice(stacks)
        lists[thread].data += record(OP.DETACH, enter=at, stack=stack)
        wanted[thread].append(list(stack) or None)
    found = decode(bundle, *lists)
    assert [stacks_of(bundle, found[thread]) for thread in (0, 1)] == [*wanted]
    assert pq.read_table(bundle.decoded / "stacks.parquet").num_rows == len({one for one in stacks if one})


def test_more_stacks_than_are_remembered_are_all_there(bundle: Bundle) -> None:
    """Different stacks of 64 frames each, more than EVL_STACK_WORDS, and then the first ones again."""
    one, frames = List(0), 64
    count = (1 << 22) // frames + 3000
    for at in [*range(count), *range(100)]:
        one.data += record(OP.DETACH, enter=at, stack=tuple(range(at, at + frames)))
    rows = decode(bundle, one)[0]
    assert [stack[0] for stack in stacks_of(bundle, rows)] == [*range(count), *range(100)]  # type: ignore[index]
    assert pq.read_table(bundle.decoded / "stacks.parquet").num_rows == count + 100


# --- wrong input ---

def test_no_lists_give_an_empty_table(bundle: Bundle) -> None:
    assert decode_thunks(bundle) == 0
    assert pq.read_table(bundle.decoded / "thunks.parquet").schema.equals(DECODED_THUNKS)


def test_a_list_cut_short_keeps_what_was_before_and_is_counted(bundle: Bundle) -> None:
    one = List(0).add(OP.START, 0).add(OP.MUTEX_LOCK, 1, obj=MUTEX)
    del one.data[-20:]
    ledger = Ledger()
    ledger.add("dependence/0", "events", stored=2)
    bundle.save_ledger(ledger)
    assert [row["operation"] for row in decode(bundle, one)[0]] == ["start"]
    stream = bundle.ledger()["thunks"]
    assert (stream.stored, stream.lost) == (1, {"unreadable": 1}) and not bundle.ledger().check()


def test_an_unfinished_record_is_skipped_and_counted(bundle: Bundle) -> None:
    one = List(0).add(OP.START, 0)
    one.data += record(OP.MUTEX_LOCK, open_=True, stack=(1, 2))
    one.add(OP.DETACH, 5)
    assert [row["operation"] for row in decode(bundle, one)[0]] == ["start", "detach"]
    assert bundle.ledger()["thunks"].lost == {"unfinished": 1}


def test_a_record_that_contradicts_itself_is_skipped_and_counted(bundle: Bundle) -> None:
    one = List(0).add(OP.START, 0)
    one.data += record(77) + record(0)
    bad = bytearray(record(OP.START, stack=(1,)))
    bad[6:8] = (60000).to_bytes(2, "little")
    one.data += bad
    one.add(OP.DETACH, 5)
    assert len(decode(bundle, one)[0]) == 2
    assert bundle.ledger()["thunks"].lost == {"corrupt": 3}


@pytest.mark.parametrize("word", [0, 8, 55, 60, 64 * 8 + 64, 0x7FFFFFFF, 0xFFFFFFFF])
def test_an_impossible_size_ends_the_list(bundle: Bundle, word: int) -> None:
    one = List(0).add(OP.START, 0)
    one.data += word.to_bytes(4, "little") + bytes(600)
    assert len(decode(bundle, one)[0]) == 1
    assert bundle.ledger()["thunks"].lost == {"unreadable": 1}


@pytest.mark.parametrize("content", [b"", b"PTWEVL1\0", b"x" * 500, bytes(64), header(0)[:63]])
def test_a_list_without_a_header_gives_nothing(bundle: Bundle, content: bytes) -> None:
    (bundle.dependence / "0.evl").write_bytes(content)
    assert decode_thunks(bundle) == 0


def test_only_regular_files_with_a_threads_name_are_read(bundle: Bundle, tmp_path: Path) -> None:
    List(0).add(OP.START, 0).save(tmp_path)
    (bundle.dependence / "0.evl").symlink_to(tmp_path / "0.evl")
    (bundle.dependence / "1.evl").mkdir()
    for name in ("x.evl", "01.evl", "99999999.evl", "-1.evl"):
        (bundle.dependence / name).write_bytes(header(1))
    assert decode_thunks(bundle) == 0
    assert bundle.ledger()["thunks"].lost == {"not a list": 4, "unreadable": 2}


def test_a_bundle_without_the_folder_is_refused(bundle: Bundle) -> None:
    bundle.dependence.rmdir()
    with pytest.raises(BadInput, match="cannot be decoded"):
        decode_thunks(bundle)
    assert not list(bundle.decoded.iterdir())


def test_decoding_again_accounts_again(bundle: Bundle) -> None:
    decode(bundle, List(0).add(OP.START, 0))
    decode_thunks(bundle)
    assert bundle.ledger()["thunks"].stored == 1


def corpus() -> list[bytes]:
    """Lists of every operation, and mutations of them."""
    choose = random.Random(2)
    base = header(0) + b"".join(
        record(operation, enter=n * 10, obj=choose.choice([MUTEX, SEM, 0]), version=choose.randrange(4),
               argument=choose.randrange(6), result=choose.choice([0, 0, -1, 16]), stack=tuple(range(n % 5)))
        for n, operation in enumerate([*Operation, *Operation, *Operation])) + header(0, image=3) + record(OP.START)
    found = [base]
    for _ in range(400):
        data = bytearray(base)
        for _ in range(choose.randrange(1, 30)):
            at = choose.randrange(len(data))
            data[at:at + choose.choice([1, 2, 4, 8])] = choose.choice(
                [b"\0" * 8, b"\xff" * 8, choose.randbytes(8), header(1)])[:choose.choice([1, 2, 4, 8])]
        found.append(bytes(data[:choose.randrange(len(data))] if choose.random() < 0.3 else data))
    return found


def test_no_mutation_of_a_list_makes_the_decoder_misbehave(tmp_path: Path) -> None:
    """Under AddressSanitizer and UBSan, three lists at a time, with versions and times of any value."""
    names = []
    for n, data in enumerate(corpus()):
        names.append(tmp_path / f"{n}.evl")
        names[-1].write_bytes(data)
    sources = ("decode/src/evl.c", "decode/src/evl_clock.c", "decode/src/evl_commit.c",
               "decode/src/evl_file.c", "decode/src/evl_heap.c",
               "decode/src/evl_operation.c", "decode/src/evl_order.c", "decode/src/evl_pages.c",
               "decode/src/evl_rows.c", "decode/src/evl_stacks.c", "decode/src/evl_wait.c")
    program = build("evl_walk", sources, "asan")
    for n in range(0, len(names) - 2, 60):
        run_case(program, *names[n:n + 60])
