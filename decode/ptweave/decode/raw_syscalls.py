# SPDX-License-Identifier: MIT
"""The kernel's record of system calls (`events/syscalls.arrow`), read in bounded memory and sorted out by thread."""

from __future__ import annotations

import bisect
import mmap
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ptweave.data.call_columns import text_of
from ptweave.data.errors import BadInput
from ptweave.data.manifest import Clocks
from ptweave.data.schemas import CAPTURES, RAW_FILES, RAW_SYSCALLS, RAW_SYSCALLS_1
from ptweave.data.sideband import SidebandKind, read_sideband

ROW_DTYPE = np.dtype([
    ("t_enter", "<i8"), ("t_exit", "<i8"), ("result", "<i8"), ("ip", "<u8"), ("args", "<u8", (6,)),
    ("number", "<i4"), ("pid", "<i4"), ("tid", "<i4"), ("flags", "<u4"), ("memory", "<i8"),
])
"""A row of fixed size: `struct ptw_row` of decode/src/join.h. `memory` is an ordinal in the MemoryStore, -1 for
none."""

ROW_RETURNED = 1  # in flags: t_exit and result hold

NO_THREAD = -1

_TOLERANCE_NS = 1_000_000  # how far the sideband's and the kernel's times of one moment may be apart

Rows = npt.NDArray[np.void]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Task:
    """A thread of the run, with the time it lived as the sideband has it (`end` None: to the end)."""

    thread: int
    pid: int
    tid: int
    begin: int
    end: int | None


class TaskTable:
    """Which thread a task was at a time: the kernel uses its numbers again."""

    def __init__(self, tasks: Sequence[Task], execs: Sequence[tuple[int, int]] = (), *,
                 elsewhere: bool = False) -> None:
        """`execs`: (pid, time) of every program begun by an exec and traced. `elsewhere`: some have numbers of another
        pid namespace."""
        self._execs = sorted(execs)
        self.by_thread = {task.thread: task for task in sorted(tasks, key=lambda task: task.begin)}  # as it was last
        self._former = self._find_former(tasks)
        self.elsewhere = elsewhere
        self._by_ids: dict[tuple[int, int], list[Task]] = {}
        for task in sorted(tasks, key=lambda task: task.begin):
            self._by_ids.setdefault((task.pid, task.tid), []).append(task)
        self.pids = {task.pid for task in tasks}

    @classmethod
    def load(cls, sideband: Path, clocks: Clocks) -> TaskTable:
        """From the thread rows of a sideband; empty when there is none."""
        if not sideband.exists():
            return cls([])
        table = read_sideband(sideband).select(["kind", "tsc", "pid", "tid", "thread", "value", "detail"])
        execs: list[tuple[int, int]] = []
        begun: list[tuple[int, int, int, int]] = []
        ended: dict[tuple[int, int, int], list[int]] = {}
        elsewhere = False
        for row in table.to_pylist():
            if row["kind"] == SidebandKind.PROCESS and row["detail"] == "fork":
                elsewhere |= row["value"] == 0  # its parent has no number there
            if row["kind"] == SidebandKind.PROCESS and row["detail"] == "exec":
                execs.append((row["pid"], clocks.to_ns(row["tsc"])))
            if row["kind"] not in (SidebandKind.THREAD, SidebandKind.THREAD_EXIT) or row["thread"] is None:
                continue
            ids = (row["thread"], row["pid"], row["tid"] or 0)
            if row["kind"] == SidebandKind.THREAD:
                begun.append((*ids, clocks.to_ns(row["tsc"])))
            else:
                ended.setdefault(ids, []).append(clocks.to_ns(row["tsc"]))
        return cls([Task(thread, pid, tid, begin,
                         min((end for end in ended.get((thread, pid, tid), []) if end >= begin), default=None))
                    for thread, pid, tid, begin in begun], execs, elsewhere=elsewhere)

    @staticmethod
    def _find_former(tasks: Sequence[Task]) -> dict[int, set[tuple[int, int]]]:
        """Of threads that went on as another task: pid and tid of those they were before."""
        by_thread: dict[int, list[Task]] = {}
        for task in sorted(tasks, key=lambda task: task.begin):
            by_thread.setdefault(task.thread, []).append(task)
        return {thread: {(task.pid, task.tid) for task in lives[:-1]} - {(lives[-1].pid, lives[-1].tid)}
                for thread, lives in by_thread.items() if len(lives) > 1}

    def before(self, thread: int, rows: Rows) -> npt.NDArray[np.bool_]:
        """Of a thread's rows, which are of tasks it was before it went on as its last one."""
        found = np.zeros(len(rows), np.bool_)
        for pid, tid in self._former.get(thread, ()):
            found |= (rows["pid"] == pid) & (rows["tid"] == tid)
        return found

    def exec_after(self, pid: int, time: int) -> bool:
        """Whether the process began another traced program after that time."""
        at = bisect.bisect_left(self._execs, (pid, time - _TOLERANCE_NS))
        return at < len(self._execs) and self._execs[at][0] == pid

    def threads(self, pid: Numbers, tid: Numbers, time: Numbers) -> Numbers:
        """Thread numbers of tasks at times (ns); NO_THREAD where the task has none in the whole run.

        A task is the thread that lived then; before its first moment the one it becomes; after its last the one it
        was, unless another has begun.
        """
        thread = np.full(len(tid), NO_THREAD, dtype=np.int64)
        ids = (pid.astype(np.int64) << 32) | (tid.astype(np.int64) & 0xFFFFFFFF)
        for one in np.unique(ids):
            lives = self._by_ids.get((int(one) >> 32, int(np.int32(int(one) & 0xFFFFFFFF))))
            if not lives:
                continue
            where = np.flatnonzero(ids == one)
            if len(lives) == 1:
                thread[where] = lives[0].thread
                continue
            begins = np.array([life.begin for life in lives])
            ends = np.array([life.end if life.end is not None else np.iinfo(np.int64).max >> 1 for life in lives])
            at = np.maximum(np.searchsorted(begins, time[where] + _TOLERANCE_NS, side="right") - 1, 0)
            over = (time[where] > ends[at] + _TOLERANCE_NS) & (at + 1 < len(lives))
            thread[where] = np.array([life.thread for life in lives])[at + over]
        return thread


@dataclass(frozen=True)
class Format:
    """What a stream must be: `schemas` by the version that `key` of its metadata says."""

    what: str
    key: bytes
    schemas: dict[bytes, pa.Schema]


CALLS = Format("system calls", b"ptweave.raw_syscalls", {b"1": RAW_SYSCALLS_1, b"2": RAW_SYSCALLS})
FILES = Format("files", b"ptweave.raw_files", {b"1": RAW_FILES})


class Recording:
    """A recording, read batch by batch to its last whole one: a recorder that was killed leaves half a one behind.

    `cut_off` tells, once all batches are read, whether that is so.
    """

    def __init__(self, path: Path, form: Format = CALLS) -> None:
        self._path = path
        self._form = form
        self.cut_off = False

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self.batches()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Raises BadInput when the file is none of ours, or what it holds is malformed."""
        with pa.OSFile(str(self._path), "rb") as source:
            if source.size() == 0:
                return
            yield from self._read(self._open(source))

    def _open(self, source: pa.NativeFile) -> pa.ipc.RecordBatchStreamReader:
        form = self._form
        try:
            reader = pa.ipc.open_stream(source)
        except (OSError, pa.ArrowException) as error:
            raise BadInput(f"is no recording of {form.what} ({error})", where=str(self._path),
                           remedy="record the run again") from error
        version = (reader.schema.metadata or {}).get(form.key)
        expected = form.schemas.get(version or b"")
        if expected is None or not reader.schema.equals(expected):
            known = " or ".join(one.decode() for one in form.schemas)
            raise BadInput(f"holds other columns than {form.what} of version {known} (it says {version!r})",
                           where=str(self._path), remedy="use a newer ptweave")
        return reader

    def _read(self, reader: pa.ipc.RecordBatchStreamReader) -> Iterator[pa.RecordBatch]:
        while True:
            try:
                batch = reader.read_next_batch()
            except StopIteration:
                return
            except (OSError, pa.ArrowException):
                self.cut_off = True
                return
            try:
                batch.validate(full=True)
            except pa.ArrowException as error:
                raise BadInput(f"holds a malformed batch ({error})", where=str(self._path),
                               remedy="record the run again") from error
            yield batch


def _filled(column: pa.Array) -> npt.NDArray[np.int64]:
    """Values as int64, 0 for nulls."""
    return np.asarray(column.fill_null(0)).astype(np.int64, copy=False)


def to_rows(batch: pa.RecordBatch) -> Rows:
    """Rows of fixed size of a batch; `memory` is still -1 everywhere."""
    rows = np.zeros(batch.num_rows, dtype=ROW_DTYPE)
    for name in ("t_enter", "t_exit", "result", "number", "pid", "tid"):
        rows[name] = _filled(batch.column(name))
    rows["ip"] = np.asarray(batch.column("ip").fill_null(0))
    rows["args"] = np.asarray(batch.column("args").flatten().fill_null(0)).reshape(-1, 6)
    rows["flags"] = np.where(np.asarray(batch.column("t_exit").is_valid()), ROW_RETURNED, 0)
    rows["memory"] = -1
    return rows


def _memory(batch: pa.RecordBatch, files: FileNames) -> tuple[pa.StructArray, Numbers]:
    """MEMORY of the rows of a batch that have any, and which these are."""
    rows = batch.num_rows
    paths = batch.column("paths").fill_null([])
    has = np.asarray(paths.value_lengths()) > 0
    ids = np.zeros((rows, 3), np.uint64)
    data = pa.array([[]] * rows, CAPTURES)
    if "files" in batch.schema.names:  # since version 2
        ids = np.asarray(batch.column("files").flatten().fill_null(0)).reshape(-1, 3) if rows else ids
        data = batch.column("captures")
        data = data if data.null_count == 0 else data.fill_null([])
        has |= (ids != 0).any(axis=1) | (np.asarray(data.value_lengths()) > 0)
    filled = np.flatnonzero(has)
    names = files.names(ids[filled].reshape(-1))
    described = pa.ListArray.from_arrays(pa.array(np.arange(len(filled) + 1, dtype=np.int32) * 3), names)
    taken = pa.array(filled)
    return pa.StructArray.from_arrays([paths.take(taken), described, data.take(taken)],
                                      fields=list(MEMORY)), filled


class MappedRows:
    """Rows of a file, mapped: `array` has them all, `forget` gives back the memory of those that were read."""

    def __init__(self, path: Path | None, dtype: np.dtype[np.void], count: int) -> None:
        self._map: mmap.mmap | None = None
        self._forgotten = 0
        self.array: Rows = np.zeros(0, dtype=dtype)
        if path is not None and count:
            with path.open("rb") as source:
                self._map = mmap.mmap(source.fileno(), count * dtype.itemsize, access=mmap.ACCESS_READ)
            self.array = np.frombuffer(self._map, dtype=dtype, count=count)

    def forget(self, index: int) -> None:
        """The rows before this one will hardly be read again (they still can)."""
        end = index * self.array.dtype.itemsize // mmap.PAGESIZE * mmap.PAGESIZE
        if self._map is not None and end > self._forgotten:
            self._map.madvise(mmap.MADV_DONTNEED, self._forgotten, end - self._forgotten)
            self._forgotten = end


MEMORY = pa.struct([pa.field("paths", pa.list_(pa.binary())), pa.field("files", pa.list_(pa.string())),
                    pa.field("data", CAPTURES)])
"""What a kernel's row has beside numbers: paths, what its descriptors refer to (three, or none), captures."""


class MemoryStore:
    """MEMORY of rows, by ordinal: written once in order, then read in any order, a batch in memory at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._schema = pa.schema([pa.field("memory", MEMORY)])
        self._sink = pa.OSFile(str(path), "wb")
        self._writer = pa.ipc.new_file(self._sink, self._schema)
        self._starts = [0]
        self._source: pa.NativeFile | None = None
        self._reader: pa.ipc.RecordBatchFileReader | None = None
        self._cached: tuple[int, pa.Array] = (-1, pa.array([], MEMORY))
        self._extra: list[dict[str, object]] = []

    def append(self, memory: pa.StructArray) -> int:
        """Append rows of MEMORY; returns the ordinal of the first."""
        first = self._starts[-1]
        if len(memory):
            self._writer.write_batch(pa.record_batch([memory], schema=self._schema))
            self._starts.append(first + len(memory))
        return first

    def seal(self) -> None:
        """Nothing more is appended; from now on `take` works."""
        self._writer.close()
        self._sink.close()
        self._source = pa.OSFile(str(self._path), "rb")
        self._reader = pa.ipc.open_file(self._source)

    def close(self) -> None:
        """Let go of the file."""
        self._sink.close()
        if self._source is not None:
            self._source.close()

    def add(self, paths: list[bytes | None]) -> int:
        """Keep one more list of paths, in memory, after `seal`; returns its ordinal."""
        self._extra.append({"paths": paths, "files": [], "data": []})
        return self._starts[-1] + len(self._extra) - 1

    def _batch(self, index: int) -> pa.Array:
        if self._cached[0] != index:
            assert self._reader is not None
            self._cached = (index, self._reader.get_batch(index).column(0))
        return self._cached[1]

    def take(self, ordinals: Numbers) -> pa.StructArray:
        """What has these ordinals, in this order."""
        stored = self._starts[-1]
        batch_of = np.searchsorted(np.array(self._starts), ordinals, side="right") - 1
        batch_of[ordinals >= stored] = -1
        parts, order = [], []
        for index in np.unique(batch_of):
            where = np.flatnonzero(batch_of == index)
            if index < 0:
                parts.append(pa.array([self._extra[int(one) - stored] for one in ordinals[where]], MEMORY))
            else:
                parts.append(self._batch(int(index)).take(pa.array(ordinals[where] - self._starts[index])))
            order.append(where)
        if not parts:
            return pa.array([], MEMORY)
        back = np.empty(len(ordinals), dtype=np.int64)
        back[np.concatenate(order)] = np.arange(len(ordinals))
        return pa.concat_arrays(parts).take(pa.array(back))

    def paths(self, ordinals: Numbers) -> list[list[bytes | None]]:
        """The paths of these, in this order."""
        found: list[list[bytes | None]] = self.take(ordinals).field("paths").to_pylist() if len(ordinals) else []
        return found


class FileNames:
    """What ids of open files stand for: `events/files.arrow`, as far as it is whole."""

    def __init__(self, path: Path) -> None:
        self._ids = np.zeros(1, np.uint64)
        self._names = pa.array([None], pa.string())
        if path.exists() and path.stat().st_size:
            self._load(path)

    def _load(self, path: Path) -> None:
        ids, names = [self._ids], [self._names]
        for batch in Recording(path, FILES).batches():
            ids.append(np.asarray(batch.column("id").fill_null(0)))
            names.append(text_of(batch.column("path")))
        whole = np.concatenate(ids)
        order = np.argsort(whole, kind="stable")
        self._ids, self._names = whole[order], pa.concat_arrays(names).take(pa.array(order))

    def names(self, ids: npt.NDArray[np.uint64]) -> pa.Array:
        """Names of ids; null for 0 and what is not known."""
        at = np.minimum(np.searchsorted(self._ids, ids), len(self._ids) - 1)
        unknown = (self._ids[at] != ids) | (ids == 0)
        return self._names.take(pa.array(at, mask=unknown))


class Spill:
    """A recording's rows in files, one for each thread, each in the recording's order; `memory` has what is
    no number.

    A thread that went on as another task may have been both for a moment: what it did as the first comes first.

    Tasks without a thread are kept together under NO_THREAD when `keep` says so for their pid.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.counts: dict[int, int] = {}
        self.before: dict[int, int] = {}  # of these, rows of a task that the thread was before
        self.memory = MemoryStore(folder / "memory.arrow")

    def _file(self, thread: int) -> Path:
        return self._folder / f"{thread}.rows"

    def fill(self, batches: Iterable[pa.RecordBatch], tasks: TaskTable, files: FileNames,
             note: Callable[[Rows, Numbers], None]) -> None:
        """Read the recording once; `note` gets each batch's rows and their threads."""
        for batch in batches:
            rows = to_rows(batch)
            memory, filled = _memory(batch, files)
            first = self.memory.append(memory)
            rows["memory"][filled] = first + np.arange(len(filled))
            threads = tasks.threads(rows["pid"], rows["tid"], rows["t_enter"])
            note(rows, threads)
            for thread in np.unique(threads):
                part = rows[threads == thread] if len(rows) else rows
                before = tasks.before(int(thread), part)
                self._append(self._file(int(thread)), part[before])
                self.before[int(thread)] = self.before.get(int(thread), 0) + int(before.sum())
                self._append(self._later(int(thread)), part[~before])
                self.counts[int(thread)] = self.counts.get(int(thread), 0) + len(part)
        for thread in self.counts:
            self._join(thread)
        self.memory.seal()

    def _later(self, thread: int) -> Path:
        return self._folder / f"{thread}.later"

    @staticmethod
    def _append(path: Path, rows: Rows) -> None:
        if len(rows):
            with path.open("ab") as out:
                rows.tofile(out)

    def _join(self, thread: int) -> None:
        """Put a thread's later rows behind the others."""
        first, later = self._file(thread), self._later(thread)
        if not first.exists():
            later.rename(first)
        elif later.exists():
            with later.open("rb") as source, first.open("ab") as out:
                shutil.copyfileobj(source, out)
            later.unlink()

    def rows(self, thread: int) -> MappedRows:
        """The rows of a thread, mapped from their file."""
        count = self.counts.get(thread, 0)
        return MappedRows(self._file(thread) if count else None, ROW_DTYPE, count)
