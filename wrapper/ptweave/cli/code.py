# SPDX-License-Identifier: MIT
"""ELF files as probes see them: what the decoder knows of functions and lines, for `ptweave.wrapper.probes`."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np

from ptweave.data import BadInput
from ptweave.decode.elf import PF_X, PT_LOAD, Addresses, BadElf, Elf
from ptweave.decode.functions import Candidates, Functions
from ptweave.decode.landing_pads import landing_pads
from ptweave.decode.lines import Lines
from ptweave.decode.naming import read_names
from ptweave.decode.sections import symbol_file
from ptweave.decode.symbols import exports_of, symbols_of
from ptweave.wrapper.probes.code import Code, Stretch

IDENTITY = 1024
"""Bytes of a file's beginning by which it is known in memory: headers, and mostly its build id."""
ET_EXEC = 2
SHT_RELA, SHF_ALLOC, SHF_EXECINSTR, SHT_NOBITS = 4, 2, 4, 8
_RELATIVE, _IRELATIVE = 8, 37
_RELA = np.dtype([("offset", "<u8"), ("info", "<u8"), ("addend", "<i8")])
_IFUNC_RANKS = range(6, 12)


@lru_cache(maxsize=64)
def load_code(path: Path) -> Code:
    """Raises BadInput for what is no ELF file for x86-64."""
    try:
        elf = Elf.open(path)
        if not elf.is_64 or elf.machine != 62:
            raise BadElf("not for x86-64")
        return _code(elf, path)
    except BadElf as error:
        raise BadInput(f"cannot be probed: {error}", where=str(path), remedy="name a program or a library") from error


def _code(elf: Elf, path: Path) -> Code:
    loaded = [segment for segment in elf.segments if segment.type == PT_LOAD]
    if not loaded:
        raise BadElf("nothing of it is loaded")
    named = read_names(elf, str(path))
    functions = named.functions or Functions([])
    mini = symbol_file(elf)
    symbols, chosen = _symbols(symbols_of(elf) + ([] if mini is None else symbols_of(mini, elf)))
    _add_functions(symbols, functions, chosen)
    first = min(loaded, key=lambda one: one.address)
    return Code(
        path, _stretches(elf), functions.starts, functions.ends, functions.name, symbols, _pointers(elf),
        elf.type == ET_EXEC, first.address & -4096, max(one.address + one.memory for one in loaded),
        bytes(elf.data[:IDENTITY]) if first.offset == 0 else b"", lambda offset: _address(elf, offset),
        lambda file, line: _line(named.lines, functions, file, line),
        landing_pads(elf), exports_of(elf))


def _stretches(elf: Elf) -> list[Stretch]:
    sections = [one for one in elf.sections if one.flags & SHF_ALLOC and one.type != SHT_NOBITS and one.size]
    if sections:
        found = [Stretch(one.address, elf.bytes_of(one), bool(one.flags & SHF_EXECINSTR)) for one in sections]
    else:
        found = [Stretch(one.address, elf.data[one.offset:one.offset + one.size], bool(one.flags & PF_X))
                 for one in elf.segments if one.type == PT_LOAD]
    return sorted(found, key=lambda one: one.address)


def _symbols(sources: list[Candidates]) -> tuple[dict[str, list[int]], set[int]]:
    """All names and where they are; and the addresses of functions that only choose another (IFUNC)."""
    found: dict[str, list[int]] = {}
    chosen: set[int] = set()
    for source in sources:
        for start, rank, offset in zip(source.starts.tolist(), source.ranks.tolist(), source.offsets.tolist(),
                                       strict=True):
            if rank in _IFUNC_RANKS:
                chosen.add(start)
                continue
            places = found.setdefault(source.names(offset).partition("@")[0], [])
            if start not in places:
                places.append(start)
    return found, chosen


def _add_functions(symbols: dict[str, list[int]], functions: Functions, chosen: set[int]) -> None:
    """Names that come from debug files, and those of functions nobody named."""
    for index, start in enumerate(functions.starts.tolist()):
        name = functions.name(index)
        if start not in chosen and not name.endswith("@plt"):
            places = symbols.setdefault(name.partition("@")[0], [])
            if start not in places:
                places.append(start)


def _pointers(elf: Elf) -> Addresses:
    """Code that relocations without a symbol point to."""
    found: list[Addresses] = [np.zeros(0, np.uint64)]
    for section in elf.sections:
        if section.type == SHT_RELA and section.flags & SHF_ALLOC:
            raw = elf.bytes_of(section)
            rows = np.frombuffer(raw, _RELA, len(raw) // _RELA.itemsize)
            rows = rows[np.isin(rows["info"] & 0xFFFFFFFF, (_RELATIVE, _IRELATIVE))]
            addresses = rows["addend"].astype(np.uint64)
            found.append(addresses[elf.executable(addresses)])
    return np.concatenate(found)


def _address(elf: Elf, offset: int) -> int | None:
    if not 0 <= offset < 1 << 63:
        return None
    addresses, known = elf.addresses(np.array([offset], np.uint64))
    return int(addresses[0]) if known[0] else None


def _line(lines: Lines | None, functions: Functions, file: str, line: int) -> list[int]:
    """Where a line begins in each function it is in."""
    if lines is None:
        return []
    tail = "/" + file.lstrip("/")
    wanted = [number for number, name in enumerate(lines.names) if name == file or name.endswith(tail)]
    rows = np.flatnonzero(np.isin(lines.files, wanted) & (lines.lines == line) & ~lines.ends)
    first: dict[int, int] = {}
    for address in lines.addresses[rows].tolist():
        function = int(functions.find(np.array([address], np.uint64))[0])
        first[function] = min(address, first.get(function, address))
    return sorted(first.values())
