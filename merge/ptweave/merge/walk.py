# SPDX-License-Identifier: MIT
"""Walking threads' flows in C: call stacks, what ran in each, calls, and where markers were executed."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ptweave.data.schemas import CALLS, PROFILE
from ptweave.data.table_writer import TableWriter
from ptweave.merge._merge import ffi, lib
from ptweave.merge.distinct import ascending
from ptweave.merge.events import Events
from ptweave.merge.kept_flow import Following
from ptweave.merge.moments import Moments, Window, behind
from ptweave.merge.program import Program, check
from ptweave.merge.tables import BATCH_ROWS, I32, I64, optional

MAX_STACKS = 3_000_000
"""Distinct call stacks kept of a run; what is called in others is counted below [folded], see tree.h. A script that
imports polars or DuckDB and asks one question has 2.9 million."""

MAX_DEPTH = 512
"""Frames kept of a stack: the outermost MAX_DEPTH - 1 and the innermost one."""

NODE_DTYPE = np.dtype([
    ("parent", "<u4"), ("function", "<u4"), ("block", "<u4"), ("depth", "<u4"), ("thread", "<u4"), ("below", "<u4"),
    ("calls", "<i8"), ("instructions", "<i8"), ("blocks", "<i8"),
    ("spent", "<u8", (2,))])
CALL_DTYPE = np.dtype([
    ("call", "<i8"), ("parent", "<i8"), ("seq", "<i8"), ("seq_end", "<i8"), ("t_enter", "<i8"), ("t_exit", "<i8"),
    ("node", "<u4"), ("depth", "<u4")])
MARK_DTYPE = np.dtype([("seq", "<i8"), ("block", "<i4"), ("callers", "<u4")])
RETURNS_DTYPE = np.dtype([("returns", "<u8", (6,)), ("known", "<u8")])
assert ffi.sizeof("struct ptm_node") == NODE_DTYPE.itemsize
assert ffi.sizeof("struct ptm_call") == CALL_DTYPE.itemsize
VISIT_DTYPE = np.dtype([("seq", "<i8"), ("block", "<i4"), ("kind", "<i4")])
assert ffi.sizeof("struct ptm_mark") == MARK_DTYPE.itemsize
assert ffi.sizeof("struct ptm_returns") == RETURNS_DTYPE.itemsize
assert ffi.sizeof("struct ptm_visit") == VISIT_DTYPE.itemsize

NO_BLOCK = 0xFFFFFFFF

_COUNTED = ("calls", "instructions", "blocks")

_LISTED = 1 << 14  # stacks whose frames are listed at a time

Flow = Iterator[tuple[I64 | Following, I32]]
"""Executed paths, batch by batch: the ordinal of the first block of each, and its number."""


@dataclass
class Marks:
    """Where a thread executed markers (MARK_DTYPE), the lists of return addresses that `callers` in them numbers
    (RETURNS_DTYPE), and places where accesses were made (VISIT_DTYPE)."""

    thunks: npt.NDArray[np.void]
    callers: npt.NDArray[np.void]
    visits: npt.NDArray[np.void]


@dataclass(frozen=True)
class Folds:
    """Calls counted under their whole stack, and those whose stack was too deep, or one too many."""

    whole: int = 0
    deep: int = 0
    many: int = 0

    def __add__(self, other: Folds) -> Folds:
        return Folds(self.whole + other.whole, self.deep + other.deep, self.many + other.many)

    def __sub__(self, other: Folds) -> Folds:
        return Folds(self.whole - other.whole, self.deep - other.deep, self.many - other.many)


@dataclass(frozen=True)
class Counted:
    """What a thread did in the stacks it was in: their numbers, ascending, and for each of them calls, instructions and
    blocks, and its time (`spent` of `struct ptm_node`)."""

    stacks: npt.NDArray[np.uint32]
    columns: tuple[I64, I64, I64]
    spent: npt.NDArray[np.uint64]

    def numbered(self, numbers: npt.NDArray[np.uint32]) -> Counted:
        """The same with other numbers for stacks: those at the numbers they have."""
        stacks = numbers[self.stacks]
        order = np.argsort(stacks)
        calls, instructions, blocks = (column[order] for column in self.columns)
        return Counted(stacks[order], (calls, instructions, blocks), self.spent[order])

    def profile(self, thread: int) -> Iterator[pa.Table]:
        """Rows of the table `profile`, in batches."""
        spent = ffi.new("uint64_t[2]")
        for first in range(0, len(self.stacks), BATCH_ROWS):
            part = slice(first, first + BATCH_ROWS)
            stacks = self.stacks[part].astype(np.int32)
            times = np.empty(len(stacks), np.int64)
            lib.ptm_times(ffi.from_buffer("uint64_t[]", self.spent[part]), len(times), spent,
                          ffi.from_buffer("int64_t[]", times))
            yield pa.table({
                "thread": np.full(len(stacks), thread, np.int32), "stack": stacks,
                **{name: column[part] for name, column in zip(_COUNTED, self.columns, strict=True)},
                "time": times}, schema=PROFILE.schema)


@dataclass(frozen=True)
class Walked:
    """A thread's walk."""

    marks: Marks
    counted: Counted
    folds: Folds

    @property
    def nbytes(self) -> int:
        """The memory it takes."""
        arrays = (self.marks.thunks, self.marks.callers, self.marks.visits, self.counted.stacks, *self.counted.columns,
                  self.counted.spent)
        return sum(array.nbytes for array in arrays)


class Stopped(Exception):
    """A walk was told to stop."""


class Unfit(Exception):
    """A part of a thread needs more of the stack it begins with than is known."""


class _Rows:
    """Rows that are added to: into memory that is taken at once where their number was guessed."""

    def __init__(self, dtype: np.dtype[Any], room: int) -> None:
        self._rows = np.empty(room, dtype)
        self._count = 0

    def more(self, count: int) -> npt.NDArray[np.void]:
        """The next rows, to be filled."""
        begin, self._count = self._count, self._count + count
        if self._count > len(self._rows):
            grown = np.empty(2 * self._count, self._rows.dtype)
            grown[:begin] = self._rows[:begin]
            self._rows = grown
        return self._rows[begin:self._count]

    def all(self) -> npt.NDArray[np.void]:
        return self._rows[:self._count]

    def add(self, rows: npt.NDArray[np.void]) -> None:
        self.more(len(rows))[:] = rows


@dataclass
class _Found:
    """What was fetched so far of a thread, and what was folded before it."""

    folds: Folds
    thunks: _Rows
    visits: _Rows


@dataclass(frozen=True)
class Stretch:
    """What is walked at a time: a thread, or a part of it.

    `flow` begins at ordinal `seq`, behind path `before` (-1: none, the thread begins); `moments` and `events` may begin
    earlier, where they are needed. `last` says that the thread ends here. `markers`: those of thunks that the thread
    executes, about.
    """

    flow: Callable[[], Flow]
    moments: Callable[[], Iterator[Moments]]
    events: Events
    seq: int = 0
    before: int = -1
    last: bool = True
    markers: int = 0


class Walker:
    """Walks one thread after the other. Owns the tree of call stacks; the program must outlive it."""

    def __init__(self, program: Program, *, calls: bool, where: str = "flow", helps: bool = False) -> None:
        """One that `helps` another keeps a third as many stacks."""
        self._program = program
        self._where = where
        self._stopped = False
        self._tree, self._walk, self._callers = ffi.NULL, ffi.NULL, ffi.NULL
        tree, walk, callers = (ffi.new(f"struct ptm_{name} **") for name in ("tree", "walk", "callers"))
        check(lib.ptm_tree_create(MAX_STACKS // 3 if helps else MAX_STACKS, MAX_DEPTH, tree), where)
        self._tree = tree[0]
        try:
            check(lib.ptm_callers_create(callers), where)
            self._callers = callers[0]
            check(lib.ptm_walk_create(program.handle, self._tree, self._callers, calls, walk), where)
        except Exception:
            self.close()
            raise
        self._walk = walk[0]

    def close(self) -> None:
        lib.ptm_walk_destroy(self._walk)
        lib.ptm_tree_destroy(self._tree)
        lib.ptm_callers_destroy(self._callers)
        self._walk, self._tree, self._callers = ffi.NULL, ffi.NULL, ffi.NULL

    def __enter__(self) -> Walker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def begin(self, markers: int = 0) -> None:
        """A thread begins, which executes so many markers of thunks, about."""
        lib.ptm_walk_begin(self._walk)
        self._found = _Found(self._folds(), _Rows(MARK_DTYPE, markers + 1), _Rows(VISIT_DTYPE, 1))

    def begin_within(self, stretch: Stretch) -> None:
        """A part of a thread begins, of whose stack nothing is known."""
        self.begin(stretch.markers)  # memory that is not used costs nothing
        check(lib.ptm_walk_begin_within(self._walk, stretch.seq, stretch.before), self._where)

    def go(self, stretch: Stretch, emit_calls: Callable[[npt.NDArray[np.void]], None] | None = None,
           progress: Callable[[int], None] | None = None) -> None:
        """Walk a stretch, from where the walk is. `progress` is told rows done.

        Raises BadInput when the flow names paths that do not exist or goes back, Stopped after `stop`, Unfit when a
        part is of no use."""
        moments, events = stretch.moments(), stretch.events
        window = Window(behind(moments, stretch.seq) if stretch.before >= 0 else moments)
        if stretch.before >= 0:
            window.reach(stretch.seq)
            window.drop(lib.ptm_walk_skip(self._walk, *_anchors(window)))
        for seqs, paths in stretch.flow():
            self.go_on()
            self._feed(seqs, paths, window, events, emit_calls)
            events = events[self._events_used:]
            if progress:
                progress(len(paths))
        if stretch.last:
            window.reach(1 << 62)
            check(lib.ptm_walk_end(self._walk, *_anchors(window)), self._where)
        else:
            window.reach(lib.ptm_walk_next(self._walk))
            lib.ptm_walk_pause(self._walk, *_anchors(window))
        self._fetch(emit_calls)

    def join(self, part: Walker, *, last: bool = False) -> bool:
        """Take over what another walker found in the part of the thread that comes next, and is the `last` one or not.
        False when what it took for granted is not so, or stacks are too deep: this walk is where it was, then, and may
        go on itself."""
        if not lib.ptm_walk_fits(self._walk, part._walk):
            return False
        found = part._found
        if last:
            self.forget()
        numbers = np.empty(len(part._distinct_callers()), np.uint32)
        check(lib.ptm_walk_callers(self._walk, part._callers, self._callers, ffi.from_buffer("uint32_t[]", numbers)),
              self._where)
        error = lib.ptm_walk_join(self._walk, part._walk)
        if error == -errno.ENOSPC:
            return False
        check(error, self._where)
        thunks = found.thunks.all()
        thunks["callers"] = numbers[thunks["callers"]]
        self._found.thunks.add(thunks)
        self._found.visits.add(found.visits.all())
        return True

    def forget(self) -> None:
        """Give up what is remembered of paths: nothing is walked any more."""
        lib.ptm_walk_forget(self._walk)

    def walked(self) -> Walked:
        """What was found of the thread."""
        found = self._found
        return Walked(Marks(found.thunks.all(), self._distinct_callers(), found.visits.all()), self._counted(),
                      self._folds() - found.folds)

    def keys(self, first: int) -> npt.NDArray[np.uint32]:
        """The stacks there are, from a number on: parent, function and block of each."""
        size = int(lib.ptm_tree_size(self._tree))
        found = np.empty((size - first, 3), np.uint32)
        lib.ptm_tree_keys(self._tree, first, size, ffi.from_buffer("uint32_t[]", found))
        return found

    def stop(self) -> None:
        """Have a walk that another thread has under way end soon."""
        self._stopped = True

    def go_on(self) -> None:
        """Raises Stopped after `stop`."""
        if self._stopped:
            raise Stopped

    def adopt(self, keys: npt.NDArray[np.uint32], numbers: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32] | None:
        """Put another walker's stacks (`keys`, in its order; `numbers` are here what those before them are) into the
        tree: the numbers of all of them here, or None when there would be too many."""
        first, end = len(numbers), len(numbers) + len(keys)
        numbers = np.concatenate([numbers, np.empty(len(keys), np.uint32)])
        error = lib.ptm_tree_adopt(self._tree, ffi.from_buffer("uint32_t[]", keys), first, end,
                                   ffi.from_buffer("uint32_t[]", numbers))
        if error == -errno.ENOSPC:
            return None
        check(error, self._where)
        return numbers

    def _feed(self, seqs: I64 | Following, paths: I32, window: Window, events: Events,
              emit_calls: Callable[[npt.NDArray[np.void]], None] | None) -> None:
        """Feed one batch, in as many rounds as its output needs."""
        used = ffi.new("size_t *"), ffi.new("size_t *")
        self._events_used = 0
        done = 0
        while done < len(paths):
            window.reach(seqs.end if isinstance(seqs, Following) else
                         self._program.after(int(seqs[-1]), int(paths[-1])))
            rest, rest_events = paths[done:], events[self._events_used:]
            more = (ffi.from_buffer("int32_t[]", rest), len(rest),
                    *_anchors(window), ffi.from_buffer("struct ptm_event[]", rest_events), len(rest_events), *used)
            if isinstance(seqs, Following):
                first = lib.ptm_walk_next(self._walk) if done else seqs.first
                some = lib.ptm_walk_follow(self._walk, first, *more)
            else:
                some = lib.ptm_walk_feed(self._walk, ffi.from_buffer("int64_t[]", seqs[done:]), *more)
            if some == -errno.ECANCELED:
                raise Unfit
            done += check(int(some), self._where)
            window.drop(used[0][0])
            self._events_used += used[1][0]
            self._fetch(emit_calls)

    def _fetch(self, emit_calls: Callable[[npt.NDArray[np.void]], None] | None) -> None:
        count = ffi.new("size_t *")
        found = lib.ptm_walk_marks(self._walk, count)
        if count[0]:
            self._found.thunks.more(count[0])[:] = _view(found, count[0], MARK_DTYPE)
        found = lib.ptm_walk_visits(self._walk, count)
        if count[0]:
            self._found.visits.more(count[0])[:] = _view(found, count[0], VISIT_DTYPE)
        found = lib.ptm_walk_calls(self._walk, count)
        if count[0] and emit_calls:
            emit_calls(_copy(found, count[0], CALL_DTYPE))

    def _distinct_callers(self) -> npt.NDArray[np.void]:
        count = ffi.new("size_t *")
        found = lib.ptm_callers_items(self._callers, count)
        return _copy(found, count[0], RETURNS_DTYPE)

    def _counted(self) -> Counted:
        count = ffi.new("size_t *")
        touched = lib.ptm_tree_touched(self._tree, count)
        met = _copy(touched, count[0], np.dtype("<u4")) if count[0] else np.zeros(0, np.uint32)
        numbers = ascending(met, int(lib.ptm_tree_size(self._tree)))
        calls, instructions, blocks = (np.empty(len(numbers), np.int64) for _ in range(3))
        spent = np.empty((len(numbers), 2), np.uint64)
        lib.ptm_tree_counters(self._tree, ffi.from_buffer("uint32_t[]", numbers), len(numbers),
                              *(ffi.from_buffer("int64_t[]", column) for column in (calls, instructions, blocks)),
                              ffi.from_buffer("uint64_t[]", spent))
        return Counted(numbers, (calls, instructions, blocks), spent)

    def _folds(self) -> Folds:
        counts = [ffi.new("int64_t *") for _ in range(3)]
        lib.ptm_walk_folds(self._walk, *counts)
        return Folds(*(int(count[0]) for count in counts))

    def _nodes(self) -> npt.NDArray[np.void]:
        """The tree's nodes: a view, valid until the next walk."""
        size = int(lib.ptm_tree_size(self._tree))
        if not size:
            return np.zeros(0, NODE_DTYPE)
        buffer = ffi.buffer(lib.ptm_tree_nodes(self._tree), size * NODE_DTYPE.itemsize)
        nodes: npt.NDArray[np.void] = np.frombuffer(buffer, NODE_DTYPE)
        return nodes

    def stacks(self, functions: npt.NDArray[np.uint32], blocks: npt.NDArray[np.uint32], offsets: I64) -> I32:
        """Numbers in `stacks` of recorded stacks: functions and the blocks that called them (NO_BLOCK unknown),
        innermost first, those of stack i at offsets[i] to offsets[i + 1]; −1 of an empty one."""
        numbers = np.empty(len(offsets) - 1, np.uint32)
        check(lib.ptm_tree_stacks(self._tree, ffi.from_buffer("uint32_t[]", functions),
                                  ffi.from_buffer("uint32_t[]", blocks), ffi.from_buffer("int64_t[]", offsets),
                                  len(numbers), ffi.from_buffer("uint32_t[]", numbers)), self._where)
        return numbers.view(np.int32)

    def functions_of(self, stacks: I32) -> npt.NDArray[np.uint32]:
        """The innermost functions of stacks."""
        found: npt.NDArray[np.uint32] = self._nodes()["function"][stacks]
        return found

    def write_call_stacks(self, numbers: I32, writer: TableWriter) -> None:
        """The table `call_stacks`, of these stacks."""
        nodes = self._nodes()
        for first in range(0, len(numbers), _LISTED):
            part = numbers[first:first + _LISTED]
            offsets: I64 = np.concatenate([[0], np.cumsum(nodes["depth"][part], dtype=np.int64)])
            frames = np.empty(int(offsets[-1]), np.uint32)
            place, node = offsets[:-1], part.astype(np.uint32)
            while len(node):
                frames[place] = node
                node = nodes["parent"][node]
                place, node = place[node != NO_BLOCK] + 1, node[node != NO_BLOCK]
            lists = pa.array(offsets.astype(np.int32))
            writer.write(pa.table({
                "stack": part,
                "functions": pa.ListArray.from_arrays(lists, self._program.encoded_names(nodes["function"][frames])),
                "blocks": pa.ListArray.from_arrays(lists, _or_null(nodes["block"][frames]))}))

    def write_stacks(self, writer: TableWriter) -> None:
        """The table `stacks`, whose functions are encoded."""
        nodes = self._nodes()
        for first in range(0, len(nodes), BATCH_ROWS):
            part = nodes[first:first + BATCH_ROWS]
            writer.write(pa.table({
                "stack": np.arange(first, first + len(part), dtype=np.int32), "parent": _or_null(part["parent"]),
                "depth": part["depth"].astype(np.int32), "function": self._program.encoded_names(part["function"]),
                "image": self._program.images_of(part["function"]), "block": _or_null(part["block"])}))

    def calls(self, thread: int, rows: npt.NDArray[np.void]) -> pa.Table:
        """Rows of the table `calls`, in the order the calls ended."""
        return pa.table({
            "thread": np.full(len(rows), thread, np.int32), "call": rows["call"],
            "parent": pa.array(rows["parent"], mask=rows["parent"] < 0), "stack": rows["node"].astype(np.int32),
            "depth": rows["depth"].astype(np.int32),
            "function": self._program.names(self._nodes()["function"][rows["node"]]),
            **{name: rows[name] for name in ("seq", "seq_end", "t_enter", "t_exit")}}, schema=CALLS.schema)


def _anchors(window: Window) -> tuple[Any, Any, int]:
    return (ffi.from_buffer("int64_t[]", window.seqs), ffi.from_buffer("int64_t[]", window.times), len(window.seqs))


def _view(pointer: Any, count: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Rows that are the walk's, until it goes on."""
    found: npt.NDArray[Any] = np.frombuffer(ffi.buffer(pointer, count * dtype.itemsize), dtype)
    return found


def _copy(pointer: Any, count: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    return _view(pointer, count, dtype).copy()


def _or_null(values: npt.NDArray[Any]) -> pa.Array:
    return optional(values.astype(np.int32), values == NO_BLOCK)
