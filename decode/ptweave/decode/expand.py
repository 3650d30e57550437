# SPDX-License-Identifier: MIT
"""From the stored tables back to single instructions: what a thread executed, address by address.

Nothing of the decoding is used again: flow, paths and blocks are read from Parquet, the instructions in each block
are found in the kept images. So it shows what was stored, and tests compare it with independent records.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ptweave.data.bundle import Bundle
from ptweave.data.errors import BadInput
from ptweave.decode._ipt import ffi, lib

MAX_INSTRUCTION = 15  # bytes


class Expansion:
    """A run's blocks and paths with the lengths of all their instructions."""

    def __init__(self, bundle: Bundle) -> None:
        """Read the dictionaries of a decoded bundle. Raises BadInput when they or the images do not fit together."""
        self.bundle = bundle
        blocks, paths = _read(bundle, "blocks"), _read(bundle, "paths")
        self.ips = _numbers(blocks["ip"], np.uint64)
        self.instructions = _numbers(blocks["instructions"], np.int32)
        lists = paths["blocks"].combine_chunks()
        self.starts = np.ascontiguousarray(lists.offsets.to_numpy())
        self.list = np.ascontiguousarray(lists.values.to_numpy())
        self.lengths, self.length_starts = self._lengths(blocks)
        self.handle = ffi.new("struct ptd_expansion *", {
            "path_count": len(self.starts) - 1, "starts": _pointer("int32_t", self.starts),
            "list_count": len(self.list), "blocks": _pointer("int32_t", self.list),
            "block_count": len(self.ips), "ips": _pointer("uint64_t", self.ips),
            "instructions": _pointer("int32_t", self.instructions),
            "length_starts": _pointer("int64_t", self.length_starts),
            "length_count": len(self.lengths), "lengths": _pointer("uint8_t", self.lengths)})

    def _lengths(self, blocks: pa.Table) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        """Lengths of the blocks' instructions, grouped by image and address, and where each block's begin."""
        images = dict(zip(*_read(self.bundle, "images").select(["image", "name"]).to_pydict().values(), strict=True))
        image = _numbers(blocks["image"], np.int32)
        offset = _numbers(blocks["offset"], np.int64).astype(np.uint64)
        size = _numbers(blocks["size"], np.int32)
        self.modes = _modes(blocks)
        # blocks of one image at one load address share a section, and there is one section at a time
        _, group = np.unique(np.stack([image.astype(np.uint64), self.ips - offset]), axis=1, return_inverse=True)
        order = np.argsort(group.reshape(-1), kind="stable")
        starts = np.zeros(len(image), np.int64)
        starts[order] = np.concatenate(([0], np.cumsum(self.instructions[order])[:-1])) if len(order) else 0
        parts = [np.zeros(0, np.uint8)]
        bounds = np.flatnonzero(np.diff(group.reshape(-1)[order])) + 1
        for rows in np.split(order, bounds) if len(order) else []:
            parts.append(self._walk(images.get(int(image[rows[0]])), rows, offset, size))
        return np.concatenate(parts), starts

    def _walk(self, name: str | None, rows: npt.NDArray[np.int64], offset: npt.NDArray[np.uint64],
              size: npt.NDArray[np.int32]) -> npt.NDArray[np.uint8]:
        first, last = rows[np.argmin(offset[rows])], rows[np.argmax(offset[rows] + size[rows].astype(np.uint64))]
        span = int(offset[last]) + int(size[last]) + MAX_INSTRUCTION - int(offset[first])
        images = ffi.gc(lib.ptd_images_create(), lib.ptd_images_destroy)
        file = str(self.bundle.images / (name or "?"))
        section = lib.ptd_images_add(images, file.encode(), 0, int(offset[first]), span, int(self.ips[first]))
        made = ffi.new("struct ptd_space **")
        if section < 0 or lib.ptd_space_create(images, [section], 1, made) < 0:
            raise BadInput("the code of a decoded block is not there", where=file, remedy="decode the run again")
        space = ffi.gc(made[0], lib.ptd_space_destroy)
        ips, instructions = np.ascontiguousarray(self.ips[rows]), np.ascontiguousarray(self.instructions[rows])
        modes = np.ascontiguousarray(self.modes[rows])
        lengths = np.zeros(int(instructions.sum()), np.uint8)
        found = lib.ptd_space_lengths(space, len(rows), _pointer("uint64_t", ips), _pointer("int32_t", instructions),
                                      _pointer("uint8_t", modes), _pointer("uint8_t", lengths), len(lengths))
        if found != len(lengths):
            raise BadInput("the code of a decoded block has changed", where=file, remedy="decode the run again")
        return lengths

    def flow(self, thread: int) -> Iterator[npt.NDArray[np.int32]]:
        """The paths the thread executed, in order, in parts of bounded size."""
        for path in table_files(self.bundle.tables / "flow"):
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(columns=["thread", "path"]):
                    yield np.ascontiguousarray(
                        batch.filter(pc.equal(batch["thread"], thread))["path"].to_numpy().astype(np.int32))

    def hash(self, thread: int, skip: int = 0) -> tuple[int, int]:
        """As `instruction_hash`. For many threads the dictionaries are read once."""
        state = ffi.new("uint64_t *", 0)
        count = 0
        for part in self.flow(thread):
            part, skip = part[skip:], max(0, skip - len(part))
            done = lib.ptd_hash_flow(self.handle, _pointer("int32_t", part), len(part), state)
            if done < 0:
                raise BadInput("names paths or blocks that are not there", where=str(self.bundle.tables / "flow"),
                               remedy="decode the run again")
            count += done
        return count, int(state[0])

    def addresses(self, thread: int) -> Iterator[npt.NDArray[np.uint64]]:
        """Addresses of the instructions the thread executed, in order, in parts of one path each."""
        for part in self.flow(thread):
            for path in part:
                for block in self.list[self.starts[path]:self.starts[path + 1]]:
                    start = self.length_starts[block]
                    steps = self.lengths[start:start + self.instructions[block] - 1]
                    yield self.ips[block] + np.concatenate(([0], np.cumsum(steps))).astype(np.uint64)

    def times(self, thread: int) -> Iterator[npt.NDArray[np.int64]]:
        """Time in ns of each of those instructions, -1 where none is known, in the same order, in larger parts.

        An instruction ran at the last moment that is known before it; a moment may begin some instructions before the
        block it is at.
        """
        seq, t, before = self._moments(thread)
        row, now, block, instruction = 0, -1, 0, 0
        for part in self.flow(thread):
            blocks = np.concatenate([self.list[self.starts[path]:self.starts[path + 1]] for path in part]
                                    or [np.zeros(0, np.int32)])
            # where each block begins, counted in instructions of the thread; moments in the same numbers
            begins = instruction + np.concatenate(([0], np.cumsum(self.instructions[blocks], dtype=np.int64)))
            last = int(np.searchsorted(seq, block + len(blocks), side="right"))
            places = begins[seq[row:last] - block] - before[row:last]
            times = np.full(int(begins[-1]) - instruction, now, np.int64)
            bounds = np.append(np.clip(places, instruction, begins[-1]), begins[-1]) - instruction
            for index, moment in enumerate(t[row:last]):
                times[bounds[index]:] = moment if bounds[index] < len(times) else times[bounds[index]:]
            yield times
            kept = last
            while kept > row and seq[kept - 1] == block + len(blocks):
                kept -= 1  # the next part's first block: they are looked at again there, for what they say of it
            now = int(t[last - 1]) if last > row and not before[last - 1] else now
            now = int(times[-1]) if len(times) else now
            row, block, instruction = kept, block + len(blocks), int(begins[-1])

    def _moments(self, thread: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        """The thread's clock: seq, time in ns, and how many instructions before that block it begins."""
        found = [pq.read_table(path, columns=["seq", "t", "before"], filters=[("thread", "=", thread)])
                 for path in table_files(self.bundle.tables / "clock")]
        table = pa.concat_tables(found)
        return (_numbers(table["seq"], np.int64), _numbers(table["t"], np.int64),
                _numbers(table["before"].fill_null(0), np.int32))


def instruction_hash(bundle: Bundle, thread: int, skip: int = 0) -> tuple[int, int]:
    """How many instructions a thread executed, and an order-sensitive hash of their addresses, from the tables; without
    the first `skip` rows of its flow.

    The hash starts at 0; for each address h = (h ^ ip) * 0x9E3779B97F4A7C15; h ^= h >> 29 (64 bits). Raises BadInput
    when the tables are missing, contradict themselves or do not fit the images.
    """
    return Expansion(bundle).hash(thread, skip)


def table_files(folder: Path) -> list[Path]:
    """The files `<n>.parquet` of a table in the order of their numbers."""
    found = [path for path in folder.glob("*.parquet") if path.stem.isdecimal()]
    return sorted(found, key=lambda path: int(path.stem))


def _read(bundle: Bundle, table: str) -> pa.Table:
    path = bundle.tables / table / "0.parquet"
    try:
        return pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise BadInput(f"cannot be read ({error})", where=str(path), remedy="decode the run first") from error


def _modes(blocks: pa.Table) -> npt.NDArray[np.uint8]:
    """16, 32 or 64 for each block; tables written before there was such a column hold 64-bit code only."""
    if "mode" not in blocks.column_names:
        return np.full(len(blocks), 64, np.uint8)
    return _numbers(blocks["mode"], np.uint8)


def _numbers(column: pa.ChunkedArray, kind: Any) -> npt.NDArray[Any]:
    return np.ascontiguousarray(column.to_numpy().astype(kind, copy=False))


def _pointer(kind: str, values: npt.NDArray[Any]) -> Any:
    return ffi.from_buffer(f"{kind}[]", values)
