# SPDX-License-Identifier: MIT
"""What came in and what went out: the table `transfers`, and its edges from and to thunks.

A read brings bytes of a file into memory in one thunk, a write takes them out; a mapped file's bytes come in where its
pages are accessed. Descriptors are followed through the calls that make, copy and close them (descriptors.py), in the
order of time, so that each transfer knows its path and its offset.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ptweave.data import layout
from ptweave.data.bundle import Bundle
from ptweave.data.schemas import DECODED_SYSCALLS, EDGES, TRANSFERS
from ptweave.data.table_writer import TableWriter
from ptweave.merge import access_files, syscalls
from ptweave.merge.access_files import have_mapped_files
from ptweave.merge.descriptors import Descriptors, Known
from ptweave.merge.graph import programs
from ptweave.merge.in_order import in_order
from ptweave.merge.scratch import Queries
from ptweave.merge.syscalls import SystemCalls
from ptweave.merge.tables import BATCH_ROWS, I64, corrupt, numbers, open_parquet, read_table
from ptweave.merge.tasks import Tasks
from ptweave.merge.thunks import Thunks

MAP_SHARED = 1
MAP_ANONYMOUS = 0x20
PROT_WRITE = 2


@dataclass(frozen=True)
class _Moving:
    """A system call that moves bytes: which argument is the buffer (None: none, or several), the offset, and flags.
    `messages`: it returns a number of messages, not of bytes."""

    kind: str
    incoming: bool
    buffer: int | None = None
    offset: int | None = None
    flags: int | None = None
    messages: bool = False


_MOVING = {
    "read": _Moving("read", True, 1), "pread64": _Moving("read", True, 1, 3), "readv": _Moving("read", True),
    "preadv": _Moving("read", True, None, 3), "preadv2": _Moving("read", True, None, 3),
    "write": _Moving("write", False, 1), "pwrite64": _Moving("write", False, 1, 3), "writev": _Moving("write", False),
    "pwritev": _Moving("write", False, None, 3), "pwritev2": _Moving("write", False, None, 3, 5),
    "recvfrom": _Moving("receive", True, 1), "recvmsg": _Moving("receive", True),
    "recvmmsg": _Moving("receive", True, messages=True),
    "sendto": _Moving("send", False, 1), "sendmsg": _Moving("send", False),
    "sendmmsg": _Moving("send", False, messages=True)}

_COPYING = {"sendfile": (1, 0), "splice": (0, 2), "copy_file_range": (0, 2), "tee": (0, 1)}
"""Calls that move bytes from one descriptor to another: which arguments these are."""

_AT = {"sendfile": (2, None), "splice": (1, 3), "copy_file_range": (1, 3), "tee": (None, None)}
"""Which arguments of these point to an offset: where one is not null, the descriptor's position is not used, nor moved,
and the offset is in memory alone: it is known where the kernel's record has it."""

_NOTED = ("open", "openat", "creat", "openat2", "socket", "accept", "accept4", "memfd_create", "eventfd2",
          "epoll_create1", "timerfd_create", "signalfd4", "inotify_init1", "pidfd_open", "userfaultfd",
          "perf_event_open", "dup", "dup2", "dup3", "fcntl", "close", "close_range", "lseek", "truncate",
          "ftruncate", "fallocate", "execve", "execveat")
"""Calls that change what descriptors stand for."""

RWF_APPEND = 0x10
_FORKING = ("fork", "vfork", "clone", "clone3")
CLONE_FILES = 0x400

_LATE = ("open", "openat", "creat", "openat2", "socket", "accept", "accept4", "dup", "dup2", "dup3", "fcntl", "read",
         "recvfrom")
"""Calls that have had their effect when they return; of the others it counts when they began."""

_READ = pa.schema([DECODED_SYSCALLS.field(name) for name in ("thread", "t_enter", "name", "args", "paths", "files",
                                                             "result", "data")])

_ROWS = 1 << 14

Row = dict[str, Any]


class Transfers:
    """Finds the transfers of a run. `thunks` tells in which thunk each was made; without it nobody knows."""

    def __init__(self, tasks: Tasks, calls: SystemCalls, thunks: Thunks | None) -> None:
        self._tasks = tasks
        self._calls = calls
        self._thunks = thunks
        self._programs = {thread: tasks.program(thread) for thread in tasks.threads}
        self._parents = _parents(tasks, self._programs)
        self._open: dict[int | None, Descriptors] = {}
        self._known = Known()
        self._count = 0
        self._mapped_last: tuple[object, ...] | None = None

    def write(self, bundle: Bundle, scratch: Queries) -> None:
        """Write `transfers`, and the edges of what was read and written."""
        with TableWriter(bundle.tables, TRANSFERS) as writer, TableWriter(bundle.tables, EDGES, "2.parquet") as edges:
            for table in self._tables(scratch):
                writer.write(table)
                edges.write(edge_table(table))
        if (bundle.decoded / access_files.PAGES).exists():
            with TableWriter(bundle.tables, EDGES, "3.parquet") as edges:
                for batch in self._mapped(scratch, bundle):
                    edges.write(batch)

    # --- system calls -------------------------------------------------------------------------------------------------

    def _tables(self, scratch: Queries) -> Iterator[pa.Table]:
        wanted = _in_time(scratch.folder / syscalls.FILE)
        rows: list[Row] = []
        done = 0
        for batch in in_order(scratch, syscalls.FILE, _READ, wanted):
            part, done = wanted[done:done + len(batch)], done + len(batch)
            seqs, owns = self._calls.places.seq[part].tolist(), self._calls.own[part].tolist()
            for call, seq, own in zip(_rows(batch), seqs, owns, strict=True):
                rows += self._take(call, seq, own=own)
            if len(rows) >= _ROWS:
                yield self._table(rows)
                rows = []
        yield self._table(rows)

    def _descriptors(self, pid: int | None) -> Descriptors:
        """Those of a program. Of one whose fork is not known they are copied when it is met."""
        found = self._open.get(pid)
        if found is None:
            found = self._open[pid] = Descriptors.initial(self._known)
            parent = self._parents.get(pid) if pid is not None else None
            if parent is not None:
                found = self._open[pid] = self._descriptors(parent).copy()
        return found

    def _forked(self, descriptors: Descriptors, flags: int, child: int) -> None:
        """A process begins: with copies of its maker's descriptors as they are then, or with the same ones."""
        if child in self._parents:
            self._open[child] = descriptors if flags & CLONE_FILES else descriptors.copy()

    def _take(self, call: Row, seq: int, *, own: bool) -> Iterator[Row]:
        """What a call moved. libtthread's own calls move nothing of the program's, but they map files for it, from
        copies of its descriptors."""
        descriptors = self._descriptors(self._programs.get(call["thread"]))
        name, args, result = call["name"], call["args"] or [], call["result"]
        file, other = [*(call["files"] or ()), None, None][:2]
        base: Row = {"thread": call["thread"], "t": call["t_enter"], "seq": seq if seq >= 0 else None}
        if name in _FORKING:
            self._forked(descriptors, args[0] if name == "clone" and args else 0, result or 0)
        elif name == "mmap":
            rows = list(_map(base, descriptors, args, result))
            mapped = tuple(rows[0][column] for column in ("address", "size", "path", "offset")) if rows else None
            if not own or mapped != self._mapped_last:  # it maps the same place twice: opened, then closed
                yield from rows
            self._mapped_last = mapped
        elif name in _MOVING and not own:
            yield from _move(base, descriptors, _MOVING[name], args, result, file)
        elif name in _COPYING and result and not own:
            files = (file, other)
            for place, pointer, incoming, of in zip(_COPYING[name], _AT[name], (True, False),
                                                    files[::-1] if name == "sendfile" else files, strict=True):
                if place < len(args):
                    away = pointer is not None and pointer < len(args) and args[pointer] != 0
                    at = _pointed_to(call["data"], pointer) if away else None
                    row = _moved(descriptors, _int(args[place]), result, of, incoming=incoming, at=at,
                                 away=away and at is None)
                    yield {**base, **row, "kind": "read" if incoming else "write", "input": incoming}
        elif name in _NOTED:
            path = next(iter(call["paths"] or ()), None)
            descriptors.note(name, [_int(one) for one in args], path, result or 0, file)

    def _table(self, rows: list[Row]) -> pa.Table:
        """Rows with their numbers and thunks."""
        for row in rows:
            row["transfer"] = self._count
            self._count += 1
        table = pa.Table.from_pylist(rows, TRANSFERS.schema)
        if self._thunks is None or not rows:
            return table
        thread, seq, t = (numbers(table, name, -1).astype(np.int64) for name in ("thread", "seq", "t"))
        thunk = self._thunks.around(thread, seq, t)
        return table.set_column(table.schema.get_field_index("thunk"), TRANSFERS.schema.field("thunk"),
                                pa.array(thunk.astype(np.int32), mask=thunk < 0))

    # --- mapped files -------------------------------------------------------------------------------------------------

    def _mapped(self, scratch: Queries, bundle: Bundle) -> Iterator[pa.Table]:
        """Edges between pages of mapped files and the thunks that accessed them: of the mapping that was there."""
        if not have_mapped_files(bundle.decoded):
            return
        table = read_table(bundle, TRANSFERS, ["transfer", "kind", "input", "thread", "address", "size", "t"])
        maps = table.filter(pc.equal(table.column("kind"), "map"))
        owners = programs(self._tasks, max(self._tasks.threads, default=-1) + 1)
        scratch.view("pages", access_files.PAGES)
        query = f"""
            with mine as (
              select coalesce(owner.program, 0) as program, pages.thread, pages.thunk, pages.until_thunk, pages.page,
                     pages.write, source.t
              from pages join source using (thread, record)
              asof left join owners as owner on source.thread = owner.thread and source.t >= owner.since
              where pages.page >= {layout.FILES} and pages.page < {layout.FILES_END}),
            there as (
              select maps.*, coalesce(owner.program, 0) as program
              from maps asof left join owners as owner on maps.thread = owner.thread and maps.t >= owner.since)
            select arg_max(transfer, there.t) as transfer, there.input, mine.thread, thunk, until_thunk, page
            from mine join there on there.program = mine.program and page >= there.address
              and page < there.address + there.size and mine.t >= there.t and (there.input or mine.write)
            group by there.input, mine.thread, thunk, until_thunk, page
            order by there.input desc, mine.thread, thunk, page"""
        for batch in scratch.batches(access_files.FILE, query, maps=maps, owners=owners):
            yield map_edges(pa.table(batch))


def _in_time(path: Path) -> I64:
    """Which rows of the decoded system calls matter here, in the order in which the calls had their effect."""
    columns = pa.schema([DECODED_SYSCALLS.field(name) for name in ("name", "result", "t_enter", "t_exit")])
    names = pa.array([*_MOVING, *_COPYING, *_NOTED, *_FORKING, "mmap"])
    rows: list[I64] = [np.empty(0, np.int64)]
    times: list[I64] = [np.empty(0, np.int64)]
    done = 0
    with open_parquet(path, columns) as file:
        try:
            for batch in file.iter_batches(BATCH_ROWS, columns=columns.names, use_threads=False):
                name, result = batch.column("name"), batch.column("result")
                worked = pc.coalesce(pc.greater_equal(result, 0), pc.starts_with(name, "exec"))
                here = pc.and_(pc.is_in(name, names), worked)
                found = batch.filter(here)
                late = pc.and_(pc.is_in(found.column("name"), pa.array(_LATE)), pc.is_valid(found.column("t_exit")))
                times.append(pc.if_else(late, found.column("t_exit"), found.column("t_enter")).to_numpy())
                rows.append(done + np.flatnonzero(here.fill_null(False).to_numpy(zero_copy_only=False)))
                done += len(batch)
        except (OSError, pa.ArrowException, ValueError) as error:
            raise corrupt(path, error) from error
    order: I64 = np.concatenate(rows)[np.argsort(np.concatenate(times), kind="stable")]
    return order


def _rows(batch: pa.RecordBatch) -> Iterator[Row]:
    """What is read of system calls, in Python's types. What was kept of memory is wanted of those that copy."""
    copies = pc.is_in(batch.column("name"), pa.array(_COPYING))
    kept = iter(batch.column("data").filter(copies).to_pylist())
    for call, copied in zip(batch.drop_columns(["data"]).to_pylist(), copies.to_pylist(), strict=True):
        yield {**call, "data": next(kept) if copied else None}


def _parents(tasks: Tasks, owners: dict[int, int | None]) -> dict[int, int | None]:
    """Process id → that of the program which made it, any of whose threads may be a process. `owners`: of threads."""
    makers = {task.tid: owners[thread] for thread, task in tasks.threads.items()}
    return {image.pid: makers.get(image.parent or 0, image.parent) for image in tasks.processes}


def _int(value: int) -> int:
    """A descriptor, or another int, out of a register."""
    return (value & 0xFFFFFFFF) - ((value & 0x80000000) << 1)


def _pointed_to(data: Sequence[Row] | None, argument: int | None) -> int | None:
    """The offset that an argument pointed to when its call began; None: it was not kept."""
    for one in data or ():
        if one["argument"] == argument and one["when"] == 0 and one["data"] is not None and len(one["data"]) == 8:
            return int.from_bytes(one["data"], "little")
    return None


def _moved(descriptors: Descriptors, number: int, size: int | None, name: str | None, *, incoming: bool,
           at: int | None = None, away: bool = False, appending: bool = False) -> Row:
    """Bytes moved at the descriptor's position, at an offset `at`, or `away` from both, nobody knows where; or
    `appending` to the file. `name`: the kernel's for what the descriptor refers to."""
    file = descriptors.get(number, name)
    if away or (at is not None and incoming):
        offset = at
    elif at is not None:
        offset = file.put(size, at, appending=appending)
    else:
        offset = file.take(size, incoming=incoming, appending=appending)
    return {"descriptor": number, "path": file.path, "offset": offset, "size": size, "address": None}


def _move(base: Row, descriptors: Descriptors, moving: _Moving, args: Sequence[int], size: int,
          name: str | None) -> Iterator[Row]:
    needed = max(moving.buffer or 0, moving.offset or 0)
    if not size or len(args) <= needed:
        return
    at = args[moving.offset] if moving.offset is not None else None
    if at is not None and at >= 1 << 63:  # the position of the descriptor
        at = None
    flags = args[moving.flags] if moving.flags is not None and moving.flags < len(args) else 0
    row = _moved(descriptors, _int(args[0]), None if moving.messages else size, name, incoming=moving.incoming, at=at,
                 appending=bool(flags & RWF_APPEND))
    yield {**base, **row, "kind": moving.kind, "input": moving.incoming,
           "address": None if moving.buffer is None else args[moving.buffer]}


def _map(base: Row, descriptors: Descriptors, args: Sequence[int], result: int) -> Iterator[Row]:
    if len(args) < 6 or args[3] & MAP_ANONYMOUS:
        return
    number = _int(args[4])
    file = descriptors.files.get(number)
    if file is None or file.path is None or file.stream:
        return
    row = {**base, "kind": "map", "descriptor": descriptors.first(file), "path": file.path, "offset": args[5],
           "size": args[1], "address": result}
    yield {**row, "input": True}
    if args[3] & MAP_SHARED and args[2] & PROT_WRITE:
        yield {**row, "input": False}


# --- edges ------------------------------------------------------------------------------------------------------------


def edge_table(transfers: pa.Table) -> pa.Table:
    """Edges of what was read into thunks, and written from thunks; not of mapped files."""
    known = transfers.filter(pc.and_(pc.not_equal(transfers.column("kind"), "map"),
                                          pc.is_valid(transfers.column("thunk"))))
    return _edges(known.column("input"), known.column("thread"), known.column("thunk"), known.column("thunk"),
                  known.column("transfer"), None)


def map_edges(found: pa.Table) -> pa.Table:
    """Edges of pages of mapped files."""
    return _edges(found.column("input"), found.column("thread"), found.column("thunk"), found.column("until_thunk"),
                  found.column("transfer"), found.column("page"))


def _edges(incoming: Any, thread: Any, first: Any, until: Any, transfer: Any, page: Any) -> pa.Table:
    nothing = pa.scalar(None, pa.int32())
    rows = len(incoming)
    columns = {
        "kind": pc.if_else(incoming, "input", "output"), "transfer": transfer,
        **{f"from_{name}": pc.if_else(incoming, nothing, column)
           for name, column in (("thread", thread), ("thunk", first), ("until", until))},
        **{f"to_{name}": pc.if_else(incoming, column, nothing)
           for name, column in (("thread", thread), ("thunk", first), ("until", until))},
        "object": pa.nulls(rows, pa.uint64()), "bytes": pa.nulls(rows, EDGES.schema.field("bytes").type),
        "page": pa.nulls(rows, pa.uint64()) if page is None else page}
    return pa.table(columns).select(EDGES.schema.names).cast(EDGES.schema)

