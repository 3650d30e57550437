# SPDX-License-Identifier: MIT
"""Functions looked up in symbol tables as they are, held to pyelftools, which reads them one by one."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from hypothesis import given
from hypothesis import strategies as st

from ptweave.data.errors import BadInput
from ptweave.wrapper.elf_functions import Function, Functions
from ptweave.wrapper.elf_places import Places
from ptweave.wrapper.elf_symbols import read_tables
from support.elf_symbols import symbols

SOURCE = """
#define LOCAL static __attribute__((noinline))
LOCAL int twice(int x) { return 2 * x; }
int same(int x) { return twice(x); }
int almost_same(int x) { return twice(x) + 1; }  /* its name ends in the other's */
int data = 3;
__asm__(".type same.part.0, @function\\n.set same.part.0, almost_same\\n");
int main(void) { return same(data) + almost_same(data); }
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("functions")
    (folder / "a.c").write_text(SOURCE)
    subprocess.run(["gcc", "-O1", "-o", folder / "a", folder / "a.c"], check=True)
    return folder / "a"


def read(path: Path) -> tuple[Functions, dict[str, Function]]:
    """Ours, and what pyelftools says: of a name that several have, the first."""
    expected: dict[str, Function] = {}
    with path.open("rb") as file:
        elf = ELFFile(file)
        for symbol in symbols(elf):
            if symbol["st_info"]["type"] in ("STT_FUNC", "STT_LOOS") and symbol["st_value"]:
                expected.setdefault(symbol.name, Function(symbol["st_value"], symbol["st_size"]))
        return Functions(elf, file), expected


@pytest.mark.parametrize("path", ["", "/usr/lib/x86_64-linux-gnu/libc.so.6", "/usr/bin/python3"])
def test_each_name_is_found_where_a_reading_one_by_one_has_it(path: str, program: Path) -> None:
    ours, expected = read(Path(path) if path else program)
    assert len(expected) > 3
    names = random.Random(1).sample(sorted(expected), min(300, len(expected)))
    assert {name: ours.find(name) for name in names} == {name: expected[name] for name in names}
    for name in ("", "no_such_function", names[0] + "x", names[0][1:] + "\0"):
        assert (ours.find(name) is not None) == (name in expected)


def test_a_name_in_a_thousand_places_is_found_in_the_first_symbol_that_has_it(tmp_path: Path) -> None:
    lines = "".join(f".globl f{i}_x\n.type f{i}_x, @function\nf{i}_x: ret\n" for i in range(1000))
    (tmp_path / "x.s").write_text(f".text\n{lines}.globl _x\n.type _x, @function\n_x: ret\n")
    subprocess.run(["gcc", "-shared", "-nostdlib", "-Wl,-O0", "-o", tmp_path / "x.so", tmp_path / "x.s"], check=True)
    ours, expected = read(tmp_path / "x.so")
    assert ours.find("_x") == expected["_x"] is not None
    assert ours.find("f7_x") == expected["f7_x"] != expected["_x"]


def test_probes_are_found_without_a_library_that_makes_threads() -> None:
    """Privileges can be given up while there is one thread, and what to keep of them depends on the probes."""
    script = ("import sys; from ptweave.wrapper import uprobes; uprobes.parse('/bin/sh:0x1000'); "
              "uprobes.parse('/usr/lib/x86_64-linux-gnu/libc.so.6:getenv'); print('numpy' in sys.modules)")
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True,
                          ).stdout == "False\n"


def test_the_end_of_another_name_and_data_are_not_functions_and_parts_are_found(program: Path) -> None:
    ours, expected = read(program)
    assert ours.find("same") == expected["same"] != ours.find("almost_same") == expected["almost_same"]
    assert ours.find("ame") is None and ours.find("data") is None
    assert ours.named("same") == ["same", "same.part.0"]
    assert ours.named("same.part") == ["same.part.0"]
    assert ours.named("sam") == []


def test_a_library_with_a_hundred_thousand_names_is_read_in_a_moment(tmp_path: Path) -> None:
    lines = "".join(f".globl function_number_{i}\n.type function_number_{i}, @function\nfunction_number_{i}: ret\n"
                    for i in range(100_000))
    (tmp_path / "many.s").write_text(f".text\n{lines}")
    subprocess.run(["gcc", "-shared", "-nostdlib", "-o", tmp_path / "many.so", tmp_path / "many.s"], check=True)
    began = time.process_time()
    places = Places(str(tmp_path / "many.so"))
    found = [places.find(f"function_number_{i}") for i in (0, 99_999)]
    assert time.process_time() - began < 0.5  # one by one it takes 4 s
    assert None not in found and found[1] == found[0] + 99_999  # type: ignore[operator]


def test_a_file_in_which_every_section_says_that_it_is_the_symbol_table_has_one(program: Path, tmp_path: Path) -> None:
    """Each of a hundred thousand would be as large as the file."""
    raw = bytearray(program.read_bytes())
    begin, (size, count) = struct.unpack_from("<Q", raw, 40)[0], struct.unpack_from("<HH", raw, 58)
    for number in range(1, count):
        struct.pack_into("<I", raw, begin + number * size + 4, 2)  # SHT_SYMTAB
    (tmp_path / "many").write_bytes(raw)
    with (tmp_path / "many").open("rb") as file:
        assert count > 20 and len(read_tables(ELFFile(file), file)) <= 1


@pytest.mark.property
@given(st.data())
def test_a_damaged_file_is_told_or_read_and_nothing_else(program: Path, tmp_path_factory: pytest.TempPathFactory,
                                                         data: st.DataObject) -> None:
    raw = bytearray(program.read_bytes())
    for _ in range(data.draw(st.integers(1, 20))):
        header = data.draw(st.booleans())  # the section headers are at the end
        at = data.draw(st.integers(0, 63) | st.integers(len(raw) - 31 * 64, len(raw) - 1) if header else
                       st.integers(0, len(raw) - 1))
        raw[at] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged"
    path.write_bytes(raw[:data.draw(st.integers(len(raw) // 2, len(raw)) | st.just(len(raw)))])
    try:
        places = Places(str(path))
        places.find("same"), places.named("same")
        places.after_jump("same", "here")
    except BadInput:
        return
