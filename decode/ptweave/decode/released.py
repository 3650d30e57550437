# SPDX-License-Identifier: MIT
"""Mapped traces that are read from their beginning to their end: what is behind need not count as memory any more."""

from __future__ import annotations

import mmap


def release(memory: mmap.mmap, begin: int, end: int) -> None:
    """Let go of bytes `begin` to `end`: whole pages, from the one `begin` is in to the one before that of `end`."""
    first, behind = begin // mmap.PAGESIZE * mmap.PAGESIZE, end // mmap.PAGESIZE * mmap.PAGESIZE
    if behind > first:
        memory.madvise(mmap.MADV_DONTNEED, first, behind - first)
