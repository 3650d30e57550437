# SPDX-License-Identifier: MIT
"""What is in debug sections, however it is packed: ELF's compressed sections (zlib, zstd), GNU's older .zdebug_*,
and the symbol table in .gnu_debugdata (xz).

What is packed says how long it will be: nothing is unpacked beyond that, nor beyond what such data can honestly come
to. Links to other files are read here, too.
"""

from __future__ import annotations

import lzma
import struct
import zlib
from dataclasses import dataclass

import pyarrow as pa

from ptweave.decode.elf import SHF_COMPRESSED, BadElf, Elf, Section, text_at

ELFCOMPRESS_ZLIB, ELFCOMPRESS_ZSTD = 1, 2

SMALL = 1 << 20
"""Bytes that may be unpacked from however little."""

MAX_RATIO = 128
"""Debug information packs 3 to 20 times smaller; more is a bomb."""

MAX_SYMBOL_FILE = 1 << 26
"""Bytes of the ELF file in .gnu_debugdata."""

XZ_MEMORY = 80 << 20
"""Memory xz may take to unpack: `xz -9` needs 65 MiB."""


@dataclass(frozen=True)
class DebugLink:
    """A file name without folders, and the CRC-32 the file must have."""

    name: str
    crc: int


@dataclass(frozen=True)
class AltLink:
    """A path, relative to the file's folder or absolute, and the build id the file must have, in hex."""

    path: str
    build_id: str


def contents(elf: Elf, name: str, limit: int) -> bytes | memoryview:
    """A section's bytes, unpacked if need be (also from `.zdebug_x` for `.debug_x`); empty when there is none.

    Raises BadElf when it is malformed or would take more than `limit` bytes.
    """
    section = elf.section(name)
    if section is None and name.startswith(".debug_"):
        section = elf.section(".z" + name[1:])
        return b"" if section is None else _old_packed(elf, section, limit)
    if section is None:
        return b""
    raw = elf.bytes_of(section)
    if section.flags & SHF_COMPRESSED and len(raw):
        return _packed(elf, section, raw, limit)
    if len(raw) > limit:
        raise BadElf(f"{name} is too large ({len(raw)} bytes)")
    return raw


def _packed(elf: Elf, section: Section, raw: memoryview, limit: int) -> bytes | memoryview:
    """System V ABI, Compression Header."""
    layout = struct.Struct("<IIQQ" if elf.is_64 else "<III")
    if len(raw) < layout.size:
        raise BadElf(f"{section.name} truncated")
    fields = layout.unpack_from(raw)
    kind, size = fields[0], fields[2] if elf.is_64 else fields[1]
    data = raw[layout.size:]
    _check_size(section, size, len(data), limit)
    if kind == ELFCOMPRESS_ZLIB:
        return _unzip(section, data, size)
    if kind == ELFCOMPRESS_ZSTD:
        return _unzstd(section, data, size)
    raise BadElf(f"{section.name} is compressed in an unknown way ({kind})")


def _old_packed(elf: Elf, section: Section, limit: int) -> bytes:
    """`ZLIB`, the size as a big-endian number of 8 bytes, zlib's stream."""
    raw = elf.bytes_of(section)
    if len(raw) < 12 or bytes(raw[:4]) != b"ZLIB":
        raise BadElf(f"{section.name} does not begin with ZLIB")
    size = int.from_bytes(raw[4:12], "big")
    _check_size(section, size, len(raw) - 12, limit)
    return _unzip(section, raw[12:], size)


def _check_size(section: Section, size: int, packed: int, limit: int) -> None:
    if size > limit or size > max(SMALL, MAX_RATIO * packed):
        raise BadElf(f"{section.name} claims to unpack to {size} bytes")


def _unzip(section: Section, data: memoryview, size: int) -> bytes:
    if not size:
        return b""
    try:
        unpacked = zlib.decompressobj().decompress(data, size)
    except zlib.error as error:
        raise BadElf(f"{section.name}: {error}") from error
    if len(unpacked) != size:
        raise BadElf(f"{section.name} does not unpack to its size")
    return unpacked


def _unzstd(section: Section, data: memoryview, size: int) -> memoryview:
    try:
        # exactly the size: a shorter result is an error of Arrow's, a longer one does not fit
        unpacked = memoryview(pa.Codec("zstd").decompress(pa.py_buffer(data), decompressed_size=size))
    except (OSError, ValueError, pa.ArrowException) as error:
        raise BadElf(f"{section.name}: {error}") from error
    if len(unpacked) != size:
        raise BadElf(f"{section.name} does not unpack to its size")
    return unpacked


def symbol_file(elf: Elf) -> Elf | None:
    """The ELF file in .gnu_debugdata, with the symbols that .dynsym does not have. Raises BadElf."""
    section = elf.section(".gnu_debugdata")
    if section is None:
        return None
    raw = elf.bytes_of(section)
    limit = min(MAX_SYMBOL_FILE, max(SMALL, MAX_RATIO * len(raw)))
    try:
        unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY)
        data = unpacker.decompress(bytes(raw), limit)
    except (lzma.LZMAError, MemoryError) as error:
        raise BadElf(f"{section.name}: {error}") from error
    if not unpacker.eof:
        raise BadElf(f"{section.name} is too large or cut short")
    return Elf(data)


def debug_link(elf: Elf) -> DebugLink | None:
    """.gnu_debuglink, if it is a plain file name (GDB manual, Separate Debug Files)."""
    section = elf.section(".gnu_debuglink")
    if section is None:
        return None
    raw = elf.bytes_of(section)[:4096]
    name = text_at(raw, 0)
    at = len(name.encode()) + 4 & ~3
    if not name or "/" in name or name in (".", "..") or "\ufffd" in name or at + 4 > len(raw):
        return None
    return DebugLink(name, int.from_bytes(raw[at:at + 4], "little"))


def alt_link(elf: Elf) -> AltLink | None:
    """.gnu_debugaltlink (dwz): a path, and after its NUL a build id."""
    section = elf.section(".gnu_debugaltlink")
    if section is None:
        return None
    path, nul, build_id = bytes(elf.bytes_of(section)[:8192]).partition(b"\0")
    if not path or not nul or not 0 < len(build_id) <= 64:
        return None
    return AltLink(path.decode("utf-8", "surrogateescape"), build_id.hex())
