# SPDX-License-Identifier: MIT
"""Source lines: every version of DWARF, held against another reader."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile

from ptweave.decode.elf import Addresses, BadElf, Elf
from ptweave.decode.lines import Lines, lines_of
from support.elf_writer import ElfWriter, line_table

SOURCE = """
#include "part.h"
int twice(int x)
{
    int sum = 0;
    for (int i = 0; i < x; i++)
        sum += from_header(i);
    return sum;
}
int main(int argc, char **argv)
{
    (void)argv;
    return twice(argc);
}
"""
HEADER = "__attribute__((noinline)) static int from_header(int i)\n{\n    return i * 2;\n}\n"


def giving(addresses: Iterable[int] | None) -> Callable[[], Addresses] | None:
    """What gives the addresses that are wanted; None: all are."""
    return None if addresses is None else lambda: np.array(list(addresses), np.uint64)


def write_sources(folder: Path) -> None:
    (folder / "sub").mkdir(exist_ok=True)
    (folder / "source.c").write_text(SOURCE)
    (folder / "sub" / "part.h").write_text(HEADER)


def build(folder: Path, *flags: str, compiler: str = "gcc") -> Path:
    write_sources(folder)
    if "-m32" in flags:  # Debian's gcc has no 32-bit libraries unless asked for: the code alone will do
        flags = (*flags, "-nostdlib", "-static", "-Wl,-e,main", "-fno-stack-protector", "-fno-pic")
    program = folder / "program"
    subprocess.run([compiler, "-O1", "-o", program, folder / "source.c", f"-I{folder / 'sub'}", *flags], check=True)
    return program


def llvm_lines(program: Path, addresses: list[int]) -> list[tuple[str, int]]:
    """LLVM's reading of the line table (binutils 2.40 mixes up the files of DWARF 5)."""
    out = subprocess.run(["llvm-symbolizer", "--no-inlines", "--functions=none", f"--obj={program}",
                          "--output-style=GNU"], input="\n".join(map(hex, addresses)), capture_output=True, text=True,
                         check=True).stdout
    found = []
    for line in out.splitlines():
        file, _, number = line.split(" (")[0].rpartition(":")
        found.append((os.path.normpath(file), int(number)) if number != "0" else ("??", 0))
    return found


def ours(table: Lines, addresses: list[int]) -> list[tuple[str, int]]:
    files, lines = table.find(np.array(addresses, np.uint64))
    return [(os.path.normpath(table.names[file]) if file >= 0 else "??", line)
            for file, line in zip(files.tolist(), lines.tolist(), strict=True)]


@pytest.mark.skipif(shutil.which("llvm-symbolizer") is None, reason="llvm-symbolizer (Debian: llvm) is not installed")
@pytest.mark.parametrize("version", [2, 3, 4, 5])
@pytest.mark.parametrize("more", [(), ("-O2",), ("-gz=zlib",), ("-gz=zlib-gnu",), ("-gsplit-dwarf",), ("-m32",),
                                  ("-ffunction-sections", "-Wl,--gc-sections")])
def test_lines_agree_with_llvm(tmp_path: Path, version: int, more: tuple[str, ...]) -> None:
    agree(build(tmp_path, f"-gdwarf-{version}", *more), tmp_path)


@pytest.mark.skipif(shutil.which("llvm-symbolizer") is None, reason="llvm-symbolizer (Debian: llvm) is not installed")
@pytest.mark.parametrize("version", [2, 3, 4, 5])
def test_lines_of_clang_agree_with_llvm(tmp_path: Path, version: int) -> None:
    agree(build(tmp_path, f"-gdwarf-{version}", compiler="clang"), tmp_path)


@pytest.mark.skipif(shutil.which("llvm-symbolizer") is None, reason="llvm-symbolizer (Debian: llvm) is not installed")
def test_lines_of_files_compiled_in_another_folder_agree_with_llvm(tmp_path: Path) -> None:
    """The name of the source is relative: the folder comes from the unit."""
    for version in (2, 4, 5):
        folder = tmp_path / str(version)
        (folder / "sub").mkdir(parents=True)
        write_sources(folder)
        subprocess.run(["gcc", "-O1", f"-gdwarf-{version}", "-Isub", "-o", "program", "source.c"], cwd=folder,
                       check=True)
        agree(folder / "program", folder)


def agree(program: Path, folder: Path) -> None:
    elf = Elf.open(program)
    table = lines_of(elf)
    assert table is not None
    assert (table.bad_units, table.full) == (0, False)
    text = elf.section(".text")
    assert text is not None
    addresses = list(range(text.address, text.address + text.size))
    reference = llvm_lines(program, addresses)
    assert ours(table, addresses) == reference
    for wanted in (addresses, addresses[::7], addresses[3:5], addresses[-1:], []):
        few = lines_of(elf, wanted=giving(wanted))
        assert few is not None
        assert len(few.addresses) <= 2 * len(wanted)
        assert ours(few, wanted) == ours(table, wanted)
    assert {str(folder / "source.c"), str(folder / "sub" / "part.h")} <= {file for file, _ in reference}


@pytest.mark.parametrize("version", [4, 5])
def test_rows_agree_with_another_reader(tmp_path: Path, version: int) -> None:
    program = build(tmp_path, f"-gdwarf-{version}")
    table = lines_of(Elf.open(program))
    assert table is not None
    with program.open("rb") as file:
        dwarf = ELFFile(file).get_dwarf_info()
        rows = []
        for unit in dwarf.iter_CUs():
            program_of_unit = dwarf.line_program_for_CU(unit)
            rows += [(e.state.address, e.state.line, e.state.end_sequence)
                     for e in program_of_unit.get_entries() if e.state]
    mine = zip(table.addresses.tolist(), table.lines.tolist(), table.ends.tolist(), strict=True)
    assert sorted(mine) == sorted(rows)


def test_names_are_whole_paths(tmp_path: Path) -> None:
    table = lines_of(Elf.open(build(tmp_path, "-gdwarf-5")))
    assert table is not None
    assert str(tmp_path / "sub" / "part.h") in set(table.names)


def test_without_debug_information_there_is_no_table(tmp_path: Path) -> None:
    assert lines_of(Elf.open(build(tmp_path))) is None


def section(tmp_path: Path) -> bytes:
    elf = Elf.open(build(tmp_path, "-gdwarf-4"))
    found = elf.section(".debug_line")
    assert found is not None
    return bytes(elf.bytes_of(found))


def wrap(data: bytes) -> Elf:
    return Elf(ElfWriter().segment(0, 0, 1 << 20).add(".debug_line", data).data())


def test_a_malformed_unit_is_counted_and_the_next_one_is_read(tmp_path: Path) -> None:
    good = section(tmp_path)
    bad = b"\x08\0\0\0" + b"\x09\0" + b"\xff" * 6
    alone, both = lines_of(wrap(good)), lines_of(wrap(bad + good))
    assert alone is not None
    assert both is not None
    assert both.bad_units == alone.bad_units + 1
    assert both.lines.tolist() == alone.lines.tolist()
    assert len(alone.lines) > 5


def test_truncated_tables_give_what_they_hold(tmp_path: Path) -> None:
    good = section(tmp_path)
    for size in range(1, len(good), 7):
        table = lines_of(wrap(good[:size]))
        assert table is not None


def test_tables_that_claim_huge_counts_end_at_once() -> None:
    # version 5, an entry format without attributes and 2^63 directories of no bytes
    body = b"\x05\0\x08\0" + (40).to_bytes(4, "little") + b"\x01\x01\x01\xfb\x0e\x0d" + bytes(12) + b"\0" + (
        b"\xff" * 9 + b"\x01") + bytes(20)
    table = lines_of(wrap(len(body).to_bytes(4, "little") + body))
    assert table is not None
    assert table.bad_units == 1


def random_program(chance: random.Random) -> bytes:
    """A line program of ordinary and odd steps, in sequences that do not overlap."""
    out, address = b"", 0x1000
    for _ in range(chance.randrange(1, 6)):
        address += chance.randrange(16)
        out += bytes([0, 9, 2]) + address.to_bytes(8, "little")
        for _ in range(chance.randrange(12)):
            step = chance.randrange(0, 9)
            kind = chance.randrange(5)
            address += step
            if kind == 0:
                out += bytes([2, step, 1])  # advance_pc, copy
            elif kind == 1:
                out += bytes([2, step, 3, chance.choice((1, 2, 0x7F)), 1])
            elif kind == 2:
                out += bytes([9, step, 0, 1])  # fixed_advance_pc
            elif kind == 3:
                out += bytes([2, step, 4, chance.randrange(4), 1])
            else:
                address += 1
                out += bytes([2, step, 13 + 14 + 5])  # special: one byte on, some lines on
        out += bytes([0, 1, 1])
    return out


def test_a_table_of_wanted_addresses_says_the_same_as_the_whole_one() -> None:
    chance, known = random.Random(12), 0
    for _ in range(1500):
        elf = wrap(line_table(4, b"\0" + b"a\0\0\0\0" + b"b\0\0\0\0" + b"\0", random_program(chance)))
        whole = lines_of(elf)
        wanted = sorted(chance.sample(range(0xFF0, 0x1200), chance.randrange(40)))
        few = lines_of(elf, wanted=giving(wanted))
        assert whole is not None
        assert few is not None
        assert (whole.bad_units, few.bad_units) == (0, 0)
        assert ours(few, wanted) == ours(whole, wanted)
        known += sum(line != 0 for _, line in ours(few, wanted))
    assert known > 1000


def test_code_the_linker_dropped_hides_no_lines(tmp_path: Path) -> None:
    """Its tables begin at address 0, and are longer here than the distance to the code."""
    source = tmp_path / "source.c"
    source.write_text("int main(int c, char **v)\n{\n    (void)v;\n    return c * 3;\n}\nint x;\nvoid unused(void)\n{\n"
                      + "    x = x * 7 + 3;\n" * 5000 + "}\n")
    program = tmp_path / "program"
    subprocess.run(["gcc", "-O0", "-g", "-ffunction-sections", "-Wl,--gc-sections", "-o", program, source], check=True)
    listed = subprocess.run(["nm", "-S", program], capture_output=True, text=True, check=True).stdout
    start, size = next((int(fields[0], 16), int(fields[1], 16)) for fields in map(str.split, listed.splitlines())
                       if fields[-1] == "main")
    assert " unused" not in listed
    elf = Elf.open(program)
    for wanted in (None, np.arange(0, start + size, dtype=np.uint64)):
        table = lines_of(elf, wanted=giving(wanted))
        assert table is not None
        assert {line for _, line in ours(table, list(range(start, start + size)))} == {2, 4, 5}
        assert {line for _, line in ours(table, list(range(elf.lowest, start)))} == {0}


def test_noise_never_crashes() -> None:
    chance = random.Random(4)
    for _ in range(300):
        noise = chance.randbytes(chance.randrange(1, 200))
        try:
            lines_of(wrap(len(noise).to_bytes(4, "little") + chance.choice((b"\x02", b"\x05")) + b"\0" + noise))
        except BadElf:
            continue
