# SPDX-License-Identifier: MIT
"""System calls and thunks of two runs beside each other: which one has more of, whose results and data differ, and how
much longer they took."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from ptweave.data.errors import BadInput
from ptweave.merge.compare import correspond
from ptweave.merge.pairs import Pairs
from ptweave.merge.tables import I64, U64, Bools

if TYPE_CHECKING:
    from ptweave.merge.run import Run

MOST = 4_000_000
"""Rows of one thread that are put beside those of another."""

ADDRESSES = ("mmap", "brk", "mremap", "shmat")
"""System calls that return an address."""

NUMBERS = ("getpid", "gettid", "getppid", "fork", "vfork", "clone", "clone3", "set_tid_address", "wait4", "waitid",
           "getpgrp", "getpgid", "getsid", "setsid", "pidfd_open")
"""System calls whose result the kernel numbers anew each time."""

DESCRIPTORS = ("open", "openat", "openat2", "creat", "dup", "fcntl", "socket", "accept", "accept4", "eventfd",
               "eventfd2", "epoll_create", "epoll_create1", "timerfd_create", "memfd_create", "inotify_init1",
               "signalfd4")
"""System calls that return a descriptor: which number is free may be another thread's doing."""

MEMORY = ("mmap", "munmap", "mremap", "mprotect", "madvise", "brk")
"""System calls that allocators make; with threads, as these happen to meet. They come after the program's others."""

CHANGING = ("getrandom", "clock_gettime", "gettimeofday", "time", "times", "getrusage", "sysinfo", "uname",
            "clock_nanosleep", "nanosleep", "rt_sigreturn", "rseq", "set_robust_list", "arch_prctl",
            "getcpu", "sched_getaffinity", "statfs", "fstatfs", "newfstatat", "fstat", "stat", "lstat", "statx")
"""System calls whose results and data differ from run to run though nothing else does."""

_QUIET = ", ".join(f"'{name}'" for name in (*ADDRESSES, *NUMBERS, *DESCRIPTORS, *CHANGING))
_CHANGING = ", ".join(f"'{name}'" for name in (*NUMBERS, *CHANGING))

_UNIX_PATH = "^0100(?:[1-9A-F][0-9A-F]|0[1-9A-F])+"
"""Of a socket's address in hexadecimal, AF_UNIX: the family, and the path up to its end. What happened to be in memory
is behind that."""

_SYSCALLS = f"""
select row_number() over (order by seq nulls last, t_enter) as row, hash(name) as token,
       hash(case when name in ({_QUIET}) and coalesce(result, 0) >= 0 then null else result end) as result,
       hash(errno) as errno, hash(paths) as paths,
       hash(case when name in ({_CHANGING}) then null
            when name in ('bind', 'connect') then list_transform(data, lambda x: coalesce(
              nullif(regexp_extract(hex(x.data), '{_UNIX_PATH}'), ''), hex(x.data)))
            else list_transform(data, lambda x: hex(x.data)) end) as data,
       coalesce(seq, -1) as seq, coalesce(t_enter, 0) as t, coalesce(t_exit - t_enter, 0) as ns, 0 as thunk
from syscalls where thread = ? and name not in ('futex', 'sched_yield') order by 1"""
_SYSCALL = """
select row, name, call_text(number, args, result, paths, files, data), null::varchar[], seq, t_enter from (
  select *, row_number() over (order by seq nulls last, t_enter) as row
  from syscalls where thread = ? and name not in ('futex', 'sched_yield'))
where row in (select unnest(?))"""

_THUNKS = """
select row_number() over (order by thunk) as row, hash(operation, caller, functions[2], functions[3]) as token,
       hash(case when operation = 'fork' and result > 0 then null else result end) as result, hash(null) as errno,
       hash(null) as paths, hash(null) as data, coalesce(seq, -1) as seq, t, coalesce(wait, 0) as ns, thunk
from thunks left join call_stacks using (stack) where thread = ? order by 1"""
"""What fork returns to a parent is a number that the kernel gives anew each time."""

_THUNK = """
select row, operation, operation || ' = ' || coalesce(result::varchar, '?'),
       list_transform(coalesce(functions, []), lambda x: coalesce(x, '?')), seq, t from (
  select * from (select *, row_number() over (order by thunk) as row from thunks where thread = ?)
  where row in (select unnest(?)))
  left join call_stacks using (stack)"""


class Group(IntEnum):
    """Where a difference is, the likeliest cause first."""

    CHANGED = 0   # in a function whose code is not the same
    CODE = 1      # that code itself
    PROGRAM = 2
    LIBRARY = 3
    LOADER = 4    # before main, or in what loads libraries


_FIELDS = ("result", "errno", "paths", "data")


@dataclass(frozen=True)
class Records:
    """The runs whose records are compared, and which thread is which."""

    runs: tuple[Run, Run]
    pairs: Pairs


@dataclass(frozen=True)
class _Kind:
    name: str
    listed: str
    some: str
    timing: str


_KINDS = {"system calls": _Kind("system call", _SYSCALLS, _SYSCALL, "system call"),
          "thunks": _Kind("thunk", _THUNKS, _THUNK, "wait")}


@dataclass
class _Rows:
    """One thread's records, in order."""

    run: Run
    thread: int
    kind: _Kind
    columns: dict[str, Any]
    known: dict[int, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, run: Run, thread: int, kind: _Kind) -> _Rows:
        table = run.ask(kind.listed, thread).arrow()
        if len(table) > MOST:
            raise BadInput(f"thread {thread} has {len(table)} {kind.name}s, more than are compared ({MOST})",
                           where=str(run.path))
        return cls(run, thread, kind, {name: table.column(name).to_numpy() for name in table.column_names})

    def __len__(self) -> int:
        return len(self.columns["row"])

    def look_up(self, indexes: Iterable[int]) -> None:
        """Ask for those that will be described, all at once: each is looked for among all of its thread."""
        rows = [int(self.columns["row"][index]) for index in indexes]
        if rows:
            for row, *values in self.run.ask(self.kind.some, self.thread, rows):
                self.known[row] = dict(zip(("name", "text", "functions", "seq", "t"), values, strict=True))

    def describe(self, index: int) -> dict[str, Any]:
        """name, text, functions, seq and t of one that was looked up."""
        return self.known[int(self.columns["row"][index])]


def compare_records(records: Records, part: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of differences and of times, of the threads that have a counterpart."""
    found: list[dict[str, Any]] = []
    times: list[dict[str, Any]] = []
    for one, other in records.pairs.pairs:
        a, b = (_Rows.of(run, thread.number, _KINDS[part])
                for run, thread in zip(records.runs, (one, other), strict=True))
        to = correspond(_tokens(a), _tokens(b))
        found += [*_differing(a, b, to), *_alone(a, b, to)]
        times += _times(a, b, to)
    return found, times


def _tokens(rows: _Rows) -> U64:
    tokens: U64 = rows.columns["token"].astype(np.uint64)
    return tokens


def _first_of(rows: _Rows, which: Bools) -> list[tuple[int, int]]:
    """Of the rows chosen, by kind: the first one, which is looked up, and how many."""
    index = np.flatnonzero(which)
    _, first, count = np.unique(rows.columns["token"][index], return_index=True, return_counts=True)
    found = [(int(index[at]), times) for at, times in zip(first.tolist(), count.tolist(), strict=True)]
    rows.look_up(at for at, _ in found)
    return found


def _row(a: _Rows, one: dict[str, Any] | None, b: _Rows, other: dict[str, Any] | None, what: str,
         times: int) -> dict[str, Any]:
    known = one or other or {}
    functions = known["functions"]
    return {"kind": a.kind.name, "thread": a.thread, "other_thread": b.thread,
            "function": functions[0] if functions else None, "what": f"{known['name']}: {what}", "times": times,
            "value": one and one["text"], "other_value": other and other["text"],
            "t": one and one["t"], "seq": one and one["seq"], "other_seq": other and other["seq"],
            "stack": one and one["functions"], "other_stack": other and other["functions"],
            "group": Group.LIBRARY if known["name"] in MEMORY else Group.PROGRAM}


def _differing(a: _Rows, b: _Rows, to: I64) -> Iterator[dict[str, Any]]:
    """Records on both sides of which something is not the same: by kind, and by what differs first."""
    both = to >= 0
    pending = both.copy()
    for name in _FIELDS:
        differs = np.zeros(len(a), np.bool_)
        differs[both] = a.columns[name][both] != b.columns[name][to[both]]
        differs &= pending
        pending &= ~differs
        first = _first_of(a, differs)
        b.look_up(int(to[index]) for index, _ in first)
        for index, times in first:
            yield _row(a, a.describe(index), b, b.describe(int(to[index])), f"another {name}", times)


def _alone(a: _Rows, b: _Rows, to: I64) -> Iterator[dict[str, Any]]:
    """Records that one side alone has. One only the other has is put where the one before it was made."""
    for index, times in _first_of(a, to < 0):
        yield _row(a, a.describe(index), b, None, "missing in the other run", times)
    taken = np.zeros(len(b), np.bool_)
    taken[to[to >= 0]] = True
    before = np.full(len(b) + 1, -1, np.int64)
    before[to[to >= 0] + 1] = np.flatnonzero(to >= 0)
    before = np.maximum.accumulate(before)
    for index, times in _first_of(b, ~taken):
        row = _row(a, None, b, b.describe(index), "only in the other run", times)
        if before[index] >= 0:
            row["t"] = int(a.columns["t"][before[index]]) + 1
        yield row


def _times(a: _Rows, b: _Rows, to: I64) -> Iterator[dict[str, Any]]:
    """How long records on both sides took, by kind."""
    index = np.flatnonzero(to >= 0)
    if not len(index):
        return
    tokens, back = np.unique(a.columns["token"][index], return_inverse=True)
    ours, theirs = a.columns["ns"][index].astype(np.int64), b.columns["ns"][to[index]].astype(np.int64)
    kinds = []
    for number in range(len(tokens)):
        here = back.reshape(-1) == number
        most = index[here][int(np.argmax(np.abs(theirs[here] - ours[here])))]
        total, other = int(ours[here].sum()), int(theirs[here].sum())
        if total != other:
            kinds.append((int(most), int(here.sum()), total, other))
    a.look_up(most for most, *_ in kinds)
    for most, count, total, other in kinds:
        known = a.describe(most)
        yield {"kind": a.kind.timing, "thread": a.thread, "other_thread": b.thread, "detail": known["name"],
               "function": known["functions"][0] if known["functions"] else None, "times": count,
               "ns": total, "other_ns": other, "more_ns": other - total,
               "thunk": int(a.columns["thunk"][most]) if a.kind.timing == "wait" else None,
               "other_thunk": int(b.columns["thunk"][to[most]]) if a.kind.timing == "wait" else None}


_RUNNING = """select function, sum(time)::bigint, sum(calls)::bigint from profile join stacks using (stack)
  where thread = ? and function is not null group by function"""


def timing_rows(records: Records) -> list[dict[str, Any]]:
    """How long functions ran, by thread."""
    rows: list[dict[str, Any]] = []
    for one, other in records.pairs.pairs:
        ours, theirs = ({name: (time, calls) for name, time, calls in run.ask(_RUNNING, thread.number)}
                        for run, thread in zip(records.runs, (one, other), strict=True))
        for name in ours.keys() & theirs.keys():
            time, calls = ours[name]
            if time != theirs[name][0]:
                rows.append({"kind": "running", "thread": one.number, "other_thread": other.number, "function": name,
                             "times": calls, "ns": time, "other_ns": theirs[name][0],
                             "more_ns": theirs[name][0] - time})
    return rows
