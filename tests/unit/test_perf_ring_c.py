# SPDX-License-Identifier: MIT
"""The drain of perf's rings, in C, under the sanitizers: the address one, and the one for threads."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from support.programs import ROOT, SANITIZERS, compile_program


@pytest.mark.parametrize("flags", [SANITIZERS, ["-fsanitize=thread", "-Wno-tsan"]], ids=["address", "thread"])
def test_rings_keep_every_byte_and_refuse_what_makes_no_sense(tmp_path: Path, flags: list[str]) -> None:
    folder = ROOT / "wrapper/src"
    program = compile_program(tmp_path, "check_perf_ring", [folder / "perf_ring.c"], [*flags, f"-I{folder}"])
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
