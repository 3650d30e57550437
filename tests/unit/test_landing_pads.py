# SPDX-License-Identifier: MIT
"""Landing pads: those that the compiler wrote down and no others; malformed tables end in no crash; and no probe is
put over one."""

from __future__ import annotations

import random
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ptweave.cli.code import load_code
from ptweave.decode.elf import BadElf, Elf
from ptweave.decode.landing_pads import landing_pads
from ptweave.wrapper.probes.sites import Refusal, Site, examine_site

SOURCE = """
#include <stdexcept>
#include <string>
#include <cstdio>
struct Noisy { const char *name; ~Noisy() { std::puts(name); } };
__attribute__((noinline)) int thrower(int n)
{
	if (n > 2)
		throw std::runtime_error("more than two");
	return n;
}
__attribute__((noinline)) int catches(int n)
{
	Noisy noisy{"noisy"};
	try {
		return thrower(n) + (int)std::string("abc").size();
	} catch (const std::runtime_error &) {
		return -1;
	} catch (...) {
		return -2;
	}
}
int main(int count, char **) { return catches(count) + catches(count + 5) - 2; }
"""


def build(folder: Path, *flags: str) -> tuple[Path, set[int]]:
    """The program, and its own landing pads by the labels in the compiler's call-site tables, which the assembler and
    the linker keep as symbols."""
    assembly, thing, out = folder / "a.s", folder / "a.o", folder / "program"
    subprocess.run(["g++", "-S", "-x", "c++", *flags, "-o", assembly, "-"], input=SOURCE.encode(), check=True)
    labels = set()
    for table in re.findall(r"^\.LLSDACSB\w+:\n(.*?)^\.LLSDACSE", assembly.read_text(), re.M | re.S):
        fields = re.findall(r"\.uleb128 (\S+)", table)
        labels |= {pad.partition("-")[0] for pad in fields[2::4] if pad != "0"}
    subprocess.run(["as", "--keep-locals", "-o", thing, assembly], check=True)
    subprocess.run(["g++", *[flag for flag in flags if "pie" in flag], "-o", out, thing], check=True)
    symbols = {line.split()[2]: int(line.split()[0], 16)
               for line in subprocess.run(["nm", out], capture_output=True, text=True, check=True).stdout.splitlines()
               if len(line.split()) == 3}
    return out, {symbols[label] for label in labels}


@pytest.mark.parametrize("flags", [("-O0",), ("-O2",), ("-O2", "-fno-pie", "-no-pie"),
                                   ("-O2", "-fcf-protection=full")], ids=" ".join)
def test_landing_pads_are_those_of_the_compiler_s_tables(tmp_path: Path, flags: tuple[str, ...]) -> None:
    program, expected = build(tmp_path, *flags)
    assert len(expected) >= 2
    assert set(landing_pads(Elf.open(program)).tolist()) == expected


def test_a_program_without_exceptions_has_none(tmp_path: Path) -> None:
    out = tmp_path / "plain"
    subprocess.run(["gcc", "-nostdlib", "-shared", "-x", "c", "-o", out, "-"], input=b"int f(int n) { return n; }",
                   check=True)
    assert not len(landing_pads(Elf.open(out)))


def test_no_probe_is_put_over_a_landing_pad(tmp_path: Path) -> None:
    """With labels aligned, a short jump and its padding may lie before one. The control: where the landing pads are not
    known, those places are taken for good."""
    program, _ = build(tmp_path, "-O0", "-falign-labels=4")
    code = load_code(program)
    blind = replace(code, landings=np.zeros(0, np.uint64))
    refused = 0
    for pad in code.landings.tolist():
        index = code.function(pad)
        for instruction in code.instructions(int(code.starts[index]), pad):
            if instruction.ip + 5 > pad and isinstance(examine_site(blind, instruction.ip), Site):
                outcome = examine_site(code, instruction.ip)
                assert isinstance(outcome, Refusal)
                assert outcome.reason == f"an exception's handler begins at {pad:#x}, inside the five bytes of a jump"
                refused += 1
        at_it = examine_site(code, pad)
        assert isinstance(at_it, Site) or "exception" not in at_it.reason
    assert refused > 0


@pytest.mark.parametrize("section", [".eh_frame", ".gcc_except_table"])
def test_damaged_tables_end_in_no_crash_and_in_no_place_outside_the_code(tmp_path: Path, section: str) -> None:
    program, expected = build(tmp_path, "-O2")
    whole = program.read_bytes()
    place = Elf(whole).section(section)
    assert place is not None
    chance, different = random.Random(7), 0
    for _ in range(400):
        data = bytearray(whole)
        for _ in range(chance.randrange(1, 5)):
            at = place.offset + chance.randrange(place.size)
            data[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        elf = Elf(bytes(data))
        try:
            pads = landing_pads(elf)
        except BadElf:
            different += 1
            continue
        assert elf.executable(pads).all()
        different += set(pads.tolist()) != expected
    assert different > 10
