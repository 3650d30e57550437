# SPDX-License-Identifier: MIT
"""The kernel's record of system calls (`events/syscalls.arrow`), read in bounded memory and sorted out by thread."""

from __future__ import annotations

import bisect
import mmap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ptweave.data.errors import BadInput
from ptweave.data.manifest import Clocks
from ptweave.data.schemas import RAW_SYSCALLS
from ptweave.data.sideband import SidebandKind, read_sideband

ROW_DTYPE = np.dtype([
    ("t_enter", "<i8"), ("t_exit", "<i8"), ("result", "<i8"), ("ip", "<u8"), ("args", "<u8", (6,)),
    ("number", "<i4"), ("pid", "<i4"), ("tid", "<i4"), ("flags", "<u4"), ("paths", "<i8"),
])
"""A row of fixed size: `struct ptw_row` of decode/src/join.h. `paths` is an ordinal in the PathStore, -1 for none."""

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

    def __init__(self, tasks: Sequence[Task], execs: Sequence[tuple[int, int]] = ()) -> None:
        """`execs`: (pid, time) of every program begun by an exec and traced."""
        self._execs = sorted(execs)
        self.by_thread = {task.thread: task for task in sorted(tasks, key=lambda task: task.begin, reverse=True)}
        self._by_ids: dict[tuple[int, int], list[Task]] = {}
        for task in sorted(tasks, key=lambda task: task.begin):
            self._by_ids.setdefault((task.pid, task.tid), []).append(task)
        self.pids = {task.pid for task in tasks}

    @classmethod
    def load(cls, sideband: Path, clocks: Clocks) -> TaskTable:
        """From the thread rows of a sideband; empty when there is none."""
        if not sideband.exists():
            return cls([])
        table = read_sideband(sideband).select(["kind", "tsc", "pid", "tid", "thread", "detail"])
        execs: list[tuple[int, int]] = []
        begun: list[tuple[int, int, int, int]] = []
        ended: dict[tuple[int, int, int], list[int]] = {}
        for row in table.to_pylist():
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
                    for thread, pid, tid, begin in begun], execs)

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


class Recording:
    """A recording, read batch by batch to its last whole one: a recorder that was killed leaves half a one behind.

    `cut_off` tells, once all batches are read, whether that is so.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.cut_off = False

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Raises BadInput when the file is none of ours, or what it holds is malformed."""
        with pa.OSFile(str(self._path), "rb") as source:
            if source.size() == 0:
                return
            yield from self._batches(self._open(source))

    def _open(self, source: pa.NativeFile) -> pa.ipc.RecordBatchStreamReader:
        try:
            reader = pa.ipc.open_stream(source)
        except (OSError, pa.ArrowException) as error:
            raise BadInput(f"is no recording of system calls ({error})", where=str(self._path),
                           remedy="record the run again") from error
        version = (reader.schema.metadata or {}).get(b"ptweave.raw_syscalls")
        if version != b"1" or not reader.schema.equals(RAW_SYSCALLS):
            raise BadInput(f"holds other columns than system calls of version 1 (it says {version!r})",
                           where=str(self._path), remedy="use a newer ptweave")
        return reader

    def _batches(self, reader: pa.ipc.RecordBatchStreamReader) -> Iterator[pa.RecordBatch]:
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
    """Rows of fixed size of a batch; `paths` is still -1 everywhere."""
    rows = np.zeros(batch.num_rows, dtype=ROW_DTYPE)
    for name in ("t_enter", "t_exit", "result", "number", "pid", "tid"):
        rows[name] = _filled(batch.column(name))
    rows["ip"] = np.asarray(batch.column("ip").fill_null(0))
    rows["args"] = np.asarray(batch.column("args").flatten().fill_null(0)).reshape(-1, 6)
    rows["flags"] = np.where(np.asarray(batch.column("t_exit").is_valid()), ROW_RETURNED, 0)
    rows["paths"] = -1
    return rows


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


class PathStore:
    """Lists of paths by ordinal: written once in order, then read in any order, a batch of them in memory at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._schema = pa.schema([pa.field("paths", pa.list_(pa.binary()))])
        self._sink = pa.OSFile(str(path), "wb")
        self._writer = pa.ipc.new_file(self._sink, self._schema)
        self._starts = [0]
        self._source: pa.NativeFile | None = None
        self._reader: pa.ipc.RecordBatchFileReader | None = None
        self._cached: tuple[int, pa.Array] = (-1, pa.array([], pa.list_(pa.binary())))
        self._extra: list[list[bytes | None]] = []

    def append(self, lists: pa.Array) -> int:
        """Append lists; returns the ordinal of the first."""
        first = self._starts[-1]
        if len(lists):
            self._writer.write_batch(pa.record_batch([lists], schema=self._schema))
            self._starts.append(first + len(lists))
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
        """Keep one more list, in memory, after `seal`; returns its ordinal."""
        self._extra.append(paths)
        return self._starts[-1] + len(self._extra) - 1

    def _batch(self, index: int) -> pa.Array:
        if self._cached[0] != index:
            assert self._reader is not None
            self._cached = (index, self._reader.get_batch(index).column(0))
        return self._cached[1]

    def take(self, ordinals: Numbers) -> pa.Array:
        """The lists with these ordinals, in this order."""
        kind = pa.list_(pa.binary())
        stored = self._starts[-1]
        batch_of = np.searchsorted(np.array(self._starts), ordinals, side="right") - 1
        batch_of[ordinals >= stored] = -1
        parts, order = [], []
        for index in np.unique(batch_of):
            where = np.flatnonzero(batch_of == index)
            if index < 0:
                parts.append(pa.array([self._extra[int(one) - stored] for one in ordinals[where]], kind))
            else:
                parts.append(self._batch(int(index)).take(pa.array(ordinals[where] - self._starts[index])))
            order.append(where)
        if not parts:
            return pa.array([], kind)
        back = np.empty(len(ordinals), dtype=np.int64)
        back[np.concatenate(order)] = np.arange(len(ordinals))
        return pa.concat_arrays(parts).take(pa.array(back))


class Spill:
    """A recording's rows in files, one for each thread, each in the recording's order; `paths` has their paths.

    Tasks without a thread are kept together under NO_THREAD when `keep` says so for their pid.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.counts: dict[int, int] = {}
        self.paths = PathStore(folder / "paths.arrow")

    def _file(self, thread: int) -> Path:
        return self._folder / f"{thread}.rows"

    def fill(self, batches: Iterable[pa.RecordBatch], tasks: TaskTable) -> None:
        """Read the recording once."""
        for batch in batches:
            rows = to_rows(batch)
            lists = batch.column("paths").fill_null([])
            filled = np.flatnonzero(np.asarray(lists.value_lengths()) > 0)
            first = self.paths.append(lists.take(pa.array(filled)))
            rows["paths"][filled] = first + np.arange(len(filled))
            threads = tasks.threads(rows["pid"], rows["tid"], rows["t_enter"])
            for thread in np.unique(threads):
                part = rows[threads == thread] if len(rows) else rows
                with self._file(int(thread)).open("ab") as out:
                    part.tofile(out)
                self.counts[int(thread)] = self.counts.get(int(thread), 0) + len(part)
        self.paths.seal()

    def rows(self, thread: int) -> MappedRows:
        """The rows of a thread, mapped from their file."""
        count = self.counts.get(thread, 0)
        return MappedRows(self._file(thread) if count else None, ROW_DTYPE, count)
