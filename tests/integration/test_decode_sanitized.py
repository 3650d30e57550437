# SPDX-License-Identifier: MIT
"""The decoder's C half under AddressSanitizer and UBSan, over right and damaged input."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from support.assembler import PROGRAMS, ROOT, compile_c
from support.event_program import event_run
from support.fuzzing import FEW_NODES
from support.programs import SCARCE_MEMORY
from support.random_program import random_run

SOURCES = ROOT / "decode" / "src"
DAMAGED = 400
"""Damaged inputs a test runs through."""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c(PROGRAMS / "decode_driver.c", tmp_path_factory.mktemp("driver") / "driver", "-std=gnu11", "-g",
                     "-Werror", f"-I{SOURCES}", FEW_NODES, *(str(path) for path in sorted(SOURCES.glob("*.c"))),
                     "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-lipt", "-lZydis", "-liberty")


@pytest.fixture(scope="module")
def scarce(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c(PROGRAMS / "scarce_driver.c", tmp_path_factory.mktemp("scarce") / "driver", "-std=gnu11", "-g",
                     "-Werror", f"-I{SOURCES}", FEW_NODES, *(str(path) for path in sorted(SOURCES.glob("*.c"))),
                     "-fsanitize=address,undefined", "-fno-sanitize-recover=all", SCARCE_MEMORY,
                     "-Wl,--wrap=close", "-lipt", "-lZydis", "-liberty")


def run(driver: Path, *arguments: str | Path) -> str:
    """New memory has bytes that are a valid number whatever they are taken for, of a descriptor, too."""
    done = subprocess.run([driver, *arguments], capture_output=True, text=True, timeout=300, check=False,
                          env={**os.environ, "ASAN_OPTIONS": "malloc_fill_byte=1"})
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("seed", range(400, 404))
def test_flow(driver: Path, tmp_path: Path, seed: int) -> None:
    machine = random_run(seed, tmp_path, steps=1500)
    (tmp_path / "trace").write_bytes(machine.packets.data)
    (tmp_path / "image").write_bytes(machine.code.data)
    out = run(driver, "flow", tmp_path / "trace", tmp_path / "image", hex(machine.code.base), str(DAMAGED))
    assert out.startswith("1500 instructions ")
    assert " 0 gaps " in out


@pytest.mark.parametrize("seed", range(3))
def test_packets_that_libipt_does_not_know(driver: Path, tmp_path: Path, seed: int) -> None:
    machine = event_run(seed, tmp_path)
    (tmp_path / "trace").write_bytes(machine.packets.data)
    (tmp_path / "image").write_bytes(machine.code.data)
    out = run(driver, "replaced", tmp_path / "trace", tmp_path / "image", hex(machine.code.base), str(DAMAGED))
    assert out == "1500 instructions 0 gaps replaced\n"


def test_more_spaces_than_libipt_can_count(driver: Path, tmp_path: Path) -> None:
    machine = random_run(7, tmp_path, steps=1500)
    (tmp_path / "trace").write_bytes(machine.packets.data)
    (tmp_path / "image").write_bytes(machine.code.data)
    out = run(driver, "rounds", tmp_path / "trace", tmp_path / "image", hex(machine.code.base))
    assert out == "1500 instructions\n"


@pytest.mark.parametrize("version", [2, 3, 4, 5])
def test_lines(driver: Path, tmp_path: Path, version: int) -> None:
    source = tmp_path / "source.c"
    source.write_text("int f(int x)\n{\n    while (x > 3)\n        x /= 2;\n    return x;\n}\n")
    thing = compile_c(source, tmp_path / "thing", "-shared", f"-gdwarf-{version}")
    sections = []
    for name in ("line", "info", "abbrev"):
        sections.append(tmp_path / name)
        subprocess.run(["objcopy", "-O", "binary", f"--only-section=.debug_{name}", "--set-section-flags",
                        f".debug_{name}=alloc", thing, sections[-1]], check=True)
    out = run(driver, "lines", *sections, str(10 * DAMAGED))
    assert out.endswith(" 0 bad units\n")
    assert int(out.split()[0]) > 4


def test_a_broken_rule_would_be_reported(driver: Path, tmp_path: Path) -> None:
    """The control: the driver exits with an error when something is wrong."""
    (tmp_path / "trace").write_bytes(b"\0" * 32)
    done = subprocess.run([driver, "flow", tmp_path / "trace", tmp_path / "absent", "0", "0"], capture_output=True,
                          text=True, check=False)
    assert done.returncode == 1
    assert "broken: the code can be mapped" in done.stderr


def test_each_allocation_may_fail(scarce: Path, tmp_path: Path) -> None:
    """The n-th, for each n, or all from the n-th on: nothing is read, closed or freed that is not there, nothing leaks,
    and it is told, but where one can do without."""
    machine = random_run(3, tmp_path, steps=400)
    (tmp_path / "trace").write_bytes(machine.packets.data)
    (tmp_path / "image").write_bytes(machine.code.data)
    out = run(scarce, tmp_path / "trace", tmp_path / "image", hex(machine.code.base))
    told = [re.fullmatch(r"(decode|dump): (\d+) failed, (\d+) told", line) for line in out.splitlines()]
    assert [found and found[1] for found in told] == ["decode"] * 2 + ["dump"] * 2
    assert all(found and int(found[2]) >= 10 and int(found[3]) > 0.8 * int(found[2]) for found in told), out
