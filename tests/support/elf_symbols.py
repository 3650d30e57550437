# SPDX-License-Identifier: MIT
"""Symbols of an ELF file as pyelftools reads them, one by one: the oracle of what looks names up as bytes."""

from __future__ import annotations

from collections.abc import Iterator

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import Symbol


def symbols(elf: ELFFile) -> Iterator[Symbol]:
    """Of `.symtab`, then of `.dynsym`."""
    for name in (".symtab", ".dynsym"):
        section = elf.get_section_by_name(name)
        if section is not None:
            yield from section.iter_symbols()
