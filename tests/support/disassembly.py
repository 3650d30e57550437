# SPDX-License-Identifier: MIT
"""binutils' disassembler as an oracle, and what two disassemblers write alike: mnemonics and registers."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

CONDITIONS = {"ne": "nz", "e": "z", "ae": "nb", "a": "nbe", "ge": "nl", "g": "nle", "be": "be", "np": "np", "p": "p",
              "b": "b", "le": "le", "l": "l", "s": "s", "ns": "ns", "o": "o", "no": "no"}
SAME = {"movabs": "mov", "cwde": "cwde", "ret": "ret", "xchg": "xchg", "fwait": "wait"}
_ROW = re.compile(r"^ *([0-9a-f]+):\t((?:[0-9a-f]{2} )+) *\t(.*)$", re.M)
_PREFIX = re.compile(r"^(?:(?:rep|repe|repz|repne|repnz|lock|bnd|notrack|data16|addr32|cs|ds|es|ss|fs|gs|xacquire|"
                     r"rex(?:\.\w+)?) +)+")


def objdump(file: Path, *more: str) -> dict[int, tuple[int, str]]:
    """address → (length, instruction), Intel syntax."""
    out = subprocess.run(["objdump", "-M", "intel", "-w", *more, file], capture_output=True, text=True,
                         check=True).stdout
    return {int(at, 16): (len(raw.split()), re.split(r" *[#<]", text)[0].strip()) for at, raw, text in
            _ROW.findall(out)}


def mnemonic(text: str) -> str:
    """An instruction's name, its synonyms told as one: jne is jnz."""
    word = _PREFIX.sub("", text).split()[0]
    word = SAME.get(word, word)
    for stem in ("j", "set", "cmov"):
        if word.startswith(stem) and word[len(stem):] in CONDITIONS:
            return stem + CONDITIONS[word[len(stem):]]
    return word


def registers(text: str) -> list[str]:
    """The registers in an instruction, in order; not rip, for which ours shows the address it leads to."""
    return re.findall(r"\b(?:[re]?(?:[abcd]x|[sd]i|[sb]p)|[abcd][lh]|[sd]il|[sb]pl|r\d+[dwb]?|[xyz]mm\d+)\b",
                      _PREFIX.sub("", text).partition(" ")[2])
