# SPDX-License-Identifier: MIT
"""What time it is where a range of a trace begins.

Flow needs nothing that lies before a PSB; time does. Between two TSC packets it is an estimate, which counts from
packets that may lie long before the PSB (`decode/src/timer.c`), and an instruction's time is told by how it stands to
that of the one before (`decode/src/pace.c`). So all packets before a range are read for their time, each once, and the
last of them, its lead, is decoded as well, for what only instructions tell.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from typing import Any

from ptweave.data.errors import MachineLacks
from ptweave.decode._ipt import ffi, lib
from ptweave.decode.plan import Slice
from ptweave.decode.released import release
from ptweave.decode.stand_ins import stand_ins

LEAD = 64 << 10
"""Bytes of a lead, about, but a PSB's segment at least: what only instructions tell of time is told anew soon."""


@dataclass(frozen=True)
class Lead:
    """Packets from `begin` to where a range begins. `timing`: the `struct ptd_timing` at `begin`."""

    begin: int
    timing: bytes


class Leads:
    """Finds the leads of a trace's slices and their ranges, asked for in their order.

    `packets` is a `uint8_t *` to all of `memory`.
    """

    def __init__(self, cpu: Any, memory: mmap.mmap, packets: Any) -> None:
        self._cpu = cpu
        self._memory = memory
        self._packets = packets
        self._slice: Slice | None = None
        self._at = 0
        self._timing = ffi.new("struct ptd_timing *", {"handover": {"known": 1}})  # nothing is traced yet

    def begin(self, part: Slice) -> Lead | None:
        """Go on to the next slice: what its first range begins with, None where it is the trace's. Packets are missing
        before it, so nothing is known of the time there; how fast the core ran, from where cycles count until that is
        said anew, and whether tracing was off, is. Raises MachineLacks."""
        before, timing = self._slice, self._timing
        if before is not None:
            self._read_to(before.end)
            timing.time = timing.tsc = timing.have_tma = timing.after_cyc = 0
        # up to its first PSB nobody knows where packets begin
        self._slice, self._at = part, min(int(lib.ptd_psb_after(self._packets, part.end, part.begin)), part.end)
        return Lead(part.begin, bytes(ffi.buffer(timing))) if before is not None else None

    def find(self, part: Slice, begin: int) -> Lead:
        """The lead of the range that begins at the PSB at `begin` of the slice gone on to. Raises MachineLacks."""
        self._read_to(min(max(self._at, self._begin(part, begin)), begin))
        return Lead(self._at, bytes(ffi.buffer(self._timing)))

    def _read_to(self, end: int) -> None:
        begin = self._at
        if end <= begin:
            return
        replaced = stand_ins(self._packets, begin, end)
        status = lib.ptd_timing_pass(self._cpu, self._packets + begin, end - begin, replaced, self._timing)
        if status < 0:
            raise MachineLacks("has no memory to read the times of a trace", where="the decoder",
                               remedy="free some memory")
        release(self._memory, begin, end)
        self._at = end

    def _begin(self, part: Slice, begin: int) -> int:
        """The first PSB in the LEAD bytes before `begin`, or more when there is none in them, or the slice's begin."""
        back = LEAD
        while begin - back > part.begin:
            psb = int(lib.ptd_psb_after(self._packets, begin, begin - back))
            if psb < begin:
                return psb
            back *= 2
        return part.begin


def ended(decoder: Any) -> Any:
    """The `struct ptd_timing *` behind the slice of a `struct ptd_decoder` that is through with it."""
    timing = ffi.new("struct ptd_timing *")
    lib.ptd_decoder_timing(decoder, timing)
    return timing
