# SPDX-License-Identifier: MIT
"""Functions of stripped files: where unwind information begins and ends them (.eh_frame_hdr, LSB 10.6).

Every compiler writes it for every function, so the code of a stripped file can still be told apart by function;
what the functions were called is lost: they are named by their address, `sub_1a2b`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ptweave.decode.elf import Addresses, BadElf, Elf
from ptweave.decode.symbols import Functions

DW_EH_PE_UDATA4, DW_EH_PE_DATAREL_SDATA4 = 0x03, 0x3B


def unwind_ranges(elf: Elf) -> tuple[Addresses, Addresses]:
    """Start and end addresses of the functions with unwind information; end 0 where it is not known.

    Raises BadElf when the table is malformed.
    """
    nothing = np.zeros(0, np.uint64)
    header = elf.section(".eh_frame_hdr")
    if header is None:
        return nothing, nothing
    raw = bytes(elf.bytes_of(header))
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
    return starts[good], starts[good] + _sizes(elf, entries[good], starts[good])


def _sizes(elf: Elf, entries: Addresses, starts: Addresses) -> Addresses:
    """Sizes of functions from their FDEs (length, CIE, begin relative to itself, size); −start where unknown."""
    unknown = np.uint64(0) - starts
    frames = elf.section(".eh_frame")
    if frames is None or frames.size < 16:
        return unknown
    raw = np.frombuffer(elf.bytes_of(frames), np.uint8)
    at = entries - np.uint64(frames.address)
    inside = at <= np.uint64(len(raw) - 16)
    at = np.where(inside, at, np.uint64(0))

    def word(offset: int) -> npt.NDArray[np.uint64]:
        bytes_at = at[:, None] + np.arange(offset, offset + 4, dtype=np.uint64)
        return np.ascontiguousarray(raw[bytes_at]).view("<i4")[:, 0].astype(np.int64).astype(np.uint64)

    begins = entries + np.uint64(8) + word(8)
    sizes = word(12)
    return np.where(inside & (begins == starts) & (sizes < np.uint64(1 << 31)), sizes, unknown)


def with_unwind(functions: Functions | None, elf: Elf) -> Functions:
    """`functions` and, where they name nothing, those only the unwind table knows. Raises BadElf."""
    starts, ends = unwind_ranges(elf)
    if functions is None:
        functions = Functions(np.zeros(0, np.uint64), np.zeros(0, np.uint64), [])
    found = functions.find(starts)
    at = np.maximum(found, 0)
    if len(functions.starts):
        same = (found >= 0) & (functions.starts[at] == starts)
        sized = functions.ends.copy()
        sized[at[same & (sized[at] == 0)]] = ends[same & (sized[at] == 0)]
        new = (found < 0) | ((functions.ends[at] == 0) & ~same)
    else:
        sized, new = functions.ends, np.ones(len(starts), np.bool_)
    all_starts = np.concatenate((functions.starts, starts[new]))
    order = np.argsort(all_starts, kind="stable")
    order = order[np.concatenate(([True], all_starts[order][1:] != all_starts[order][:-1]))] if len(order) else order
    names = [*functions.names, *(f"sub_{start:x}" for start in starts[new].tolist())]
    return Functions(all_starts[order], np.concatenate((sized, ends[new]))[order], [names[i] for i in order])
