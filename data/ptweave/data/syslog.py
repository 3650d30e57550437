# SPDX-License-Identifier: MIT
"""`trace/<thread>.sys`: the soft engine's log of the system calls its thread made, one record each, in order.

The engine knows which calls are the program's (its own are visible to the kernel too) and makes some of them
itself (brk, sigaction): this log is the truth about *which* calls the program made; the eBPF recorder adds
what the kernel saw. The n-th record is the n-th system-call instruction (`syscall`, 0f 05) in the thread's flow. A
call that a signal interrupted and that was made again has two records, as its instruction ran twice. The flow of a
killed thread may end with an instruction that has no record yet, or the log with a record whose instruction is behind
the last packet.

A file is a sequence of 96-byte little-endian records, in order; one that is all zero had no room on the disk:

    u64 tsc_enter, tsc_exit    TSC around the call; tsc_exit is 0 when it never returned
    i64 result                 as the program saw it in rax
    u64 ip                     address of the system-call instruction
    u32 number, u32 flags      bit 0: the engine answered it without asking the kernel the same thing;
                               bit 1: interrupted, and made again (a later record): tsc_exit and result are 0
    u64 args[6]
    u64 stream                 offset in the .pt file, just behind the packets of the call (its TIP.PGD)
"""

from __future__ import annotations

import numpy as np

SYSLOG_DTYPE = np.dtype(
    [
        ("tsc_enter", "<u8"), ("tsc_exit", "<u8"), ("result", "<i8"), ("ip", "<u8"),
        ("number", "<u4"), ("flags", "<u4"), ("args", "<u8", (6,)), ("stream", "<u8"),
    ]
)
assert SYSLOG_DTYPE.itemsize == 96
