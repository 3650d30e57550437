# SPDX-License-Identifier: MIT
"""Functions that a stripped library does not name, probed through the exported ones that end in a jump to them.

The oracle is the library before it was stripped: nm says where the hidden function is. The program computes with it, so
that what it was given and what it returned are known, too.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from ptweave.data.errors import BadInput
from ptweave.merge import Run
from ptweave.wrapper import uprobes
from ptweave.wrapper.elf_places import Places
from support.bpf import needs_bpf
from support.command import ptweave
from support.programs import ROOT

SOURCE = ROOT / "tests/programs/hidden_work.c"


@dataclass
class Library:
    """A library with its names, the same stripped, and a program that uses the latter."""

    named: Path
    stripped: Path
    program: Path


@pytest.fixture(scope="module", params=["-O2", "-Os", "-O2 -fcf-protection=full"])
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Library:
    folder = tmp_path_factory.mktemp("hidden")
    named, stripped, program = folder / "named.so", folder / "libhidden.so", folder / "program"
    subprocess.run(["gcc", *request.param.split(), "-shared", "-fPIC", "-fno-ipa-cp", "-fno-ipa-sra", "-o", named,
                    SOURCE], check=True)
    subprocess.run(["strip", "-o", stripped, named], check=True)
    subprocess.run(["gcc", "-O2", "-DPROGRAM", "-o", program, SOURCE, stripped, f"-Wl,-rpath,{folder}"], check=True)
    return Library(named, stripped, program)


def address_of(path: Path, name: str) -> int | None:
    lines = subprocess.run(["nm", path], capture_output=True, text=True, check=False).stdout.splitlines()
    return next((int(line.split()[0], 16) for line in lines if line.split()[-1] == name), None)


def instructions_of(path: Path, name: str) -> list[int]:
    """Where objdump sees a function's instructions begin."""
    listing = subprocess.run(["objdump", "-d", "--no-show-raw-insn", f"--disassemble={name}", path],
                             capture_output=True, text=True, check=True).stdout
    return [int(found[1], 16) for found in re.finditer(r"^ +([0-9a-f]+):\t", listing, re.MULTILINE)]


def work(text: str, size: int) -> int:
    return sum(ord(text[i % 4]) * i for i in range(size))


def test_the_place_behind_the_jump_is_where_the_library_s_names_had_the_hidden_function(library: Library) -> None:
    hidden = address_of(library.named, "work")
    assert hidden is not None and address_of(library.stripped, "work") is None
    for size_known in (library.stripped, library.named):
        assert uprobes.parse(f"{size_known}:outer%jump").offset == hidden
    outer = Places.of(str(library.stripped)).find("outer")
    assert outer is not None and outer != hidden, "the control: the exported one is elsewhere"
    instructions = instructions_of(library.named, "work")
    assert instructions[0] == hidden and len(instructions) > 9
    for place in range(hidden, instructions[9]):
        words = f"{library.stripped}:{outer:#x}%jump+{place - hidden}"
        if place in instructions:
            assert uprobes.parse(words).offset == place
        else:
            with pytest.raises(BadInput, match="is inside an instruction"):
                uprobes.parse(words)
    with pytest.raises(BadInput, match="has no function work"):
        uprobes.parse(f"{library.stripped}:work")


@pytest.mark.root
@needs_bpf
def test_a_hidden_function_of_a_stripped_library_tells_its_arguments_and_results_whoever_calls_it(
        library: Library, tmp_path: Path) -> None:
    outer = f"{library.stripped}:outer"
    done = ptweave("events", "-q", "-o", tmp_path / "run.ptw", "--kinds", "syscall",
                   "--uprobe", f"{outer}%jump text=arg0:string size=arg1",
                   "--uprobe", f"{outer}%jump%return sum=ret:s64",
                   "--uprobe", f"{outer} text=arg0:string size=arg1", "--", library.program, 5)
    assert done.status == 0, done.err
    with Run(tmp_path / "run.ptw") as run:
        hits = {probe: [(text and bytes(text), *[one for one in values if one is not None][-1:]) for text, values in
                        run.sql(f"select text, values from uprobes where probe = '{probe}' order by t").rows()]
                for probe in (f"{outer}%jump", f"{outer}%jump%return", outer)}
    assert hits[f"{outer}%jump"] == [*[(b"word", i + 1) for i in range(5)], (b"straight", 7)]
    assert [value for _, value in hits[f"{outer}%jump%return"]] == [
        *[work("word", i + 1) for i in range(5)], work("straight", 7)]
    assert done.out.split() == [b"%d" % one for one in [*[work("word", i + 1) for i in range(5)],
                                                        work("straight", 7) + 2]]
    # the control: the exported one is given other sizes, and not all calls go through it
    assert hits[outer] == [(b"word", i) for i in range(5)]


@pytest.mark.parametrize(("symbol", "what"), [
    ("straight", "does not end in a jump"), ("leaves", "another library"), ("either", "jumps to 2 other functions"),
    ("nothing", "has no function"), ("0x0", "does not end in a jump"), ("0xfffffff", "is not in its code")])
def test_where_there_is_not_one_jump_a_clear_line_says_so(library: Library, symbol: str, what: str) -> None:
    with pytest.raises(BadInput, match=what):
        uprobes.parse(f"{library.stripped}:{symbol}%jump")


def test_of_several_jumps_the_places_are_offered_and_each_can_be_given(library: Library) -> None:
    with pytest.raises(BadInput) as told:
        uprobes.parse(f"{library.stripped}:either%jump")
    places = {address_of(library.named, name) for name in ("work", "other_work")}
    assert {int(word.strip(","), 16) for word in str(told.value.remedy).split() if word.startswith("0x")} == places
