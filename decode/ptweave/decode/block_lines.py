# SPDX-License-Identifier: MIT
"""The source lines of blocks, from those of their instructions."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ptweave.data.schemas import LINES
from ptweave.decode.elf import Addresses
from ptweave.decode.lines import Lines


class BlockLines:
    """Which source lines blocks are of, collected instruction by instruction."""

    def __init__(self, count: int) -> None:
        """`count`: of blocks."""
        self._count = count
        self._names: dict[str, int] = {}
        self._blocks: list[npt.NDArray[np.int64]] = []
        self._places: list[npt.NDArray[np.int64]] = []  # a file's number and a line, packed; -1 none

    def add(self, blocks: npt.NDArray[np.int64], addresses: Addresses, lines: Lines) -> None:
        """Instructions, those of a block together and in order."""
        files, numbers_ = lines.find(addresses)
        distinct, back = np.unique(files[files >= 0], return_inverse=True)
        named = np.array([self._names.setdefault(_normal(lines.names[int(i)]), len(self._names)) for i in distinct],
                         np.int64)
        places = np.full(len(files), -1, np.int64)
        places[files >= 0] = named[back] << 32 if len(named) else 0
        self._blocks.append(blocks)
        self._places.append(np.where((files >= 0) & (numbers_ > 0), places | numbers_, -1))

    def arrays(self) -> dict[str, pa.Array]:
        blocks = np.concatenate([np.zeros(0, np.int64), *self._blocks])
        places = np.concatenate([np.zeros(0, np.int64), *self._places])
        order = np.argsort(blocks, kind="stable")
        blocks, places = blocks[order], places[order]
        firsts = np.flatnonzero(np.concatenate([[True], np.diff(blocks) > 0])[:len(blocks)])
        lasts = np.concatenate([firsts[1:], [len(blocks)]])[:len(firsts)] - 1
        found: dict[str, pa.Array] = {}
        for prefix, at in (("", firsts), ("last_", lasts)):
            place = np.full(self._count, -1, np.int64)
            place[blocks[at]] = places[at]
            found[f"{prefix}file"] = self._file(place)
            found[f"{prefix}line"] = _line(place)
        return {**found, "lines": self._lists(blocks, places)}

    def _file(self, places: npt.NDArray[np.int64]) -> pa.Array:
        return texts(np.where(places < 0, -1, places >> 32).astype(np.int32), list(self._names))

    def _lists(self, blocks: npt.NDArray[np.int64], places: npt.NDArray[np.int64]) -> pa.Array:
        """Of each block the lines of its instructions: those in a row that are of one are together."""
        begins = np.flatnonzero(np.concatenate([[True], (np.diff(blocks) != 0) | (np.diff(places) != 0)])[:len(blocks)])
        counts = np.diff(np.concatenate([begins, [len(blocks)]]))
        known = np.bincount(blocks, weights=places >= 0, minlength=self._count) > 0
        kept = known[blocks[begins]]
        of, place, counts = blocks[begins][kept], places[begins][kept], counts[kept]
        parts = pa.StructArray.from_arrays(
            [self._file(place).cast(pa.string()), _line(place), pa.array(counts.astype(np.int32))],
            fields=list(LINES.value_type))
        offsets = np.concatenate([[0], np.cumsum(np.bincount(of, minlength=self._count))]).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), parts, type=LINES, mask=pa.array(~known))


def _line(places: npt.NDArray[np.int64]) -> pa.Array:
    return pa.array((places & 0xFFFFFFFF).astype(np.int32), mask=places < 0)


def texts(codes: npt.NDArray[np.int32], values: list[str]) -> pa.Array:
    """A column of text; codes below 0 are null."""
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), pa.array(values, pa.string()))


@lru_cache(maxsize=4096)
def _normal(path: str) -> str:
    """A source path without `.` and `x/..` (links are not followed: the file need not exist here)."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == ".." and parts and parts[-1] not in ("", ".."):
            parts.pop()
        elif part not in (".", "") or not parts:
            parts.append(part)
    return "/".join(parts)
