# SPDX-License-Identifier: MIT
"""How often lines ran, and how many instructions are of each, beside gcov's counts and binutils' lines."""

from __future__ import annotations

import re
import subprocess
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from ptweave.merge import Run
from support.command import compile_c, ptweave
from support.disassembly import objdump
from support.engine import PROGRAMS

SOURCE = PROGRAMS / "counted_lines.c"


def recorded(folder: Path, *flags: str) -> tuple[Path, Path]:
    """The program, built so, and its run."""
    program = compile_c(SOURCE, folder / "counted", "-g", *flags)
    done = ptweave("wrap", "-q", "-o", folder / "run.ptw", "--", program)
    assert done.status == 0, done.err
    return program, folder / "run.ptw"


def gcov(folder: Path) -> dict[int, int]:
    """Line → how often it ran, for lines that could."""
    program = folder / "covered"
    subprocess.run(["gcc", "-O0", "--coverage", "-o", program, SOURCE], check=True, cwd=folder)
    subprocess.run([program], check=True, cwd=folder, stdout=subprocess.DEVNULL)
    told = subprocess.run(["gcov", "-t", next(folder.glob("*.gcda"))], check=True, cwd=folder, capture_output=True,
                          text=True).stdout
    return {int(line): 0 if count.startswith("#") else int(count)
            for count, line in re.findall(r"^ *(#+|\d+)\*?: *(\d+):", told, re.M)}


def lines_of(run: Path) -> dict[int, dict[str, Any]]:
    with Run(run) as opened:
        return {row["line"]: row for row in opened.hot("line").arrow().to_pylist()
                if (row["file"] or "").endswith(SOURCE.name)}


def addr2line(program: Path, addresses: list[int]) -> list[tuple[str, int] | None]:
    told = subprocess.run(["addr2line", "-e", program, *map(hex, addresses)], check=True, capture_output=True,
                          text=True).stdout
    return [place(line) for line in told.splitlines()]


def place(line: str) -> tuple[str, int] | None:
    file, _, number = line.split(" (")[0].rpartition(":")
    return None if "?" in (file[:1], number) or number == "0" else (file, int(number))


def test_lines_ran_as_often_as_gcov_says(tmp_path: Path) -> None:
    """But for the head of a function, where gcov counts the line above the brace, and that of a loop, whose blocks do
    not all run each time."""
    text = ["", *SOURCE.read_text().splitlines()]
    found, expected = lines_of(recorded(tmp_path, "-O0")[1]), gcov(tmp_path)
    heads = {line for line in expected if text[line + 1] == "{"}
    loops = {line for line in expected if "for (" in text[line]}
    told = {line: count for line, count in expected.items() if line not in heads | loops}
    assert len(told) > 25 and 0 in told.values()
    assert {line: found[line]["times"] if line in found else 0 for line in told} == told
    assert {line: found[line + 1]["times"] for line in heads} == {line: expected[line] for line in heads}
    assert all(found[line]["times"] < expected[line] <= found[line]["blocks"] for line in loops)


@pytest.mark.parametrize("optimised", ["-O0", "-O2"])
def test_each_instruction_is_counted_for_its_own_line(tmp_path: Path, optimised: str) -> None:
    program, path = recorded(tmp_path, optimised)
    lengths = {address: length for address, (length, _) in objdump(program, "-d").items()}
    with Run(path) as opened:
        blocks = opened.sql(
            """select "offset" as at, blocks.size, instructions, file, line, last_file, last_line, lines
               from blocks join images using (image) where path = ?""", str(program)).arrow().to_pylist()
        total = sum(row[0] for row in opened.sql(
            "select instructions from profile join stacks using (stack)").rows())
        assert sum(row["instructions"] for row in opened.hot("line").arrow().to_pylist()) == total
    addresses = [address for block in blocks for address in range(block["at"], block["at"] + block["size"])
                 if address in lengths]
    line_of = dict(zip(addresses, addr2line(program, addresses), strict=True))
    several = again = 0
    for block in blocks:
        own = [line_of[address] for address in range(block["at"], block["at"] + block["size"]) if address in lengths]
        assert len(own) == block["instructions"]
        if not any(own):
            assert (block["lines"], block["line"], block["last_line"]) == (None, None, None)
            continue
        found = [((part["file"], part["line"]) if part["line"] else None, part["instructions"])
                 for part in block["lines"]]
        assert found == [(one, len(list(row))) for one, row in groupby(own)]
        assert [(block["file"], block["line"]), (block["last_file"], block["last_line"])] == [
            one or (None, None) for one in (own[0], own[-1])]
        several += len(found) > 1
        again += len(found) > len(set(own))
    assert several > 3, "control: blocks are of more than one line"
    assert again > 0 or optimised == "-O0", "control: compilers mix lines"
