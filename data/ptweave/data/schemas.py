# SPDX-License-Identifier: MIT
"""The tables of a run: every column with its type, unit and meaning, and how each is laid out in Parquet.

`tables/<name>/*.parquet` holds a table. Rows are sorted as `sort` says; row groups hold about 1 M rows; zstd level 1;
sorted integer columns are DELTA_BINARY_PACKED, ids are PLAIN, those of `flow` BYTE_STREAM_SPLIT (measured:
dictionaries are 1.8x larger on path ids, PLAIN takes 1.6x the time).
`seq` is the ordinal of a block in its thread's flow; `t` is ns on CLOCK_MONOTONIC; `thread` is dense in the run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from types import TracebackType

import pyarrow as pa
import pyarrow.parquet as pq

ROW_GROUP = 1 << 20


class Placed(StrEnum):
    """How a row was aligned with its thread's flow."""

    EXACT = "exact"  # by the block that executed it
    TIME = "time"  # between two known moments
    NONE = "none"  # the thread has no flow there


class BlockClass(StrEnum):
    """What ends a block: the class of its last instruction."""

    OTHER = "other"  # none: an asynchronous event or the end of the trace cut the block
    COND_JUMP = "cond_jump"
    JUMP = "jump"
    IND_JUMP = "ind_jump"
    CALL = "call"
    IND_CALL = "ind_call"
    RETURN = "return"
    SYSCALL = "syscall"  # syscall, sysenter, int n
    FAR = "far"  # far jumps, calls and returns, sysret, iret


@dataclass(frozen=True)
class Column:
    name: str
    type: pa.DataType
    unit: str
    doc: str
    delta: bool = False  # a (nearly) sorted integer column
    dictionary: bool = False
    required: bool = False  # never null: written without definition levels
    split: bool = False  # numbers of few distinct high bytes in no order: byte streams compress best and fastest


@dataclass(frozen=True)
class Table:
    name: str
    doc: str
    columns: tuple[Column, ...]
    sort: tuple[str, ...] = field(default=())

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(c.name, c.type, nullable=not c.required) for c in self.columns],
                         metadata={b"ptweave.table": b"1"})


_I32, _I64, _U64, _U32, _STR = pa.int32(), pa.int64(), pa.uint64(), pa.uint32(), pa.string()
_THREAD = Column("thread", _I32, "", "thread number, dense in the run", dictionary=True)
_THREADS = replace(_THREAD, dictionary=False, required=True)
"""Where there are many rows: long runs of one number, which compress to nothing as they are."""
_SEQ = Column("seq", _I64, "blocks", "ordinal of the block in the thread's flow", delta=True)
_T = Column("t", _I64, "ns", "CLOCK_MONOTONIC", delta=True)
_PLACED = Column("placed", _STR, "", "exact, time or none: how the row was aligned with the flow", dictionary=True)

THREADS = Table("threads", "a traced task (a kernel thread; it stays the same one across exec)", (
    _THREAD,
    Column("pid", _I32, "", "process id"),
    Column("tid", _I32, "", "kernel thread id"),
    Column("parent", _I32, "", "thread that created it; null for the first and where unknown"),
    Column("start_function", _STR, "", "function of the first block executed, or the pthread's start routine"),
    Column("t_start", _I64, "ns", "when its trace begins"),
    Column("t_end", _I64, "ns", "when it ended; null unknown"),
    Column("exit_status", _I32, "", "its process's wait status; null unknown"),
    Column("trace_bytes", _I64, "bytes", "Intel PT bytes recorded"),
    Column("instructions", _I64, "instructions", "instructions decoded"),
    Column("blocks", _I64, "blocks", "blocks decoded"),
    Column("branches", _I64, "branches", "blocks that end in a branch of any kind"),
    Column("gaps", _I64, "gaps", "known holes in its trace"),
    Column("lost_bytes", _I64, "bytes", "trace bytes lost"),
), ("thread",))

PROCESSES = Table("processes", "a process image: a process from its fork or exec to its next exec or end", (
    Column("space", _U32, "", "address space number, dense in the run"),
    Column("pid", _I32, "", "process id"),
    Column("parent", _I32, "", "process id of its parent"),
    Column("began_by", _STR, "", "start, fork, exec, or thread (a thread made a process: parent is its main process)"),
    Column("exe", _STR, "", "path of the executable"),
    Column("t_start", _I64, "ns", "when it began"),
    Column("t_end", _I64, "ns", "when the process ended or the next image replaced it; null unknown"),
    Column("exit_status", _I32, "", "wait status; null unknown or replaced by exec"),
), ("space",))

IMAGES = Table("images", "a file (or saved anonymous code) whose code ran", (
    Column("image", _I32, "", "image number"),
    Column("name", _STR, "", "file in images/: its build id, or sha256 of its bytes"),
    Column("path", _STR, "", "path it was mapped from; null for anonymous code"),
    Column("build_id", _STR, "", "GNU build id in hex; null where the file has none"),
    Column("size", _I64, "bytes", "size of the kept file; null when it could not be kept"),
    Column("kind", _STR, "", "elf, raw or missing", dictionary=True),
    Column("debug", _STR, "", "separate debug file its names and lines come from: its path on the machine that "
           "decoded, or for generated code the perf map in images/; null none"),
    Column("problem", _STR, "", "what is wrong with it: another file under its build id, damaged symbols, a debug "
           "file of another build; null nothing"),
), ("image",))

MAPS = Table("maps", "an image mapped into an address space", (
    Column("space", _U32, "", "address space"),
    Column("pid", _I32, "", "process id"),
    Column("start", _U64, "address", "first byte"),
    Column("end", _U64, "address", "byte after the last"),
    Column("offset", _U64, "bytes", "offset of the first byte in the image"),
    Column("image", _I32, "", "image"),
    Column("since", _U32, "epochs", "first epoch it is there"),
    Column("until", _U32, "epochs", "epoch it is gone in; null to the end"),
), ("space", "start"))

BLOCKS = Table("blocks", "a distinct basic block: from an entry to the first branch, or to where an event cut it", (
    Column("block", _I32, "", "block number"),
    Column("image", _I32, "", "image it is in"),
    Column("offset", _I64, "bytes", "offset of its first instruction in the image's file"),
    Column("ip", _U64, "address", "address of its first instruction where it ran first"),
    Column("size", _I32, "bytes", "from its first instruction to the end of its last"),
    Column("instructions", _I32, "instructions", "instructions in it"),
    Column("last", _STR, "", "class of the last instruction: other, cond_jump, jump, ind_jump, call, ind_call, "
           "return, syscall, far", dictionary=True),
    Column("last_ip", _U64, "address", "address of its last instruction where it ran first"),
    Column("mode", pa.int8(), "bits", "64, 32 or 16: the processor's mode when it ran; 0 not known"),
    Column("function", _STR, "", "function it is in, demangled; null unknown", dictionary=True),
    Column("function_offset", _I64, "bytes", "offset of the block in that function"),
    Column("file", _STR, "", "source file; null without line information", dictionary=True),
    Column("line", _I32, "", "source line; null without line information"),
), ("block",))

PATHS = Table("paths", "a distinct sequence of blocks executed in one go", (
    Column("path", _I32, "", "path number"),
    Column("blocks", pa.list_(_I32), "", "its blocks in order"),
    Column("length", _I32, "blocks", "blocks in it"),
    Column("instructions", _I32, "instructions", "instructions in it"),
), ("path",))

FLOW = Table("flow", "a path executed", (
    _THREADS,
    Column("seq", _I64, "blocks", "ordinal of the path's first block in the thread", delta=True, required=True),
    Column("path", _I32, "", "path executed", required=True, split=True),
), ("thread", "seq"))

CLOCK = Table("clock", "a moment known in a thread's flow", (
    _THREADS,
    Column("seq", _I64, "blocks", "ordinal of the next block at that moment", delta=True),
    Column("tsc", _U64, "ticks", "time stamp counter", delta=True), _T,
    Column("before", _I32, "instructions", "instructions before that block that ran then already: 1, the branch that "
           "led to it"),
), ("thread", "seq"))

PT_EVENTS = Table("pt_events", "an event the decoder met between two blocks", (
    _THREAD, Column("seq", _I64, "blocks", "ordinal of the next block", delta=True),
    Column("tsc", _U64, "ticks", "last known time stamp counter; 0 unknown", delta=True),
    Column("kind", _STR, "", "libipt's event: enabled, disabled, async_disabled, async_branch, overflow, …",
           dictionary=True),
    Column("ip", _U64, "address", "where it happened; null suppressed"),
    Column("target", _U64, "address", "where execution went on; null unknown"),
    Column("offset", _U64, "bytes", "offset in the trace", delta=True),
    Column("detail", _I64, "", "the event's payload, all its bits: ptwrite, mnt: the value; cbr: the ratio; paging, "
           "async_paging: CR3, bit 0: VMX non-root; vmcs, async_vmcs: base; exec_mode: 16, 32, 64 or 0 unknown; tsx: "
           "bit 0 speculative, 1 aborted; mwait: extensions << 32 \\| hints; pwre: bit 16 by hardware, C-state << 8 "
           "\\| sub C-state; pwrx: bits 16, 17, 18 woken by interrupt, store, hardware, last << 8 \\| deepest C-state; "
           "1 for an enabled that resumes; null none"),
    Column("size", pa.int8(), "bytes", "size of a ptwrite's operand, 4 or 8; null for other events"),
    Column("update", pa.bool_(), "", "from a PSB+: how things stood, repeated; nothing happened"),
    Column("lost_mtc", _U32, "packets", "MTC packets known to be missing before it: tsc is the less exact"),
    Column("lost_cyc", _U32, "packets", "CYC packets known to be missing before it"),
), ("thread", "seq"))

GAPS = Table("gaps", "a known hole in the record", (
    _THREAD, Column("seq", _I64, "blocks", "ordinal of the first block after it", delta=True), _T,
    Column("kind", _STR, "", "decode_error, overflow, missing_image, lost, truncated, no_trace"),
    Column("bytes", _I64, "bytes", "trace bytes not decoded"),
    Column("offset", _U64, "bytes", "offset in the trace"),
    Column("ip", _U64, "address", "address at which decoding stopped; null unknown"),
    Column("detail", _STR, "", "what exactly"),
), ("thread", "seq"))

SYSCALLS = Table("syscalls", "a system call the program made", (
    _THREAD, Column("seq", _I64, "blocks", "ordinal of the block that made it; null when placed is none", delta=True),
    Column("pid", _I32, "", "process id"),
    Column("tid", _I32, "", "kernel thread id"),
    Column("t_enter", _I64, "ns", "when it was entered", delta=True),
    Column("t_exit", _I64, "ns", "when it returned; null when it never did", delta=True),
    Column("number", _I32, "", "x86-64 system call number"),
    Column("name", _STR, "", "its name", dictionary=True),
    Column("args", pa.list_(_U64), "", "its arguments, as many as the call has"),
    Column("paths", pa.list_(_STR), "", "path arguments, in argument order, bytes that are no UTF-8 as "
           "\\xNN; null elements are unknown, or the program passed none"),
    Column("result", _I64, "", "what it returned; null when it never did"),
    Column("errno", _STR, "", "errno's name when it failed", dictionary=True),
    Column("ip", _U64, "address", "address of the system-call instruction; null unknown"),
    Column("source", _STR, "", "both: the soft engine's log and the kernel agree; engine: the log alone has "
           "it (the engine answered it, or the kernel's record is missing); kernel: there is no log of it",
           dictionary=True),
    _PLACED,
), ("thread", "seq"))

THUNKS = Table("thunks", "what a thread does from one synchronisation operation to the next", (
    _THREAD, Column("thunk", _I32, "", "ordinal in the thread"),
    Column("operation", _STR, "", "operation that began it (start, mutex_lock, barrier_wait, …)", dictionary=True),
    Column("object", _U64, "address", "object of that operation; null none"),
    Column("result", _I64, "", "what the operation returned"),
    Column("t", _I64, "ns", "when the operation was called", delta=True),
    Column("wait", _I64, "ns", "time the operation took: waiting, for locks and joins"),
    Column("acquire", pa.bool_(), "", "the operation acquired (joined another thread's clock)"),
    Column("release", pa.bool_(), "", "the operation released (published the clock)"),
    Column("clock", pa.list_(_U32), "", "vector clock at the thunk's begin, by thread number"),
    Column("seq", _I64, "blocks", "first block of the thunk; null when placed is none", delta=True),
    Column("seq_end", _I64, "blocks", "block after its last; null unknown", delta=True),
    Column("stack", pa.list_(_U64), "address", "return addresses at the operation, innermost first"),
    Column("functions", pa.list_(_STR), "", "their functions; null elements unknown"),
    _PLACED,
), ("thread", "thunk"))

PROFILE = Table("profile", "a distinct call stack of a thread and what ran in its top frame", (
    _THREAD, Column("stack", _I32, "", "stack number"),
    Column("calls", _I64, "calls", "times it was called"),
    Column("instructions", _I64, "instructions", "executed in its top function"),
    Column("blocks", _I64, "blocks", "executed in its top function"),
    Column("time", _I64, "ns", "in its top function, interpolated between known moments"),
), ("thread", "stack"))

STACKS = Table("stacks", "a call stack: its parent's frames and one more (the macro frames(stack) lists all)", (
    Column("stack", _I32, "", "stack number"),
    Column("parent", _I32, "", "stack without the top frame; null at the bottom"),
    Column("depth", _I32, "frames", "frames in it"),
    Column("function", _STR, "", "function of the top frame", dictionary=True),
    Column("block", _I32, "", "block that called it (null at the bottom)"),
), ("stack",))

CALLS = Table("calls", "a function call; stored only when merged with --calls", (
    _THREAD, Column("call", _I64, "", "ordinal in the thread", delta=True),
    Column("parent", _I64, "", "call it was made in; null at the bottom"),
    Column("stack", _I32, "", "its call stack"),
    Column("depth", _I32, "frames", "its depth"),
    Column("function", _STR, "", "function called", dictionary=True),
    Column("seq", _I64, "blocks", "first block", delta=True),
    Column("seq_end", _I64, "blocks", "block after its last", delta=True),
    Column("t_enter", _I64, "ns", "when it began, interpolated", delta=True),
    Column("t_exit", _I64, "ns", "when it returned, interpolated", delta=True),
), ("thread", "call"))

TABLES: dict[str, Table] = {t.name: t for t in (
    THREADS, PROCESSES, IMAGES, MAPS, BLOCKS, PATHS, FLOW, CLOCK, PT_EVENTS, GAPS, SYSCALLS, THUNKS, PROFILE,
    STACKS, CALLS)}

# --- between the stages -------------------------------------------------------------------------------------------

RAW_SYSCALLS = pa.schema([
    pa.field("t_enter", pa.int64()),  # CLOCK_MONOTONIC ns (bpf_ktime_get_ns)
    pa.field("t_exit", pa.int64()),  # null: never returned (exit, exit_group, a task killed inside the call)
    pa.field("pid", pa.int32()),
    pa.field("tid", pa.int32()),
    pa.field("number", pa.int32()),
    pa.field("ip", pa.uint64()),  # user-space address after the system-call instruction
    pa.field("args", pa.list_(pa.uint64(), 6)),
    pa.field("paths", pa.list_(pa.binary())),  # bytes as the kernel saw them; null could not be read
    pa.field("result", pa.int64()),
], metadata={b"ptweave.raw_syscalls": b"1"})
"""`events/syscalls.arrow` (Arrow IPC *stream*): every call of the pid tree as the kernel saw it, in exit order.

A call that was refused before it began (seccomp) has t_enter = t_exit. A path of 4096 bytes is the beginning of one
that is longer than the kernel takes.
"""

DECODED_SYSCALLS = pa.schema([
    pa.field("thread", pa.int32()),  # null: the task has no thread number (it never ran traced code)
    pa.field("index", pa.int64()),  # n-th system-call instruction of the thread; null when only the kernel saw it
    *[pa.field(c.name, c.type) for c in SYSCALLS.columns
      if c.name not in ("thread", "seq", "placed")],
])
"""`decoded/syscalls.parquet`: the program's calls, engine log and kernel records joined, not yet placed."""

DECODED_THUNKS = pa.schema([
    *[pa.field(c.name, c.type) for c in THUNKS.columns
      if c.name not in ("seq", "seq_end", "placed", "functions")],
    pa.field("tsc", pa.uint64()),
    pa.field("marker", pa.uint64()),  # address of the marker function in the thread's process
])
"""`decoded/thunks.parquet`: thunks in thread order, with clocks, not yet placed."""


class TableWriter:
    """Writes one table's Parquet file, streaming; a row group every `row_group` rows.

    The file appears under its name only when it is closed without an error. Where rows are cut into row groups depends
    on the rows alone, not on how they came.
    """

    def __init__(self, folder: Path, table: Table, name: str = "0.parquet", *, row_group: int = ROW_GROUP) -> None:
        self.table = table
        self.rows = 0
        self._schema = table.schema
        self._row_group = row_group
        target = folder / table.name
        target.mkdir(parents=True, exist_ok=True)
        self._path = target / name
        self._partial = target / f".{name}.partial"
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self._writer = pq.ParquetWriter(
            str(self._partial), self._schema, compression="zstd", compression_level=1,
            use_dictionary=[c.name for c in table.columns if c.dictionary],
            column_encoding={c.name: "DELTA_BINARY_PACKED" if c.delta else "BYTE_STREAM_SPLIT" for c in table.columns
                             if (c.delta or c.split) and not c.dictionary} or None,
            write_statistics=True, data_page_size=1 << 18)

    def write(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Append rows; columns must have the table's names and castable types."""
        rows = pa.table(batch) if isinstance(batch, pa.RecordBatch) else batch
        if not rows.schema.equals(self._schema):
            rows = rows.cast(self._schema)
        for part in rows.to_batches():
            self._pending.append(part)
            self._pending_rows += part.num_rows
        if self._pending_rows >= self._row_group:
            self._flush(self._pending_rows // self._row_group * self._row_group)

    def _flush(self, count: int) -> None:
        if count:
            table = pa.Table.from_batches(self._pending, self._schema)
            self._writer.write_table(table.slice(0, count), row_group_size=self._row_group)
            self.rows += count
            self._pending = table.slice(count).to_batches()
            self._pending_rows -= count

    def close(self) -> None:
        self._flush(self._pending_rows)
        self._writer.close()
        self._partial.replace(self._path)

    def abort(self) -> None:
        """Give the file up: nothing is left under the table's name."""
        self._writer.close()
        self._partial.unlink(missing_ok=True)

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()


def write_table(folder: Path, table: Table, rows: pa.Table | Iterable[dict[str, object]]) -> int:
    """Write a whole small table at once; returns its row count."""
    data = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(list(rows), schema=table.schema)
    with TableWriter(folder, table) as writer:
        writer.write(data)
    return int(data.num_rows)
