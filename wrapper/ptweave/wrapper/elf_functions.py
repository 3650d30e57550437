# SPDX-License-Identifier: MIT
"""The functions that an ELF file's symbol tables name. Files are hostile: what makes no sense in one is not there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from elftools.elf.elffile import ELFFile

from ptweave.wrapper.elf_symbols import Kind, Table, places_of, read_tables

_KINDS = (Kind.FUNCTION, Kind.RESOLVER)


@dataclass(frozen=True)
class Function:
    """A function's address as it is linked, and how many bytes its symbol says it has; 0: it does not say."""

    address: int
    size: int


class Functions:
    """Functions by name. Of a name that several have, the first: `.symtab` before `.dynsym`."""

    def __init__(self, elf: ELFFile, file: IO[bytes]) -> None:
        """Of the file that `elf` was made of. Reads the tables; raises OSError when that fails."""
        self._tables = read_tables(elf, file)

    def find(self, name: str) -> Function | None:
        return next(self.all(name), None)

    def all(self, name: str, kinds: tuple[Kind, ...] = _KINDS) -> Iterator[Function]:
        """All that have this name."""
        wanted = name.encode(errors="surrogateescape")
        for table in self._tables if wanted else ():
            for _, function in _called(table, set(places_of(table.names, wanted + b"\0")), kinds):
                yield function

    def named(self, name: str) -> list[str]:
        """Functions of this name, itself first, and what a compiler made of them (`name.part.0`)."""
        wanted = name.encode(errors="surrogateescape")
        found = set()
        for table in self._tables:
            names = table.names
            at = {place for end in (b"\0", b".") for place in places_of(names, wanted + end)
                  if names.find(b"\0", place) >= 0}
            found |= {names[place:names.index(b"\0", place)] for place, _ in _called(table, at, _KINDS)}
        return sorted(one.decode(errors="surrogateescape") for one in found)


def _called(table: Table, places: set[int], kinds: tuple[Kind, ...]) -> Iterator[tuple[int, Function]]:
    """Functions whose names are at these places, each with its name's place."""
    for place, symbol in table.called(places):
        if symbol.kind in kinds and symbol.address:
            yield place, Function(symbol.address, symbol.size)


__all__ = ["Function", "Functions"]
