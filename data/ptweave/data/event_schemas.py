# SPDX-License-Identifier: MIT
"""Tables of events that the kernel tells beside system calls: what `ptweave events` records."""

from __future__ import annotations

import pyarrow as pa

from ptweave.data.table_types import Column, Table

_I32, _I64, _STR = pa.int32(), pa.int64(), pa.string()
_T = Column("t", _I64, "ns", "CLOCK_MONOTONIC")
_PID = Column("pid", _I32, "", "process id")
_TID = Column("tid", _I32, "", "kernel thread id")
_CALL = Column("name", _STR, "", "the system call", dictionary=True)

BLOCKING = Table("blocking", "a system call that returned, by the time it took", (
    _T, _PID, _TID, _CALL,
    Column("duration", _I64, "ns", "from enter to exit, without run_delay"),
    Column("run_delay", _I64, "ns", "of the time from enter to exit: ready to run, and waiting for a processor"),
))

FD_CHANGES = Table("fd_changes", "a system call that opened or closed file descriptors", (
    _T, _PID, _TID, _CALL,
    Column("operation", _STR, "", "open or close", dictionary=True),
    Column("fd", _I32, "", "the descriptor; null when it is not one (pipe, socketpair, close_range)"),
    Column("open_fds", _I64, "descriptors", "open in the process right after it; null when the table could not be read "
           "whole (more than a million)"),
))

SIGNALS = Table("signals", "a signal that was sent, or is about to act on its target", (
    _T, _PID, _TID,
    Column("operation", _STR, "", "sent: pid and tid ran when it was (the sender, but for si_code SI_KERNEL and "
           "timers); delivered: pid and tid are the target", dictionary=True),
    Column("signal", _I32, "", "its number"),
    Column("name", _STR, "", "its name", dictionary=True),
    Column("code", _I32, "", "si_code"),
    Column("target_pid", _I32, "", "process it is for"),
    Column("target_tid", _I32, "", "thread it is for; of one for the whole process, its main thread when sent"),
    Column("result", _STR, "", "of a sent one: delivered (to the target's queue), ignored, already_pending, "
           "overflow_fail or lose_info; null of a delivered one", dictionary=True),
    Column("action", _STR, "", "of a delivered one: default, ignored or handler; null of a sent one", dictionary=True),
    Column("handler", pa.uint64(), "address", "of a delivered one: its handler; null for none"),
))

WRITES = Table("writes", "a call of write, writev, pwrite64, pwritev or pwritev2", (
    _T, _PID, _TID,
    Column("source", _STR, "", "which of the five", dictionary=True),
    Column("fd", _I32, "", "file descriptor"),
    Column("path", _STR, "", "what it refers to: a path, or pipe:[…], socket:[…], anon_inode:…; null when not known",
           dictionary=True),
    Column("kind", _STR, "", "file, directory, pipe, socket, memfd, char_device, block_device or anon_inode; null when "
           "not known", dictionary=True),
    Column("bytes", _I64, "bytes", "written; null when it failed"),
    Column("errno", _STR, "", "errno's name when it failed", dictionary=True),
    Column("duration", _I64, "ns", "from enter to exit"),
))

GC = Table("gc", "a garbage collection, or another pause that a runtime's collector makes", (
    _T, _PID, _TID,
    Column("runtime", _STR, "", "cpython or hotspot", dictionary=True),
    Column("kind", _STR, "", "collection; pause: hotspot stopped the program for another step (G1's Remark and "
           "Cleanup, ZGC's); cycle: hotspot's concurrent marking, beside the program", dictionary=True),
    Column("gcs_completed", _I64, "", "which it is of the process, counted from 1 since it is recorded"),
    Column("duration", _I64, "ns", "from begin to end"),
    Column("full", pa.bool_(), "", "hotspot: what it is part of collects the whole heap (so is the young collection "
           "that Parallel does before); cpython: of the oldest generation; null of a cycle"),
    Column("generation", _I32, "", "cpython: the oldest generation collected; null of others"),
    Column("cause", _I32, "", "hotspot: GCCause::Cause of its version (0: System.gc()); null of a pause, and of "
           "others"),
    Column("cause_name", _STR, "", "hotspot: the name it gives that cause, as in its own log; null where it names "
           "none: OpenJDK 17 with -XX:-UsePerfData and no log, a library without symbols, lost hits of probes",
           dictionary=True),
    Column("freed_objects", _I64, "objects", "cpython: unreachable objects found; null of others"),
    Column("used_before", _I64, "bytes", "hotspot: in the memory pools it collects, at its begin; null not told"),
    Column("used_after", _I64, "bytes", "the same at its end"),
    Column("committed", _I64, "bytes", "hotspot: what those pools have at its end; null not told"),
))

JNI_REFS = Table("jni_refs", "a JNI reference that was made or deleted", (
    _T, _PID, _TID,
    Column("operation", _STR, "", "add_local, delete_local, add_global, delete_global, add_weak or delete_weak",
           dictionary=True),
    Column("reference", pa.uint64(), "", "the reference; 0 when none could be made, or nothing is deleted"),
))

UPROBES = Table("uprobes", "a place in a program, given by --uprobe, that was reached", (
    _T, _PID, _TID,
    Column("probe", _STR, "", "as --uprobe has it: BINARY:SYMBOL…", dictionary=True),
    Column("names", pa.list_(_STR), "", "what the values are called"),
    Column("values", pa.list_(pa.int64()), "", "signed as the type says (u64 from 2^63 on is negative); of a string "
           "its address; null not readable"),
    Column("text", pa.binary(), "", "the string, its first 63 bytes; null when there is none"),
))

EVENT_TABLES = (BLOCKING, FD_CHANGES, SIGNALS, WRITES, GC, JNI_REFS, UPROBES)
