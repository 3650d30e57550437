# SPDX-License-Identifier: MIT
"""Address filters as a user writes them become the kernel's: offsets and sizes as nm and readelf have them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from ptweave.data import BadInput
from ptweave.data.manifest import FilterKind
from ptweave.wrapper.perf.filters import parse_filters

SOURCE = "int f(int x) { return x + 1; }\nstatic int g(int x) { return x * 2; }\nint v;\n" \
         "int main(int n, char **a) { (void)a; return f(n) + g(n); }\n"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "p.c").write_text(SOURCE)
    subprocess.run(["gcc", "-O0", "-o", tmp_path / "p", tmp_path / "p.c"], check=True)
    (tmp_path / "link").symlink_to("p")
    return tmp_path / "p"


def symbol(program: Path, name: str) -> tuple[int, int]:
    """File offset and size by binutils (of .text, whose offset and address readelf tells)."""
    line = next(line for line in subprocess.run(["nm", "-S", program], capture_output=True, text=True, check=True)
                .stdout.splitlines() if line.endswith(f" {name}"))
    address, size = (int(word, 16) for word in line.split()[:2])
    sections = subprocess.run(["readelf", "-SW", program], capture_output=True, text=True, check=True).stdout
    found = re.search(r" \.text\s+PROGBITS\s+(\w+) (\w+)", sections)
    assert found is not None
    return address - int(found[1], 16) + int(found[2], 16), size


@pytest.mark.parametrize("name", ["f", "g", "main"])
def test_a_function_is_found_where_binutils_find_it(program: Path, name: str) -> None:
    (one,) = parse_filters([f"filter {name}@{program}"])
    assert (one.kind, one.path, (one.offset, one.size)) == (FilterKind.FILTER, str(program), symbol(program, name))
    assert one.kernel == f"filter {one.offset:#x}/{one.size:#x}@{program}"


def test_a_link_is_named_by_the_file_behind_it_and_spaces_do_not_matter(program: Path) -> None:
    first, second = parse_filters([f" stop  f @ {program.parent}/link ", f"filter g@{program}"])
    assert (first.kind, first.path, second.kind) == (FilterKind.STOP, str(program), FilterKind.FILTER)


@pytest.mark.parametrize(("text", "words"), [
    ("", "ACTION SYMBOL@FILE"), ("filter f", "ACTION SYMBOL@FILE"), ("start f@{}", "start is nothing"),
    ("filter v@{}", "no function v"), ("filter x@{}", "no function x"), ("filter f@{}/x", "cannot be read"),
    ("filter f@{}.c", "is no ELF file")])
def test_what_cannot_be_a_filter_is_said(program: Path, text: str, words: str) -> None:
    with pytest.raises(BadInput) as error:
        parse_filters([text.format(program)])
    assert words in error.value.line()


def test_there_are_no_more_than_a_processor_can_have(program: Path) -> None:
    with pytest.raises(BadInput, match="more than 4"):
        parse_filters([f"filter f@{program}"] * 5)


@pytest.mark.parametrize("size", [20, 64, 100, 1000])
def test_a_cut_file_is_an_error_and_no_traceback(program: Path, size: int) -> None:
    cut = program.with_name("cut")
    cut.write_bytes(program.read_bytes()[:size])
    with pytest.raises(BadInput):
        parse_filters([f"filter f@{cut}"])
