# SPDX-License-Identifier: MIT
"""What one execution of a function did, from the recorded flow: functions entered and left, blocks, system calls.

A shadow stack follows calls, returns and jumps to other functions. Calls into libraries that hide more than they tell
(the C library, the loader, threads) are folded: one step says how much ran in them and which system calls they made;
functions of the program that they call (a comparison of qsort) are shown all the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ptweave.data.errors import BadInput
from ptweave.merge.run import Run

WINDOW = 4096
"""Blocks read at a time."""
_FOLDED = re.compile(r"(ld-linux[^/]*|libc|libpthread|libdl|libm|librt|libresolv|libtthread|libgcc_s|libstdc\+\+)"
                     r"(-[0-9.]+)?\.so(\.[0-9.]+)*")
_STUBS = re.compile(r".*@plt|_dl_runtime_resolve.*")
_CALLS = {"call", "ind_call"}
_JUMPS = {"jump", "ind_jump", "cond_jump"}


@dataclass(frozen=True)
class SystemCall:
    """A system call that block `seq` made; `result` is None when it did not return."""

    seq: int
    name: str
    args: tuple[int, ...]
    result: int | None
    errno: str | None


@dataclass(frozen=True)
class Enter:
    """A function begins; `stack` is innermost first, and begins with it. `depth` is that of the step as shown."""

    seq: int
    depth: int
    function: str
    stack: tuple[str, ...]


@dataclass(frozen=True)
class Leave:
    """A function has returned: the block after it is `seq`."""

    seq: int
    depth: int
    function: str


@dataclass(frozen=True)
class Block:
    """A block of the function at `depth` ran; it made `call`, if it made one."""

    seq: int
    depth: int
    function: str
    instructions: int
    call: SystemCall | None


@dataclass(frozen=True)
class Folded:
    """A call into a library, at its end; with `begins` at its begin, because it calls back: then nothing is counted."""

    seq: int
    depth: int
    function: str
    library: str
    blocks: int = 0
    instructions: int = 0
    calls: tuple[SystemCall, ...] = ()
    begins: bool = False


@dataclass(frozen=True)
class Hole:
    """The record has a gap before block `seq`; frames may be wrong from there on."""

    seq: int
    kind: str


@dataclass(frozen=True)
class Cut:
    """The execution went on, and was followed no further: `why`."""

    seq: int
    why: str


Step = Enter | Leave | Block | Folded | Hole | Cut


@dataclass(frozen=True)
class Execution:
    """Where a function's first instruction ran."""

    thread: int
    seq: int


@dataclass
class _Row:
    seq: int
    function: str
    offset: int | None
    last: str
    instructions: int
    library: str


@dataclass
class _Frame:
    function: str
    library: str
    folded: bool
    seq: int
    shown: bool = False  # a folded one whose begin was told
    blocks: int = 0
    instructions: int = 0
    calls: list[SystemCall] = field(default_factory=list)


def executions(run: Run, function: str, thread: int | None = None) -> list[Execution]:
    """All executions of a function, by thread and place.

    Raises BadInput when no function of that name ran (in that thread); the remedy names some that did.
    """
    found = [Execution(number, seq) for number, seq in run.ask(
        "select thread, seq from executions(?) order by thread, seq", function).rows()
        if thread is None or number == thread]
    if not found:
        like = [name for name, in run.ask(
            "select distinct function from blocks where function_offset = 0 and contains(lower(function), lower(?)) "
            "order by 1 limit 5", function.split("(")[0]).rows()]
        where = "" if thread is None else f" in thread {thread}"
        raise BadInput(f"no function {function!r} ran{where}", where=str(run.path),
                       remedy=f"these ran: {', '.join(like)}" if like else
                       "ptweave query RUN \"select distinct function from blocks\" lists those that did")
    return found


def times(run: Run, function: str) -> dict[Execution, int]:
    """When executions of a function began, in ns since the run's first moment: the last moments known before them in
    their threads' flows, as `dump` has them. Where none is known there is no entry."""
    return {Execution(number, seq): t for number, seq, t in run.ask(
        "select made.thread, made.seq, known.t - (select min(t) from clock) from executions(?) as made "
        "asof join (select thread, seq, max(t) as t from clock group by all) as known "
        "on made.thread = known.thread and made.seq >= known.seq where known.t is not null", function).rows()}


def capture(run: Run, execution: Execution, *, unfold: bool = False, limit: int = 100_000) -> Iterator[Step]:
    """What one execution did, step by step, to its return. At most `limit` blocks are followed."""
    return _Walk(run, execution, unfold).steps(limit)


class _Walk:
    def __init__(self, run: Run, execution: Execution, unfold: bool) -> None:
        self._run = run
        self._thread, self._begin = execution.thread, execution.seq
        self._unfold = unfold
        self._stack: list[_Frame] = []

    def steps(self, limit: int) -> Iterator[Step]:
        before: _Row | None = None
        for count, (row, hole) in enumerate(self._rows()):
            if hole is not None:
                yield Hole(row.seq, hole)
            if before is not None:
                yield from self._pass(before, row)
                if not self._stack:
                    return
            else:
                yield from self._push(row, shown=True)
            if count >= limit:
                yield Cut(row.seq, f"more than {limit} blocks")
                return
            yield from self._ran(row)
            before = row
        if before is not None:
            yield Cut(before.seq + 1, "the thread's flow ends here")

    # --- rows -----------------------------------------------------------------------------------------------------

    def _rows(self) -> Iterator[tuple[_Row, str | None]]:
        at = self._begin
        while True:
            self._calls = {call.seq: call for call in self._system_calls(at, at + WINDOW)}
            holes = dict(self._run.ask("select seq, kind from gaps where thread = ? and seq > ? and seq < ?",
                                       self._thread, at, at + WINDOW).rows())
            rows = self._run.ask(
                f"""select near.seq, function, function_offset, last, instructions, images.path
                    from flow_range({int(self._thread)}, {at}, {at + WINDOW}) as near
                    join blocks using (block) left join images using (image) order by near.seq""").rows()
            for seq, function, offset, last, instructions, path in rows:
                yield (_Row(seq, function or "?", offset, last, instructions, (path or "").rsplit("/", 1)[-1]),
                       holes.get(seq))
            if not rows:
                return
            at += WINDOW

    def _system_calls(self, begin: int, end: int) -> Iterator[SystemCall]:
        for seq, name, args, result, errno in self._run.ask(
                "select seq, name, args, result, errno from syscalls where thread = ? and seq >= ? and seq < ?",
                self._thread, begin, end).rows():
            yield SystemCall(seq, name, tuple(args or ()), result, errno)

    # --- the shadow stack -----------------------------------------------------------------------------------------

    def _pass(self, before: _Row, row: _Row) -> Iterator[Step]:
        """From one block to the next: what was called, left, or jumped to."""
        if before.last in _CALLS:
            yield from self._push(row)
        elif before.last == "return":
            yield from self._pop(row.seq)
            if self._stack and not self._is_top(row):
                yield from self._find(row)
        elif not self._is_top(row):
            if before.last in _JUMPS and row.offset in (0, None):
                yield from self._replace(row)
            else:
                yield from self._find(row)

    def _is_top(self, row: _Row) -> bool:
        """Parts the compiler moved away (f.cold) are their function's."""
        top = self._stack[-1].function
        return row.function == top or row.function.startswith(top + ".")

    def _find(self, row: _Row) -> Iterator[Step]:
        """Neither call nor return: back to a caller (longjmp, a handler's end), or to something new (a handler)."""
        if any(frame.function == row.function for frame in self._stack):
            while not self._is_top(row):
                yield from self._pop(row.seq)
        else:
            yield from self._push(row)

    def _is_folded(self, row: _Row) -> bool:
        stub = bool(_STUBS.fullmatch(row.function))
        return not self._unfold and (stub or bool(_FOLDED.fullmatch(row.library)))

    def _push(self, row: _Row, *, shown: bool = False) -> Iterator[Step]:
        frame = _Frame(row.function, row.library, not shown and self._is_folded(row), row.seq)
        if not frame.folded:
            yield from self._tell_folds()
        self._stack.append(frame)
        if not frame.folded:
            yield Enter(row.seq, self._depth(len(self._stack) - 1), row.function,
                        tuple(one.function for one in reversed(self._stack)))

    def _depth(self, index: int) -> int:
        """How deep a frame is shown: calls within a folded call are one."""
        folded = [frame.folded for frame in self._stack[:index + 1]]
        return sum(not (one and before) for one, before in zip(folded, [False, *folded], strict=False)) - 1

    def _tell_folds(self) -> Iterator[Step]:
        """Folded calls that call back are told before what they call: the outermost of each run of them."""
        outer = False
        for depth, frame in enumerate(self._stack):
            if frame.folded and not outer and not frame.shown:
                frame.shown = True
                yield Folded(frame.seq, self._depth(depth), frame.function, frame.library, begins=True)
            outer = frame.folded

    def _pop(self, seq: int) -> Iterator[Step]:
        depth = self._depth(len(self._stack) - 1)
        frame = self._stack.pop()
        if not frame.folded:
            yield Leave(seq, depth, frame.function)
        elif self._stack and self._stack[-1].folded:
            self._stack[-1].blocks += frame.blocks
            self._stack[-1].instructions += frame.instructions
            self._stack[-1].calls += frame.calls
        else:
            yield self._fold(frame, depth)

    @staticmethod
    def _fold(frame: _Frame, depth: int) -> Folded:
        return Folded(frame.seq, depth, frame.function, frame.library, frame.blocks, frame.instructions,
                      tuple(frame.calls))

    def _replace(self, row: _Row) -> Iterator[Step]:
        """A jump to another function: its frame takes the place of the one that jumped."""
        top = self._stack[-1]
        stub = top.folded and bool(_STUBS.fullmatch(top.function))
        if stub and row.library == top.library and row.function.startswith("sub_"):
            return  # the linkage table's first entry, which has no name: on to the loader
        if top.folded and self._is_folded(row):
            top.function, top.library = (row.function, row.library) if stub else (top.function, top.library)
            return
        depth = self._depth(len(self._stack) - 1)
        self._stack.pop()
        if top.folded and not stub:
            yield self._fold(top, depth)
        elif not top.folded:
            yield Leave(row.seq, depth, top.function)
        yield from self._push(row, shown=not self._stack)

    def _ran(self, row: _Row) -> Iterator[Step]:
        top = self._stack[-1]
        call = self._calls.get(row.seq)
        if top.folded:
            top.blocks += 1
            top.instructions += row.instructions
            top.calls += [call] if call else []
        else:
            yield Block(row.seq, self._depth(len(self._stack) - 1), top.function, row.instructions, call)
