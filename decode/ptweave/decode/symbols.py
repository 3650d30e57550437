# SPDX-License-Identifier: MIT
"""Functions of ELF files from their symbol tables and PLT stubs. Tables are read whole, with numpy.

A file may be anything the target made: what is malformed gives no names and one clear error, after work bounded by
the file's size.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ptweave.decode.elf import SHT_DYNSYM, SHT_SYMTAB, Addresses, BadElf, Elf, Mask, Section
from ptweave.decode.functions import ADDRESS_MAX, Candidates, Functions, Names, Numbers

STT_NOTYPE, STT_OBJECT, STT_FUNC, STT_COMMON, STT_GNU_IFUNC = 0, 1, 2, 5, 10
SHN_LORESERVE = 0xff00
STB_GLOBAL, STB_WEAK = 1, 2

SYMBOL_64 = np.dtype([("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"),
                      ("size", "<u8")])
SYMBOL_32 = np.dtype([("name", "<u4"), ("value", "<u4"), ("size", "<u4"), ("info", "u1"), ("other", "u1"),
                      ("section", "<u2")])

MAX_TABLES = 4
"""Symbol tables read of one file: linkers make one of each kind."""

MAX_SYMBOLS = 1 << 23
"""Symbols in a table beyond which it is not read: several times what the largest programs have."""

RANKS = 16
"""Ranks of symbols are below it."""

PLT_RANK, UNWIND_RANK = 2 * RANKS, 3 * RANKS

Table = npt.NDArray[np.void]


def functions_of(elf: Elf, code: Elf | None = None) -> Functions:
    """All functions an ELF file names. Raises BadElf when its tables are malformed.

    `code`: the file with the code, when `elf` is a debug file of it.
    """
    from ptweave.decode.plt import plt_stubs

    return Functions([*symbols_of(elf, code), *plt_stubs(elf)])


def symbols_of(elf: Elf, code: Elf | None = None) -> list[Candidates]:
    """What code the symbol tables of an ELF file name, .symtab first. Raises BadElf when one is malformed."""
    return [_candidates(elf, section, code or elf) for section in _tables(elf)]


def exports_of(elf: Elf) -> frozenset[str]:
    """Names of the functions that other files can call, and of those that choose one (IFUNC). Raises BadElf when a
    table is malformed."""
    found: set[str] = set()
    for section in _tables(elf):
        if section.type == SHT_DYNSYM:
            symbols, strings = read_table(elf, section)
            names = Names(strings)
            found |= {names(offset) for offset in symbols["name"][_exported(symbols, len(strings))].tolist()}
    return frozenset(found)


def _exported(symbols: Table, strings: int) -> Mask:
    kind, binding = symbols["info"] & 15, symbols["info"] >> 4
    wanted: Mask = (kind == STT_FUNC) | (kind == STT_GNU_IFUNC)
    wanted &= (binding == STB_GLOBAL) | (binding == STB_WEAK)
    wanted &= (symbols["section"] != 0) & (symbols["name"] != 0) & (symbols["name"] < strings)
    return wanted


def objects_of(elf: Elf, code: Elf | None = None) -> list[Candidates]:
    """What data they name, that has a size and is in memory from its first byte to its last. Raises BadElf when one is
    malformed."""
    return [_objects(elf, section, code or elf) for section in _tables(elf)]


def _tables(elf: Elf) -> list[Section]:
    tables = [section for kind in (SHT_SYMTAB, SHT_DYNSYM) for section in elf.sections if section.type == kind]
    return tables[:MAX_TABLES]


def read_table(elf: Elf, section: Section) -> tuple[Table, memoryview]:
    """A symbol table and its strings. Raises BadElf."""
    layout = SYMBOL_64 if elf.is_64 else SYMBOL_32
    raw = elf.bytes_of(section)
    count = len(raw) // layout.itemsize
    if count > MAX_SYMBOLS:
        raise BadElf(f"{section.name} has {count} symbols")
    if section.link >= len(elf.sections):
        raise BadElf(f"{section.name} has no strings")
    return np.frombuffer(raw, layout, count=count), elf.bytes_of(elf.sections[section.link])


def _candidates(elf: Elf, section: Section, code: Elf) -> Candidates:
    symbols, strings = read_table(elf, section)
    kind = symbols["info"] & 15
    wanted = (kind == STT_FUNC) | (kind == STT_GNU_IFUNC) | (kind == STT_NOTYPE)
    wanted &= (symbols["section"] != 0) & (symbols["name"] != 0) & (symbols["name"] < len(strings))
    symbols = symbols[wanted]
    symbols = symbols[code.executable(symbols["value"].astype(np.uint64))]
    return _columns(elf, symbols, strings)


def _objects(elf: Elf, section: Section, code: Elf) -> Candidates:
    symbols, strings = read_table(elf, section)
    kind = symbols["info"] & 15
    wanted = ((kind == STT_OBJECT) | (kind == STT_COMMON)) & (symbols["size"] != 0)
    wanted &= (symbols["section"] != 0) & (symbols["section"] < SHN_LORESERVE)
    wanted &= (symbols["name"] != 0) & (symbols["name"] < len(strings))
    symbols = symbols[wanted]
    first = symbols["value"].astype(np.uint64)
    last = first + symbols["size"].astype(np.uint64) - np.uint64(1)
    symbols = symbols[code.loaded(first) & code.loaded(last) & (last >= first)]
    return _columns(elf, symbols, strings)


def _columns(elf: Elf, symbols: Table, strings: memoryview) -> Candidates:
    labels = (symbols["info"] & 15) == STT_NOTYPE
    return Candidates(symbols["value"].astype(np.uint64), symbols["size"].astype(np.uint64), _limits(elf, symbols),
                      _ranks(symbols, strings), labels, symbols["name"].astype(np.int64), Names(strings))


def _limits(elf: Elf, symbols: Table) -> Addresses:
    """Where a symbol without a size ends at the latest: with its section."""
    ends = np.full(1 << 16, ADDRESS_MAX)
    for number, section in enumerate(elf.sections):
        end = section.address + section.size
        if section.address and end <= ADDRESS_MAX:
            ends[number] = end
    limits: Addresses = ends[symbols["section"]]
    return limits


def _ranks(symbols: Table, strings: memoryview) -> Numbers:
    """How good a name is, 0 best: functions before IFUNC resolvers before labels, global before weak before local,
    `malloc` before `__libc_malloc`."""
    binding = symbols["info"] >> 4
    kind = symbols["info"] & 15
    rank = np.where(binding == STB_GLOBAL, 0, np.where(binding == STB_WEAK, 1, 2)).astype(np.int64)
    rank += np.where(kind == STT_NOTYPE, 6, np.where(kind == STT_GNU_IFUNC, 3, 0))
    if len(strings):
        first = np.frombuffer(strings, np.uint8)[symbols["name"]]
        return np.asarray(2 * rank + _plain_first(first, symbols, strings), np.int64)
    return 2 * rank


def _plain_first(first: npt.NDArray[np.uint8], symbols: Table, strings: memoryview) -> Mask:
    """1 for names that begin with an underscore and are not mangled."""
    after = np.minimum(symbols["name"].astype(np.int64) + 1, len(strings) - 1)
    second = np.frombuffer(strings, np.uint8)[after]
    plain: Mask = (first == ord("_")) & (second != ord("Z")) & (second != ord("R"))
    return plain
