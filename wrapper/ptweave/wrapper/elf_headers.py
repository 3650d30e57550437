# SPDX-License-Identifier: MIT
"""The headers of an ELF file's sections and segments, without what they are of: pyelftools makes objects of that, and
for those of a dynamic segment or a table of hashes reads all entries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from elftools.common.utils import struct_parse
from elftools.elf.elffile import ELFFile


def sections(elf: ELFFile) -> Iterator[Any]:
    """Raises ELFError where the file ends before they do."""
    yield from _headers(elf, elf.structs.Elf_Shdr, "sh", elf.num_sections())


def loads(elf: ELFFile) -> Iterator[Any]:
    """Of the segments that are loaded. Raises ELFError."""
    for header in _headers(elf, elf.structs.Elf_Phdr, "ph", elf.num_segments()):
        if header["p_type"] == "PT_LOAD":
            yield header


def _headers(elf: ELFFile, layout: Any, kind: str, count: int) -> Iterator[Any]:
    begin, step = elf[f"e_{kind}off"], elf[f"e_{kind}entsize"]
    for number in range(count if step >= layout.sizeof() else 0):
        yield struct_parse(layout, elf.stream, begin + number * step)


__all__ = ["loads", "sections"]
