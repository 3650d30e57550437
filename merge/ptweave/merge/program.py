# SPDX-License-Identifier: MIT
"""The blocks and paths of a run, as arrays, and the C program made of them."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ptweave.data.bundle import Bundle
from ptweave.data.errors import BadInput, MachineLacks
from ptweave.data.schemas import BLOCKS, PATHS, BlockClass
from ptweave.data.written import Written
from ptweave.merge._merge import ffi, lib
from ptweave.merge.distinct import values_of
from ptweave.merge.tables import (
    I32,
    I64,
    U64,
    encoded_column,
    numbers,
    optional,
    read_table,
    row_groups,
    table_files,
    within,
)

IMAGE_SHIFT = 44
"""A place in an image is packed as (image + 1) << IMAGE_SHIFT | offset; 0 is nowhere."""

BLOCK_DTYPE = np.dtype([
    ("addr", "<u8"), ("ip", "<u8"), ("size", "<u4"), ("last", "<u4"), ("function", "<u4"), ("instructions", "<u4"),
    ("cls", "u1"), ("flags", "u1"), ("zero", "<u2"), ("zero2", "<u4")])
assert ffi.sizeof("struct ptm_block") == BLOCK_DTYPE.itemsize

SIGNAL_NAME = "[signal]"
FOLDED_NAME = "[folded]"

_CLASSES = list(BlockClass)
_COLD = re.compile(r"(\.cold(\.\d+)?| \[clone \.cold(\.\d+)?\])$")
_REMEDY = "decode the run again"


@dataclass(frozen=True)
class Survey:
    """What there is in a batch of executed paths: so many; ordinals of the first and the last one and the one behind
    that; whether each begins where the one before it ended; and ordinals and block numbers of system calls."""

    rows: int
    first: int
    last: int
    end: int
    follows: bool
    seqs: I64
    blocks: I32


def pack(image: npt.NDArray[Any], offset: npt.NDArray[Any]) -> U64:
    """Places in images; 0 where image or offset are out of range."""
    good = (image >= 0) & (image < (1 << (64 - IMAGE_SHIFT)) - 1) & (offset >= 0) & (offset < 1 << IMAGE_SHIFT)
    packed = ((image.astype(np.uint64) + np.uint64(1)) << np.uint64(IMAGE_SHIFT)) | offset.astype(np.uint64)
    return np.where(good, packed, np.uint64(0))


def check(result: int, where: str) -> int:
    """A result of the C part; negative errno values become errors."""
    if result >= 0:
        return result
    if -result == 12:
        raise MachineLacks("needs more memory than there is", where=where, remedy="merge on a larger machine")
    raise BadInput("names blocks or paths that do not exist, or goes back in its ordinals", where=where,
                   remedy=_REMEDY)


def _resumed(blocks: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
    """Which blocks lie right behind a call, in code of which no functions are known."""
    calls = blocks[np.isin(blocks["cls"], (lib.PTM_CALL, lib.PTM_IND_CALL)) & (blocks["function"] == lib.PTM_UNKNOWN)]
    ends = calls["ip"] + calls["size"]
    found: npt.NDArray[np.bool_] = (blocks["function"] == lib.PTM_UNKNOWN) & np.isin(blocks["ip"], ends)
    return found


class Program:
    """The distinct code of a run. Owns the C program and every array it borrows. Flows may be scanned as soon as there
    is one; before they are walked it is compiled, once all blocks' flags are set.

    Attributes: `blocks` (BLOCK_DTYPE, by block number), `functions` (name by function number, None unknown;
    0 unknown, 1 [signal], 2 [folded]).
    """

    def __init__(self, bundle: Bundle, paths: Written | None = None) -> None:
        """`paths`: columns path and blocks of that table, where they are in memory. Raises BadInput for paths of blocks
        that do not exist."""
        self._where = str(bundle.tables)
        self.functions: list[str | None] = [None, SIGNAL_NAME, FOLDED_NAME]
        with ThreadPoolExecutor(1) as beside:
            loading = beside.submit(self._load_paths, bundle, paths)
            self.blocks = self._load_blocks(bundle)
            self._offsets, self._values = loading.result()
        self._dictionary: tuple[I32, pa.Array] | None = None
        self.handle = ffi.NULL
        out = ffi.new("struct ptm_program **")
        check(lib.ptm_program_create(
            ffi.from_buffer("struct ptm_block[]", self.blocks), len(self.blocks),
            ffi.from_buffer("int64_t[]", self._offsets), ffi.from_buffer("int32_t[]", self._values),
            len(self._values), len(self._offsets) - 1, out), self._where)
        self.handle = out[0]

    def compile(self) -> None:
        """What walks ask, once all flags are set."""
        check(lib.ptm_program_digest(self.handle), self._where)

    def close(self) -> None:
        lib.ptm_program_destroy(self.handle)
        self.handle = ffi.NULL

    def __enter__(self) -> Program:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def _order(self, ids: npt.NDArray[Any], what: str) -> I64 | None:
        """How to sort rows by their number, None when they are; numbers must be 0, 1, 2, …"""
        if np.array_equal(ids, np.arange(len(ids))):
            return None
        order: I64 = np.argsort(ids, kind="stable")
        if not np.array_equal(ids[order], np.arange(len(ids))):
            raise BadInput(f"numbers its {what} with holes", where=self._where, remedy=_REMEDY)
        return order

    def _load_blocks(self, bundle: Bundle) -> npt.NDArray[np.void]:
        table = read_table(bundle, BLOCKS, ["block", "image", "offset", "ip", "size", "instructions", "last",
                                            "last_ip", "function", "function_offset"], ["last", "function"])
        order = self._order(numbers(table, "block", -1), "blocks")
        if order is not None:
            table = table.take(pa.array(order))
        blocks = np.zeros(len(table), BLOCK_DTYPE)
        image, offset = numbers(table, "image", -1), numbers(table, "offset", -1)
        blocks["addr"] = pack(image, offset)
        blocks["ip"] = numbers(table, "ip")
        blocks["size"] = np.clip(numbers(table, "size"), 0, 1 << 30)
        blocks["instructions"] = np.clip(numbers(table, "instructions"), 0, 1 << 30)
        last = numbers(table, "last_ip").astype(np.uint64) - blocks["ip"]
        blocks["last"] = np.where(last < blocks["size"], last, 0)
        blocks["cls"] = self._classes(table)
        names, cold = self._name_functions(table, image)
        blocks["function"] = names
        entry = (numbers(table, "function_offset", -1) == 0) & (blocks["function"] != 0) & ~cold
        start = np.array([name == "_start" for name in self.functions])[blocks["function"]]
        blocks["flags"] = entry * lib.PTM_ENTRY + (entry & start) * lib.PTM_START + _resumed(blocks) * lib.PTM_RESUMED
        return blocks

    def _classes(self, table: pa.Table) -> npt.NDArray[np.uint8]:
        encoded = encoded_column(table, "last")
        known = {cls.value: number for number, cls in enumerate(_CLASSES)}
        lookup = np.array([known.get(name, 255) for name in encoded.dictionary.to_pylist()] + [255], np.uint8)
        classes: npt.NDArray[np.uint8] = lookup[encoded.indices.fill_null(len(lookup) - 1).to_numpy()]
        if (classes == 255).any():
            raise BadInput("has blocks of an unknown class", where=self._where, remedy=_REMEDY)
        return classes

    def _name_functions(self, table: pa.Table, image: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Function number of each block, and whether it lies in a function's part that was moved away (.cold).

        A function is an image and a name; a part that was moved away belongs to the function it was cut from.
        """
        encoded = encoded_column(table, "function")
        names: list[str] = encoded.dictionary.to_pylist()
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        code_of = {name: code for code, name in enumerate(names)}
        whole = np.arange(len(names) + 1)
        whole[-1] = -1
        for code, name in enumerate(names):
            if ".cold" in name:
                whole[code] = code_of.get(_COLD.sub("", name), code)
        cold = whole[codes] != codes
        codes = whole[codes]
        keys = np.where(codes < 0, -1, (image.astype(np.int64) << 32) | codes)
        distinct, inverse = values_of(keys)
        first = lib.PTM_FIRST_FUNCTION
        known = distinct >= 0
        number = np.where(known, np.cumsum(known) - 1 + first, 0)
        self._images = np.concatenate([np.full(first, -1, np.int32), (distinct[known] >> 32).astype(np.int32)])
        self.functions += [names[key & 0xffffffff] for key in distinct[known].tolist()]
        return number[inverse], cold

    def _load_paths(self, bundle: Bundle, known: Written | None) -> tuple[I64, I32]:
        """Where each path's blocks begin among those of all, and behind the last one's end; and all."""
        none = np.empty(0, np.int32)
        there = known is not None and known.are_in(table_files(bundle, PATHS))
        rows = known.rows if known and there else row_groups(bundle, PATHS, ["path", "blocks"])
        parts = [(none, none, none), *map(self._paths_of, rows)]
        numbers_, lengths, values = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        order = self._order(numbers_, "paths")
        if order is None:
            return offsets, values
        lengths = lengths[order]
        values = values[np.repeat(offsets[order], lengths) + within(lengths)]
        np.cumsum(lengths, out=offsets[1:])
        return offsets, values

    def _paths_of(self, table: pa.Table) -> tuple[I32, I32, I32]:
        """Numbers of some paths, how many blocks each has, and these."""
        chunks = [(chunk, chunk.flatten()) for chunk in table.column("blocks").chunks]
        if any(lists.null_count or blocks.null_count for lists, blocks in chunks):
            raise BadInput("has paths without blocks", where=self._where, remedy=_REMEDY)
        none = np.empty(0, np.int32)
        lengths = [pc.list_value_length(lists).to_numpy(zero_copy_only=False) for lists, _ in chunks]
        values = [blocks.to_numpy(zero_copy_only=False) for _, blocks in chunks]
        return (numbers(table, "path", -1).astype(np.int32, copy=False),
                np.concatenate([none, *lengths]), np.concatenate([none, *values]))

    def names(self, functions: npt.NDArray[Any]) -> pa.Array:
        """Names of functions by number; null for unknown ones."""
        names = pa.array([name or "" for name in self.functions], pa.string())
        return names.take(pa.array(functions.astype(np.int32), mask=functions == lib.PTM_UNKNOWN))

    def images_of(self, functions: npt.NDArray[Any]) -> pa.Array:
        """Images of functions by number; null for unknown ones."""
        images = self._images[functions]
        return optional(images, images < 0)

    def encoded_names(self, functions: npt.NDArray[Any]) -> pa.DictionaryArray:
        """The same as a dictionary, which is one object for all calls, and has each name once."""
        if self._dictionary is None:
            encoded = pa.array([name or "" for name in self.functions], pa.string()).dictionary_encode()
            self._dictionary = encoded.indices.to_numpy(), encoded.dictionary
        numbers_of, names = self._dictionary
        indices = pa.array(numbers_of[functions], mask=functions == lib.PTM_UNKNOWN)
        return pa.DictionaryArray.from_arrays(indices, names)

    def function_of(self, block: int | None) -> str | None:
        """Name of the function a block is in; None when there is no such block or it is unknown."""
        if block is None or not 0 <= block < len(self.blocks):
            return None
        return self.functions[int(self.blocks["function"][block])]

    @property
    def path_count(self) -> int:
        """Paths there are."""
        return len(self._offsets) - 1

    def survey(self, seqs: I64 | int, paths: I32, batch: int, met: npt.NDArray[np.uint32] | None = None) -> Survey:
        """What there is in a batch of executed paths, of which there is at least one; `seqs`: their ordinals, or that
        of the first one where they follow each other.

        Notes in `met`, by path, that it is in this batch, numbered from 1: the first and the last one that it is in.
        Raises BadInput for a path that does not exist."""
        follow = isinstance(seqs, int)
        begins, those = np.empty(len(paths), np.int64), np.empty(len(paths), np.int32)
        found = ffi.new("struct ptm_survey *")
        check(lib.ptm_program_survey(
            self.handle, ffi.NULL if follow else ffi.from_buffer("int64_t[]", seqs), seqs if follow else 0,
            ffi.from_buffer("int32_t[]", paths), len(paths), batch,
            ffi.NULL if met is None else ffi.from_buffer("struct ptm_met[]", met, require_writable=True),
            ffi.from_buffer("int64_t[]", begins), ffi.from_buffer("int32_t[]", those), found), self._where)
        calls = self._system_calls(begins[:found.calling], those[:found.calling], found.calls)
        return Survey(len(paths), found.first, found.last, found.end, bool(found.follow), *calls)

    def after(self, seq: int, path: int) -> int:
        """Ordinal of the block after path `path` that begins at `seq`."""
        return check(int(lib.ptm_program_after(self.handle, seq, path)), self._where)

    def _system_calls(self, seqs: I64, paths: I32, count: int) -> tuple[I64, I32]:
        """Ordinals and block numbers of the system-call blocks in executed paths, of which there are so many."""
        found, blocks = np.empty(count, np.int64), np.empty(count, np.int32)
        if count:
            check(int(lib.ptm_program_scan(
                self.handle, ffi.from_buffer("int64_t[]", seqs), ffi.from_buffer("int32_t[]", paths), len(paths),
                ffi.from_buffer("int64_t[]", found), ffi.from_buffer("int32_t[]", blocks), count)), self._where)
        return found, blocks
