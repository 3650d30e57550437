# SPDX-License-Identifier: MIT
"""The functions that an ELF file's symbol tables name, looked up in the tables as they are: large libraries have a
hundred thousand names, of which a probe wants one.

Files are hostile: what makes no sense in one is not there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from elftools.elf.elffile import ELFFile

# No numpy: it makes threads, and who wants a probe may have to give up privileges before there are any (privileges.py).

_WIDE, _NARROW = "IBBHQQ", "IIIBBH"  # Elf64_Sym, Elf32_Sym
_FUNCTIONS = (2, 10)  # STT_FUNC, STT_GNU_IFUNC
_TABLES = (".symtab", ".dynsym")
_FEW = 64
"""Places of a name that are looked for one by one."""


@dataclass(frozen=True)
class Function:
    """A function's address as it is linked, and how many bytes its symbol says it has; 0: it does not say."""

    address: int
    size: int


class Functions:
    """Functions by name. Of a name that several have, the first: `.symtab` before `.dynsym`."""

    def __init__(self, elf: ELFFile, file: BinaryIO) -> None:
        """Of the file that `elf` was made of. Reads the tables; raises OSError when that fails."""
        self._tables = [table for name in _TABLES if (table := _table(elf, file, name)) is not None]

    def find(self, name: str) -> Function | None:
        wanted = name.encode(errors="surrogateescape")
        for table in self._tables if wanted else ():
            for _, function in table.called(set(_places(table.names, wanted + b"\0"))):
                return function
        return None

    def named(self, name: str) -> list[str]:
        """Functions of this name, itself first, and what a compiler made of them (`name.part.0`)."""
        wanted = name.encode(errors="surrogateescape")
        found = set()
        for table in self._tables:
            names = table.names
            at = {place for end in (b"\0", b".") for place in _places(names, wanted + end)
                  if names.find(b"\0", place) >= 0}
            found |= {names[place:names.index(b"\0", place)] for place, _ in table.called(at)}
        return sorted(one.decode(errors="surrogateescape") for one in found)


@dataclass(frozen=True)
class _Table:
    symbols: bytes
    layout: struct.Struct
    names: bytes

    def called(self, places: set[int]) -> Iterator[tuple[int, Function]]:
        """Functions whose names are at these places in `names`, in order, each with its name's place."""
        step = self.layout.size
        for at in self._few(places) if len(places) <= _FEW else range(0, len(self.symbols) // step * step, step):
            fields = self.layout.unpack_from(self.symbols, at)
            name, (info, _, _, value, size) = fields[0], fields[1:]
            if step == struct.calcsize("<" + _NARROW):
                value, size, info = fields[1:4]
            if name in places and info & 15 in _FUNCTIONS and value:
                yield name, Function(value, size)

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


def _places(text: bytes, word: bytes) -> Iterator[int]:
    """Where a word is. Names share their ends: it may be within a longer one."""
    at = text.find(word)
    while at >= 0:
        yield at
        at = text.find(word, at + 1)


def _table(elf: ELFFile, file: BinaryIO, name: str) -> _Table | None:
    """A symbol table; None when the file has none."""
    section = elf.get_section_by_name(name)
    if section is None or section["sh_type"] not in ("SHT_SYMTAB", "SHT_DYNSYM"):
        return None
    if section["sh_link"] >= elf.num_sections():
        return None
    layout = struct.Struct(("<" if elf.little_endian else ">") + (_WIDE if elf.elfclass == 64 else _NARROW))
    return _Table(_bytes(file, section), layout, _bytes(file, elf.get_section(section["sh_link"])))


def _bytes(file: BinaryIO, section: object) -> bytes:
    """A section's bytes, as many as the file has."""
    begin, size = int(section["sh_offset"]), int(section["sh_size"])  # type: ignore[index]
    end = file.seek(0, 2)
    if begin >= end:
        return b""
    file.seek(begin)
    return file.read(min(size, end - begin))


__all__ = ["Function", "Functions"]
