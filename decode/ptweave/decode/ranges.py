# SPDX-License-Identifier: MIT
"""Where a trace is cut into ranges that are decoded apart from each other.

Every PSB is a place at which decoding can begin (SDM vol. 3, 33.4.2.17): no packet behind it depends on one before it.
The cuts depend on the trace alone, so that the same trace always gives the same ranges. What a range must know of the
next one is where execution stood at the cut: up to there it decodes, and no further.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptweave.data.errors import BadInput
from ptweave.decode._ipt import ffi, lib
from ptweave.decode.leads import Lead, Leads
from ptweave.decode.plan import Slice, Thread

SMALLEST, LARGEST = 4 << 20, 16 << 20
"""Bytes of packets in a range, about: small ones forget too soon what they learnt, and memory bounds the others."""

RANGES = 8
"""Ranges that traces between the two are cut into, so that several processes find work to the end."""

NONE = (1 << 64) - 1


@dataclass(frozen=True)
class Range:
    """Bytes `begin` to `end` of a slice of a trace.

    `stop` is the address at which execution stood at `end`, None when that is not known: tracing was off, or no PSB
    is there. `first`: the slice begins here.

    `lead`: what time it is at `begin`, None where that is of no concern.
    """

    begin: int
    end: int
    space: int | None
    epoch: int
    stop: int | None = None
    first: bool = True
    lead: Lead | None = None


def range_bytes(total: int) -> int:
    """About how many bytes a range of traces of `total` bytes has: depends on nothing else."""
    return min(max(total // RANGES, SMALLEST), LARGEST)


def cut(thread: Thread, packets: Any, size: int, leads: Leads | None = None) -> Iterator[Range]:
    """The ranges of a thread's trace, in order; `packets` is a `uint8_t *` to all of it.

    A range ends at the first PSB `size` bytes after its beginning, or later. `leads` finds what time they begin at.
    """
    lost = {gap.offset for gap in thread.lost}
    for part in thread.slices:
        begin = part.begin
        lead = leads.begin(part) if leads else None
        while part.space is not None:
            end = _next(packets, part, begin + size)
            if end is None:
                break
            yield Range(begin, end, part.space, part.epoch, _stop(packets, thread, end), begin == part.begin, lead)
            begin, lead = end, leads.find(part, end) if leads else None
        stop = None
        if part.space is not None and part.end not in lost and part.end < thread.end:
            stop = _stop(packets, thread, part.end)
        yield Range(begin, part.end, part.space, part.epoch, stop, begin == part.begin, lead)


def _next(packets: Any, part: Slice, start: int) -> int | None:
    """The first PSB of a slice at `start` or later at which it can be cut."""
    while start < part.end:
        psb = int(lib.ptd_psb_after(packets, part.end, start))
        if psb == NONE:
            return None
        if lib.ptd_psb_whole(packets, part.end, psb):
            return psb
        start = psb + 1  # its PSB+ is malformed or cut short: nothing might be decoded from there
    return None


def _stop(packets: Any, thread: Thread, psb: int) -> int | None:
    ip = ffi.new("uint64_t *")
    return int(ip[0]) if lib.ptd_psb_ip(packets, thread.end, psb, ip) == 1 else None


@contextmanager
def opened(path: Path, size: int) -> Iterator[mmap.mmap]:
    """The first `size` bytes of a trace in memory. What is written there is not written to the file.

    Raises BadInput when it cannot be read or is shorter.
    """
    if not size:
        with mmap.mmap(-1, mmap.PAGESIZE) as nothing:
            yield nothing
        return
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            packets = mmap.mmap(descriptor, size, access=mmap.ACCESS_COPY)
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot be read ({error})", where=str(path),
                       remedy="make the run bundle readable, or record the run again") from error
    with packets:
        yield packets
