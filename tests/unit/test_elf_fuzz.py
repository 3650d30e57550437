# SPDX-License-Identifier: MIT
"""Thousands of damaged ELF files: each is named in bounded time and memory, with one kind of error."""

from __future__ import annotations

import lzma
import random
import struct
import subprocess
import time
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from ptweave.decode.elf import MAX_HEADERS, BadElf, Elf
from ptweave.decode.naming import Named, read_names
from support.assembler import compile_c
from support.elf_writer import ElfWriter, line_table

MUTANTS = 2000
MAX_SECONDS = 1.0
MAX_BYTES = 200 << 20

SOURCE = """
#include <stdlib.h>
static int helper(int x) { return x * 3 + rand(); }
int twice(int x) { int sum = 0; for (int i = 0; i < x; i++) sum += helper(i); return sum; }
int main(int argc, char **argv) { return twice(argc) + (argv == 0); }
"""
AT_1000 = bytes([0, 9, 2]) + struct.pack("<Q", 0x1000)
OFFSETS = np.arange(0, 1 << 16, 64, dtype=np.uint64)


def built_by_hand() -> list[bytes]:
    """Every kind of section there is a reader for, in two files."""
    inner = ElfWriter().segment(0, 0x1000, 0x1000).symbols([("hidden", 0x1010, 16, 2)]).data()
    line = line_table(4, b"\0" + b"f.c\0\0\0\0" + b"\0", AT_1000 + bytes([20, 2, 8, 0, 1, 1]))
    frames = struct.pack("<IIiI", 12, 8, 0, 16)
    table = bytes([1, 0x1B, 3, 0x3B]) + struct.pack("<iI", 0, 1) + struct.pack("<ii", -0x1000, 0x100)
    first = (ElfWriter().segment(0, 0x1000, 0x1000).build_id(bytes(20))
             .symbols([("main", 0x1000, 16, 0x12), ("other", 0x1010, 0, 0x22), ("label", 0x1020, 0, 0)])
             .symbols([("printf", 0, 0, 0x12)], dynamic=True)
             .add(".rela.plt", struct.pack("<QQq", 0x3000, 1 << 32 | 7, 0), type=4, link=".dynsym", entry_size=24)
             .add(".plt", b"\xf3\x0f\x1e\xfa\x68\0\0\0\0" + bytes(7) + b"\xff\x25" + struct.pack("<i", 0x1FCA)
                  + b"\x90" * 10, address=0x1020, entry_size=16)
             .add(".debug_line", line).add(".eh_frame_hdr", table, address=0x2000)
             .add(".eh_frame", frames, address=0x2100).add(".gnu_debuglink", b"x.debug\0abcd"))
    second = (ElfWriter().segment(0, 0x1000, 0x1000).build_id(bytes(20))
              .add(".gnu_debugdata", lzma.compress(inner)).add(".gnu_debugaltlink", b"x\0" + bytes(20))
              .add(".zdebug_line", b"ZLIB" + len(line).to_bytes(8, "big") + zlib.compress(line))
              .add(".debug_str", struct.pack("<IIQQ", 2, 0, 64, 1) + pa.Codec("zstd").compress(bytes(64), asbytes=True),
                   flags=0x800)
              .add(".debug_line_str", struct.pack("<IIQQ", 1, 0, 64, 1) + zlib.compress(bytes(64)), flags=0x800))
    return [first.data(), second.data()]


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    folder = tmp_path_factory.mktemp("seeds")
    source = folder / "program.c"
    source.write_text(SOURCE)
    made = [compile_c(source, folder / f"program{number}", *flags) for number, flags in enumerate((
        ("-gdwarf-5",), ("-gdwarf-4", "-gz=zlib"), ("-gdwarf-3", "-no-pie", "-Wl,-z,lazy"), ("-fcf-protection", "-s"),
        ("-shared", "-fPIC", "-g")))]
    subprocess.run(["objcopy", "--only-keep-debug", made[0], folder / "debug"], check=True)
    return [path.read_bytes() for path in (*made, folder / "debug")] + built_by_hand()


def name_all(data: bytes) -> Named | None:
    """What the decoder does with a file; None when it is refused."""
    try:
        elf = Elf(data)
    except BadElf:
        return None
    addresses, known = elf.addresses(OFFSETS)
    named = read_names(elf, "/usr/bin/nothing")
    if named.functions is not None:
        for index in set(named.functions.find(addresses[known]).tolist()) - {-1}:
            named.functions.name(index)
    if named.lines is not None:
        files, _ = named.lines.find(addresses[known])
        for index in set(files.tolist()) - {-1}:
            assert isinstance(named.lines.names[index], str)
    return named


def mutate(data: bytes, chance: random.Random) -> bytes:
    """Damage of one kind: bytes, numbers in headers, a piece cut out, moved or doubled, an end cut off."""
    mutant = bytearray(data)
    kind = chance.randrange(6)
    headers = struct.unpack_from("<Q", data, 40)[0]
    if kind == 0:
        for _ in range(chance.randrange(1, 30)):
            mutant[chance.randrange(len(mutant))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
    elif kind in (1, 2):  # the ELF header or the section headers: where counts, offsets and links are
        begin, end = (0, 64) if kind == 1 or headers >= len(data) - 64 else (headers, len(data))
        for _ in range(chance.randrange(1, 8)):
            at = chance.randrange(begin, end - 8)
            width = chance.choice((1, 2, 4, 8))
            value = chance.choice((0, 1, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, (1 << 63) - 1, (1 << 64) - 1, len(data),
                                   chance.randrange(len(data))))
            mutant[at:at + width] = (value & ((1 << 8 * width) - 1)).to_bytes(width, "little")
    elif kind == 3:
        del mutant[chance.randrange(len(mutant)):]
    elif kind == 4:
        at, size = chance.randrange(len(mutant)), chance.randrange(1, 400)
        to = chance.randrange(len(mutant))
        mutant[to:to + size] = mutant[at:at + size]
    else:
        at = chance.randrange(len(mutant))
        del mutant[at:at + chance.randrange(1, 100)]
    return bytes(mutant)


def test_damaged_files_are_named_in_bounded_time_and_memory(seeds: list[bytes]) -> None:
    chance = random.Random(20)
    whole = [name_all(seed) for seed in seeds]
    assert all(named is not None and named.functions is not None and len(named.functions) for named in whole)
    assert all(named is not None and named.problems == [] for named in whole)
    before = reset_peak()
    slowest, refused, told, fewer = 0.0, 0, 0, 0
    for number in range(MUTANTS):
        which = number % len(seeds)
        data = mutate(seeds[which], chance)
        began = time.process_time()
        named = name_all(data)
        slowest = max(slowest, time.process_time() - began)
        refused += named is None
        told += named is not None and bool(named.problems)
        normal = whole[which]
        fewer += bool(named and normal and named.functions and normal.functions
                      and len(named.functions) != len(normal.functions))
    assert slowest < MAX_SECONDS
    assert peak() - before < MAX_BYTES
    assert refused > MUTANTS // 100  # the damage is real
    assert told > MUTANTS // 10
    assert fewer > MUTANTS // 20


def peak() -> int:
    """The most memory this process had since `reset_peak`, in bytes (proc(5), VmHWM)."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))


def reset_peak() -> int:
    Path("/proc/self/clear_refs").write_text("5")
    return peak()


def test_the_peak_is_seen() -> None:
    before = reset_peak()
    assert len(bytearray(MAX_BYTES)) == MAX_BYTES
    assert peak() - before > MAX_BYTES // 2


def bounded(data: bytes) -> Named | None:
    before = reset_peak()
    began = time.process_time()
    named = name_all(data)
    assert time.process_time() - began < MAX_SECONDS
    assert peak() - before < MAX_BYTES
    return named


def repeated(writer: ElfWriter, section: bytes, count: int) -> bytes:
    """A file whose section headers say the same thing many times over."""
    data = bytearray(writer.data())
    at = len(data)
    data += section * count
    data[40:48] = at.to_bytes(8, "little")
    data[60:64] = struct.pack("<HH", count, 0)
    return bytes(data)


def test_sections_that_overlap_cost_no_more_than_one(tmp_path: Path) -> None:
    body = b"A" * (1 << 20)
    writer = ElfWriter().segment(0, 0, 1 << 20)
    at = len(writer.data())
    for kind in (2, 3, 4, 7, 11):  # symbols, strings, relocations, notes, dynamic symbols: all of all bytes
        header = struct.pack("<IIQQQQIIQQ", 1, kind, 0, 0, 64, at + len(body), 0, 0, 1, 24)
        bounded(repeated(ElfWriter().segment(0, 0, 1 << 20).add("x", body), header, MAX_HEADERS - 1))


def test_names_without_an_end_cost_no_more_than_their_first_bytes() -> None:
    header = struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, 0, 1 << 20, 0, 0, 1, 0)
    bounded(repeated(ElfWriter().add("x", b"A" * (1 << 20)), header, MAX_HEADERS - 1))
    symbols = [(f"f{i}", 0x1000 + i, 1, 0x12) for i in range(20000)]
    endless = ElfWriter().segment(0, 0x1000, 0x10000).symbols(symbols).data().replace(b"\0f", b"AA")
    bounded(endless)


def test_notes_in_circles_end() -> None:
    empty = struct.pack("<III", 0, 0, 0) * 50000
    assert Elf(ElfWriter().add(".note", empty, type=7).data()).build_id is None
    huge = struct.pack("<III", 0xFFFFFFFF, 0xFFFFFFFF, 3) * 1000
    assert Elf(ElfWriter().add(".note", huge, type=7).data()).build_id is None


def test_an_unwind_table_with_more_entries_than_bytes_is_said() -> None:
    table = bytes([1, 0x1B, 3, 0x3B]) + struct.pack("<iI", 0, 0xFFFFFFFF) + bytes(64)
    named = bounded(ElfWriter().segment(0, 0x1000, 0x1000).add(".eh_frame_hdr", table, address=0x2000).data())
    assert named is not None
    assert named.problems == ["unwind table: unwind table truncated"]


def test_line_tables_made_to_grow_stay_small() -> None:
    """A long folder, many short file names, each used once: names would be thousands of times the table."""
    folder = b"d" * 4000 + b"\0"
    count = 20000
    files = b"".join(b"f\0\1\0\0" for _ in range(count))
    program = b"".join(bytes([4, number & 0x7F | 0x80, number >> 7 & 0x7F | 0x80, number >> 14, 20])
                       for number in range(1, count))
    line = line_table(4, folder + b"\0" + files + b"\0", AT_1000 + program + bytes([0, 1, 1]))
    named = bounded(ElfWriter().segment(0, 0x1000, 1 << 20).symbols([("f", 0x1000, 1, 0x12)])
                    .add(".debug_line", line).data())
    assert named is not None
    assert named.problems == ["line table: too large, not all of it was read"]
    assert named.lines is not None
    assert len(named.lines.addresses) == count


def test_texts_that_do_not_end_cost_no_more_than_a_path() -> None:
    strings = b"s" * (1 << 20)
    count = 30000
    entries = struct.pack("<I", 0) * count
    number = bytes([count & 0x7F | 0x80, count >> 7 & 0x7F | 0x80, count >> 14])
    table = bytes([1, 1, 0x1F]) + number + entries  # of one attribute: a path, in .debug_line_str
    bounded(ElfWriter().segment(0, 0x1000, 1 << 20).add(".debug_line_str", strings)
            .add(".debug_line", line_table(5, table + table, b"")).data())
