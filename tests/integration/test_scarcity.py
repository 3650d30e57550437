# SPDX-License-Identifier: MIT
"""ptweave itself under limits that are too low for it."""

from __future__ import annotations

import resource
import subprocess
from pathlib import Path

import pytest

from support.command import words

MIB = 1 << 20


def limited(mib: int, *args: str | Path) -> subprocess.CompletedProcess[str]:
    """`ptweave ARGS` with so much address space."""
    return subprocess.run(
        words(*args), capture_output=True, text=True, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (mib * MIB, mib * MIB)))


@pytest.mark.parametrize("mib", [200, 400])
def test_a_limit_of_address_space_is_told_without_a_traceback(tmp_path: Path, mib: int) -> None:
    """At the smaller one modules cannot be loaded, at the larger one the run is recorded and cannot be merged."""
    done = limited(mib, "wrap", "-o", tmp_path / "run.ptw", "--", "/bin/true")
    assert done.returncode in (0, 3)
    lines = done.stderr.splitlines()
    assert lines and all(line.startswith("ptweave: ") for line in lines)
    assert any("ulimit -v" in line for line in lines) or "lacks tables" in lines[-1]
    assert "nothing lost" not in done.stderr


def test_a_program_without_room_for_its_lists_is_told(tmp_path: Path) -> None:
    done = limited(950, "record", "-o", tmp_path / "run.ptw", "--", "/bin/true")
    first, last = done.stderr.splitlines()
    assert first.startswith("ptweave: no room for event lists")
    assert "1 programs of libtthread (not in them: no thunks)" in last
