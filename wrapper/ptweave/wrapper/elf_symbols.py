# SPDX-License-Identifier: MIT
"""An ELF file's symbol tables as they are: large files have a hundred thousand names, of which one is wanted.

Files are hostile: what makes no sense in one is not there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import IO, Any

from elftools.elf.elffile import ELFFile

from ptweave.wrapper.elf_headers import sections

# No numpy: it makes threads, and who wants a probe may have to give up privileges before there are any (privileges.py).

_WIDE, _NARROW = "IBBHQQ", "IIIBBH"  # Elf64_Sym, Elf32_Sym
_TABLES = ("SHT_SYMTAB", "SHT_DYNSYM")
_FEW = 64
"""Places of a name that are looked for one by one."""


class Kind(IntEnum):
    """STT_* of elf.h."""

    OBJECT = 1
    FUNCTION = 2
    COMMON = 5
    THREAD_LOCAL = 6
    RESOLVER = 10  # STT_GNU_IFUNC: the function that says which one is called


@dataclass(frozen=True)
class Symbol:
    """What a symbol says: its kind (a number that may be none of Kind), address as the file is linked, bytes (0: not
    said), and whether the file defines it."""

    kind: int
    address: int
    size: int
    defined: bool


@dataclass(frozen=True)
class Table:
    """A symbol table, and the text that its names are in."""

    symbols: bytes
    layout: struct.Struct
    names: bytes

    def called(self, places: set[int]) -> Iterator[tuple[int, Symbol]]:
        """Symbols whose names are at these places in `names`, in order, each with its name's place."""
        step, narrow = self.layout.size, self.layout.size == struct.calcsize("<" + _NARROW)
        for at in self._few(places) if len(places) <= _FEW else range(0, len(self.symbols) // step * step, step):
            fields = self.layout.unpack_from(self.symbols, at)
            name, (info, _, section, value, size) = fields[0], fields[1:]
            if narrow:
                value, size, info, _, section = fields[1:]
            if name in places:
                yield name, Symbol(info & 15, value, size, section != 0)

    def _few(self, places: set[int]) -> list[int]:
        """Where symbols with these names are: found as bytes, for to look at each symbol takes seconds."""
        step, found = self.layout.size, []
        for place in places:
            word = struct.pack(self.layout.format[0] + "I", place)
            at = self.symbols.find(word)
            while at >= 0:
                if at % step == 0 and at + step <= len(self.symbols):
                    found.append(at)
                at = self.symbols.find(word, at + 1)
        return sorted(found)


def read_tables(elf: ELFFile, file: IO[bytes]) -> list[Table]:
    """The tables of the file that `elf` was made of, `.symtab` before `.dynsym`. Raises OSError, ELFError."""
    headers = list(sections(elf))
    layout = struct.Struct(("<" if elf.little_endian else ">") + (_WIDE if elf.elfclass == 64 else _NARROW))
    found = (next((one for one in headers if one["sh_type"] == kind), None) for kind in _TABLES)  # there is one of each
    return [Table(_bytes(file, header), layout, _bytes(file, headers[header["sh_link"]]))
            for header in found if header is not None and header["sh_link"] < len(headers)]


def places_of(text: bytes, word: bytes) -> Iterator[int]:
    """Where a word is. Names share their ends: it may be within a longer one."""
    at = text.find(word)
    while at >= 0:
        yield at
        at = text.find(word, at + 1)


def _bytes(file: IO[bytes], section: Any) -> bytes:
    """A section's bytes, as many as the file has."""
    begin, size = int(section["sh_offset"]), int(section["sh_size"])
    end = file.seek(0, 2)
    if begin >= end:
        return b""
    file.seek(begin)
    return file.read(min(size, end - begin))


__all__ = ["Kind", "Symbol", "Table", "places_of", "read_tables"]
