# SPDX-License-Identifier: MIT
"""The C parts of recording and joining system calls, under the address and undefined-behaviour sanitizers."""

from __future__ import annotations

import subprocess
from pathlib import Path

from support.programs import ROOT, SANITIZERS, compile_program


def run(program: Path) -> None:
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_ring_and_the_batches_keep_every_record_and_refuse_what_is_not_whole(tmp_path: Path) -> None:
    folder = ROOT / "wrapper/src"
    run(compile_program(tmp_path, "check_ring_batch", [folder / "ring.c", folder / "batch.c"],
                        [*SANITIZERS, f"-I{folder}"]))


def test_the_join_stays_within_its_arrays_whatever_they_hold(tmp_path: Path) -> None:
    folder = ROOT / "decode/src"
    run(compile_program(tmp_path, "check_join", [folder / "join.c"], [*SANITIZERS, f"-I{folder}"]))
