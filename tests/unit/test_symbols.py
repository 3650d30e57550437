# SPDX-License-Identifier: MIT
"""Functions of ELF files: which name an address gets, PLT stubs, stripped files, separate debug files."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from ptweave.decode.elf import Elf
from ptweave.decode.functions import Functions
from ptweave.decode.naming import read_names
from ptweave.decode.symbols import SYMBOL_64, exports_of, functions_of
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


def test_behind_the_innermost_of_three_functions_the_middle_one_goes_on() -> None:
    symbols = [("outer", 0x1000, 0x100, GLOBAL_FUNC), ("middle", 0x1020, 0x80, GLOBAL_FUNC),
               ("inner", 0x1040, 0x10, GLOBAL_FUNC)]
    assert named(symbols, 0x104F, 0x1050, 0x109F, 0x10A0) == ["inner", "middle", "middle", "outer"]


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


def test_what_libc_exports_is_what_nm_lists_as_its_global_code() -> None:
    listed = subprocess.run(["nm", "-D", "--defined-only", LIBC], capture_output=True, text=True, check=True).stdout
    named = {words[2].partition("@")[0] for words in map(str.split, listed.splitlines()) if words[1] in "TWi"}
    assert exports_of(Elf.open(LIBC)) == named
    assert {"malloc", "time"} <= named and "_int_malloc" not in named


@pytest.mark.parametrize("flags", [("-fcf-protection=none", "-Wl,-z,lazy"), ("-fcf-protection", "-Wl,-z,lazy"),
                                   ("-Wl,-z,now",), ("-no-pie",), ("-fno-plt",)])
def test_plt_stubs_are_named_after_what_they_call(tmp_path: Path, flags: tuple[str, ...]) -> None:
    source = tmp_path / "program.c"
    source.write_text(PROGRAM)
    program = compile_c(source, tmp_path / "program", *flags)
    functions = functions_of(Elf.open(program))
    stubs = {name for name in (functions.name(index) for index in range(len(functions)))
             if name.endswith("@plt")}
    assert stubs >= (set() if "-fno-plt" in flags else {"printf@plt", "rand@plt"})
    listed = subprocess.run(["objdump", "-d", program], capture_output=True, text=True, check=True).stdout
    for line in listed.splitlines():
        if line.endswith("@plt>:"):
            address, name = line.split()
            assert names(functions, int(address, 16)) == [name.strip("<>:")]


def test_stripped_files_get_names_from_unwind_tables(tmp_path: Path, built: Path) -> None:
    full = functions_of(Elf.open(built))
    start = {full.name(i): int(full.starts[i]) for i in range(len(full))}
    stripped = tmp_path / "stripped"
    subprocess.run(["strip", "-o", stripped, built], check=True)
    functions = read_names(Elf.open(stripped), None).functions
    assert functions is not None
    found = names(functions, start["helper"], start["main"] + 3, start["exported"] + 1)
    assert found == [f"sub_{start['helper']:x}", f"sub_{start['main']:x}", f"sub_{start['exported']:x}"]
    assert "printf@plt" in {functions.name(index) for index in range(len(functions))}


def test_unwind_ranges_are_the_functions(built: Path) -> None:
    elf = Elf.open(built)
    functions = functions_of(elf)
    starts, sizes = unwind_ranges(elf)
    ranges = dict(zip(starts.tolist(), (starts + sizes).tolist(), strict=True))
    for name in ("helper", "exported", "main"):
        index = [functions.name(i) for i in range(len(functions))].index(name)
        assert ranges[int(functions.starts[index])] == int(functions.ends[index])


def test_a_label_inside_a_function_names_nothing() -> None:
    symbols = [("f", 0x1000, 0x100, LOCAL_FUNC), ("label", 0x1040, 0, GLOBAL_LABEL), ("entry", 0x1080, 0, GLOBAL_FUNC)]
    assert named(symbols, 0x1040, 0x1050, 0x1080, 0x10F0) == ["f", "f", "entry", "entry"]


def test_a_symbol_without_a_size_ends_with_its_section() -> None:
    elf = Elf(ElfWriter().segment(0, 0x1000, 0x10000).add(".init", bytes(0x20), address=0x1000)
              .symbols([("_init", 0x1000, 0, GLOBAL_FUNC)]).data())
    assert names(functions_of(elf), 0x101F, 0x1020) == ["_init", None]


def test_a_name_without_a_size_takes_the_size_of_another_at_its_address() -> None:
    symbols = [("weak", 0x1000, 0x20, WEAK_FUNC), ("global", 0x1000, 0, GLOBAL_FUNC), ("far", 0x1F00, 1, GLOBAL_FUNC)]
    assert named(symbols, 0x101F, 0x1020) == ["global", None]


def test_plain_names_come_before_reserved_ones_of_the_same_kind() -> None:
    assert named([("__libc_malloc", 0x1000, 0x10, GLOBAL_FUNC), ("malloc", 0x1000, 0x10, GLOBAL_FUNC)],
                 0x1000) == ["malloc"]
    assert named([("__libc_x", 0x1000, 0x10, GLOBAL_FUNC), ("x", 0x1000, 0x10, WEAK_FUNC)], 0x1000) == ["__libc_x"]
    assert named([("_ZN1aE", 0x1000, 0x10, GLOBAL_FUNC), ("z", 0x1000, 0x10, GLOBAL_FUNC)], 0x1000) == ["_ZN1aE"]


def test_an_ifunc_names_its_resolver_unless_a_function_does() -> None:
    ifunc = 0x1A
    assert named([("memcpy", 0x1000, 0x10, ifunc)], 0x1008) == ["memcpy"]
    assert named([("memcpy", 0x1000, 0x10, ifunc), ("resolve", 0x1000, 0x10, GLOBAL_FUNC)], 0x1008) == ["resolve"]


def covering(program: Path) -> list[tuple[int, int, str]]:
    """Functions with a size, as readelf lists them."""
    listed = subprocess.run(["readelf", "-sW", program], capture_output=True, text=True, check=True).stdout
    found = []
    for line in listed.splitlines():
        fields = line.split()
        if len(fields) >= 8 and fields[3] in ("FUNC", "IFUNC") and fields[6] != "UND" and int(fields[2], 0):
            found.append((int(fields[1], 16), int(fields[2], 0), fields[7].split("@")[0]))
    return found


CXX_PROGRAM = """
#include <map>
#include <string>
#include <vector>
namespace shop { template <typename T> struct Cart { std::vector<T> items; __attribute__((noinline)) void add(T t)
{ items.push_back(t); } }; }
static __attribute__((noinline)) int count(const std::map<std::string, int> &m)
{ int n = 0; for (auto &p : m) n += p.second; return n; }
int main(int argc, char **argv)
{
    std::map<std::string, int> m;
    shop::Cart<std::string> cart;
    for (int i = 0; i < argc; i++) { m[argv[i]]++; cart.add(argv[i]); }
    return count(m) + (int)cart.items.size() - 2 * argc;
}
"""


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("real")
    source = folder / "program.cpp"
    source.write_text(CXX_PROGRAM)
    made = {"libc": LIBC}
    for name, command in {"g++": ["g++", "-O2", "-g"], "g++ -O0": ["g++", "-O0"], "clang++": ["clang++", "-O1", "-g"],
                          "static": ["g++", "-O1", "-static"], "gold": ["g++", "-O1", "-fuse-ld=gold"]}.items():
        made[name] = folder / name.replace(" ", "")
        subprocess.run([*command, "-o", made[name], source], check=True)
    return made


@pytest.mark.parametrize("which", ["libc", "g++", "g++ -O0", "clang++", "static", "gold"])
def test_every_address_has_the_name_of_the_innermost_function_readelf_lists(real: dict[str, Path], which: str) -> None:
    program = real[which]
    functions = functions_of(Elf.open(program))
    listed = sorted(covering(program))
    step = max(1, sum(size for _, size, _ in listed) // 40000)
    addresses, expected = [], []
    starts = np.array([start for start, _, _ in listed], np.uint64)
    for address in range(listed[0][0], listed[-1][0] + listed[-1][1], step):
        last = int(np.searchsorted(starts, np.uint64(address), side="right"))
        inside = [one for one in listed[max(0, last - 200):last] if one[0] <= address < one[0] + one[1]]
        if inside:
            begin = max(start for start, _, _ in inside)
            addresses.append(address)
            expected.append({name for start, _, name in inside if start == begin})
    assert len(addresses) > 500
    found = names(functions, *addresses)
    wrong = [(hex(address), name, best) for address, name, best in zip(addresses, found, expected, strict=True)
             if name is None or name.split("@")[0] not in best]
    assert wrong == []


def test_a_large_symbol_table_is_read_at_a_million_symbols_a_second() -> None:
    count = 300000
    rows = np.zeros(count + 1, SYMBOL_64)
    rows["name"][1:] = 1 + 8 * np.arange(count)
    rows["info"], rows["section"] = GLOBAL_FUNC, 1
    rows["value"][1:], rows["size"] = 0x1000 + 16 * np.arange(count), 16
    strings = b"\0" + b"".join(b"f%06d\0" % number for number in range(count))
    data = (ElfWriter().segment(0, 0x1000, 16 * count).add(".strtab", strings, type=3)
            .add(".symtab", rows.tobytes(), type=2, link=".strtab", entry_size=24).data())
    took = []
    for _ in range(3):
        began = time.process_time()
        functions = functions_of(Elf(data))
        took.append(time.process_time() - began)
    assert names(functions, 0x1000 + 16 * 299999 + 5) == ["f299999"]
    assert count / min(took) > 1_000_000, f"{count / min(took):.0f} symbols a second"
