# SPDX-License-Identifier: MIT
"""The results of tasks put together: one set of numbers for all of them, and their rows in tables.

Tasks are taken in their order, whichever was done first, so that ids do not depend on who decoded what. Their rows
fall into *pieces*: rows of one thread without a break. A thread's trace has one piece a task; a processor's trace has
one more wherever another thread begins to run on it. Pieces are put in order by thread and time, each goes on from the
seq the one before it came to, and every few million rows make a *part*: a file of each table, written by any process.
"""

from __future__ import annotations

import errno
import mmap
import os
from bisect import bisect_left, bisect_right
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ptweave.data import schemas
from ptweave.data.errors import BadInput, MachineLacks
from ptweave.data.manifest import Clocks
from ptweave.data.table_writer import ROW_GROUP, TableWriter
from ptweave.decode._ipt import ffi, lib
from ptweave.decode.columns import array, coded, times
from ptweave.decode.gaps import GapKind
from ptweave.decode.task import PARTS, PIECE, TASK_KINDS, TaskFile, own

PART_ROWS = 4 * ROW_GROUP
"""A part ends with the piece that makes its rows so many."""

WIDE_ROWS = ROW_GROUP // 8
"""Rows in a row group of tables with many columns: a million of them would take a hundred megabytes to write."""

FLOWS = 64
"""Tasks whose flow is kept open to look up where threads begin."""

CLASSES = tuple(kind.value for kind in schemas.BlockClass)
"""Names of `enum ptd_class`, in its order."""

MODES = np.array([0, 16, 32, 64], np.int8)
"""Bits of libipt's `enum pt_exec_mode`, in its order."""

EVENTS = ("enabled", "disabled", "async_disabled", "async_branch", "paging", "async_paging", "overflow", "exec_mode",
          "tsx", "stop", "vmcs", "async_vmcs", "exstop", "mwait", "pwre", "pwrx", "ptwrite", "tick", "cbr", "mnt",
          "cfe", "page_fault", "vmx_qualification", "vmx_reason", "evd", "interrupt_flag", "pebs", "unknown")
"""Names of `enum ptd_event`, in its order."""

ENABLED, OVERFLOW = EVENTS.index("enabled"), EVENTS.index("overflow")
KINDS = TASK_KINDS
"""The kinds of rows a task has."""

TABLES = (schemas.FLOW, schemas.CLOCK, schemas.PT_EVENTS, schemas.GAPS)
"""The tables parts are of."""


@dataclass(frozen=True)
class Piece:
    """Rows of one thread without a break: those from `rows[kind][0]` to `rows[kind][1]` of a task.

    `seq` is what the thread had come to before them, `begin` what the task counted there. `tsc` is the last time known
    before them, 0 none; `resume` the address at which tracing was turned off before the task, None when it was on.
    """

    file: Path
    thread: int
    begin: int
    rows: dict[str, tuple[int, int]]
    seq: int = 0
    tsc: int = 0
    resume: int | None = None


@dataclass(frozen=True)
class Part:
    """Pieces that make one file of each table."""

    number: int
    pieces: tuple[Piece, ...]


@dataclass
class Totals:
    """What a thread came to."""

    seq: int = 0
    tsc: int = 0
    instructions: int = 0
    branches: int = 0
    gaps: int = 0
    lost_bytes: int = 0  # the recorder's losses included
    first_block: int | None = None


@dataclass(order=True)
class _Found:
    """A piece before its place is known, in the order pieces are to come in."""

    thread: int
    time: int
    task: int
    number: int
    piece: Piece = field(compare=False)
    blocks: int = field(compare=False)
    tsc: int = field(compare=False)  # at its end
    instructions: int = field(compare=False)
    branches: int = field(compare=False)
    gaps: int = field(compare=False)
    lost: int = field(compare=False)


class Assembler:
    """Takes the files of tasks in order; gives parts, totals and the dictionaries.

    `interleaved` says that pieces of one thread come from several traces, so that their order is known only when all
    tasks were taken.
    """

    def __init__(self, *, interleaved: bool = False, part_rows: int = PART_ROWS) -> None:
        self.tables = own(lib.ptd_tables_create_distinct(), lib.ptd_tables_destroy)
        self.threads: dict[int, Totals] = {}
        self.lost: dict[str, dict[str, int]] = {}  # of a trace's own bytes, by kind of gap
        self.traces: list[tuple[str, int]] = []  # name and size
        self._interleaved = interleaved
        self._part_rows = part_rows
        self._taken = 0
        self._waiting: list[_Found] = []
        self._open: list[Piece] = []
        self._open_rows = 0
        self._parts = 0
        self._flows: OrderedDict[Path, _FlowOf] = OrderedDict()  # those asked last
        self._reached: tuple[str, int] = ("", 0)  # the trace taken last, and the latest time a piece of it begins at
        self._off: tuple[str, int] | None = None  # the trace that was off at the end of the last task, and where

    def take(self, trace: str, file: Path, *, first: bool) -> Iterator[Part]:
        """Take the next task's file; gives the parts that are complete by now.

        `first`: the task begins where its trace or another image set does, nothing before it is to be gone on from.
        Writes the task's map beside its file. Raises BadInput when the file is damaged, MachineLacks when memory runs
        out.
        """
        opened = TaskFile(file, (*PARTS, "gap_kind", "gap_bytes"))
        columns = opened.row(opened.steps)
        path_map = self._number(opened, columns)
        write_map(file, path_map)
        resume = self._off[1] if self._off is not None and self._off[0] == trace and not first else None
        found = self._pieces(opened, columns, trace, resume)
        end = [int(value) for value in columns["end"].to_pylist()]
        off, off_ip, blocks = bool(end[8]), end[9] & (1 << 64) - 1, end[0]
        if off:
            self._off = (trace, off_ip)
        elif blocks or resume is None:
            self._off = None
        self._taken += 1
        if self._interleaved:
            self._waiting += found
        else:
            yield from self._place(found)

    def finish(self) -> Iterator[Part]:
        """The parts that are left; there is at least one in all."""
        yield from self._place(sorted(self._waiting))
        self._waiting = []
        if self._open or not self._parts:
            yield self._close()

    def _number(self, opened: TaskFile, columns: dict[str, pa.Array]) -> npt.NDArray[np.int32]:
        """Take the task's dictionaries over; its paths' numbers."""
        kept = {name: np.ascontiguousarray(columns[name].to_numpy(zero_copy_only=False)) for name in PARTS
                if name.startswith(("block_", "leg_", "path_"))}
        blocks, legs, paths = len(kept["block_ip"]), len(kept["leg_starts"]) - 1, len(kept["path_length"])
        sound = all(len(values) == blocks for name, values in kept.items() if name.startswith("block_"))
        if not sound or legs < 0 or len(kept["path_starts"]) != paths + 1:
            raise damaged(opened.path)
        names = ("image", "offset", "ip", "last_ip", "size", "instructions", "last", "mode")
        pointers = {name: ffi.from_buffer(kept[f"block_{name}"]) for name in names}
        block_view = ffi.new("struct ptd_blocks_view *", {"count": blocks})
        for name, pointer in pointers.items():
            setattr(block_view, name, ffi.cast(f"{_C[kept[f'block_{name}'].dtype.name]} *", pointer))
        lists = [ffi.new("struct ptd_paths_view *", {
            "count": count, "item_count": len(kept[items]), "starts": ffi.from_buffer("int32_t[]", kept[starts]),
            "items": ffi.from_buffer("int32_t[]", kept[items])})
            for count, starts, items in ((legs, "leg_starts", "leg_blocks"), (paths, "path_starts", "path_legs"))]
        path_map = np.empty(paths, np.int32)
        maps = [np.empty(blocks, np.int32), np.empty(legs, np.int32), path_map]
        status = lib.ptd_tables_take(self.tables, block_view, *lists, *(
            ffi.from_buffer("int32_t[]", numbers, require_writable=True) for numbers in maps))
        if status < 0:
            if status == -errno.ERANGE:
                raise damaged(opened.path)
            raise MachineLacks(f"blocks and paths cannot be put together ({os.strerror(-status)})",
                               where=str(opened.path), remedy="free some memory, or decode fewer threads at once")
        return path_map

    def _pieces(self, opened: TaskFile, columns: dict[str, pa.Array], trace: str,
                resume: int | None) -> list[_Found]:
        starts = {name: [int(value) for value in columns[f"piece_{name}"].to_pylist()] for name in PIECE}
        end = [int(value) for value in columns["end"].to_pylist()]
        if len(end) != 10 or not starts["thread"] or len({len(values) for values in starts.values()}) != 1:
            raise damaged(opened.path)
        last = {"seq": end[0], "tsc": end[1], "instructions": end[2], "branches": end[3],
                **dict(zip(KINDS, end[4:8], strict=True))}
        gap_kinds, gap_bytes = _gaps(opened)
        losses = self.lost.setdefault(trace, {})
        for kind, size in zip(gap_kinds, gap_bytes, strict=True):
            if kind != GapKind.LOST:
                losses[kind] = losses.get(kind, 0) + size
        found = []
        gaps = _owned_gaps(starts["thread"], [*starts["seq"], last["seq"]], [*starts["gap"], last["gap"]])
        for number in range(len(starts["thread"])):
            now = {name: starts[name][number] for name in PIECE}
            then = {name: starts[name][number + 1] for name in PIECE} if number + 1 < len(starts["thread"]) else last
            rows = {kind: (now[kind], then[kind]) for kind in KINDS}
            if any(not 0 <= begin <= stop <= last[kind] for kind, (begin, stop) in rows.items()):
                raise damaged(opened.path)
            rows["gap"] = gaps[number]
            holes = gap_bytes[slice(*rows["gap"])]
            found.append(_Found(
                now["thread"], self._time(trace, now["tsc"]), self._taken, number,
                Piece(opened.path, now["thread"], now["seq"], rows, resume=resume if number == 0 else None),
                then["seq"] - now["seq"], then["tsc"], then["instructions"] - now["instructions"],
                then["branches"] - now["branches"], len(holes), sum(holes)))
        return found

    def _time(self, trace: str, tsc: int) -> int:
        """When a trace's next piece begins, to be put in order by: estimates may go back, what ran does not."""
        reached = self._reached[1] if self._reached[0] == trace else 0
        self._reached = trace, max(reached, tsc)
        return self._reached[1]

    def _place(self, found: list[_Found]) -> Iterator[Part]:
        """Pieces in their final order: where each begins in its thread is known now."""
        for each in found:
            if each.thread < 0:
                continue
            totals = self.threads.setdefault(each.thread, Totals())
            piece = each.piece
            # a piece that begins with a switch says itself when that is, and so do those of a processor's trace
            known = 0 if self._interleaved or each.number else totals.tsc
            self._open.append(Piece(piece.file, piece.thread, piece.begin, piece.rows, totals.seq, known,
                                    piece.resume))
            totals.seq += each.blocks
            totals.tsc = each.tsc or totals.tsc
            totals.instructions += each.instructions
            totals.branches += each.branches
            totals.gaps += each.gaps
            totals.lost_bytes += each.lost
            if totals.first_block is None and each.blocks:
                totals.first_block = self._first_block(piece)
            self._open_rows += max(stop - begin for begin, stop in piece.rows.values())
            if self._open_rows >= self._part_rows:
                yield self._close()

    def _first_block(self, piece: Piece) -> int:
        """The first block of a piece's flow."""
        flow = self._flows.pop(piece.file, None) or _FlowOf(piece.file)
        self._flows[piece.file] = flow
        if len(self._flows) > FLOWS:
            self._flows.popitem(last=False)
        return int(lib.ptd_tables_first_block_of(self.tables, flow.path(piece.rows["flow"][0])))

    def _close(self) -> Part:
        part = Part(self._parts, tuple(self._open))
        self._parts += 1
        self._open, self._open_rows = [], 0
        return part

    # --- dictionaries

    def paths(self, rows: int) -> Iterator[pa.Table]:
        """The table `paths`, so many rows at a time."""
        view = ffi.new("struct ptd_paths_view *")
        lib.ptd_tables_paths(self.tables, view)
        n = view.count
        length = array(self.tables, view.length, n, pa.int32())
        instructions = array(self.tables, view.instructions, n, pa.int32())
        for begin in range(0, n, rows):
            count = min(rows, n - begin)
            starts = np.empty(count + 1, np.int32)
            blocks = np.empty(pc.sum(length.slice(begin, count)).as_py(), np.int32)
            status = lib.ptd_tables_expand(self.tables, begin, begin + count,
                                           ffi.from_buffer("int32_t[]", starts, require_writable=True),
                                           ffi.from_buffer("int32_t[]", blocks, require_writable=True))
            if status < 0:
                raise MachineLacks(f"paths cannot be written ({os.strerror(-status)})", where="the decoder",
                                   remedy="decode fewer threads at once")
            yield pa.table({
                "path": pa.array(np.arange(begin, begin + count, dtype=np.int32)),
                "blocks": pa.ListArray.from_arrays(pa.array(starts), pa.array(blocks)),
                "length": length.slice(begin, count), "instructions": instructions.slice(begin, count),
            }, schema=schemas.PATHS.schema)

    def blocks(self) -> dict[str, pa.Array]:
        """The table `blocks`, but for what symbols say."""
        view = ffi.new("struct ptd_blocks_view *")
        lib.ptd_tables_blocks(self.tables, view)
        n = view.count
        return {
            "block": pa.array(np.arange(n, dtype=np.int32)),
            "image": array(self.tables, view.image, n, pa.int32()),
            "offset": array(self.tables, view.offset, n, pa.int64()),
            "ip": array(self.tables, view.ip, n, pa.uint64()),
            "size": array(self.tables, view.size, n, pa.int32()),
            "instructions": array(self.tables, view.instructions, n, pa.int32()),
            "last": coded(array(self.tables, view.last, n, pa.int8()), CLASSES),
            "last_ip": array(self.tables, view.last_ip, n, pa.uint64()),
            "mode": pa.array(MODES[array(self.tables, view.mode, n, pa.uint8()).to_numpy() % len(MODES)]),
        }


class _FlowOf:
    """The paths executed in a task, by what they are called in the whole."""

    def __init__(self, file: Path) -> None:
        self._opened = TaskFile(file, ("flow",))
        self._map = read_map(file)
        self._steps: list[pa.Array] = []
        self._ends: list[int] = []

    def path(self, at: int) -> int:
        """The path in a row. Raises BadInput when there is none."""
        while not self._ends or at >= self._ends[-1]:
            if len(self._steps) == self._opened.steps:
                raise damaged(self._opened.path)
            self._steps.append(self._opened.row(len(self._steps))["flow"])
            self._ends.append((self._ends or [0])[-1] + len(self._steps[-1]))
        step = bisect_right(self._ends, at)
        flow = self._steps[step]
        return int(self._map[flow[at - self._ends[step] + len(flow)].as_py()])


_C = {"int8": "int8_t", "uint8": "uint8_t", "int32": "int32_t", "int64": "int64_t", "uint64": "uint64_t"}


def damaged(path: Path) -> BadInput:
    return BadInput("contradicts itself", where=str(path), remedy="remove it and decode again")


def _owned_gaps(threads: list[int], seqs: list[int], rows: list[int]) -> list[tuple[int, int]]:
    """The gaps of each piece. Where a processor's trace does not say whose it is yet, or any more, and nothing ran,
    they are of the piece behind, or else before: nobody would be told of them."""
    found = list(pairwise(rows))
    silent = [thread < 0 and seqs[at] == seqs[at + 1] for at, thread in enumerate(threads)]
    for at in range(len(found) - 1):
        if silent[at] and (threads[at + 1] >= 0 or silent[at + 1]):
            found[at], found[at + 1] = (found[at][0],) * 2, (found[at][0], found[at + 1][1])
    for at in range(len(found) - 1, 0, -1):
        if silent[at] and (threads[at - 1] >= 0 or silent[at - 1]):
            found[at], found[at - 1] = (found[at][1],) * 2, (found[at - 1][0], found[at][1])
    return found


def _gaps(opened: TaskFile) -> tuple[list[str], list[int]]:
    kinds: list[str] = []
    sizes: list[int] = []
    for number in range(opened.steps):
        row = opened.row(number)
        kinds += row["gap_kind"].to_pylist()
        sizes += row["gap_bytes"].to_pylist()
    return kinds, sizes


def write_map(file: Path, path_map: npt.NDArray[np.int32]) -> None:
    """Keep what a task's paths are called in the whole."""
    file.with_suffix(".map").write_bytes(path_map.tobytes())


def read_map(file: Path) -> npt.NDArray[np.int32]:
    """What a task's paths are called in the whole."""
    path = file.with_suffix(".map")
    with path.open("rb") as opened:
        if not os.fstat(opened.fileno()).st_size:
            return np.zeros(0, np.int32)
        return np.frombuffer(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ), np.int32)


# --- parts ------------------------------------------------------------------------------------------------------------


def write_part(part: Part, folder: Path, clocks: Clocks) -> None:
    """Write a part's file of each table below `folder`. Raises BadInput when a task's file is damaged."""
    name = f"{part.number}.parquet"
    with TableWriter(folder, schemas.FLOW, name) as flow, TableWriter(folder, schemas.CLOCK, name) as clock, \
            TableWriter(folder, schemas.PT_EVENTS, name, row_group=WIDE_ROWS) as events, \
            TableWriter(folder, schemas.GAPS, name, row_group=WIDE_ROWS) as holes:
        paths = _Flow(flow)
        files = _Files(part.pieces)
        for piece in part.pieces:
            rows = _Rows(piece, files.of(piece), clocks)
            for step in rows.steps():
                rows.flow(step, paths)
                _put(clock, rows.clock(step))
                _put(events, rows.events(step))
                _put(holes, rows.gaps(step))
        paths.flush()


def _put(writer: TableWriter, rows: pa.Table | None) -> None:
    if rows is not None and rows.num_rows:
        writer.write(rows)


class _Flow:
    """The rows of `flow`: they are most of what is written, so they go through one row group's memory, used again."""

    def __init__(self, writer: TableWriter) -> None:
        self._writer = writer
        self._size = ROW_GROUP
        self._count = 0
        self._thread, self._path = np.empty(self._size, np.int32), np.empty(self._size, np.int32)
        self._seq = np.empty(self._size, np.int64)
        self._to_path = ffi.from_buffer("int32_t[]", self._path, require_writable=True)
        self._to_seq = ffi.from_buffer("int64_t[]", self._seq, require_writable=True)

    def add(self, thread: int, numbers: Any, ids: npt.NDArray[np.int32], seq: int) -> int:
        """Add paths of a thread, the first of them at block `seq`; the seq after them, negative for a bad id."""
        taken, source = 0, ffi.from_buffer("int32_t[]", ids)
        while taken < len(ids) and seq >= 0:
            count = min(len(ids) - taken, self._size - self._count)
            seq = int(lib.ptd_renumber_flow(numbers, source + taken, count, seq, self._to_path + self._count,
                                            self._to_seq + self._count))
            self._thread[self._count:self._count + count] = thread
            self._count += count
            taken += count
            if self._count == self._size:
                self.flush()
        return seq

    def flush(self) -> None:
        """Write what is there."""
        if self._count:
            columns = [pa.array(column[:self._count]) for column in (self._thread, self._seq, self._path)]
            self._writer.write(pa.Table.from_arrays(columns, schema=schemas.FLOW.schema))
        self._count = 0


class _Opened:
    """A task's file, and what its paths are called in the whole. Steps that are `kept` are read once."""

    def __init__(self, path: Path, *, kept: bool) -> None:
        self._file = TaskFile(path, (*(name for name in _STEP_COLUMNS), "path_length"))
        self.steps = self._file.steps
        self._kept: dict[int, dict[str, pa.Array]] | None = {} if kept else None
        self._starts: dict[str, list[int]] | None = None
        self._length = np.ascontiguousarray(self._file.row(self.steps)["path_length"].to_numpy())
        self._map = read_map(path)
        if len(self._map) != len(self._length):
            raise damaged(path)
        self.numbers = ffi.new("struct ptd_renumbering *", {
            "count": len(self._map), "map": ffi.from_buffer("int32_t[]", self._map),
            "length": ffi.from_buffer("int32_t[]", self._length)})

    def row(self, number: int) -> dict[str, pa.Array]:
        if self._kept is None:
            return self._file.row(number)
        if number not in self._kept:
            self._kept[number] = self._file.row(number)
        return self._kept[number]

    def steps_of(self, rows: dict[str, tuple[int, int]]) -> Iterator[tuple[dict[str, pa.Array], dict[str, int]]]:
        """The steps in which rows of a piece are, each with how many rows of each kind are before it."""
        if self._kept is None:
            before = dict.fromkeys(KINDS, 0)
            for number in range(self.steps):
                yield (row := self.row(number)), dict(before)
                for kind in KINDS:
                    before[kind] += len(row[_FIRST[kind]])
            return
        starts = self._starts = self._starts or self._all_starts()
        some = [kind for kind in KINDS if rows[kind][0] < rows[kind][1]]
        first = min((bisect_right(starts[kind], rows[kind][0]) - 1 for kind in some), default=0)
        last = max((bisect_left(starts[kind], rows[kind][1]) for kind in some), default=0)
        for number in range(first, min(last, self.steps)):
            yield self.row(number), {kind: starts[kind][number] for kind in KINDS}

    def _all_starts(self) -> dict[str, list[int]]:
        return {kind: [0, *accumulate(len(self.row(number)[_FIRST[kind]]) for number in range(self.steps))]
                for kind in KINDS}


class _Files:
    """The files of a part's pieces. A processor's trace has a piece for each switch, thousands in one file: it is open
    until its last one."""

    def __init__(self, pieces: Iterable[Piece]) -> None:
        self._left = Counter(piece.file for piece in pieces)
        self._open: dict[Path, _Opened] = {}

    def of(self, piece: Piece) -> _Opened:
        """The file of the part's next piece. Raises BadInput when it is damaged."""
        path = piece.file
        self._left[path] -= 1
        opened = self._open.pop(path, None) or _Opened(path, kept=self._left[path] > 0)
        if self._left[path]:
            self._open[path] = opened
        return opened


class _Rows:
    """The rows of a piece, as the tables want them."""

    def __init__(self, piece: Piece, file: _Opened, clocks: Clocks) -> None:
        self.piece = piece
        self.clocks = clocks
        self.file = file
        self.offset = piece.seq - piece.begin
        self.seq = piece.seq
        self.tsc = piece.tsc
        self.resume = piece.resume

    def steps(self) -> Iterator[dict[str, pa.Array]]:
        """The task's steps, each cut to the rows that are the piece's."""
        for row, before in self.file.steps_of(self.piece.rows):
            cut: dict[str, pa.Array] = {}
            sizes = {kind: len(row[_FIRST[kind]]) for kind in KINDS}
            for name, values in row.items():
                kind = name.split("_")[0]
                if kind in sizes:
                    if len(values) != sizes[kind]:
                        raise damaged(self.piece.file)
                    begin, stop = (min(max(at - before[kind], 0), len(values)) for at in self.piece.rows[kind])
                    cut[name] = values.slice(begin, stop - begin)
            yield cut

    def flow(self, step: dict[str, pa.Array], ret: _Flow) -> None:
        ids = step["flow"].to_numpy()
        if len(ids):
            self.seq = ret.add(self.piece.thread, self.file.numbers, ids, self.seq)
            if self.seq < 0:
                raise damaged(self.piece.file)

    def clock(self, step: dict[str, pa.Array]) -> pa.Table | None:
        seq, tsc, before = step["clock_seq"], step["clock_tsc"], step["clock_before"]
        if len(tsc) and self.tsc and tsc[0].as_py() == self.tsc:
            seq, tsc, before = seq.slice(1), tsc.slice(1), before.slice(1)  # nothing new after what was known before
        if not len(tsc):
            return None
        self.tsc = 0  # from now on each row knows
        return pa.table({"thread": self._thread(len(tsc)), "seq": self._seqs(seq), "tsc": tsc,
                         "t": pa.array(times(tsc, self.clocks)), "before": before})

    def events(self, step: dict[str, pa.Array]) -> pa.Table | None:
        kinds = step["event_kind"]
        if not len(kinds):
            return None
        return pa.table({
            "thread": self._thread(len(kinds)), "seq": self._seqs(step["event_seq"]),
            "tsc": self._known(step["event_tsc"]), "kind": coded(kinds, EVENTS), "ip": step["event_ip"],
            "target": step["event_target"], "offset": step["event_offset"], "detail": self._details(step),
            "size": step["event_size"], "update": step["event_update"], "lost_mtc": step["event_lost_mtc"],
            "lost_cyc": step["event_lost_cyc"]})

    def gaps(self, step: dict[str, pa.Array]) -> pa.Table | None:
        tsc = self._known(step["gap_tsc"])
        if not len(tsc):
            return None
        return pa.table({
            "thread": self._thread(len(tsc)), "seq": self._seqs(step["gap_seq"]),
            "t": pa.array(times(tsc, self.clocks), mask=tsc.to_numpy() == 0), "kind": step["gap_kind"],
            "bytes": step["gap_bytes"], "offset": step["gap_offset"], "ip": step["gap_ip"],
            "detail": step["gap_detail"]})

    def _details(self, step: dict[str, pa.Array]) -> pa.Array:
        """The events' details; the first enabled event of the task may resume what was turned off before it."""
        details, resume = step["event_detail"], self.resume
        if resume is None:
            return details
        kinds = step["event_kind"].to_numpy()
        stop = np.flatnonzero((kinds == ENABLED) | (kinds == OVERFLOW) | (
            step["event_seq"].to_numpy() != self.piece.begin))
        if not len(stop):
            return details
        self.resume = None
        at = int(stop[0])
        begins = kinds[at] == ENABLED and step["event_seq"][at].as_py() == self.piece.begin
        if not begins or step["event_target"][at].as_py() != resume:
            return details
        return pc.if_else(pa.array(np.arange(len(kinds)) == at), pa.scalar(1, pa.int64()), details)

    def _known(self, tsc: pa.Array) -> pa.Array:
        """Times, where the task did not know any yet that of what came before it."""
        if not self.piece.tsc:
            return tsc
        ticks = tsc.to_numpy()
        return pa.array(np.where(ticks == 0, np.uint64(self.piece.tsc), ticks))

    def _thread(self, count: int) -> pa.Array:
        return pa.repeat(pa.scalar(self.piece.thread, pa.int32()), count)

    def _seqs(self, seqs: pa.Array) -> pa.Array:
        return pa.array(seqs.to_numpy() + np.int64(self.offset))


_FIRST: dict[str, str] = {"flow": "flow", "clock": "clock_seq", "event": "event_seq", "gap": "gap_seq"}
_STEP_COLUMNS = ("flow", "clock_seq", "clock_tsc", "clock_before", "event_seq", "event_tsc", "event_kind", "event_ip",
                 "event_target", "event_offset", "event_detail", "event_size", "event_update", "event_lost_mtc",
                 "event_lost_cyc", "gap_seq", "gap_tsc", "gap_kind", "gap_bytes", "gap_offset", "gap_ip", "gap_detail")
