# SPDX-License-Identifier: MIT
"""Source lines of link-time addresses, from DWARF 2 to 5 line tables (read in C, `decode/src/lines.c`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ptweave.data.errors import MachineLacks
from ptweave.decode._ipt import ffi, lib
from ptweave.decode.elf import Addresses, BadElf, Elf
from ptweave.decode.sections import contents
from ptweave.decode.stored import distinct

MAX_SECTION = 1 << 28
"""Bytes of a debug section beyond which it is not read."""

MAX_ROWS = 1 << 23
"""Rows of line tables beyond which the rest is not read."""

MAX_NAMES = 1 << 26
"""Bytes of file names beyond which files have none."""

NAME_RATIO = 8
"""Bytes of file names for each byte of line tables: folders are named once there, and with each file here."""
SMALL = 1 << 20

FIRST_UNITS = 1 << 14
"""Line tables whose version is looked at."""

MAX_INFO = 1 << 27
"""Bytes of .debug_info and .debug_abbrev beyond which they are not read."""


class Lines:
    """Line table of one file: rows sorted by address. `full`: too large, not all of it was read."""

    def __init__(self, addresses: Addresses, files: npt.NDArray[np.int32], lines: npt.NDArray[np.int32],
                 ends: npt.NDArray[np.bool_], names: Sequence[str], bad_units: int, full: bool) -> None:
        self.addresses = addresses
        self.files = files
        self.lines = lines
        self.ends = ends
        self.names = names
        self.bad_units = bad_units
        self.full = full

    def find(self, addresses: Addresses) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """File (index into `names`, −1 unknown) and line (0 unknown) of each address.

        Code that is of no line (a compiler made it up) has no file.
        """
        if not len(self.addresses):
            return np.full(len(addresses), -1, np.int32), np.zeros(len(addresses), np.int32)
        row = np.searchsorted(self.addresses, addresses, side="right") - 1
        at = np.maximum(row, 0)
        known = (row >= 0) & ~self.ends[at] & (self.files[at] >= 0) & (self.lines[at] > 0)
        return np.where(known, self.files[at], -1), np.where(known, self.lines[at], 0)


def lines_of(elf: Elf, code: Elf | None = None, shared: Elf | None = None,
             wanted: Callable[[], Addresses] | None = None) -> Lines | None:
    """The line table of an ELF file, None when it has none. Raises BadElf when its sections are malformed.

    `code`: the file with the code, when `elf` is a debug file of it; `shared`: the file that dwz moved texts to;
    `wanted` gives the addresses that will be looked up, once there are lines: the table then holds no more than these
    need.
    """
    line = contents(elf, ".debug_line", MAX_SECTION)
    if not len(line):
        return None
    sections = _Sections(line, contents(elf, ".debug_line_str", MAX_SECTION))
    if _has_old_units(line):
        sections.add_units(elf, shared)
    addresses = None if wanted is None else distinct(wanted())
    table = sections.read(addresses, (code or elf).lowest)
    if table.wants_strings:  # they are large, and nearly nobody names files there
        sections.add_strings(elf, shared)
        table = sections.read(addresses, (code or elf).lowest)
    return _sorted(code or elf, table)


@dataclass
class _Sections:
    """What the C half reads."""

    line: bytes | memoryview
    line_strings: bytes | memoryview
    strings: bytes | memoryview = b""
    shared_strings: bytes | memoryview = b""
    info: bytes | memoryview = b""
    abbrev: bytes | memoryview = b""

    def add_strings(self, elf: Elf, shared: Elf | None) -> None:
        """Add .debug_str, and that of the file dwz made. Raises BadElf."""
        self.strings = contents(elf, ".debug_str", MAX_SECTION)
        self.shared_strings = b"" if shared is None else contents(shared, ".debug_str", MAX_SECTION)

    def add_units(self, elf: Elf, shared: Elf | None) -> None:
        """Add .debug_info and .debug_abbrev. Without them names of files stay relative: no more is lost."""
        try:
            self.info = contents(elf, ".debug_info", MAX_INFO)
            self.abbrev = contents(elf, ".debug_abbrev", MAX_INFO)
            self.add_strings(elf, shared)
        except BadElf:
            self.info = self.abbrev = b""

    def read(self, wanted: Addresses | None, lowest: int) -> Any:
        """The line tables, as the C half makes them."""
        given = ffi.new("struct ptd_line_sections *")
        held = []
        for name in ("line", "line_strings", "strings", "shared_strings", "info", "abbrev"):
            data = getattr(self, name)
            held.append(ffi.from_buffer("uint8_t[]", data))
            setattr(given, name, held[-1])
            setattr(given, f"{name}_size", len(data))
        if wanted is not None:
            held.append(ffi.from_buffer("uint64_t[]", wanted))
            given.wanted, given.wanted_count = held[-1], len(wanted)
        given.lowest, given.max_rows = lowest, MAX_ROWS
        given.max_names = min(MAX_NAMES, NAME_RATIO * len(self.line) + SMALL)
        made = ffi.new("struct ptd_lines **")
        if lib.ptd_lines_read(given, made) < 0:
            raise MachineLacks("is out of memory", where="the line tables", remedy="free some memory")
        return ffi.gc(made[0], lib.ptd_lines_destroy)


def _has_old_units(line: bytes | memoryview) -> bool:
    """Whether one of the first tables is older than version 5, which names the folder of compilation itself."""
    at = 0
    for _ in range(FIRST_UNITS):
        wide = bytes(line[at:at + 4]) == b"\xff" * 4
        length_at, length_size = (at + 4, 8) if wide else (at, 4)
        version_at = length_at + length_size
        if version_at + 2 > len(line):
            return False
        if int.from_bytes(line[version_at:version_at + 2], "little") < 5:
            return True
        at = version_at + int.from_bytes(line[length_at:version_at], "little")
    return False


def _column(pointer: Any, count: int, kind: str, dtype: type[np.generic]) -> npt.NDArray[Any]:
    """A column in the table's own memory: valid as long as the table is."""
    if not count:
        return np.zeros(0, dtype)
    return np.frombuffer(ffi.buffer(pointer, count * ffi.sizeof(kind)), dtype)


def _sorted(elf: Elf, table: Any) -> Lines:
    count = table.count
    addresses = _column(table.address, count, "uint64_t", np.uint64)
    ends = _column(table.end, count, "uint8_t", np.uint8).astype(np.bool_)
    kept = np.flatnonzero(elf.executable(addresses) | (ends & elf.executable(addresses - np.uint64(1))))
    addresses, ends = addresses[kept], ends[kept]
    order = _order(addresses, ends)
    starts = _column(table.file_starts, table.file_count, "size_t", np.uint64).copy()
    names = _Names(bytes(ffi.buffer(table.names, table.names_size)) if table.names_size else b"", starts)
    return Lines(addresses[order], _column(table.file, count, "int32_t", np.int32)[kept][order],
                 _column(table.line, count, "int32_t", np.int32)[kept][order], ends[order], names, table.bad_units,
                 bool(table.full or table.nameless))


def _order(addresses: Addresses, ends: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Rows by address; at the same address those of the sequence that begins earlier, its end included, come first.

    So the last row at an address is of the sequence that goes on there, or the end when none does.
    """
    if not len(addresses):
        return np.zeros(0, np.int64)
    sequence = np.concatenate(([0], np.cumsum(ends)[:-1]))
    begins = addresses[np.flatnonzero(np.concatenate(([True], sequence[1:] != sequence[:-1])))]
    by_sequence = np.lexsort((np.arange(len(addresses)), begins[sequence]))
    return by_sequence[np.argsort(addresses[by_sequence], kind="stable")]


class _Names(Sequence[str]):
    """Names in a NUL-separated text, decoded when they are asked for."""

    def __init__(self, text: bytes, starts: npt.NDArray[np.uint64]) -> None:
        self._text = text
        self._starts = starts

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: Any) -> Any:
        start = int(self._starts[index])
        return self._text[start:self._text.index(b"\0", start)].decode("utf-8", "replace")

