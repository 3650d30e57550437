# SPDX-License-Identifier: MIT
"""Where the instructions of blocks are, from the code in images/."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ptweave.data.errors import MachineLacks
from ptweave.decode._dump import ffi, lib
from ptweave.decode.stored import numbers

I64 = npt.NDArray[np.int64]


def offsets_in_blocks(blocks: Mapping[str, pa.Array], rows: I64, files: Sequence[Path | None]) -> tuple[I64, I64]:
    """Of blocks (columns of the table `blocks`) at `rows`: the bytes from a block's beginning to each of its
    instructions, block after block, and which of `rows` each is of.

    `files`: those of images, by number. Of a block whose code is not there, or not what was decoded, the first and the
    last instruction are known.
    """
    columns = {name: np.ascontiguousarray(numbers(blocks[name])) for name in
               ("image", "offset", "ip", "last_ip", "size", "instructions", "mode")}
    counts = np.maximum(columns["instructions"][rows], 0).astype(np.int64)
    lengths = _lengths(columns, rows, files, int(counts.sum()))
    of = np.repeat(np.arange(len(rows)), counts)
    before = np.cumsum(lengths, dtype=np.int64) - lengths
    begins = np.cumsum(counts) - counts
    offsets = before[:len(of)] - before[begins][of]
    unread = np.flatnonzero((counts > 0) & (lengths[begins] == 0))
    if not len(unread):
        return offsets, of
    keep = ~np.isin(of, unread)
    last = (columns["last_ip"] - columns["ip"]).astype(np.int64)[rows[unread]]
    offsets = np.concatenate([offsets[keep], np.zeros(len(unread), np.int64), last[last > 0]])
    of = np.concatenate([of[keep], unread, unread[last > 0]])
    order = np.argsort(of, kind="stable")
    return offsets[order], of[order]


def _lengths(columns: Mapping[str, npt.NDArray[np.generic]], rows: I64, files: Sequence[Path | None],
             count: int) -> npt.NDArray[np.uint8]:
    """Lengths of all instructions of blocks, zeros where they are not known; and one zero more. Raises MachineLacks."""
    images = [ffi.NULL if file is None else ffi.new("char[]", os.fsencode(file)) for file in files]
    kinds = {"image": "int32_t", "offset": "int64_t", "ip": "uint64_t", "last_ip": "uint64_t", "size": "int32_t",
             "instructions": "int32_t", "mode": "uint8_t"}
    held = {name: ffi.from_buffer(f"{kind}[]", columns[name]) for name, kind in kinds.items()}
    paths = ffi.new("char *[]", images)
    tables = ffi.new("struct dump_tables *", {
        "block_count": len(columns["image"]), "image_count": len(images), "images": paths, **held})
    lengths = np.zeros(count + 1, np.uint8)
    if lib.dump_lengths(tables, ffi.from_buffer("int32_t[]", rows.astype(np.int32)), len(rows),
                        ffi.from_buffer("uint8_t[]", lengths)) < 0:
        raise MachineLacks("is out of memory", where="the lengths of instructions", remedy="free some memory")
    return lengths
