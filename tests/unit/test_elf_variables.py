# SPDX-License-Identifier: MIT
"""Variables looked up in symbol tables as they are, held to pyelftools, which reads them one by one, and to c++filt."""

from __future__ import annotations

import random
import subprocess
import time
from collections import defaultdict
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from ptweave.wrapper.watches.variables import Symbol, Variables
from support.elf_symbols import symbols

SOURCE = """
namespace outer {
int counter = 1;
static int hidden = 2;
namespace inner { int counter = 3; thread_local int own = 4; }
namespace { int nobody_elses = 5; }
int use() { return hidden + nobody_elses++ + inner::own + hidden++; }
struct S { static int shared; };
int S::shared = 6;
}
int counter = 7, another_counter = 8;
static int alone = 9;
int main() { return outer::use() + counter + alone++ + another_counter; }
"""
LIBRARIES = ("libc.so.6", "libstdc++.so.6")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("variables")
    (folder / "a.cc").write_text(SOURCE)
    subprocess.run(["g++", "-O0", "-o", folder / "a", folder / "a.cc"], check=True)
    return folder / "a"


def one_by_one(path: Path) -> dict[str, set[Symbol]]:
    """By their names as the file has them, without versions."""
    found: dict[str, set[Symbol]] = defaultdict(set)
    with path.open("rb") as file:
        for symbol in symbols(ELFFile(file)):
            kind = symbol["st_info"]["type"]
            if kind in ("STT_OBJECT", "STT_TLS", "STT_COMMON") and symbol["st_shndx"] != "SHN_UNDEF":
                found[symbol.name.partition("@")[0]].add(
                    Symbol(symbol["st_value"], symbol["st_size"], kind == "STT_TLS"))
    return found


@pytest.mark.parametrize("name", ["", *LIBRARIES])
def test_each_name_is_found_where_a_reading_one_by_one_has_it(name: str, program: Path) -> None:
    path = Path("/usr/lib/x86_64-linux-gnu", name).resolve() if name else program
    ours, expected = Variables(path), one_by_one(path)
    assert len(expected) > 5
    for one in random.Random(1).sample(sorted(expected), min(200, len(expected))):
        found = ours.find(one)
        assert set(found) == expected[one] and len(found) == len(set(found))
        for other in (one + "x", one[1:], "no_such_variable"):
            assert set(ours.find(other)) == expected.get(other, set())


def test_variables_of_cxx_are_found_by_the_names_that_they_have_in_the_source(program: Path) -> None:
    expected = one_by_one(program)
    names = subprocess.run(["c++filt"], input="\n".join(expected), capture_output=True, text=True, check=True).stdout
    plain: dict[str, set[Symbol]] = defaultdict(set)
    for linked, name in zip(expected, names.split("\n"), strict=False):
        plain[name] |= expected[linked]
    ours = Variables(program)
    for name in ("counter", "outer::counter", "outer::inner::counter", "outer::hidden", "outer::inner::own",
                 "outer::(anonymous namespace)::nobody_elses", "outer::S::shared", "another_counter"):
        assert set(ours.find(name)) == plain[name] != set(), name
    assert ours.find("outer::inner::own")[0].thread and not ours.find("outer::counter")[0].thread
    for name in ("inner::counter", "outer::inner", "outer::", "::counter", "", "outer::use", "main", "outer"):
        assert ours.find(name) == [], name


def test_a_library_with_a_hundred_thousand_variables_is_read_in_a_moment(tmp_path: Path) -> None:
    lines = "".join(f".globl variable_{i}\n.type variable_{i}, @object\n.size variable_{i}, 4\nvariable_{i}: .long 0\n"
                    for i in range(100_000))
    (tmp_path / "many.s").write_text(f".data\n{lines}")
    subprocess.run(["gcc", "-shared", "-nostdlib", "-o", tmp_path / "many.so", tmp_path / "many.s"], check=True)
    began = time.process_time()
    ours = Variables(tmp_path / "many.so")
    first, last = ours.find("variable_0"), ours.find("variable_99999")
    assert time.process_time() - began < 0.5  # one by one it takes 8 s
    assert [one.address - first[0].address for one in (*first, *last)] == [0, 4 * 99_999]
