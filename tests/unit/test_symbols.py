# SPDX-License-Identifier: MIT
"""Functions of ELF files: which name an address gets, PLT stubs, stripped files, separate debug files."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from ptweave.decode.demangle import MAX_NAME, demangle
from ptweave.decode.elf import Elf
from ptweave.decode.naming import read_names
from ptweave.decode.symbols import Functions, debug_file, functions_of
from ptweave.decode.unwind import unwind_ranges
from support.assembler import compile_c
from support.elf_writer import ElfWriter

LIBC = Path("/usr/lib/x86_64-linux-gnu/libc.so.6")
GLOBAL_FUNC, WEAK_FUNC, LOCAL_FUNC, GLOBAL_LABEL, LOCAL_LABEL, OBJECT = 0x12, 0x22, 0x02, 0x10, 0x00, 0x11

PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
__attribute__((noinline)) static int helper(int x) { return x * 3 + (x > 4 ? 1 : 2); }
__attribute__((noinline)) int exported(int x) { return helper(x) + rand(); }
int main(int argc, char **argv) { printf("%d\\n", exported(argc)); return argv == 0; }
"""


def named(symbols: list[tuple[str, int, int, int]], *addresses: int) -> list[str | None]:
    """Names of addresses in a file with these symbols and an executable segment at 0x1000."""
    functions = functions_of(Elf(ElfWriter().segment(0, 0x1000, 0x10000).symbols(symbols).data()))
    return names(functions, *addresses)


def names(functions: Functions, *addresses: int) -> list[str | None]:
    found = functions.find(np.array(addresses, np.uint64)).tolist()
    return [functions.name(index) if index >= 0 else None for index in found]


def test_an_address_belongs_to_the_function_around_it() -> None:
    symbols = [("b", 0x2000, 0x10, GLOBAL_FUNC), ("a", 0x1000, 0x10, GLOBAL_FUNC)]
    assert named(symbols, 0xFFF, 0x1000, 0x100F, 0x1010, 0x2008) == [None, "a", "a", None, "b"]


def test_a_symbol_without_a_size_reaches_to_the_next() -> None:
    symbols = [("_start", 0x1000, 0, GLOBAL_LABEL), ("a", 0x1100, 0x10, GLOBAL_FUNC)]
    assert named(symbols, 0x10FF, 0x1100) == ["_start", "a"]


def test_a_function_inside_another_has_its_own_addresses_only() -> None:
    symbols = [("outer", 0x1000, 0x100, GLOBAL_FUNC), ("inner", 0x1040, 0x10, GLOBAL_FUNC)]
    assert named(symbols, 0x103F, 0x1048, 0x1050, 0x10FF, 0x1100) == ["outer", "inner", "outer", "outer", None]


@pytest.mark.parametrize(("infos", "best"), [
    ((GLOBAL_FUNC, WEAK_FUNC, LOCAL_FUNC, GLOBAL_LABEL), GLOBAL_FUNC), ((LOCAL_FUNC, WEAK_FUNC), WEAK_FUNC),
    ((LOCAL_LABEL, LOCAL_FUNC), LOCAL_FUNC), ((GLOBAL_LABEL, LOCAL_FUNC), LOCAL_FUNC),
])
def test_of_several_names_the_best_is_taken(infos: tuple[int, ...], best: int) -> None:
    assert named([(f"i{info}", 0x1000, 0x10, info) for info in infos], 0x1000) == [f"i{best}"]


def test_data_and_undefined_symbols_name_nothing() -> None:
    assert named([("object", 0x1000, 0x10, OBJECT), ("undefined", 0, 0, GLOBAL_FUNC),
                  ("elsewhere", 0x90000, 0x10, GLOBAL_FUNC)], 0x1000, 0x90000) == [None, None]


def test_libc_agrees_with_nm() -> None:
    functions = functions_of(Elf.open(LIBC))
    listed = subprocess.run(["nm", "-D", "--defined-only", LIBC], capture_output=True, text=True, check=True).stdout
    by_address: dict[int, set[str]] = {}
    for line in listed.splitlines():
        address, kind, name = line.split()
        if kind in "TWit":
            by_address.setdefault(int(address, 16), set()).add(name.split("@")[0])
    addresses = sorted(by_address)
    found = names(functions, *addresses)
    wrong = [(hex(address), name) for address, name in zip(addresses, found, strict=True)
             if name not in by_address[address]]
    assert len(addresses) > 2000
    assert wrong == []


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    source = folder / "program.c"
    source.write_text(PROGRAM)
    return compile_c(source, folder / "program", "-g", "-fcf-protection=none", "-Wl,-z,lazy")


@pytest.mark.parametrize("flags", [("-fcf-protection=none", "-Wl,-z,lazy"), ("-fcf-protection", "-Wl,-z,lazy"),
                                   ("-Wl,-z,now",), ("-no-pie",), ("-fno-plt",)])
def test_plt_stubs_are_named_after_what_they_call(tmp_path: Path, flags: tuple[str, ...]) -> None:
    source = tmp_path / "program.c"
    source.write_text(PROGRAM)
    program = compile_c(source, tmp_path / "program", *flags)
    functions = functions_of(Elf.open(program))
    stubs = {name for name in (functions.name(index) for index in range(len(functions.names)))
             if name.endswith("@plt")}
    assert stubs >= (set() if "-fno-plt" in flags else {"printf@plt", "rand@plt"})
    listed = subprocess.run(["objdump", "-d", program], capture_output=True, text=True, check=True).stdout
    for line in listed.splitlines():
        if line.endswith("@plt>:"):
            address, name = line.split()
            assert names(functions, int(address, 16)) == [name.strip("<>:")]


def test_stripped_files_get_names_from_unwind_tables(tmp_path: Path, built: Path) -> None:
    full = functions_of(Elf.open(built))
    start = {full.name(i): int(full.starts[i]) for i in range(len(full.names))}
    stripped = tmp_path / "stripped"
    subprocess.run(["strip", "-o", stripped, built], check=True)
    functions = read_names(Elf.open(stripped), None, tmp_path).functions
    assert functions is not None
    found = names(functions, start["helper"], start["main"] + 3, start["exported"] + 1)
    assert found == [f"sub_{start['helper']:x}", f"sub_{start['main']:x}", f"sub_{start['exported']:x}"]
    assert "printf@plt" in {functions.name(index) for index in range(len(functions.names))}


def test_unwind_ranges_are_the_functions(built: Path) -> None:
    elf = Elf.open(built)
    functions = functions_of(elf)
    starts, ends = unwind_ranges(elf)
    ranges = dict(zip(starts.tolist(), ends.tolist(), strict=True))
    for name in ("helper", "exported", "main"):
        index = [functions.name(i) for i in range(len(functions.names))].index(name)
        assert ranges[int(functions.starts[index])] == int(functions.ends[index])


def test_a_separate_debug_file_is_found_by_build_id(tmp_path: Path, built: Path) -> None:
    build_id = Elf.open(built).build_id
    assert build_id
    root = tmp_path / "debug"
    (root / ".build-id" / build_id[:2]).mkdir(parents=True)
    subprocess.run(["objcopy", "--only-keep-debug", built,
                    root / ".build-id" / build_id[:2] / f"{build_id[2:]}.debug"], check=True)
    stripped = tmp_path / "stripped"
    subprocess.run(["strip", "-o", stripped, built], check=True)
    known = read_names(Elf.open(stripped), "/usr/bin/program", root)
    assert known.functions is not None
    assert known.lines is not None
    full = functions_of(Elf.open(built))
    index = [full.name(i) for i in range(len(full.names))].index("helper")
    address = int(full.starts[index])
    assert names(known.functions, address) == ["helper"]
    files, lines = known.lines.find(np.array([address], np.uint64))
    assert (known.lines.names[int(files[0])].endswith("program.c"), lines.tolist()) == (True, [4])


def test_a_debug_file_of_another_build_is_not_believed(tmp_path: Path, built: Path) -> None:
    elf = Elf.open(built)
    assert elf.build_id
    place = tmp_path / ".build-id" / elf.build_id[:2]
    place.mkdir(parents=True)
    shutil.copy("/bin/true", place / f"{elf.build_id[2:]}.debug")
    assert debug_file(elf, None, tmp_path) is None


def test_debug_link_beside_the_path(tmp_path: Path, built: Path) -> None:
    folder = tmp_path / "debug" / "usr" / "bin"
    folder.mkdir(parents=True)
    subprocess.run(["objcopy", "--only-keep-debug", built, folder / "program.debug"], check=True)
    stripped = tmp_path / "stripped"
    subprocess.run(["objcopy", "--strip-all", f"--add-gnu-debuglink={folder / 'program.debug'}", built, stripped],
                   check=True)
    elf = Elf.open(stripped)
    assert elf.debug_link == "program.debug"
    assert debug_file(elf, "/usr/bin/program", tmp_path / "debug") is not None
    assert debug_file(elf, "/usr/lib/program", tmp_path / "debug") is None


@pytest.mark.parametrize(("mangled", "plain"), [
    ("main", "main"), ("_start", "_start"), ("", ""),
    ("_ZN3foo3barEi", "foo::bar(int)"),
    ("_ZNSt6vectorIiSaIiEE9push_backEOi", "std::vector<int, std::allocator<int> >::push_back(int&&)"),
    ("_ZN3foo3barEi@plt", "foo::bar(int)@plt"),
    ("_ZN5alloc3vec12Vec$LT$T$GT$4push17h1234567890abcdefE", "alloc::vec::Vec<T>::push"),
    ("_RNvNtCs1234_7mycrate3foo3bar", "mycrate::foo::bar"),
    ("_ZN", "_ZN"), ("_Z", "_Z"), ("_R", "_R"), ("_RNvC", "_RNvC"), ("_ZN3fo", "_ZN3fo"),
])
def test_names_are_demangled(mangled: str, plain: str) -> None:
    assert demangle(mangled) == plain


@pytest.mark.parametrize("name", ["_Z" + "P" * (MAX_NAME + 1), "_ZN" + "3foo" * 10000 + "E", "_R" + "B_" * 1000,
                                  "_ZN\N{SNOWMAN}17h1234567890abcdefE", "_RINvB0_B0_B0_B0_B0_B0_B0_B0_"])
def test_hostile_names_stay_as_they_are(name: str) -> None:
    assert demangle(name) == name
