# SPDX-License-Identifier: MIT
"""A thread that loops and makes no call is stopped all the same, for signals and for other threads, whatever jumps its
loop is made of; the native run is the oracle. And what ran is in the trace, but for how often a loop of direct jumps
alone went around: Intel PT has no packets for those."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ptweave.wrapper.soft import SoftEngine
from support.command import native
from support.engine import check_exact, compile_c, record_all

KINDS = range(10)
DIRECT = (0, 2, 5)  # loops of direct jumps and calls


@pytest.mark.parametrize("kind", KINDS)
def test_a_loop_is_interrupted_and_traced(tmp_path: Path, kind: int) -> None:
    program = compile_c("endless.c", tmp_path, "-pthread")
    expected = native([program, str(kind)])
    assert expected.status == 0
    recording = record_all([str(program), str(kind)], tmp_path, log=True)
    assert (recording.status, recording.stdout) == (0, expected.out)
    if kind not in DIRECT:
        check_exact(recording, tmp_path)


def test_control_a_loop_whose_alarm_is_blocked_goes_on(tmp_path: Path) -> None:
    program = compile_c("endless.c", tmp_path, "-pthread")
    argv, environment = SoftEngine().command([str(program), "0", "blocked"], tmp_path)
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run(argv, env=environment, timeout=2, capture_output=True, check=False)
