# SPDX-License-Identifier: MIT
"""What stands behind a name that libtthread stands in front of; dlsym is the oracle, for all names of the C library."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from support.ctests import build

NEXT = ("preload/src/next.c",)
FLAGS = ("-Wl,--wrap=dlsym",)
DEFINED = ("read", "pthread_mutex_lock", "time", "memcpy", "environ", "only_here")
"""By a library of ours: a function, one behind a version, two that libc chooses when asked (IFUNC), a variable, and one
that libc does not have."""
SOURCE = "".join(f"int {name}(void) {{ return {number}; }}\n" for number, name in enumerate(DEFINED))


def libc_path() -> Path:
    maps = Path("/proc/self/maps").read_text()
    return Path(next(line.split()[-1] for line in maps.splitlines() if line.endswith("/libc.so.6")))


def libc_names() -> dict[str, str]:
    """Name and type of what the C library defines."""
    with libc_path().open("rb") as file:
        table = ELFFile(file).get_section_by_name(".dynsym")
        return {symbol.name: symbol["st_info"]["type"] for symbol in table.iter_symbols()
                if symbol["st_shndx"] != "SHN_UNDEF" and symbol.name}


@dataclass(frozen=True)
class Answers:
    how: dict[str, str]
    wrong: list[str]

    def named(self, how: str) -> set[str]:
        return {name for name, said in self.how.items() if said == how}


def ask(names: Sequence[str], *arguments: str, preload: Sequence[Path] = (), program: Path | None = None) -> Answers:
    program = program or build("next_probe", NEXT, "", FLAGS)
    environment = {**os.environ, "LD_PRELOAD": ":".join(map(str, preload)), "ASAN_OPTIONS": "detect_leaks=0"}
    done = subprocess.run([program, *arguments], input="\n".join(names) + "\n", capture_output=True, text=True,
                          check=True, timeout=60, env=environment)
    lines = [line.split(" ") for line in done.stdout.splitlines()]
    assert [line[0] for line in lines] == list(names)
    return Answers({line[0]: line[1] for line in lines}, [line[0] for line in lines if line[2] != "same"])


def library(folder: Path, *flags: str) -> Path:
    (folder / "defines.c").write_text(SOURCE)
    out = folder / "libdefines.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-fno-builtin", "-w", *flags, "-o", out, folder / "defines.c"],
                   check=True)
    return out


def test_it_agrees_with_dlsym_about_every_name_of_the_c_library_and_asks_it_for_few() -> None:
    names = libc_names()
    assert len(names) > 2000 and {"STT_FUNC", "STT_OBJECT"} < set(names.values())
    said = ask(sorted(names))
    assert said.wrong == []
    functions = {name for name, kind in names.items() if kind in ("STT_FUNC", "STT_LOOS")}
    # what is left to dlsym: names of which all versions are hidden
    assert len(said.named("quick") & functions) > 0.9 * len(functions)


def test_hashes_of_literals_are_the_hashes_of_their_characters() -> None:
    said = subprocess.run([build("next_probe", NEXT, "", FLAGS), "hashes"], capture_output=True, check=True).stdout
    lines = [line.split(b" ") for line in said.splitlines()]
    assert {len(text) for text, _, _ in lines} >= {0, 1, 31, 32}

    def gnu_hash(text: bytes) -> int:
        found = 5381
        for character in text:
            found = (found * 33 + character) % (1 << 32)
        return found

    assert [(int(constant), int(computed)) for _, constant, computed in lines] == [
        (gnu_hash(text), gnu_hash(text)) for text, _, _ in lines]


def test_it_agrees_about_names_that_are_elsewhere_or_nowhere() -> None:
    names = [f"no_such_name_{number}" for number in range(500)] + ["sin", "_r_debug", "__vdso_time", "", "\u00e9"]
    said = ask(names)
    assert said.wrong == [] and said.named("quick") == set()


def test_what_another_library_in_front_defines_is_that_library_s(tmp_path: Path) -> None:
    names = sorted({*libc_names(), *DEFINED})
    said = ask(names, preload=[library(tmp_path)])
    assert said.wrong == []
    assert set(DEFINED) <= said.named("asked") and len(said.named("quick")) > 2000


def test_leaving_that_library_out_would_be_noticed(tmp_path: Path) -> None:
    """The control."""
    said = ask(sorted({*libc_names(), *DEFINED}), "blind", preload=[library(tmp_path)])
    assert set(said.wrong) == set(DEFINED) - {"only_here"}
    assert said.named("asked") >= {"only_here"}


def test_a_library_behind_the_c_library_changes_nothing(tmp_path: Path) -> None:
    behind = library(tmp_path)
    out = tmp_path / "next_probe"
    shutil.copy(build("next_probe", NEXT, "", (*FLAGS, "-Wl,--no-as-needed", "-lc", f"-L{tmp_path}", "-ldefines",
                                               f"-Wl,-rpath,{tmp_path}")), out)
    needed = [line.split("[")[1].split("]")[0] for line in subprocess.run(
        ["readelf", "-dW", out], capture_output=True, text=True, check=True).stdout.splitlines() if "(NEEDED)" in line]
    assert needed.index("libc.so.6") < needed.index(behind.name)
    said = ask(["read", "pthread_mutex_lock", "only_here"], program=out)
    assert said.wrong == [] and said.named("quick") == {"read", "pthread_mutex_lock"}


@pytest.mark.parametrize("many", [False, True])
def test_without_a_table_it_can_read_and_among_too_many_libraries_all_is_left_to_dlsym(many: bool,
                                                                                    tmp_path: Path) -> None:
    if many:
        made = library(tmp_path)
        libraries = [Path(shutil.copy(made, tmp_path / f"lib{number}.so")) for number in range(65)]
    else:
        libraries = [library(tmp_path, "-Wl,--hash-style=sysv")]
    said = ask(sorted({*libc_names(), *DEFINED}), preload=libraries)
    assert said.wrong == [] and said.named("quick") == set()


def test_an_auditor_is_asked_about_everything() -> None:
    said = ask(sorted(libc_names()), "audit")
    assert said.wrong == [] and said.named("quick") == set()


def test_it_reads_within_its_tables() -> None:
    """With sanitizers, whose own library defines much of what the C library does."""
    said = ask(sorted({*libc_names(), *DEFINED}), program=build("next_probe", NEXT, "asan", FLAGS))
    assert said.wrong == [] and "read" in said.named("asked") and len(said.named("quick")) > 1000
