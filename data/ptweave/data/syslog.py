# SPDX-License-Identifier: MIT
"""`trace/<thread>.sys`: the soft engine's log of the system calls its thread made, one record each, in order.

The engine knows which calls are the program's (its own are visible to the kernel too) and makes some of them
itself (brk, sigaction): this log is the truth about *which* calls the program made; the eBPF recorder adds
what the kernel saw. The n-th record is the n-th system-call instruction in the thread's flow.

A file is a sequence of 96-byte little-endian records:

    u64 tsc_enter, tsc_exit    TSC around the call; tsc_exit is 0 when it never returned
    i64 result                 as the program saw it in rax
    u64 ip                     address of the system-call instruction
    u32 number, u32 flags      bit 0: the engine answered it without asking the kernel the same thing
                               bit 1: a signal interrupted it and its instruction runs again: a later record
    u64 args[6]
    u64 stream                 trace bytes written when the call was made (offset in the .pt file)
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
