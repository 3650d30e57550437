# SPDX-License-Identifier: MIT
"""What the engine takes instructions to do to the flags agrees with a disassembler, on all of the C library's."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from support.programs import ROOT, SANITIZERS, compile_program

ENGINE = ROOT / "wrapper/engine"
LIBC = "/lib/x86_64-linux-gnu/libc.so.6"

# mnemonics as objdump writes them, without a size's letter; by the processor's manual (SDM vol. 2)
KEEP = {"mov", "movabs", "movs", "movz", "lea", "nop", "not", "endbr64", "movsbl", "xchg"}
SET = {"add", "or", "and", "sub", "xor", "cmp", "test", "neg", "imul"}
INSTRUCTION = re.compile(r"^\s*[0-9a-f]+:\t((?:[0-9a-f]{2} )+)\s*\t(?:cs |rex[.A-Z]* )*(\S+)\s*(.*)$")


@pytest.fixture(scope="module")
def check(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(tmp_path_factory.mktemp("flags"), "dead_flags_check", [ENGINE / "dead_flags.c"],
                           ["-std=gnu11", *SANITIZERS, f"-I{ENGINE}"])


def effects(check: Path, codes: list[str]) -> list[tuple[str, int]]:
    done = subprocess.run([check], input="".join(f"{code}\n" for code in codes), capture_output=True, text=True,
                          check=True)
    return [(name, int(size)) for name, size in map(str.split, done.stdout.splitlines())]


def by_the_manual(mnemonic: str, operands: str) -> str:
    """`kept`, `set`, or `other` for what the engine must not take for either: memory, flags read, jumps."""
    name = re.sub(r"^mov[sz][bwl][wlq]$", "movz", mnemonic)
    name = name if name in KEEP | SET else re.sub(r"[bwlq]$", "", name)
    if "(" in operands and name not in ("lea", "nop"):
        return "other"
    return "kept" if name in KEEP else "set" if name in SET else "other"


def test_agrees_with_the_disassembler_on_the_c_library(check: Path) -> None:
    listing = subprocess.run(["objdump", "-d", "-w", LIBC], capture_output=True, text=True, check=True).stdout
    known = {match[1].replace(" ", ""): (match[2], match[3])
             for match in map(INSTRUCTION.match, listing.splitlines()) if match}
    found = effects(check, list(known))
    wrong = [(code, *known[code], effect, size) for code, (effect, size) in zip(known, found, strict=True)
             if effect != "anything" and (effect != by_the_manual(*known[code]) or size != len(code) // 2)]
    assert wrong == []
    counts = {name: sum(effect == name for effect, _ in found) for name in ("kept", "set", "anything")}
    assert min(counts.values()) > 1000  # the check looked at something


def test_what_reads_flags_or_memory_or_leaves_some_is_not_known(check: Path) -> None:
    codes = ["11d8", "4883d000", "19c0", "ffc0", "ffc8", "d3e0", "c1e003", "7405", "eb00", "c3", "0f94c0", "0f44c3",
             "8b03", "0303", "3903", "84030000", "0fa3d8", "9c", "f8", "50", "0f05", "66ffc0"]
    assert [name for name, _ in effects(check, codes)] == ["anything"] * len(codes)


def test_control_the_oracle_tells_apart(check: Path) -> None:
    assert by_the_manual("add", "%eax,%ebx") == "set"
    assert by_the_manual("addl", "$0x1,(%rax)") == "other"
    assert by_the_manual("adc", "%eax,%ebx") == "other"
    assert by_the_manual("movzbl", "%al,%eax") == "kept"
    assert by_the_manual("movl", "$0x1,(%rax)") == "other"
    assert [name for name, _ in effects(check, ["01c3", "11c3", "89c3"])] == ["set", "anything", "kept"]
