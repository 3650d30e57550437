# SPDX-License-Identifier: MIT
"""ELF headers: offsets to addresses, build ids, and one clear error for whatever is malformed."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile

from ptweave.decode.elf import BadElf, Elf, text_at
from ptweave.decode.naming import read_names
from ptweave.decode.symbols import functions_of
from support.elf_writer import ElfWriter

LIBC = Path("/usr/lib/x86_64-linux-gnu/libc.so.6")


def test_offsets_become_link_time_addresses() -> None:
    elf = Elf(ElfWriter().segment(0x0, 0x0, 0x1000, flags=4).segment(0x1000, 0x401000, 0x2000).data())
    addresses, known = elf.addresses(np.array([0x1000, 0x1234, 0x2FFF, 0x3000, 0x10], np.uint64))
    assert known.tolist() == [True, True, True, False, False]
    assert addresses[known].tolist() == [0x401000, 0x401234, 0x402FFF]


def test_executable_addresses() -> None:
    elf = Elf(ElfWriter().segment(0, 0x1000, 0x100, flags=6).segment(0x100, 0x2000, 0x100).data())
    inside = elf.executable(np.array([0x1000, 0x1FFF, 0x2000, 0x20FF, 0x2100], np.uint64))
    assert inside.tolist() == [False, False, True, True, False]


def test_build_id() -> None:
    assert Elf(ElfWriter().build_id(bytes(range(20))).data()).build_id == bytes(range(20)).hex()
    assert Elf(ElfWriter().data()).build_id is None


def test_headers_agree_with_another_reader() -> None:
    elf = Elf.open(LIBC)
    with LIBC.open("rb") as file:
        other = ELFFile(file)
        assert [(s.name, s.address, s.offset, s.size) for s in elf.sections] == [
            (s.name, s["sh_addr"], s["sh_offset"], s["sh_size"]) for s in other.iter_sections()]
        assert [(s.address, s.offset, s.size) for s in elf.segments] == [
            (s["p_vaddr"], s["p_offset"], s["p_filesz"]) for s in other.iter_segments()]
        note = next(other.get_section_by_name(".note.gnu.build-id").iter_notes())
        assert elf.build_id == note["n_desc"]


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"#!/bin/sh\n" * 100, b"\x7fELF" + b"\xff" * 100,
                                  b"\x7fELF\x02\x02" + bytes(100)])
def test_what_is_no_elf_file_is_refused(data: bytes) -> None:
    with pytest.raises(BadElf):
        Elf(data)


def small() -> bytes:
    return (ElfWriter().segment(0, 0x1000, 0x1000).build_id(b"12345678").add(".text", b"\x90" * 64, address=0x1000)
            .symbols([("main", 0x1000, 16, 0x12), ("other", 0x1010, 8, 0x12)])
            .symbols([("printf", 0, 0, 0x12)], dynamic=True)
            .add(".rela.plt", struct.pack("<QQq", 0x3000, 1 << 32 | 7, 0), type=4, link=".dynsym", entry_size=24)
            .add(".plt", b"\xff\x35\0\0\0\0\x90\x90" * 2 + b"\xff\x25" + struct.pack("<i", 0x3000 - 0x1036)
                 + b"\x90" * 10, address=0x1020, entry_size=16).data())


def test_truncated_anywhere_gives_a_value_or_one_kind_of_error() -> None:
    whole = small()
    for size in range(0, len(whole), 3):
        try:
            elf = Elf(whole[:size])
        except BadElf:
            continue
        read_names(elf, None)


def test_bytes_changed_anywhere_give_a_value_or_one_kind_of_error() -> None:
    whole = small()
    chance = random.Random(1)
    for _ in range(3000):
        data = bytearray(whole)
        for _ in range(chance.randrange(1, 5)):
            data[chance.randrange(len(data))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        try:
            elf = Elf(bytes(data))
        except BadElf:
            continue
        assert elf.build_id is None or isinstance(elf.build_id, str)
        read_names(elf, "/usr/bin/x")


def test_the_small_file_has_what_the_damaged_ones_may_lose() -> None:
    functions = functions_of(Elf(small()))
    assert [functions.name(index) for index in range(len(functions))] == ["main", "other", "printf@plt"]


def test_more_sections_than_a_file_can_hold_are_said_and_the_segments_stay() -> None:
    data = bytearray(small())
    data[60:62] = b"\xff\xff"
    elf = Elf(bytes(data))
    assert (elf.sections, elf.damage) == ([], "section headers: headers outside the file")
    assert elf.executable(np.array([0x1000], np.uint64)).tolist() == [True]
    assert Elf(small()).damage is None


def test_text_at_stops_at_the_table_and_at_the_limit() -> None:
    assert text_at(b"ab\0cd", 0) == "ab"
    assert text_at(b"ab\0cd", 3) == "cd"
    assert text_at(b"ab\0cd", 9) == ""
    assert text_at(b"x" * 100, 0, limit=10) == "x" * 10
    assert text_at(b"\xff\xfe\0", 0) == "��"
