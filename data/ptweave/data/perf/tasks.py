# SPDX-License-Identifier: MIT
"""Replays what a recording says of tasks, in time order, into sideband rows.

Processes become address spaces: a new one at fork (with the parent's maps) and at exec. A space gets a new epoch only
when code went away or changed, that is when a mapping takes the place of another: a mapping that is merely added is
there from the space's beginning, where it does no harm and where times that are a little off cannot matter. Where the
kernel changes its own code, that begins an epoch in every space: `Patch`es say which.
A trace gets a `switch` row whenever what runs in it changes: the task, its space, or the space's epoch.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from ptweave.data.perf.format import RecordType
from ptweave.data.perf.records import (
    Comm,
    IntelPt,
    ItraceStart,
    Mmap,
    Record,
    SchedSwitch,
    Switch,
    Task,
    TextPoke,
)
from ptweave.data.sideband import SidebandKind, SwitchWhen

Row = dict[str, object]

IDLE = 0
"""tid of the idle task, which every CPU has one of."""


PATCH_GAP_NS = 5000
"""The kernel changes its code in batches (text_poke_bp_batch): breakpoints everywhere, then all that is behind them,
one record each, then what the breakpoints stand for. Nothing runs there meanwhile, so the records of a batch are one
change. They come within a microsecond or two of each other; between batches all processors are synchronised."""

PATCHES_MAX = 256
"""Places in a batch (TP_VEC_MAX)."""


@dataclass(frozen=True)
class Placed:
    """Code of a file at an address. `path` and `build_id` as the recording has them."""

    start: int
    size: int
    offset: int
    path: str
    build_id: str | None
    epoch: int = 0

    @property
    def end(self) -> int:
        return self.start + self.size

    def goes_on(self, other: Placed) -> bool:
        """Whether both are the same bytes at the same addresses, where they overlap."""
        return (self.path, self.build_id, self.start - self.offset) == (
            other.path, other.build_id, other.start - other.offset)


@dataclass
class Patch:
    """The kernel's code was changed at these places at once."""

    tsc: int
    time: int  # of the last record
    pokes: list[TextPoke] = field(default_factory=list)

    def goes_on(self, record: TextPoke) -> bool:
        """Whether a record, later than all of these, is of the same change."""
        return record.when.time - self.time <= PATCH_GAP_NS and len(self.pokes) < PATCHES_MAX


@dataclass
class Space:
    """One process image."""

    number: int
    pid: int
    parent: int
    began: str
    tsc: int
    patches: list[Patch]  # the kernel's, all that are known by now
    path: str = ""
    maps: list[Placed] = field(default_factory=list)  # what is there now, by address
    all: list[Placed] = field(default_factory=list)  # every mapping ever made
    changes: list[int] = field(default_factory=list)  # each time code went away: patches there were by then
    patches_before: int = 0  # those that were made when it began
    said: int = 0  # the last epoch something ran in

    @property
    def epoch(self) -> int:
        return len(self.changes) + len(self.patches) - self.patches_before

    def epoch_of(self, patch: int) -> int:
        """The epoch that a patch began, by its number."""
        return 0 if patch < self.patches_before else bisect_right(self.changes, patch) + patch + 1 - self.patches_before

    @property
    def is_as_it_began(self) -> bool:
        """Whether it was there before everything, and only the kernel's code changed since."""
        return not self.tsc and not self.patches_before and not self.changes

    def add(self, new: Placed) -> bool:
        """Map; true when that began an epoch."""
        first = bisect_right(self.maps, new.start, key=lambda placed: placed.end)
        last = bisect_left(self.maps, new.end, key=lambda placed: placed.start)
        over = self.maps[first:last]
        if len(over) == 1 and over[0].goes_on(new) and over[0].start <= new.start and new.end <= over[0].end:
            return False
        changed = any(not old.goes_on(new) for old in over)
        if changed:
            self.changes.append(len(self.patches))
        placed = Placed(new.start, new.size, new.offset, new.path, new.build_id, self.epoch)
        self.maps[first:last] = sorted([part for old in over for part in _around(old, new)] + [placed],
                                       key=lambda placed: placed.start)
        self.all.append(placed)
        return changed


def _around(old: Placed, new: Placed) -> list[Placed]:
    """What is left of a mapping when another takes its place."""
    parts = []
    if old.start < new.start:
        parts.append(Placed(old.start, new.start - old.start, old.offset, old.path, old.build_id, old.epoch))
    if new.end < old.end:
        parts.append(Placed(new.end, old.end - new.end, old.offset + new.end - old.start, old.path, old.build_id,
                            old.epoch))
    return parts


@dataclass
class Trace:
    """What runs in a trace just now. `cpu` −1: the trace is the own one of task `tid`."""

    cpu: int
    tid: int | None
    said: tuple[int | None, int, int] | None = None  # thread, space, epoch of the last row


class Tasks:
    """The replay. `wanted` says which tids get thread numbers in per-CPU traces; None: all of them. `numbers` are those
    that have one already: others get numbers beyond them. `by_place`: switches are to take place where the kernel makes
    them, so each record of one becomes a row."""

    def __init__(self, info: IntelPt, traces: Iterable[tuple[int, int]], wanted: set[int] | None, *,
                 idle: bool, timeless: bool, by_place: bool = False,
                 numbers: Mapping[int, int] | None = None) -> None:
        self.info = info
        self._numbers = dict(numbers or {})
        self._next = max(self._numbers.values(), default=-1) + 1
        self._silent = timeless  # without times only the last state can be used
        self.rows: list[Row] = []
        self.spaces: list[Space] = []  # by number
        self.threads: dict[tuple[int, int], int] = {}  # (tid, cpu for the idle task) → number
        self.patches: list[Patch] = []
        self.guests = 0
        self._wanted = wanted
        self._idle = idle
        self._by_place = by_place
        self._space_of: dict[int, Space] = {}
        self._pid_of: dict[int, int] = {}
        self._traces = [Trace(cpu, None if cpu >= 0 else tid) for cpu, tid in traces]
        self._by_cpu = {trace.cpu: trace for trace in self._traces if trace.cpu >= 0}

    def tsc(self, time: int) -> int:
        """TSC of a record's time; 0 for what was before everything."""
        return self.info.tsc_of(time) if time else 0

    # --- replay

    def replay(self, records: list[Record]) -> None:
        """Take records, sorted by time."""
        takers: dict[type[Record], Callable[[int, Record], None]] = {
            Mmap: self._mmap, Comm: self._comm, Task: self._task, ItraceStart: self._itrace, Switch: self._switch,
            SchedSwitch: self._sched_switch, TextPoke: self._text_poke}
        for record in records:
            taker = takers.get(type(record))
            if taker is not None:
                taker(self.tsc(record.when.time), record)

    def start(self, tids: dict[tuple[int, int], int]) -> None:
        """Threads that have traces of their own; what runs on a CPU nobody says anything about."""
        self._silent = False
        for trace in self._traces:
            if trace.cpu < 0:
                self._say(0, trace)
            elif trace.said is None and tids.get((trace.cpu, -1), -1) >= 0:
                trace.tid = tids[trace.cpu, -1]
                self._say(0, trace)

    def _space(self, pid: int, tsc: int) -> Space:
        """The process's space now; made up when nothing was heard of it."""
        found = self._space_of.get(pid)
        return found if found is not None else self._new_space(pid, -1, "start", tsc)

    def _new_space(self, pid: int, parent: int, began: str, tsc: int) -> Space:
        space = Space(len(self.spaces), pid, max(parent, 0), began, tsc, self.patches, patches_before=len(self.patches))
        self.spaces.append(space)
        self._space_of[pid] = space
        self._pid_of.setdefault(pid, pid)
        return space

    def _mmap(self, tsc: int, record: Record) -> None:
        assert isinstance(record, Mmap)
        if record.guest:
            self.guests += 1
            return
        if record.kernel or not record.executable or not record.size or record.start + record.size > (1 << 64) - 1:
            return
        space = self._space(record.pid, tsc)
        if not space.path and record.path.startswith("/") and not record.path.startswith("//"):
            space.path = record.path
        if space.add(Placed(record.start, record.size, record.offset, record.path, record.build_id)):
            self._tell(tsc, record.pid)

    def _text_poke(self, tsc: int, record: Record) -> None:
        assert isinstance(record, TextPoke)
        if not record.kernel or not record.new:
            return
        last = self.patches[-1] if self.patches else None
        if last is not None and last.goes_on(record):
            last.pokes.append(record)
            last.time = record.when.time
            return
        self._space(IDLE, 0)
        for trace in self._traces:
            if trace.cpu < 0 and trace.said is None:
                self._say(0, trace)
        self.patches.append(Patch(tsc, record.when.time, [record]))
        for trace in self._traces:
            if trace.said is not None:
                self._say(tsc, trace)

    def _comm(self, tsc: int, record: Record) -> None:
        assert isinstance(record, Comm)
        self._pid_of[record.tid] = record.pid
        if record.exec:
            old = self._space_of.get(record.pid)
            self._new_space(record.pid, old.parent if old is not None else -1, "exec", tsc)
            self._tell(tsc, record.pid)
        self.rows.append({"kind": SidebandKind.COMM, "tsc": tsc, "pid": record.pid,
                          "space": self._space(record.pid, tsc).number, "tid": record.tid, "detail": record.name})

    def _task(self, tsc: int, record: Record) -> None:
        assert isinstance(record, Task)
        if record.type == RecordType.EXIT:
            self._exit(tsc, record)
            return
        self._pid_of[record.tid] = record.pid
        if record.pid == record.parent_pid or record.pid != record.tid:
            return
        parent = self._space_of.get(record.parent_pid)
        space = self._new_space(record.pid, record.parent_pid, "fork", tsc)
        if parent is not None:
            space.path = parent.path
            space.maps = [Placed(m.start, m.size, m.offset, m.path, m.build_id) for m in parent.maps]
            space.all = list(space.maps)

    def _exit(self, tsc: int, record: Task) -> None:
        space = self._space(record.pid, tsc).number
        self.rows.append({"kind": SidebandKind.THREAD_EXIT, "tsc": tsc, "pid": record.pid, "space": space,
                          "tid": record.tid})
        if record.pid == record.tid:
            self.rows.append({"kind": SidebandKind.PROCESS_EXIT, "tsc": tsc, "pid": record.pid, "space": space,
                              "value": -1})

    def _itrace(self, tsc: int, record: Record) -> None:
        assert isinstance(record, ItraceStart)
        self._pid_of[record.tid] = record.pid
        self._runs(tsc, record.when.cpu, record.tid)
        for trace in self._traces:
            if trace.cpu < 0 and trace.tid == record.tid and self._space(record.pid, tsc).all:
                self._say(tsc, trace)  # before an exec: it began in what it was forked as

    def _switch(self, tsc: int, record: Record) -> None:
        assert isinstance(record, Switch)
        if not record.out:
            if record.when.tid >= 0:
                self._pid_of.setdefault(record.when.tid, record.when.pid)
            if record.type == RecordType.SWITCH_CPU_WIDE:
                self._ran(record.when.cpu, record.other_tid)
            told = self.info.have_sched_switch == 1
            self._runs(tsc, record.when.cpu, record.when.tid, SwitchWhen.TOLD if told else SwitchWhen.DONE)
        elif record.type == RecordType.SWITCH and not self._idle:
            self._runs(tsc, record.when.cpu, -1)  # it may go on elsewhere, and come back here after that
        elif record.type == RecordType.SWITCH_CPU_WIDE and self.info.have_sched_switch == 3:
            if record.other_tid >= 0:
                self._pid_of.setdefault(record.other_tid, record.other_pid)
            if record.when.tid >= 0:
                self._pid_of.setdefault(record.when.tid, record.when.pid)
            self._ran(record.when.cpu, record.when.tid)
            self._runs(tsc, record.when.cpu, record.other_tid, SwitchWhen.TOLD)

    def _sched_switch(self, tsc: int, record: Record) -> None:
        assert isinstance(record, SchedSwitch)
        if self.info.have_sched_switch == 1 or not self.info.have_sched_switch:
            if record.when.tid >= 0:
                self._pid_of.setdefault(record.when.tid, record.when.pid)
            self._ran(record.when.cpu, record.when.tid)
            self._runs(tsc, record.when.cpu, record.next_tid, SwitchWhen.TOLD)

    # --- rows

    def _ran(self, cpu: int, tid: int) -> None:
        """Until the first switch that is known of a CPU another task ran there than from then on: this one, -1 for
        nobody knows. In what code, is known of it unless that changed before. Idle tasks have nothing in a trace
        without the kernel."""
        trace = self._by_cpu.get(cpu)
        if trace is None or trace.said is not None or self._silent or (tid == IDLE and not self._idle):
            return
        space = self._space_of.get(self._pid_of.get(tid, tid))
        same = tid >= 0 and (tid == IDLE or (space is not None and space.is_as_it_began))
        trace.tid = tid if same else None
        self._say(0, trace, 0)
        if same and space is not None:
            for number, patch in enumerate(self.patches):
                self._say(patch.tsc, trace, space.epoch_of(number))

    def _runs(self, tsc: int, cpu: int, tid: int, when: SwitchWhen = SwitchWhen.AT_TIME) -> None:
        trace = self._by_cpu.get(cpu)
        if trace is not None:
            trace.tid = tid if tid >= 0 else None
            self._say(tsc, trace, when=when)

    def _tell(self, tsc: int, pid: int) -> None:
        """The process's space or epoch is another: say so wherever a task of it runs."""
        for trace in self._traces:
            if trace.tid is not None and self._pid_of.get(trace.tid, trace.tid) == pid and (
                    trace.said is not None or trace.cpu < 0):
                self._say(tsc, trace)

    def _say(self, tsc: int, trace: Trace, epoch: int | None = None, *,
             when: SwitchWhen = SwitchWhen.AT_TIME) -> None:
        """What runs in a trace; in its space's epoch of now, unless another is given."""
        if self._silent:
            return
        tid = trace.tid
        thread = None if tid is None else self._thread(tid, trace.cpu, tsc)
        pid = 0 if tid is None else self._pid_of.get(tid, tid)
        space = self._space(pid, tsc)
        now = (thread, space.number, space.epoch if epoch is None else epoch)
        placed = self._by_place and when is not SwitchWhen.AT_TIME
        if trace.said == now and not placed:
            return
        trace.said = now
        space.said = max(space.said, now[2])
        self.rows.append({"kind": SidebandKind.SWITCH, "tsc": tsc, "pid": pid, "space": space.number, "tid": tid,
                          "thread": thread, "epoch": now[2], "cpu": trace.cpu if trace.cpu >= 0 else None,
                          "value": int(when) if placed else None})

    def _thread(self, tid: int, cpu: int, tsc: int) -> int | None:
        """Number of a task; None for one that nobody asked for."""
        if tid == IDLE:
            if not self._idle:
                return None
        elif cpu >= 0 and self._wanted is not None and tid not in self._wanted:
            return None
        key = (tid, cpu if tid == IDLE else -1)
        if key not in self.threads:
            self.threads[key] = self._number(tid)
            pid = self._pid_of.get(tid, tid)
            self.rows.append({"kind": SidebandKind.THREAD, "tsc": tsc, "pid": pid,
                              "space": self._space(pid, tsc).number, "tid": tid, "thread": self.threads[key],
                              "value": 0})
        return self.threads[key]

    def _number(self, tid: int) -> int:
        """The one a task was given, or the next."""
        number = self._numbers.pop(tid, -1)
        if number < 0:
            number = self._next
            self._next += 1
        return number

    def finished(self) -> list[Row]:
        """All rows: those of spaces that something ran in, and of tasks with a number."""
        used = {row["space"] for row in self.rows if row["kind"] == SidebandKind.SWITCH and row["thread"] is not None}
        numbers = {tid: number for (tid, cpu), number in self.threads.items() if tid != IDLE}
        rows: list[Row] = []
        for space in self.spaces:
            if space.number in used:
                rows.append({"kind": SidebandKind.PROCESS, "tsc": space.tsc, "pid": space.pid, "space": space.number,
                             "tid": space.pid, "path": space.path or None, "value": space.parent,
                             "detail": space.began})
        for row in self.rows:
            kind = row["kind"]
            if kind in (SidebandKind.COMM, SidebandKind.THREAD_EXIT):
                number = numbers.get(int(str(row["tid"])))
                if number is not None:
                    rows.append({**row, "thread": number})
            elif kind != SidebandKind.PROCESS_EXIT or row["space"] in used:
                rows.append(row)
        return rows

    @property
    def used_spaces(self) -> list[Space]:
        """Spaces that a numbered thread ran in."""
        used = {row["space"] for row in self.rows if row["kind"] == SidebandKind.SWITCH and row["thread"] is not None}
        return [space for space in self.spaces if space.number in used]
