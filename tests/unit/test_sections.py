# SPDX-License-Identifier: MIT
"""Packed debug sections: what tools write is read, what lies about itself is refused in bounded work."""

from __future__ import annotations

import lzma
import struct
import subprocess
import time
import zlib
from pathlib import Path

import pyarrow as pa
import pytest

from ptweave.decode.elf import SHF_COMPRESSED, BadElf, Elf
from ptweave.decode.sections import SMALL, AltLink, DebugLink, alt_link, contents, debug_link, symbol_file
from support.elf_writer import ElfWriter

TEXT = b"line table " * 1000
ZLIB, ZSTD = 1, 2


def zstd(data: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(data, asbytes=True))


def packed(kind: int, size: int, data: bytes) -> Elf:
    head = struct.pack("<IIQQ", kind, 0, size, 1)
    return Elf(ElfWriter().add(".debug_line", head + data, flags=SHF_COMPRESSED).data())


@pytest.mark.parametrize(("kind", "data"), [(ZLIB, zlib.compress(TEXT)), (ZSTD, zstd(TEXT))])
def test_compressed_sections_are_unpacked(kind: int, data: bytes) -> None:
    elf = packed(kind, len(TEXT), data)
    assert bytes(contents(elf, ".debug_line", 1 << 20)) == TEXT
    with pytest.raises(BadElf):
        contents(elf, ".debug_line", 100)


def test_the_older_form_is_unpacked() -> None:
    data = b"ZLIB" + len(TEXT).to_bytes(8, "big") + zlib.compress(TEXT)
    elf = Elf(ElfWriter().add(".zdebug_line", data).data())
    assert bytes(contents(elf, ".debug_line", 1 << 20)) == TEXT
    assert contents(elf, ".debug_str", 1 << 20) == b""


@pytest.mark.parametrize("kind", [ZLIB, ZSTD])
@pytest.mark.parametrize("size", [len(TEXT) - 1, len(TEXT) + 1, 10**6, 1 << 30, 1 << 62])
def test_a_section_that_lies_about_its_size_is_refused(kind: int, size: int) -> None:
    data = zlib.compress(TEXT + b"x") if kind == ZLIB and size < len(TEXT) else (
        zlib.compress(TEXT) if kind == ZLIB else zstd(TEXT))
    if kind == ZLIB and size < len(TEXT):
        assert len(contents(packed(kind, size, data), ".debug_line", 1 << 28)) == size  # its begin is what it says
        return
    with pytest.raises(BadElf):
        contents(packed(kind, size, data), ".debug_line", 1 << 28)


@pytest.mark.parametrize(("kind", "data"), [(ZLIB, b"noise" * 100), (ZSTD, b"noise" * 100), (3, b"x" * 100),
                                             (ZSTD, b"")])
def test_noise_is_refused(kind: int, data: bytes) -> None:
    with pytest.raises(BadElf):
        contents(packed(kind, 1000, data), ".debug_line", 1 << 28)


@pytest.mark.parametrize(("kind", "data"), [(ZLIB, zlib.compress(bytes(100 << 20))), (ZSTD, zstd(bytes(100 << 20)))])
def test_a_bomb_is_refused_at_once(kind: int, data: bytes) -> None:
    began = time.perf_counter()
    with pytest.raises(BadElf, match="claims to unpack"):
        contents(packed(kind, 100 << 20, data), ".debug_line", 1 << 28)
    assert time.perf_counter() - began < 0.5
    assert len(contents(packed(ZLIB, SMALL, zlib.compress(bytes(SMALL))), ".debug_line", 1 << 28)) == SMALL


def inner() -> bytes:
    return ElfWriter().segment(0, 0x1000, 0x1000).symbols([("hidden", 0x1000, 16, 2)]).data()


def test_the_file_with_symbols_inside_is_unpacked() -> None:
    elf = Elf(ElfWriter().add(".gnu_debugdata", lzma.compress(inner())).data())
    found = symbol_file(elf)
    assert found is not None
    assert bytes(found.data) == inner()
    assert symbol_file(Elf(ElfWriter().data())) is None


@pytest.mark.parametrize("data", [b"", b"noise", lzma.compress(inner())[:-20], lzma.compress(b"no ELF file"),
                                  lzma.compress(bytes(100 << 20)), lzma.compress(inner(), lzma.FORMAT_ALONE)])
def test_a_damaged_file_with_symbols_is_refused(data: bytes) -> None:
    began = time.perf_counter()
    with pytest.raises(BadElf):
        symbol_file(Elf(ElfWriter().add(".gnu_debugdata", data).data()))
    assert time.perf_counter() - began < 1


def test_a_debug_link_is_what_objcopy_wrote(tmp_path: Path) -> None:
    debug = tmp_path / "true.debug"
    debug.write_bytes(b"anything")
    linked = tmp_path / "true"
    subprocess.run(["objcopy", "--remove-section=.gnu_debuglink", "/bin/true", linked], check=True)
    subprocess.run(["objcopy", f"--add-gnu-debuglink={debug}", linked], check=True)
    assert debug_link(Elf.open(linked)) == DebugLink("true.debug", zlib.crc32(b"anything"))


@pytest.mark.parametrize("data", [b"", b"name", b"name\0\0\0\0", b"../x\0\0\0\0abcd", b".\0\0\0abcd", b"..\0\0abcd",
                                  b"\0\0\0\0abcd", b"\xff\xff\xff\0abcd"])
def test_other_debug_links_are_none(data: bytes) -> None:
    assert debug_link(Elf(ElfWriter().add(".gnu_debuglink", data).data())) is None


def test_alternative_links() -> None:
    elf = Elf(ElfWriter().add(".gnu_debugaltlink", b"../common.debug\0" + bytes(range(20))).data())
    assert alt_link(elf) == AltLink("../common.debug", bytes(range(20)).hex())
    for data in (b"", b"x", b"\0" + bytes(20), b"x\0", b"x\0" + bytes(65)):
        assert alt_link(Elf(ElfWriter().add(".gnu_debugaltlink", data).data())) is None
