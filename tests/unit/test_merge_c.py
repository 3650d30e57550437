# SPDX-License-Identifier: MIT
"""The merge's C part under AddressSanitizer and UBSan: random and hostile flows."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [ROOT / "merge" / "src" / name for name in ("program.c", "timeline.c", "tree.c", "frames.c", "walk.c")]
FLAGS = ["-std=c11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined",
         "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("c") / "merge_walk"
    subprocess.run(["gcc", *FLAGS, "-I", ROOT / "merge" / "src", "-o", out,
                    ROOT / "tests" / "programs" / "merge_walk.c", *SOURCES], check=True)
    return out


def test_random_and_hostile_flows_are_walked_without_a_fault(program: Path) -> None:
    done = subprocess.run([program, "400"], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "400 flows\n"


def test_the_extension_is_built_from_all_sources() -> None:
    assert {path.name for path in SOURCES} == {path.name for path in (ROOT / "merge" / "src").glob("*.c")}
