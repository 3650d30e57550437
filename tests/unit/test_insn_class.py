# SPDX-License-Identifier: MIT
"""The engine's instruction classes agree with libipt's, on instructions of every opcode."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ENGINE = ROOT / "wrapper/engine"
PROGRAMS = ROOT / "tests/programs"
IP = 0x401000

KNOWN = [  # bytes, class, target
    ("7405", "cond_jump", IP + 7), ("0f8405000000", "cond_jump", IP + 11), ("e2fe", "cond_jump", IP),
    ("67e302", "cond_jump", IP + 5), ("f20f8500000000", "cond_jump", IP + 7), ("e800000000", "call", IP + 5),
    ("e8fbffffff", "call", IP), ("c3", "return", 0), ("f3c3", "return", 0), ("f2c3", "return", 0),
    ("c21000", "return", 0), ("ffe0", "ind_jump", 0), ("41ffe3", "ind_jump", 0), ("3effe0", "ind_jump", 0),
    ("ffd0", "ind_call", 0), ("ff1500000000", "ind_call", 0), ("0f05", "far", 0), ("cc", "far", 0), ("cd80", "far", 0),
    ("90", "other", 0), ("ffc0", "other", 0), ("ff30", "other", 0), ("eb00", "other", 0), ("0f1f4000", "other", 0),
    ("c5f877", "other", 0), ("48", "other", 0),
]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("insn")
    flags = ["gcc", "-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined",
             "-fno-sanitize-recover=all"]
    subprocess.run([*flags, f"-I{ENGINE}", "-o", folder / "check", PROGRAMS / "insn_check.c",
                    ENGINE / "insn_class.c"], check=True)
    subprocess.run([*flags, "-o", folder / "oracle", PROGRAMS / "insn_oracle.c", "-lipt"], check=True)
    return folder


def ask(program: Path, codes: list[str]) -> list[list[str]]:
    lines = "".join(f"{IP:x} {code}\n" for code in codes)
    done = subprocess.run([program], input=lines, capture_output=True, text=True, check=True)
    return [line.split() for line in done.stdout.splitlines()]


def test_known_instructions(programs: Path) -> None:
    found = ask(programs / "check", [code for code, _, _ in KNOWN])
    assert [(name, int(target, 16)) for name, _, target in found] == [(name, to) for _, name, to in KNOWN]


def test_agrees_with_libipt(programs: Path) -> None:
    """Random operands behind every one- and two-byte opcode, with and without prefixes; sizes are libipt's."""
    dice = random.Random(1)
    codes = []
    for prefix in ("", "48", "66", "f3", "f2", "3e", "f341", "6648"):
        for opcode in [f"{one:02x}" for one in range(256)] + [f"0f{two:02x}" for two in range(256)]:
            codes += [prefix + opcode + dice.randbytes(11).hex() for _ in range(3)]
    known = ask(programs / "oracle", codes)
    sized = [(code[:2 * int(words[1])], words[0]) for code, words in zip(codes, known, strict=True)
             if words[0] != "bad"]
    assert len(sized) > 5000
    ours = [words[0] for words in ask(programs / "check", [code for code, _ in sized])]
    names = {"ind_call": "call", "ind_jump": "jump"}
    wrong = [(code, ours_, theirs) for (code, theirs), ours_ in zip(sized, ours, strict=True)
             if names.get(ours_, ours_) != theirs and not (ours_ == "other" and theirs == "jump")]
    assert wrong == []
