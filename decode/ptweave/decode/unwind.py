# SPDX-License-Identifier: MIT
"""Functions of stripped files: where unwind information begins and ends them (.eh_frame_hdr, LSB 10.6).

Every compiler writes it for every function, so the code of a stripped file can still be told apart by function;
what the functions were called is lost: they are named by their address, `sub_1a2b`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ptweave.decode.elf import Addresses, BadElf, Elf
from ptweave.decode.functions import ADDRESS_MAX, Candidates, Functions, NamedByAddress
from ptweave.decode.symbols import UNWIND_RANK

DW_EH_PE_UDATA4, DW_EH_PE_DATAREL_SDATA4 = 0x03, 0x3B


def unwind_ranges(elf: Elf) -> tuple[Addresses, Addresses]:
    """Start addresses and sizes of the functions with unwind information; size 0 where it is not known.

    Raises BadElf when the table is malformed.
    """
    nothing = np.zeros(0, np.uint64)
    header = elf.section(".eh_frame_hdr")
    if header is None:
        return nothing, nothing
    raw = elf.bytes_of(header)
    if len(raw) < 12 or raw[0] != 1 or raw[2] != DW_EH_PE_UDATA4 or raw[3] != DW_EH_PE_DATAREL_SDATA4:
        return nothing, nothing
    count = int.from_bytes(raw[8:12], "little")
    if 12 + 8 * count > len(raw):
        raise BadElf("unwind table truncated")
    pairs = np.frombuffer(raw, "<i4", 2 * count, 12).reshape(-1, 2).astype(np.int64)
    base = np.uint64(header.address)
    starts = (base + pairs[:, 0].astype(np.uint64)).astype(np.uint64)
    entries = (base + pairs[:, 1].astype(np.uint64)).astype(np.uint64)
    good = elf.executable(starts)
    return starts[good], _sizes(elf, entries[good], starts[good])


def _sizes(elf: Elf, entries: Addresses, starts: Addresses) -> Addresses:
    """Sizes of functions from their FDEs (length, CIE, begin relative to itself, size); 0 where unknown."""
    frames = elf.section(".eh_frame")
    raw = np.frombuffer(b"" if frames is None else elf.bytes_of(frames), np.uint8)
    if frames is None or len(raw) < 16:
        return np.zeros(len(starts), np.uint64)
    at = entries - np.uint64(frames.address)
    inside = at <= np.uint64(len(raw) - 16)
    at = np.where(inside, at, np.uint64(0))

    def word(offset: int) -> npt.NDArray[np.uint64]:
        bytes_at = at[:, None] + np.arange(offset, offset + 4, dtype=np.uint64)
        return np.ascontiguousarray(raw[bytes_at]).view("<i4")[:, 0].astype(np.int64).astype(np.uint64)

    begins = entries + np.uint64(8) + word(8)
    sizes = word(12)
    return np.where(inside & (begins == starts) & (sizes < np.uint64(1 << 31)), sizes, np.uint64(0))


def unnamed(functions: Functions, elf: Elf) -> Candidates:
    """What only the unwind table knows: functions where `functions` has no name, or one of unknown reach.

    Raises BadElf when the table is malformed.
    """
    starts, sizes = unwind_ranges(elf)
    if len(functions):
        found = functions.find(starts)
        new = (found < 0) | ~functions.sized[np.maximum(found, 0)]
        starts, sizes = starts[new], sizes[new]
    count = len(starts)
    return Candidates(starts, sizes, np.full(count, ADDRESS_MAX), np.full(count, UNWIND_RANK, np.int64),
                      np.zeros(count, np.bool_), starts.astype(np.int64), NamedByAddress())
