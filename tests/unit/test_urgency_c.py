# SPDX-License-Identifier: MIT
"""How the thread that drains the ring is scheduled: held to what the kernel says of it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from support.programs import ROOT, SANITIZERS, compile_program

pytestmark = pytest.mark.root


def test_a_full_ring_makes_the_thread_urgent_until_it_is_calm_and_it_leaves_the_processor_of_who_makes_the_records(
        tmp_path: Path) -> None:
    folder = ROOT / "wrapper/src"
    program = compile_program(tmp_path, "check_urgency", [folder / "urgency.c"], [*SANITIZERS, f"-I{folder}"])
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    if done.returncode == 77:
        pytest.skip("needs two processors, and CAP_SYS_NICE")
    assert done.returncode == 0, done.stderr
