# SPDX-License-Identifier: MIT
"""Bit tests of registers touch no memory under the engine either. The native run is the oracle."""

from __future__ import annotations

from pathlib import Path

from support.command import native
from support.engine import compile_c, record_all


def test_bit_tests_of_registers_need_no_stack(tmp_path: Path) -> None:
    program = compile_c("bit_tests.c", tmp_path)
    expected = native([program])
    recording = record_all([str(program)], tmp_path)
    assert expected.out == b"200 of 200\n"
    assert (recording.status, recording.stdout) == (expected.status, expected.out)
