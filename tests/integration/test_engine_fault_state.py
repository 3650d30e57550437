# SPDX-License-Identifier: MIT
"""A handler of a fault finds rip, flags and registers as on the processor, behind every kind of flag operation: the
engine leaves out register writes that nobody can see, and none that somebody can. The native run is the oracle."""

from __future__ import annotations

from pathlib import Path

from support.command import native
from support.engine import check_exact, compile_c, record_all


def test_a_fault_finds_rip_flags_and_registers_as_on_the_processor(tmp_path: Path) -> None:
    program = compile_c("fault_state.c", tmp_path)
    expected = native([program])
    recording = record_all([str(program)], tmp_path, log=True)
    assert expected.status == recording.status == 0
    assert recording.stdout == expected.out
    assert len(set(expected.out.splitlines())) > 50  # the cases differ: a wrong flag or rip shows
    check_exact(recording, tmp_path)
