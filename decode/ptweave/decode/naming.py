# SPDX-License-Identifier: MIT
"""Functions and source lines for the blocks of a run: the last seven columns of the table `blocks`.

Functions: from the symbol tables of the file's debug file, of the file itself and of the mini debug information in
it, then PLT stubs, then what only the unwind table knows (`sub_<address>`). Code that is in no ELF file gets the names
of the process's `perf-PID.map`. Lines come from the line tables: a block of an inlined function has the line it was
written on, and the name of the function it was inlined into.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ptweave.data.bundle import perf_map_name
from ptweave.decode.block_lines import BlockLines, texts
from ptweave.decode.debug_files import DebugFiles
from ptweave.decode.demangle import demangle
from ptweave.decode.elf import Addresses, BadElf, Elf
from ptweave.decode.functions import Candidates, Functions
from ptweave.decode.images import Code, Image
from ptweave.decode.instructions import offsets_in_blocks
from ptweave.decode.lines import Lines, lines_of
from ptweave.decode.perf_map import PerfMap, read_perf_map
from ptweave.decode.plt import plt_stubs
from ptweave.decode.sections import symbol_file
from ptweave.decode.stored import distinct, numbers
from ptweave.decode.symbols import symbols_of
from ptweave.decode.unwind import unnamed
from ptweave.decode.variables import variable_rows, variables_of

NAMED_FOREBEARS = 64
"""Fork parents that are asked for a map."""

T = TypeVar("T")


@dataclass
class Named:
    """What is known of one image: functions and variables by their link-time addresses. `problems` says, in words, what
    of its files was malformed or did not fit; `debug` names the debug file that was used."""

    functions: Functions | None = None
    variables: Functions | None = None
    lines: Lines | None = None
    problems: list[str] = field(default_factory=list)
    debug: str | None = None


def read_names(elf: Elf, path: str | None, files: DebugFiles | None = None,
               wanted: Callable[[], Addresses] | None = None) -> Named:
    """Functions and lines of an ELF file that was recorded as `path`; malformed parts are left out and said.

    `wanted` gives the addresses whose lines will be looked up, if they are known: large tables then take no memory.
    """
    files = files or DebugFiles()
    named = Named()
    if elf.damage:
        named.problems.append(elf.damage)
    separate = files.find(elf, path, named.problems)
    sources: list[Candidates] = []
    if separate is not None:
        named.debug = str(separate.path)
        sources += _attempt(named, "debug file's symbols", lambda: symbols_of(separate.elf, elf)) or []
        named.lines = _attempt(named, "debug file's line table",
                               lambda: lines_of(separate.elf, elf, separate.shared, wanted))
    named.variables = variables_of(elf, separate.elf if separate else None)
    sources += _attempt(named, "symbols", lambda: symbols_of(elf)) or []
    sources += _attempt(named, "mini debug information", lambda: _mini(elf)) or []
    sources += _attempt(named, "PLT", lambda: plt_stubs(elf)) or []
    known = Functions(sources)
    more = _attempt(named, "unwind table", lambda: unnamed(known, elf))
    named.functions = Functions([*sources, more]) if more is not None and len(more) else known
    if named.lines is None:
        shared = files.of_itself(elf, path, named.problems)
        named.lines = _attempt(named, "line table", lambda: lines_of(elf, None, shared, wanted))
    if named.lines is not None and named.lines.bad_units:
        named.problems.append(f"line table: {named.lines.bad_units} malformed units")
    if named.lines is not None and named.lines.full:
        named.problems.append("line table: too large, not all of it was read")
    return named


def _attempt(named: Named, what: str, read: Callable[[], T]) -> T | None:
    try:
        return read()
    except BadElf as error:
        named.problems.append(f"{what}: {error}")
        return None


def _mini(elf: Elf) -> list[Candidates]:
    inner = symbol_file(elf)
    return [] if inner is None else symbols_of(inner, elf)


class Naming:
    """Names the blocks of all images of a run; tells the images which debug file they have, and their problems."""

    def __init__(self, code: Code, files: DebugFiles | None = None) -> None:
        self.code = code
        self.files = files or DebugFiles()
        self._maps: dict[int, PerfMap | None] = {}
        self._variables: dict[int, tuple[Elf, Functions]] = {}
        self._users: dict[int, list[int]] | None = None

    def columns(self, blocks: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
        """The columns function, function_offset, file, line, last_file, last_line and lines for `blocks`, the other
        columns of that table."""
        images, ips = numbers(blocks["image"], -1), numbers(blocks["ip"])
        result = _Columns(len(images))
        for number in distinct(images):
            if not 0 <= number < len(self.code.images):
                continue
            image, rows = self.code.images[number], np.flatnonzero(images == number)
            if image.elf is not None:
                self._name(image, image.elf, rows, blocks, result)
            else:
                self._name_generated(image, rows, ips[rows], result)
        return result.arrays()

    def variables(self) -> Iterator[pa.Table]:
        """Rows of the table `variables`, of the images whose blocks were named."""
        for image, (elf, variables) in sorted(self._variables.items()):
            yield from variable_rows(image, elf, variables)

    def _name(self, image: Image, elf: Elf, rows: npt.NDArray[np.int64], blocks: Mapping[str, pa.Array],
              result: _Columns) -> None:
        addresses, known = elf.addresses(numbers(blocks["offset"])[rows].astype(np.uint64))
        rows, addresses = rows[known], addresses[known]

        @cache
        def instructions() -> tuple[Addresses, npt.NDArray[np.int64]]:
            """Those of the blocks, and which block each is of."""
            offsets, of = offsets_in_blocks(blocks, rows, [one.file for one in self.code.images])
            return addresses[of] + offsets.astype(np.uint64), of

        named = read_names(elf, image.path, self.files, lambda: instructions()[0])
        image.debug = named.debug
        image.problems += named.problems
        if named.variables is not None:
            self._variables[image.number] = elf, named.variables
        if named.functions is not None:
            result.add_functions(rows, addresses, named.functions)
        if named.lines is not None:
            at, of = instructions()
            result.lines.add(rows[of], at, named.lines)

    def _name_generated(self, image: Image, rows: npt.NDArray[np.int64], ips: Addresses, result: _Columns) -> None:
        for pid in self._pids(image):
            known = self._map(pid)
            if known is None or not len(rows):
                continue
            if known.malformed:
                image.problems.append(f"{perf_map_name(pid)}: {known.malformed} of {known.lines} lines are malformed")
            image.debug = perf_map_name(pid)
            found = known.functions.find(ips) >= 0
            result.add_functions(rows[found], ips[found], known.functions)
            rows, ips = rows[~found], ips[~found]

    def _pids(self, image: Image) -> Iterator[int]:
        """Processes with that image, and those they are forks of: a fork has its parent's code and no map of it."""
        if self._users is None:
            self._users = {}
            for _, space in sorted(self.code.spaces.items()):
                for number in space.images():
                    self._users.setdefault(number, []).append(space.pid)
        seen: set[int] = set()
        for pid in self._users.get(image.number, []):
            for _ in range(NAMED_FOREBEARS):
                if pid in seen:
                    break
                seen.add(pid)
                yield pid
                pid = self.code.forked_from.get(pid, pid)

    def _map(self, pid: int) -> PerfMap | None:
        if pid not in self._maps:
            self._maps[pid] = read_perf_map(self.code.folder / perf_map_name(pid))
        return self._maps[pid]


class _Columns:
    """The columns being filled: texts as indexes into their distinct values."""

    def __init__(self, count: int) -> None:
        self.function = np.full(count, -1, np.int32)
        self.function_offset = np.zeros(count, np.int64)
        self.lines = BlockLines(count)
        self._functions: dict[str, int] = {}

    def add_functions(self, rows: npt.NDArray[np.int64], addresses: Addresses, functions: Functions) -> None:
        found = functions.find(addresses)
        rows, addresses, found = rows[found >= 0], addresses[found >= 0], found[found >= 0]
        distinct, back = np.unique(found, return_inverse=True)
        named = [self._functions.setdefault(demangle(functions.name(int(i))), len(self._functions)) for i in distinct]
        self.function[rows] = np.array(named, np.int32)[back] if named else 0
        self.function_offset[rows] = (addresses - functions.starts[found]).astype(np.int64)

    def arrays(self) -> dict[str, pa.Array]:
        unnamed = self.function < 0
        return {"function": texts(self.function, list(self._functions)),
                "function_offset": pa.array(self.function_offset, mask=unnamed), **self.lines.arrays()}
