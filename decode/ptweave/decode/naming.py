# SPDX-License-Identifier: MIT
"""Functions and source lines for the blocks of a run: the last four columns of the table `blocks`."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ptweave.decode.demangle import demangle
from ptweave.decode.elf import Addresses, BadElf, Elf
from ptweave.decode.images import Code, Image
from ptweave.decode.lines import Lines, lines_of
from ptweave.decode.symbols import DEBUG_ROOT, Functions, debug_file, functions_of
from ptweave.decode.unwind import with_unwind


@dataclass
class Named:
    """What is known of one image. `problems` says, in words, what of the file was malformed."""

    functions: Functions | None = None
    lines: Lines | None = None
    problems: list[str] = field(default_factory=list)


def read_names(elf: Elf, path: str | None, debug_root: Path = DEBUG_ROOT) -> Named:
    """Functions and lines of an ELF file and its separate debug file; malformed parts are left out and said."""
    named = Named()
    sources = [elf]
    separate = debug_file(elf, path, debug_root)
    if separate is not None:
        sources.insert(0, separate)
    for source in sources:
        if named.functions is None or source is elf:
            functions = _functions(source, named)
            # the debug file has all of .symtab; the file itself has the PLT and what .dynsym exports
            named.functions = functions if named.functions is None else _union(named.functions, functions)
        if named.lines is None:
            try:
                named.lines = lines_of(source)
            except BadElf as error:
                named.problems.append(f"line table: {error}")
    try:
        named.functions = with_unwind(named.functions, elf)
    except BadElf as error:
        named.problems.append(f"unwind table: {error}")
    return named


def _functions(elf: Elf, named: Named) -> Functions | None:
    try:
        return functions_of(elf)
    except BadElf as error:
        named.problems.append(f"symbols: {error}")
        return None


def _union(first: Functions, second: Functions | None) -> Functions:
    """Both tables' functions; at the same address the first one's name."""
    if second is None:
        return first
    starts = np.concatenate((first.starts, second.starts))
    order = np.argsort(starts, kind="stable")
    kept = order[np.concatenate(([True], starts[order][1:] != starts[order][:-1]))] if len(order) else order
    names = [*first.names, *second.names]
    return Functions(starts[kept], np.concatenate((first.ends, second.ends))[kept], [names[i] for i in kept])


class Naming:
    """Names the blocks of all images of a run."""

    def __init__(self, code: Code, debug_root: Path = DEBUG_ROOT) -> None:
        self.code = code
        self.debug_root = debug_root
        self.problems: dict[int, list[str]] = {}

    def columns(self, images: npt.NDArray[np.int32], offsets: npt.NDArray[np.int64]) -> dict[str, pa.Array]:
        """The columns function, function_offset, file and line for blocks at `offsets` in `images`."""
        result = _Columns(len(images))
        for number in np.unique(images):
            rows = np.flatnonzero(images == number)
            if 0 <= number < len(self.code.images):
                self._name(self.code.images[number], rows, offsets[rows].astype(np.uint64), result)
        return result.arrays()

    def _name(self, image: Image, rows: npt.NDArray[np.int64], offsets: Addresses, result: _Columns) -> None:
        if image.elf is None:
            return
        addresses, known = image.elf.addresses(offsets)
        rows, addresses = rows[known], addresses[known]
        named = read_names(image.elf, image.path, self.debug_root)
        if named.problems:
            self.problems[image.number] = named.problems
        if named.functions is not None:
            result.add_functions(rows, addresses, named.functions)
        if named.lines is not None:
            result.add_lines(rows, addresses, named.lines)


class _Columns:
    """The four columns being filled: texts as indexes into their distinct values."""

    def __init__(self, count: int) -> None:
        self.function = np.full(count, -1, np.int32)
        self.function_offset = np.zeros(count, np.int64)
        self.file = np.full(count, -1, np.int32)
        self.line = np.zeros(count, np.int32)
        self._functions: dict[str, int] = {}
        self._files: dict[str, int] = {}

    def add_functions(self, rows: npt.NDArray[np.int64], addresses: Addresses, functions: Functions) -> None:
        found = functions.find(addresses)
        rows, addresses, found = rows[found >= 0], addresses[found >= 0], found[found >= 0]
        distinct, back = np.unique(found, return_inverse=True)
        numbers = [self._functions.setdefault(demangle(functions.name(int(i))), len(self._functions))
                   for i in distinct]
        self.function[rows] = np.array(numbers, np.int32)[back] if numbers else 0
        self.function_offset[rows] = (addresses - functions.starts[found]).astype(np.int64)

    def add_lines(self, rows: npt.NDArray[np.int64], addresses: Addresses, lines: Lines) -> None:
        files, numbers = lines.find(addresses)
        known = files >= 0
        rows, files, numbers = rows[known], files[known], numbers[known]
        distinct, back = np.unique(files, return_inverse=True)
        interned = [self._files.setdefault(_normal(lines.names[int(i)]), len(self._files)) for i in distinct]
        self.file[rows] = np.array(interned, np.int32)[back] if interned else 0
        self.line[rows] = numbers

    def arrays(self) -> dict[str, pa.Array]:
        unnamed = self.function < 0
        return {
            "function": _texts(self.function, list(self._functions)),
            "function_offset": pa.array(self.function_offset, mask=unnamed),
            "file": _texts(self.file, list(self._files)),
            "line": pa.array(self.line, mask=(self.file < 0) | (self.line <= 0)),
        }


def _texts(codes: npt.NDArray[np.int32], values: list[str]) -> pa.Array:
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
