# SPDX-License-Identifier: MIT
"""Minimal ELF files, built section by section: 64-bit, little-endian, x86-64."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

EHDR, PHDR, SHDR, SYM, RELA = "<16sHHIQQQIHHHHHH", "<IIQQQQQQ", "<IIQQQQIIQQ", "<IBBHQQ", "<QQq"
SHT_PROGBITS, SHT_SYMTAB, SHT_STRTAB, SHT_RELA, SHT_NOTE, SHT_DYNSYM = 1, 2, 3, 4, 7, 11


@dataclass
class SectionSpec:
    name: str
    data: bytes
    type: int = SHT_PROGBITS
    address: int = 0
    link: str = ""
    entry_size: int = 0
    flags: int = 0


@dataclass
class ElfWriter:
    """Sections are laid out in the order they are added; `segments` are (flags, offset, address, size)."""

    sections: list[SectionSpec] = field(default_factory=list)
    segments: list[tuple[int, int, int, int]] = field(default_factory=list)
    type: int = 3

    def add(self, name: str, data: bytes, **more: object) -> ElfWriter:
        self.sections.append(SectionSpec(name, data, **more))  # type: ignore[arg-type]
        return self

    def segment(self, offset: int, address: int, size: int, flags: int = 5) -> ElfWriter:
        self.segments.append((flags, offset, address, size))
        return self

    def symbols(self, entries: list[tuple[str, int, int, int]], *, dynamic: bool = False) -> ElfWriter:
        """A symbol table of (name, value, size, info); index 0 is the null symbol."""
        strings, table = b"\0", struct.pack(SYM, 0, 0, 0, 0, 0, 0)
        for name, value, size, info in entries:
            table += struct.pack(SYM, len(strings), info, 0, 1 if value else 0, value, size)
            strings += name.encode() + b"\0"
        names = (".dynsym", ".dynstr") if dynamic else (".symtab", ".strtab")
        self.add(names[1], strings, type=SHT_STRTAB)
        return self.add(names[0], table, type=SHT_DYNSYM if dynamic else SHT_SYMTAB, link=names[1], entry_size=24)

    def build_id(self, value: bytes) -> ElfWriter:
        note = struct.pack("<III", 4, len(value), 3) + b"GNU\0" + value
        return self.add(".note.gnu.build-id", note, type=SHT_NOTE)

    def data(self) -> bytes:
        sections = [SectionSpec("", b"", type=0), *self.sections]
        names = b"".join(section.name.encode() + b"\0" for section in sections) + b".shstrtab\0"
        sections.append(SectionSpec(".shstrtab", names, type=SHT_STRTAB))
        head = 64 + 56 * len(self.segments)
        body, headers, position = b"", b"", 0
        indexes = {section.name: index for index, section in enumerate(sections)}
        for section in sections:
            headers += struct.pack(SHDR, position, section.type, section.flags, section.address, head + len(body),
                                   len(section.data), indexes.get(section.link, 0) if section.link else 0, 0, 1,
                                   section.entry_size)
            position += len(section.name) + 1
            body += section.data
        ident = b"\x7fELF\x02\x01\x01" + bytes(9)
        header = struct.pack(EHDR, ident, self.type, 62, 1, 0, 64 if self.segments else 0, head + len(body), 0, 64, 56,
                             len(self.segments), 64, len(sections), len(sections) - 1)
        segments = b"".join(struct.pack(PHDR, 1, flags, offset, address, address, size, size, 4096)
                            for flags, offset, address, size in self.segments)
        return header + segments + body + headers


def line_table(version: int, tables: bytes, program: bytes) -> bytes:
    """One unit of .debug_line: its folders and files, and a line program (DWARF 5, 6.2)."""
    lengths = bytes([0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1])
    head = (b"\1\1" if version >= 4 else b"\1") + bytes([1, 0xFB, 14, 13]) + lengths
    body = struct.pack("<H", version) + (b"\x08\0" if version >= 5 else b"") + struct.pack(
        "<I", len(head) + len(tables)) + head + tables + program
    return struct.pack("<I", len(body)) + body
