# SPDX-License-Identifier: MIT
"""The processor's time stamp counter beside CLOCK_MONOTONIC."""

from __future__ import annotations

import ctypes
import mmap
import time

_CODE = bytes.fromhex("0f31 48c1e220 4809d0 c3")  # rdtsc; shl rdx, 32; or rax, rdx; ret
_page = mmap.mmap(-1, len(_CODE), prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
_page.write(_CODE)
_rdtsc = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(ctypes.c_char.from_buffer(_page)))


def moment() -> tuple[int, int]:
    """One moment on both clocks, (TSC, ns): of some tries the one that took the least."""
    tries = []
    for _ in range(100):
        before = time.monotonic_ns()
        tsc = _rdtsc()
        after = time.monotonic_ns()
        tries.append((after - before, tsc, (before + after) // 2))
    _, tsc, ns = min(tries)
    return tsc, ns
