# SPDX-License-Identifier: MIT
"""The functions that an ELF file's symbol tables name, looked up in the tables as they are: large libraries have a
hundred thousand names, of which a probe wants one.

Files are hostile: what makes no sense in one is not there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
from elftools.elf.elffile import ELFFile

_WIDE = [("name", "u4"), ("info", "u1"), ("other", "u1"), ("section", "u2"), ("value", "u8"), ("size", "u8")]
_NARROW = [("name", "u4"), ("value", "u4"), ("size", "u4"), ("info", "u1"), ("other", "u1"), ("section", "u2")]
_FUNCTIONS = (2, 10)  # STT_FUNC, STT_GNU_IFUNC
_TABLES = (".symtab", ".dynsym")


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
        for symbols, names in self._tables:
            found = np.flatnonzero(np.isin(symbols["name"], list(_places(names, wanted + b"\0"))))
            if wanted and len(found):
                first = symbols[found[0]]
                return Function(int(first["value"]), int(first["size"]))
        return None

    def named(self, name: str) -> list[str]:
        """Functions of this name, itself first, and what a compiler made of them (`name.part.0`)."""
        wanted = name.encode(errors="surrogateescape")
        found = set()
        for symbols, names in self._tables:
            for end in (b"\0", b"."):
                at = np.array([*_places(names, wanted + end)], np.int64)
                found |= {names[place:names.index(b"\0", place)] for place in at[np.isin(at, symbols["name"])].tolist()
                          if names.find(b"\0", place) >= 0}
        return sorted(one.decode(errors="surrogateescape") for one in found)


def _places(text: bytes, word: bytes) -> Iterator[int]:
    """Where a word is. Names share their ends: it may be within a longer one."""
    at = text.find(word)
    while at >= 0:
        yield at
        at = text.find(word, at + 1)


def _table(elf: ELFFile, file: BinaryIO, name: str) -> tuple[npt.NDArray[np.void], bytes] | None:
    """The functions of a symbol table, and the names of all; None when the file has none."""
    section = elf.get_section_by_name(name)
    if section is None or section["sh_type"] not in ("SHT_SYMTAB", "SHT_DYNSYM"):
        return None
    if section["sh_link"] >= elf.num_sections():
        return None
    order = "<" if elf.little_endian else ">"
    dtype = np.dtype([(field, order + kind) for field, kind in (_WIDE if elf.elfclass == 64 else _NARROW)])
    raw = _bytes(file, section)
    symbols = np.frombuffer(raw, dtype, len(raw) // dtype.itemsize)
    functions = symbols[np.isin(symbols["info"] & 15, _FUNCTIONS) & (symbols["value"] != 0)]
    return functions, _bytes(file, elf.get_section(section["sh_link"]))


def _bytes(file: BinaryIO, section: object) -> bytes:
    """A section's bytes, as many as the file has."""
    begin, size = int(section["sh_offset"]), int(section["sh_size"])  # type: ignore[index]
    end = file.seek(0, 2)
    if begin >= end:
        return b""
    file.seek(begin)
    return file.read(min(size, end - begin))


__all__ = ["Function", "Functions"]
