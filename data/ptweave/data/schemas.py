# SPDX-License-Identifier: MIT
"""The tables of a run: every column with its type, unit and meaning, and how each is laid out in Parquet.

`tables/<name>/*.parquet` holds a table (`ptweave.data.table_writer` writes it). Rows are sorted as `sort` says; sorted
integer columns are DELTA_BINARY_PACKED, ids are PLAIN, those of `flow` BYTE_STREAM_SPLIT (measured: dictionaries are
1.8x larger on path ids, PLAIN takes 1.6x the time), as are vector clocks.
`seq` is the ordinal of a block in its thread's flow; `t` is ns on CLOCK_MONOTONIC; `thread` is dense in the run.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

import pyarrow as pa

from ptweave.data.event_schemas import EVENT_TABLES
from ptweave.data.table_types import Column as Column
from ptweave.data.table_types import Table as Table


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


_I32, _I64, _U64, _U32, _STR = pa.int32(), pa.int64(), pa.uint64(), pa.uint32(), pa.string()
_THREAD = Column("thread", _I32, "", "thread number, dense in the run", dictionary=True)
_THREADS = replace(_THREAD, dictionary=False, required=True)
"""Where there are many rows: long runs of one number, which compress to nothing as they are."""
_SEQ = Column("seq", _I64, "blocks", "ordinal of the block in the thread's flow", delta=True)
_T = Column("t", _I64, "ns", "CLOCK_MONOTONIC", delta=True)
_PLACED = Column("placed", _STR, "", "exact, time or none: how the row was aligned with the flow", dictionary=True)

THREADS = Table("threads", "a traced task (a kernel thread; it stays the same one across exec)", (
    _THREAD,
    Column("pid", _I32, "", "process id; with --threads process that of its main process, as getpid() has it"),
    Column("tid", _I32, "", "kernel thread id (with --threads process a process of its own)"),
    Column("parent", _I32, "", "thread that created it; null for the first and where unknown"),
    Column("start_function", _STR, "", "the pthread's start routine, of a fork's child the function that forked; else "
           "that of the first block executed"),
    Column("own", pa.bool_(), "", "libtthread's own thread, not the program's: with --threads process one waits for "
           "the processes that threads are"),
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

PROCESSES = Table("processes", "a process image: a process from its fork or exec to its next exec or end; threads that "
                  "run as processes are none", (
    Column("space", _U32, "", "address space number, dense in the run"),
    Column("pid", _I32, "", "process id"),
    Column("parent", _I32, "", "process id of its parent"),
    Column("began_by", _STR, "", "start, fork or exec"),
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
    Column("space", _U32, "", "address space; a thread that runs as a process has one of its own"),
    Column("pid", _I32, "", "process id of the kernel's"),
    Column("start", _U64, "address", "first byte"),
    Column("end", _U64, "address", "byte after the last"),
    Column("offset", _U64, "bytes", "offset of the first byte in the image"),
    Column("image", _I32, "", "image"),
    Column("since", _U32, "epochs", "first epoch it is there"),
    Column("until", _U32, "epochs", "epoch it is gone in; null to the end"),
), ("space", "start"))

VARIABLES = Table("variables", "a variable that has an address in an image that ran; where the image is mapped (maps), "
                  "it is at start + offset − maps.offset", (
    Column("image", _I32, "", "image"),
    Column("offset", _I64, "bytes", "of its first byte, from the image's code as it is in memory"),
    Column("size", _U64, "bytes", "its size"),
    Column("name", _STR, "", "its name"),
), ("image", "offset"))

LINES = pa.list_(pa.field("item", pa.struct([("file", pa.string()), ("line", pa.int32()),
                                             ("instructions", pa.int32())])))

BLOCKS = Table("blocks", "a distinct basic block: from an entry to the first branch, or to where an event cut it", (
    Column("block", _I32, "", "block number", delta=True),
    Column("image", _I32, "", "image it is in"),
    Column("offset", _I64, "bytes", "offset of its first instruction in the image's file"),
    Column("ip", _U64, "address", "address of its first instruction where it ran first"),
    Column("size", _I32, "bytes", "from its first instruction to the end of its last", split=True),
    Column("instructions", _I32, "instructions", "instructions in it", split=True),
    Column("last", _STR, "", "class of the last instruction: other, cond_jump, jump, ind_jump, call, ind_call, "
           "return, syscall, far", dictionary=True),
    Column("last_ip", _U64, "address", "address of its last instruction where it ran first"),
    Column("mode", pa.int8(), "bits", "64, 32 or 16: the processor's mode when it ran; 0 not known"),
    Column("function", _STR, "", "function it is in, demangled; null unknown", dictionary=True),
    Column("function_offset", _I64, "bytes", "offset of the block in that function", split=True),
    Column("file", _STR, "", "source file; null without line information", dictionary=True),
    Column("line", _I32, "", "source line; null without line information"),
    Column("last_file", _STR, "", "source file of its last instruction", dictionary=True),
    Column("last_line", _I32, "", "source line of its last instruction: the branch's"),
    Column("lines", LINES, "", "source lines of its instructions, in order: a line, and how many instructions in a row "
           "are of it (file and line null: of none); null without line information"),
), ("block",))

PATHS = Table("paths", "a distinct sequence of blocks executed in one go", (
    Column("path", _I32, "", "path number", delta=True),
    Column("blocks", pa.list_(_I32), "", "its blocks in order", split=True),
    Column("length", _I32, "blocks", "blocks in it", split=True, bounds=True),
    Column("instructions", _I32, "instructions", "instructions in it", split=True),
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
           "cfe: vector << 8 \\| type (SDM: 1 interrupt, 2 IRET, …); page_fault: its address; vmx_qualification, "
           "vmx_reason, evd: the value; interrupt_flag: 1 set, 0 cleared; pebs: how many items the record had; "
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

CAPTURES = pa.list_(pa.field("item", pa.struct([
    pa.field("argument", pa.int8()),  # 0 is the first; 6 the call stack
    pa.field("kind", pa.int8()),  # syscall_arguments.Capture
    pa.field("part", pa.int8()),  # syscall_arguments.Part; of the message n of several PARTS * n more
    pa.field("when", pa.int8()),  # syscall_arguments.When
    pa.field("size", pa.int64()),  # bytes it has in the program; more than there are here when it was cut
    pa.field("data", pa.binary()),  # null: could not be read
])))
"""What was kept of the memory that a call's arguments point to, paths excepted."""

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
    Column("files", pa.list_(_STR), "", "what descriptors refer to: of its first two descriptor arguments (AT_FDCWD: "
           "the working directory), and of its result; null elements: no descriptor, or not open"),
    Column("data", CAPTURES, "", "what was kept of the memory its arguments point to, paths excepted; the macro "
           "call_text shows it decoded"),
    Column("result", _I64, "", "what it returned; null when it never did"),
    Column("errno", _STR, "", "errno's name when it failed", dictionary=True),
    Column("ip", _U64, "address", "address of the system-call instruction; null unknown"),
    Column("source", _STR, "", "both: the soft engine's log and the kernel agree; engine: the log alone has "
           "it (the engine answered it, or the kernel's record is missing); kernel: there is no log of it",
           dictionary=True),
    _PLACED,
), ("thread", "seq"))

THUNKS = Table("thunks", "what a thread does from one synchronisation operation to the next", (
    _THREAD, Column("thunk", _I32, "", "ordinal in the thread", delta=True),
    Column("operation", _STR, "", "operation that began it (start, mutex_lock, barrier_wait, …)", dictionary=True),
    Column("object", _U64, "address", "object of that operation; null none", split=True),
    Column("variable", _STR, "", "variable that object is (`lock`) or is in (`server+0x38`); null none, or unknown",
           dictionary=True),
    Column("result", _I64, "", "what the operation returned"),
    Column("t", _I64, "ns", "when the operation was called", delta=True),
    Column("wait", _I64, "ns", "time the operation took: waiting, for locks and joins", split=True),
    Column("acquire", pa.bool_(), "", "the operation acquired (joined another thread's clock)"),
    Column("release", pa.bool_(), "", "the operation released (published the clock)"),
    Column("clock", pa.list_(_U32), "", "vector clock at the thunk's begin, by thread number", split=True),
    Column("seq", _I64, "blocks", "first block of the thunk; null when placed is none", delta=True),
    Column("seq_end", _I64, "blocks", "block after its last; null unknown", delta=True),
    Column("caller", _STR, "", "function that called the operation; null unknown", dictionary=True),
    Column("site", _U64, "address", "return address of the operation's call, in `caller`; null unknown",
           dictionary=True),
    Column("stack", _I32, "", "its call stack, see call_stacks; null unknown", dictionary=True),
    _PLACED,
), ("thread", "thunk"))

BYTES = pa.list_(pa.struct([("offset", _I32), ("length", _I32)]))
"""Runs of bytes in a page."""

ACCESSES = Table("accesses", "a page that a thread read or wrote, from the thunk in which it first did to the last one "
                 "in which the page was open to it (only with --threads process)", (
    _THREAD, Column("thunk", _I32, "", "thunk of the first access", delta=True),
    Column("until_thunk", _I32, "", "last thunk in which it could access the page without being seen; with "
           "--access exact the same; 2147483647 to the end"),
    Column("page", _U64, "address", "first byte of the page (4096 bytes)"),
    Column("write", pa.bool_(), "", "written (and perhaps read); else read"),
    Column("window", _I32, "pages", "0: the page that was accessed; n: the n-th behind it, opened with it because "
           "accesses were sequential, and perhaps not accessed"),
    Column("region", _STR, "", "stack, heap (allocations and private mappings), file, or data (of the executable and "
           "its libraries)", dictionary=True),
    Column("address", _U64, "address", "first byte accessed; null for pages opened with another"),
    Column("variable", _STR, "", "variable it is in, as in thunks; null none, or unknown", dictionary=True),
    Column("ip", _U64, "address", "instruction that made the access; for memory given to a system call, in the call of "
           "its function; null unknown"),
    Column("function", _STR, "", "function of that instruction", dictionary=True),
    Column("file", _STR, "", "its source file", dictionary=True),
    Column("line", _I32, "", "its line"),
    Column("stack", _I32, "", "its call stack, see stacks; null unknown"),
    Column("allocation", _I32, "", "allocation that the page belongs to; null for other memory than the heap's"),
    Column("bytes", BYTES, "", "only in the private view: which bytes of the page the thunk had changed when it gave "
           "them to the other threads; such a row has no ip"),
    Column("shared", pa.bool_(), "", "in the private view: the page is passed through, all threads see what is written "
           "at once"),
    Column("t", _I64, "ns", "when", delta=True),
    Column("seq", _I64, "blocks", "block that begins with that instruction (for a system call: the block that logged "
           "it); null when placed is none", delta=True),
    _PLACED,
), ("thread", "thunk"))

ALLOCATIONS = Table("allocations", "memory that the heap took for somebody, in units of 64 KiB: a block too large to "
                    "share one, a private mapping, or the next unit for blocks of one size of one thread; the call is "
                    "that of its first block (only with --threads process)", (
    Column("allocation", _I32, "", "allocation number", delta=True), _THREAD,
    Column("thunk", _I32, "", "thunk it was made in", delta=True),
    Column("address", _U64, "address", "first byte"),
    Column("size", _U64, "bytes", "bytes taken"),
    Column("ip", _U64, "address", "in the call of malloc, mmap, …; null unknown"),
    Column("function", _STR, "", "function that made that call", dictionary=True),
    Column("file", _STR, "", "its source file", dictionary=True),
    Column("line", _I32, "", "its line"),
    Column("stack", _I32, "", "its call stack, see stacks; null unknown"),
    _T,
    Column("seq", _I64, "blocks", "block that logged it; null when placed is none", delta=True),
    _PLACED,
), ("allocation",))

EDGES = Table("edges", "a dependence: of a thunk on another or on what came in, or of what went out on a thunk", (
    Column("kind", _STR, "", "control (next in the thread), sync (a release that an acquire saw), data (written by the "
           "one, perhaps read by the other), input (a transfer into a thunk), output (a thunk into a transfer)",
           dictionary=True),
    Column("from_thread", _I32, "", "thread it leads from; null for input", dictionary=True),
    Column("from_thunk", _I32, "", "first thunk it may lead from", delta=True),
    Column("from_until", _I32, "", "last one: another than from_thunk only where a page was held open over thunks",
           delta=True),
    Column("to_thread", _I32, "", "thread it leads to; null for output", dictionary=True),
    Column("to_thunk", _I32, "", "first thunk it may lead to", delta=True),
    Column("to_until", _I32, "", "last one", delta=True),
    Column("object", _U64, "address", "of sync: the object acquired"),
    Column("page", _U64, "address", "of data: the page"),
    Column("bytes", BYTES, "", "of data in the private view: the page's bytes the one wrote last; else null"),
    Column("transfer", _I32, "", "of input and output: number of the transfer"),
), ("kind",))

RACES = Table("races", "two places in the code where two threads accessed a page, one of them at least writing, in "
              "thunks neither of which happens before the other", (
    Column("overlap", _STR, "", "bytes: the same bytes (known in the private view); address: both began in the "
           "same word of 8 bytes; page: nothing more is known than the page; atomic: the same bytes or word, by "
           "atomic instructions", dictionary=True),
    Column("pairs", _I64, "", "pairs of such thunks", delta=True),
    Column("page", _U64, "address", "first byte of the page"),
    Column("thread", _I32, "", "the one thread", dictionary=True),
    Column("thunk", _I32, "", "its thunk in the first such pair"),
    Column("write", pa.bool_(), "", "it wrote"),
    Column("address", _U64, "address", "first byte it accessed; null unknown"),
    Column("variable", _STR, "", "variable it is in, as in thunks; null none, or unknown", dictionary=True),
    Column("ip", _U64, "address", "instruction; null unknown"),
    Column("function", _STR, "", "its function", dictionary=True),
    Column("file", _STR, "", "its source file", dictionary=True),
    Column("line", _I32, "", "its line"),
    Column("other_thread", _I32, "", "the other thread", dictionary=True),
    Column("other_thunk", _I32, "", "its thunk in that pair"),
    Column("other_write", pa.bool_(), "", "it wrote"),
    Column("other_address", _U64, "address", "first byte it accessed; null unknown"),
    Column("other_variable", _STR, "", "variable it is in", dictionary=True),
    Column("other_ip", _U64, "address", "instruction; null unknown"),
    Column("other_function", _STR, "", "its function", dictionary=True),
    Column("other_file", _STR, "", "its source file", dictionary=True),
    Column("other_line", _I32, "", "its line"),
), ())

TRANSFERS = Table("transfers", "data that came in or went out: by system calls, and in files mapped into memory", (
    Column("transfer", _I32, "", "transfer number", delta=True),
    Column("kind", _STR, "", "read, write, receive, send, or map (a file's pages, as far as they were accessed)",
           dictionary=True),
    Column("input", pa.bool_(), "", "it came in; else it went out"),
    _THREAD,
    Column("thunk", _I32, "", "thunk it was made in (of map: in which the file was mapped); null unknown"),
    Column("descriptor", _I32, "", "file descriptor"),
    Column("path", _STR, "", "path that the descriptor was opened with; stdin, stdout and stderr where it was there "
           "from the start; null unknown", dictionary=True),
    Column("offset", _I64, "bytes", "offset of its first byte in that file; of what is no file, bytes before it in "
           "that direction since it was opened; null unknown"),
    Column("size", _I64, "bytes", "bytes moved; of map: of the mapping; null of sendmmsg and recvmmsg"),
    Column("address", _U64, "address", "first byte in memory; null where it is in several places"),
    _T,
    Column("seq", _I64, "blocks", "block that made the system call; null unknown", delta=True),
), ("transfer",))

TAGS = Table("tags", "a moment that the program tagged (ptweave/tag.h, ptweave.tag)", (
    _THREAD, Column("tag", _I32, "", "ordinal in the thread", delta=True),
    Column("text", _STR, "", "what the program said; bytes that are no UTF-8 as \\xNN", dictionary=True),
    Column("data", pa.map_(_STR, _STR), "", "keys and values it gave with it"),
    Column("truncated", pa.bool_(), "", "text or values were cut: a tag has at most 128 KiB"),
    _T,
    Column("seq", _I64, "blocks", "block that ran then; null when placed is none", delta=True),
    Column("stack", pa.list_(_U64), "address", "return addresses, innermost first"),
    Column("functions", pa.list_(_STR), "", "their functions; null elements unknown"),
    _PLACED,
), ("thread", "tag"))

PROBES = Table("probes", "a hit of a probe (--probe)", (
    _THREAD, Column("probe", _I32, "", "ordinal in the thread", delta=True),
    Column("site", _I32, "", "number of the place in probe_sites"),
    Column("function", _STR, "", "function it is in", dictionary=True),
    Column("handler", _STR, "", "what was done there", dictionary=True),
    Column("args", pa.list_(_U64), "", "handler args: rdi, rsi, rdx, rcx, r8, r9: arguments, where a function begins"),
    Column("result", _U64, "", "handlers return and time: what the function returned in rax"),
    Column("elapsed", _I64, "ns", "handler time: from the function's beginning to its return"),
    Column("data", pa.map_(_STR, _STR), "", "keys and values that the handler in C added"),
    Column("truncated", pa.bool_(), "", "values were cut: a hit has at most 128 KiB"),
    Column("t", _I64, "ns", "CLOCK_MONOTONIC; handlers return and time: of the return"),
    Column("seq", _I64, "blocks", "block that ran then; null when placed is none", delta=True),
    Column("stack", pa.list_(_U64), "address", "the probe's address + 1, and return addresses, innermost first"),
    Column("functions", pa.list_(_STR), "", "their functions; null elements unknown"),
    _PLACED,
), ("thread", "probe"))

PROBE_SITES = Table("probe_sites", "a place that --probe named", (
    Column("site", _I32, "", "its number; null: it was refused"),
    Column("spec", _STR, "", "what named it", dictionary=True),
    Column("handler", _STR, "", "what is done there", dictionary=True),
    Column("path", _STR, "", "file", dictionary=True),
    Column("address", _U64, "address", "in the file, as it is linked"),
    Column("function", _STR, "", "function it is in"),
    Column("reason", _STR, "", "why it was refused; empty: it was not", dictionary=True),
    Column("hits", _I64, "", "rows of it in probes"),
))

WATCHES = Table("watches", "an access of what --watch named", (
    _THREAD, Column("hit", _I32, "", "ordinal in the thread", delta=True),
    Column("site", _I32, "", "number of the watchpoint in watch_sites"),
    Column("spec", _STR, "", "what named it", dictionary=True),
    Column("access", _STR, "", "write, read, read_write, or touch (read, or written without a change: the processor's "
           "debug registers do not tell)", dictionary=True),
    Column("ip", _U64, "address", "the instruction; null where the processor found it: it is the one before next"),
    Column("next", _U64, "address", "where the thread went on"),
    Column("old", _U64, "", "value that was seen last, of up to 8 bytes, as a little-endian number; null unknown"),
    Column("new", _U64, "", "value right after it, in the same way"),
    Column("old_bytes", pa.binary(), "bytes", "the same as bytes, however many"),
    Column("new_bytes", pa.binary(), "bytes", "the same"),
    Column("registers", pa.list_(_U64), "", "right after it: rax, rbx, rcx, rdx, rsi, rdi, rbp, rsp, r8 to r15, rip, "
           "rflags"),
    Column("late", pa.bool_(), "", "SIGTRAP was blocked: next, registers and stack are those of when it no longer was"),
    _T,
    Column("seq", _I64, "blocks", "block that ran then; null when placed is none", delta=True),
    Column("stack", pa.list_(_U64), "address", "the byte behind the instruction (behind its first one where ip is "
           "known), and return addresses, innermost first"),
    Column("functions", pa.list_(_STR), "", "their functions; null elements unknown"),
    _PLACED,
), ("thread", "hit"))

WATCH_SITES = Table("watch_sites", "a watchpoint (--watch)", (
    Column("site", _I32, "", "its number"),
    Column("spec", _STR, "", "what named it", dictionary=True),
    Column("mode", _STR, "", "w, r or rw", dictionary=True),
    Column("path", _STR, "", "file it is in; empty: it was named by an address", dictionary=True),
    Column("address", _U64, "address", "in the file, as it is linked; without a file, in memory"),
    Column("length", _I32, "bytes", "what is watched"),
    Column("type", _STR, "", "by the debug information; empty unknown", dictionary=True),
    Column("hits", _I64, "", "rows of it in watches"),
    Column("skipped", _I64, "", "writes that the processor found and r did not ask for; not in watches"),
    Column("own", _I64, "", "touched by libtthread itself, or while it had signals blocked; not in watches"),
))

PROFILE = Table("profile", "a distinct call stack of a thread and what ran in its top frame", (
    _THREAD, Column("stack", _I32, "", "stack number", delta=True),
    Column("calls", _I64, "calls", "times it was called", split=True),
    Column("instructions", _I64, "instructions", "executed in its top function", split=True),
    Column("blocks", _I64, "blocks", "executed in its top function", split=True),
    Column("time", _I64, "ns", "in its top function: of the time between two known moments its share of the blocks",
           split=True),
), ("thread", "stack"))

STACKS = Table("stacks", "a call stack: its parent's frames and one more (the macro frames(stack) lists all)", (
    Column("stack", _I32, "", "stack number", delta=True),
    Column("parent", _I32, "", "stack without the top frame; null at the bottom", split=True),
    Column("depth", _I32, "frames", "frames in it", split=True),
    Column("function", _STR, "", "function of the top frame", dictionary=True),
    Column("image", _I32, "", "image that function is in; null unknown", split=True),
    Column("block", _I32, "", "block that called it (null at the bottom)"),
), ("stack",))

CALL_STACKS = Table("call_stacks", "the call stacks that thunks, accesses and allocations name, frame by frame", (
    Column("stack", _I32, "", "stack number"),
    Column("functions", pa.list_(_STR), "", "functions, innermost first; null elements unknown", dictionary=True),
    Column("blocks", pa.list_(_I32), "", "blocks that called them; null elements unknown"),
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
    THREADS, PROCESSES, IMAGES, MAPS, VARIABLES, BLOCKS, PATHS, FLOW, CLOCK, PT_EVENTS, GAPS, SYSCALLS, THUNKS,
    ACCESSES, ALLOCATIONS, TRANSFERS, EDGES, RACES, TAGS, PROBES, PROBE_SITES, WATCHES, WATCH_SITES, PROFILE, STACKS,
    CALL_STACKS, CALLS, *EVENT_TABLES)}

ADDRESSES = frozenset(column.name for table in TABLES.values() for column in table.columns
                      if column.unit == "address" and column.type == pa.uint64())
"""Names of columns with addresses: what is shown of them is hexadecimal."""

# --- between the stages -------------------------------------------------------------------------------------------

RAW_SYSCALLS_1 = pa.schema([
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
"""The first version of RAW_SYSCALLS, which had no captures and no files."""

RAW_SYSCALLS = pa.schema([
    *RAW_SYSCALLS_1,
    pa.field("files", pa.list_(pa.uint64(), 3)),  # ids of events/files.arrow: two arguments, the result; 0 none
    pa.field("captures", CAPTURES),
], metadata={b"ptweave.raw_syscalls": b"2"})
"""`events/syscalls.arrow` (Arrow IPC *stream*): every call of the pid tree as the kernel saw it, in exit order.

A call that was refused before it began (seccomp) has t_enter = t_exit. A path of 4096 bytes is the beginning of one
that is longer than the kernel takes.
"""

RAW_FILES = pa.schema([
    pa.field("id", pa.uint64()),
    pa.field("path", pa.binary()),  # from the root of its mount namespace; `socket:[inode]` and such for what has none
    pa.field("filesystem", pa.string()),  # the type's name; its first 15 bytes
    pa.field("device", pa.uint32()),  # major << 20 | minor
    pa.field("inode", pa.uint64()),
    pa.field("mode", pa.uint32()),  # st_mode
    pa.field("deleted", pa.bool_()),  # it had no name any more
    pa.field("t", pa.int64()),  # when it was first seen
], metadata={b"ptweave.raw_files": b"1"})
"""`events/files.arrow` (Arrow IPC stream): what the ids in `files` of RAW_SYSCALLS stand for."""

DECODED_SYSCALLS = pa.schema([
    pa.field("thread", pa.int32()),  # null: the task has no thread number (it never ran traced code)
    pa.field("index", pa.int64()),  # n-th system-call instruction of the thread; null when only the kernel saw it
    *[pa.field(c.name, c.type) for c in SYSCALLS.columns
      if c.name not in ("thread", "seq", "placed")],
])
"""`decoded/syscalls.parquet`: the program's calls, engine log and kernel records joined, not yet placed."""

DECODED_THUNKS = pa.schema([
    *[pa.field(c.name, c.type) for c in THUNKS.columns
      if c.name not in ("variable", "seq", "seq_end", "placed", "caller", "site", "stack")],
    pa.field("stack", pa.int32()),  # row of decoded/stacks.parquet; null: none
    pa.field("tsc", pa.uint64()),
    pa.field("marker", pa.uint64()),  # address of the marker function in the thread's process
])
"""`decoded/thunks.parquet`: thunks in thread order, with clocks, not yet placed."""

DECODED_STACKS = pa.schema([pa.field("stack", pa.list_(pa.uint64()))])
"""`decoded/stacks.parquet`: call stacks that thunks name by their row here, return addresses innermost first. Few are
there twice."""

DECODED_TAGS = pa.schema([pa.field(c.name, c.type) for c in TAGS.columns
                          if c.name not in ("seq", "placed", "functions")])
"""`decoded/tags.parquet`: tags in (thread, tag) order, not yet placed; thread is null where it is not known."""

DECODED_PROBES = pa.schema([pa.field(c.name, c.type) for c in PROBES.columns
                            if c.name not in ("seq", "placed", "functions")])
"""`decoded/probes.parquet`: hits in (thread, probe) order, not yet placed; thread is null where it is not known."""

DECODED_WATCHES = pa.schema([pa.field(c.name, c.type) for c in WATCHES.columns
                             if c.name not in ("seq", "placed", "functions")])
"""`decoded/watches.parquet`: hits in (thread, hit) order, not yet placed; thread is null where it is not known."""

DECODED_ACCESSES = pa.schema([
    pa.field("thread", pa.int32()),
    pa.field("record", pa.int64()),  # ordinal among the thread's records of accesses
    pa.field("thunk", pa.int32()),
    pa.field("operation", pa.string()),
    pa.field("t", pa.int64()),
    pa.field("address", pa.uint64()),
    pa.field("argument", pa.uint64()),  # as ptweave.data.evl says
    pa.field("result", pa.int64()),
    pa.field("bytes", BYTES),  # of commits; null for others
    pa.field("stack", pa.list_(pa.uint64())),
])
"""`decoded/accesses.parquet`: records of accesses as they were logged, by thread and record."""

DECODED_PAGES = pa.schema([
    pa.field("thread", pa.int32()),
    pa.field("record", pa.int64()),  # that opened the page
    pa.field("page", pa.uint64()),
    pa.field("write", pa.bool_()),
    pa.field("thunk", pa.int32()),
    pa.field("until_thunk", pa.int32()),
])
"""`decoded/pages.parquet`: from when to when each page was open, by thread."""
