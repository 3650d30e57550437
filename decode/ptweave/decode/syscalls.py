# SPDX-License-Identifier: MIT
"""The system calls a program made: `decoded/syscalls.parquet` from the soft engine's logs and the kernel's record.

The engine's log (`trace/<thread>.sys`) says which calls the program made and what it saw; the kernel's record
(`events/syscalls.arrow`) adds paths and exact times, and holds the engine's own calls too, which are left out here.
Where there is no log (other engines), the kernel's record is all and every call in it is the program's. Where the
kernel could not be asked, the log is all.

A call of the log has the results the program saw. Two that the log cannot have come from the kernel's row: that of an
exec that succeeded, and that of a call that was interrupted to be made again (ERESTART…).
"""

from __future__ import annotations

import bisect
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ptweave.data import syscall_table
from ptweave.data.bundle import Bundle
from ptweave.data.call_columns import PATH_COUNTS, per_number
from ptweave.data.ledger import Ledger
from ptweave.data.manifest import Clocks
from ptweave.data.parquet_writer import ParquetWriter
from ptweave.data.schemas import DECODED_SYSCALLS
from ptweave.data.syslog import SYSLOG_DTYPE
from ptweave.data.table_writer import ROW_GROUP
from ptweave.decode._join import ffi, lib
from ptweave.decode.births import Births
from ptweave.decode.raw_syscalls import (
    NO_THREAD,
    ROW_RETURNED,
    FileNames,
    MappedRows,
    Recording,
    Rows,
    Spill,
    TaskTable,
)
from ptweave.decode.syscall_columns import KERNEL, Calls, to_batch

_BLOCK = 1 << 17
"""Calls worked on at a time."""

_SLACK_NS = 1_000  # clock error within which a kernel row counts as inside a call
_TOLERANCE_NS = 1_000_000
_SEARCH_NS = 5_000_000  # clock error looked for
_EXECS = tuple(syscall_table.NUMBERS[name] for name in ("execve", "execveat"))
_EXIT = syscall_table.NUMBERS["exit"]
_ENGINE = [b"/proc/thread-self/exe"]  # what the engine executes where it is to run the program: itself
_SYSCALL_INSTRUCTION = 2  # bytes; the kernel reports the address behind it


@dataclass
class Counts:
    """What became of the calls."""

    rows: int = 0
    engine_own: int = 0
    joined: int = 0  # calls of the log with the kernel's row
    no_kernel_row: int = 0  # calls the kernel was asked for, not begun again nor last of a killed task, without one


def decode_syscalls(bundle: Bundle, ledger: Ledger | None = None) -> int:
    """Write `decoded/syscalls.parquet` (schemas.DECODED_SYSCALLS, sorted by thread and index); returns its rows.

    The account goes into `ledger`, or when none is given into the bundle's. Raises BadInput when a recording is
    malformed.
    """
    counts = Counts()
    target = bundle.decoded / "syscalls.parquet"
    partial = target.with_name(target.name + ".partial")
    path = bundle.events / "syscalls.arrow"
    recording = Recording(path) if path.exists() else None
    logs = {int(path.stem): path for path in bundle.trace.glob("*.sys") if path.stem.isdecimal()}
    tasks = TaskTable.load(bundle.sideband, bundle.manifest.clocks)
    own = ledger if ledger is not None else bundle.ledger()
    births = Births(sure=not tasks.elsewhere and not _images_lost(own, "no file could be made for it"),
                    execs_sure=not _images_lost(own, "what it executed left no file"))
    with tempfile.TemporaryDirectory(dir=bundle.decoded, prefix=".syscalls-") as scratch:
        spill = Spill(Path(scratch))
        with closing(spill.memory), _Writer(partial) as writer:
            spill.fill(recording or (), tasks, FileNames(path.with_name("files.arrow")), births.note)
            for calls in _all_calls(bundle.manifest.clocks, logs, tasks, spill, counts, births):
                writer.write(to_batch(calls, spill.memory))
    partial.replace(target)
    _account(own, counts, recording)
    if ledger is None:
        bundle.save_ledger(own)
    return counts.rows


def _images_lost(ledger: Ledger, why: str) -> bool:
    """Whether there may be processes that the engine ran, but of which it left no files."""
    return "processes" in ledger and why in ledger["processes"].lost


def _all_calls(clocks: Clocks, logs: dict[int, Path], tasks: TaskTable, spill: Spill,
               counts: Counts, births: Births) -> Iterator[Calls]:
    for thread in sorted({*logs, *spill.counts} - {NO_THREAD}):
        rows = spill.rows(thread)
        parts = _joined(thread, _read_log(logs[thread]), rows, clocks, tasks, spill, counts,
                        births) if thread in logs else _kernel_only(thread, rows)
        for part in parts:
            counts.rows += len(part.number)
            yield part
    rows = spill.rows(NO_THREAD)
    for begin in range(0, len(rows.array), _BLOCK):
        block = rows.array[begin:begin + _BLOCK]
        if logs:  # a process that has threads ran the engine; what no thread of it did is the engine's
            traced = np.isin(block["pid"], np.fromiter(tasks.pids, dtype=np.int64, count=len(tasks.pids)))
            own = traced | births.under_engine(block)
            counts.engine_own += int(own.sum())
            block = block[~own]
        counts.rows += len(block)
        yield _from_kernel(NO_THREAD, block)
        rows.forget(begin)


def _kernel_only(thread: int, rows: MappedRows, first: int = 0) -> Iterator[Calls]:
    for begin in range(first, len(rows.array), _BLOCK):
        yield _from_kernel(thread, rows.array[begin:begin + _BLOCK])
        rows.forget(begin)


def _from_kernel(thread: int, block: Rows) -> Calls:
    """Rows of the kernel as they are."""
    return Calls(
        thread=thread, index=None, source=np.full(len(block), KERNEL, dtype=np.int8),
        pid=block["pid"], tid=block["tid"], t_enter=block["t_enter"], t_exit=block["t_exit"],
        result=block["result"], returned=(block["flags"] & ROW_RETURNED) != 0,
        number=block["number"], args=block["args"], ip=block["ip"] - np.uint64(_SYSCALL_INSTRUCTION),
        memory=block["memory"])


# --- the join ------------------------------------------------------------------------------------------------------


def _read_log(path: Path) -> MappedRows:
    """A log, mapped; half a record at its end is not one."""
    return MappedRows(path, SYSLOG_DTYPE, path.stat().st_size // SYSLOG_DTYPE.itemsize)


@dataclass(frozen=True)
class _Part:
    """What one task of a thread did: from and to which record of its log, and which row."""

    log: tuple[int, int]
    rows: tuple[int, int]


def _parts(log: MappedRows, rows: MappedRows, before: int) -> list[_Part]:
    """The first `before` rows are of a task that the thread was until it called exit and went on as another."""
    ends = np.flatnonzero(log.array["number"] == _EXIT)
    whole = _Part((0, len(log.array)), (0, len(rows.array)))
    if not before or not len(ends):
        return [whole]
    end = int(ends[0]) + 1
    return [_Part((0, end), (0, before)), _Part((end, whole.log[1]), (before, whole.rows[1]))]


class _Joiner:
    """One task's walk through its log and its rows, side by side.

    `part`: which records of the thread's log and which of its rows are the task's.
    """

    def __init__(self, log: MappedRows, rows: MappedRows, clocks: Clocks, part: _Part) -> None:
        self._mapped = (log, rows)
        self.part = part
        self.log = log.array[part.log[0]:part.log[1]]
        self.rows = rows.array[part.rows[0]:part.rows[1]]
        self._clock = ffi.new("struct ptw_clock *", {
            "tsc0": clocks.tsc0, "tsc1": clocks.tsc1, "t0": clocks.t0_ns, "t1": clocks.t1_ns})
        nargs = bytes(min(syscall_table.nargs_of(number), 6) for number in range(512))
        self._nargs = ffi.new("uint8_t[]", nargs)
        self._cursor = ffi.new("uint64_t *")
        self._rows = ffi.from_buffer("struct ptw_row[]", self.rows) if len(self.rows) else ffi.NULL
        self.shift = 0

    def times(self, begin: int, end: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Times in ns of calls [begin, end); an exit that never was is 0."""
        t_enter, t_exit = np.zeros(end - begin, np.int64), np.zeros(end - begin, np.int64)
        if end > begin:
            lib.ptw_join_times(self._clock, ffi.from_buffer("struct ptw_call[]", self.log[begin:end]), end - begin,
                               ffi.from_buffer("int64_t[]", t_enter), ffi.from_buffer("int64_t[]", t_exit))
        return t_enter, t_exit

    def match(self, begin: int, end: int) -> npt.NDArray[np.int64]:
        """Row of each call in [begin, end), -1 for none; advances. Learns first how far the clocks are apart."""
        loose, _ = self._match(begin, end, 0, _SEARCH_NS, self._cursor[0])
        self.shift = self._apart(begin, end, loose)
        exact, self._cursor[0] = self._match(begin, end, self.shift, _TOLERANCE_NS, self._cursor[0])
        return exact

    def _apart(self, begin: int, end: int, match: npt.NDArray[np.int64]) -> int:
        """How far the kernel's clock is ahead, as far as it must be: rows begin and end within their calls.

        Where lost rows leave no such number, as far as it was.
        """
        t_enter, t_exit = self.times(begin, end)
        found = np.flatnonzero((match >= 0) & (t_exit != 0))
        if not len(found):
            return self.shift
        rows = self.rows[match[found]]
        most = float(np.percentile(rows["t_enter"] - t_enter[found], 10))
        least = float(np.percentile(rows["t_exit"] - t_exit[found], 90))
        shift = min(max(0.0, least), most)
        return int(shift) if least <= most and abs(shift) <= _SEARCH_NS else self.shift

    def _match(self, begin: int, end: int, shift: int, tolerance: int,
               cursor: int) -> tuple[npt.NDArray[np.int64], int]:
        match = np.full(end - begin, -1, dtype=np.int64)
        if end <= begin or not len(self.rows):
            return match, cursor
        at = ffi.new("uint64_t *", cursor)
        join = ffi.new("struct ptw_join *", {
            "clock": self._clock, "nargs": self._nargs, "shift": shift, "tolerance": tolerance,
            "slack": tolerance if tolerance == _SEARCH_NS else _SLACK_NS})
        following: Any = ffi.NULL
        if end < len(self.log):
            following = ffi.from_buffer("struct ptw_call[]", self.log[end:end + 1])
        lib.ptw_join_calls(join, ffi.from_buffer("struct ptw_call[]", self.log[begin:end]), end - begin, following,
                           self._rows, len(self.rows), at, ffi.from_buffer("int64_t[]", match))
        return match, int(at[0])

    def forget(self, index: int) -> None:
        """The calls before this one are done with, and so are the rows before the cursor."""
        log, rows = self._mapped
        log.forget(self.part.log[0] + index)
        rows.forget(self.part.rows[0] + int(self._cursor[0]))

    def begin(self, index: int) -> int:
        """When a call began, on the rows' clock."""
        return int(self.times(index, index + 1)[0][0]) + self.shift

    def end(self, index: int) -> int | None:
        """When it had ended at the latest: when it returned, or the next began; None for the end of time."""
        exit_ = int(self.times(index, index + 1)[1][0])
        if exit_:
            return exit_ + self.shift
        return self.begin(index + 1) if index + 1 < len(self.log) else None

    def rows_during(self, index: int) -> Rows:
        """The rows that began during a call."""
        times, end = self.rows["t_enter"], self.end(index)
        first = bisect.bisect_left(times, self.begin(index))
        return self.rows[first:None if end is None else bisect.bisect_right(times, end, lo=first)]


def _joined(thread: int, mapped_log: MappedRows, rows: MappedRows, clocks: Clocks, tasks: TaskTable, spill: Spill,
            counts: Counts, births: Births) -> Iterator[Calls]:
    task = tasks.by_thread.get(thread)
    ids = (task.pid, task.tid) if task else (0, 0)
    parts = _parts(mapped_log, rows, spill.before.get(thread, 0))
    for part in parts:
        joiner = _Joiner(mapped_log, rows, clocks, part)
        used = yield from _join(thread, ids, joiner, spill, counts)
        native = _native_from(joiner, tasks, ids[0], spill, births) if part is parts[-1] else len(joiner.rows)
        if native < len(joiner.rows):
            births.went_native(thread, int(joiner.rows["t_enter"][native]))
        counts.joined += used
        counts.engine_own += native - used
    yield from _kernel_only(thread, rows, parts[-1].rows[0] + native)


def _join(thread: int, ids: tuple[int, int], joiner: _Joiner, spill: Spill,
          counts: Counts) -> Generator[Calls, None, int]:
    """A task's calls, block by block; returns how many of its rows are calls of its log."""
    log, used = joiner.log, 0
    for begin in range(0, len(log), _BLOCK):
        end = min(begin + _BLOCK, len(log))
        match = joiner.match(begin, end)
        used += int((match >= 0).sum())
        # a signal may come when the kernel was about to be asked: the call is made again, and logged again
        asked = (log["flags"][begin:end] & (lib.PTW_CALL_ANSWERED | lib.PTW_CALL_RESTARTED)) == 0
        if end == len(log):  # a task killed there asks no more: it looks like one that was killed in the call
            asked[-1] &= log["tsc_exit"][-1] != 0
        counts.no_kernel_row += int((asked & (match < 0)).sum())
        yield _block(thread, ids, joiner, begin, match, spill)
        joiner.forget(end)
    return used


def _block(thread: int, ids: tuple[int, int], joiner: _Joiner, begin: int, match: npt.NDArray[np.int64],
           spill: Spill) -> Calls:
    """The calls of a block of the log with what the kernel's rows add."""
    end = begin + len(match)
    log = joiner.log[begin:end]
    t_enter, t_exit = joiner.times(begin, end)
    returned = log["tsc_exit"] != 0
    result = np.array(log["result"])
    memory = np.full(len(match), -1, dtype=np.int64)
    pid, tid = np.full(len(match), ids[0], np.int32), np.full(len(match), ids[1], np.int32)
    found = np.flatnonzero(match >= 0)
    if len(found):
        rows = joiner.rows[match[found]]
        pid[found], tid[found], memory[found] = rows["pid"], rows["tid"], rows["memory"]
        t_enter[found] = rows["t_enter"]
        kernel_returned = (rows["flags"] & ROW_RETURNED) != 0
        t_exit[found] = np.where(kernel_returned & returned[found], rows["t_exit"], t_exit[found])
        again = kernel_returned & ((log["flags"][found] & lib.PTW_CALL_RESTARTED) != 0)
        t_exit[found[again]], result[found[again]] = rows["t_exit"][again], rows["result"][again]
        returned[found[again]] = True
    first = joiner.part.log[0]
    calls = Calls(thread=thread, index=np.arange(first + begin, first + end), source=(match >= 0).astype(np.int8),
                  pid=pid, tid=tid, t_enter=t_enter, t_exit=t_exit, result=result, returned=returned,
                  number=log["number"].astype(np.int32), args=np.array(log["args"]), ip=np.array(log["ip"]),
                  memory=memory)
    if len(joiner.rows):
        _complete_execs(calls, joiner, begin)
        _find_paths(calls, joiner, begin, spill)
    return calls


def _complete_execs(calls: Calls, joiner: _Joiner, begin: int) -> None:
    """An exec that succeeded did not return to the engine that logged it; the kernel saw its end.

    The engine makes the exec in its own way, so that it is no row of the program's.
    """
    for at in np.flatnonzero(np.isin(calls.number, _EXECS) & ~calls.returned).tolist():
        rows = joiner.rows_during(begin + at)
        done = rows[np.isin(rows["number"], _EXECS) & (rows["result"] == 0) & ((rows["flags"] & ROW_RETURNED) != 0)]
        if len(done):
            calls.returned[at], calls.result[at], calls.t_exit[at] = True, 0, done["t_exit"][0]


def _find_paths(calls: Calls, joiner: _Joiner, begin: int, spill: Spill) -> None:
    """Paths of calls the engine answered itself: where it gave the kernel the program's own pointer meanwhile."""
    of = [(at, _path_arguments(int(calls.number[at]))) for at in
          np.flatnonzero((calls.memory < 0) & _have_paths(calls.number)).tolist()]
    likely = [_with_pointers(joiner.rows_during(begin + at), calls.args[at][list(arguments)]) for at, arguments in of]
    texts = iter(spill.memory.paths(np.concatenate([rows["memory"] for rows in likely])) if likely else ())
    for (at, arguments), rows in zip(of, likely, strict=True):
        known: dict[int, bytes] = {}
        for row in rows:
            for argument, text in zip(_path_arguments(int(row["number"])), next(texts), strict=False):
                if text is not None:
                    known.setdefault(int(row["args"][argument]), text)
        wanted = [int(calls.args[at][argument]) for argument in arguments]
        if any(pointer in known for pointer in wanted):
            calls.memory[at] = spill.memory.add([known.get(pointer) for pointer in wanted])


def _have_paths(numbers: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
    """Whether calls of these numbers have paths among their arguments."""
    return per_number(PATH_COUNTS, numbers, 0) > 0


def _path_arguments(number: int) -> Sequence[int]:
    return syscall_table.SYSCALLS[number].paths


def _with_pointers(rows: Rows, pointers: npt.NDArray[np.uint64]) -> Rows:
    """The rows with paths that have one of these pointers among their arguments: few of the thousands that an exec
    lasts for, which are the engine's own while it begins."""
    with_paths = rows[(rows["memory"] >= 0) & _have_paths(rows["number"])]
    found: Rows = with_paths[(with_paths["args"][:, :, np.newaxis] == pointers).any(axis=(1, 2))]
    return found


def _native_from(joiner: _Joiner, tasks: TaskTable, pid: int, spill: Spill, births: Births) -> int:
    """The first row behind the exec of a program that the engine cannot run, which runs without it: all that follow
    are the program's. The number of rows when there is no such exec, or the engine was executed and killed."""
    log, rows = joiner.log, joiner.rows
    last = len(log) - 1
    if last < 0 or not len(rows) or int(log["number"][last]) not in _EXECS or log["tsc_exit"][last] \
            or log["flags"][last] & lib.PTW_CALL_RESTARTED:
        return len(rows)
    begin = joiner.begin(last)
    if tasks.exec_after(pid, begin - joiner.shift):
        return len(rows)
    for at in range(bisect.bisect_left(rows["t_enter"], begin - _SLACK_NS), len(rows)):
        row = rows[at]
        if int(row["number"]) in _EXECS and row["result"] == 0 and row["flags"] & ROW_RETURNED:
            own = births.execs_sure and spill.memory.paths(rows["memory"][at:at + 1]) == [_ENGINE]
            return len(rows) if own else at + 1
    return len(rows)


# --- what is written -----------------------------------------------------------------------------------------------


class _Writer:
    """A Parquet file of decoded calls; small batches are gathered into row groups."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pending: list[pa.RecordBatch] = []
        self._rows = 0

    def __enter__(self) -> _Writer:
        self._writer = ParquetWriter(str(self._path), DECODED_SYSCALLS, compression="zstd", compression_level=1,
                                        use_dictionary=["thread", "name", "errno", "source"])
        return self

    def write(self, batch: pa.RecordBatch) -> None:
        self._pending.append(batch)
        self._rows += batch.num_rows
        if self._rows >= ROW_GROUP // 4:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_table(pa.Table.from_batches(self._pending, DECODED_SYSCALLS))
        self._pending, self._rows = [], 0

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            self._flush()
        self._writer.close()
        if error[0] is not None:
            self._path.unlink(missing_ok=True)


def _account(ledger: Ledger, counts: Counts, recording: Recording | None) -> None:
    """Set the streams of this stage; running it again replaces them."""
    for name, unit, stored, lost in (
        ("syscalls", "calls", counts.rows, {}),
        ("syscalls/engine_own", "calls", counts.engine_own, {}),
        ("syscalls/joined", "calls", counts.joined, {"no_kernel_row": counts.no_kernel_row if recording else 0}),
        ("syscalls/recording", "batches", 0, {"cut_off": int(recording is not None and recording.cut_off)}),
    ):
        if name in ledger:
            stream = ledger[name]
            stream.produced = stream.stored = 0
            stream.lost.clear()
        if name == "syscalls" or stored or any(lost.values()):
            ledger.add(name, unit, stored=stored, lost=lost)
