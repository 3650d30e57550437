# SPDX-License-Identifier: MIT
"""Programs in process mode do what they do with native threads: the oracle is the same program without the library."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ptweave.preload import library_path
from support.programs import compile_program

ACCESSES = ("off", "held", "exact")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("process-mode")


def run(argv: list[str | Path], access: str | None = None, seconds: float = 60) -> subprocess.CompletedProcess[bytes]:
    """Run natively, or in process mode with that tracking."""
    environment = dict(os.environ)
    if access:
        environment |= {"LD_PRELOAD": str(library_path()), "PTWEAVE_THREADS": "process", "PTWEAVE_ACCESS": access}
    return subprocess.run([str(word) for word in argv], stdin=subprocess.DEVNULL, capture_output=True,
                          timeout=seconds, check=False, env=environment)


def assert_as_native(argv: list[str | Path], access: str) -> None:
    expected, seen = run(argv), run(argv, access)
    assert seen.stdout.decode() == expected.stdout.decode(), seen.stderr.decode()
    assert seen.returncode == expected.returncode


@pytest.mark.parametrize("access", ACCESSES)
def test_life_of_threads_is_as_native(folder: Path, access: str) -> None:
    program = compile_program(folder, "process_life")
    expected = run([program])
    assert expected.stdout and expected.returncode == 3
    assert_as_native([program], access)


@pytest.mark.parametrize("way", ["exit", "_exit", "abort", "kill", "fault", "main", "last"])
@pytest.mark.parametrize("access", ACCESSES)
def test_the_program_ends_as_native_from_any_thread(folder: Path, way: str, access: str) -> None:
    program = compile_program(folder, "process_exits")
    assert_as_native([program, way], access)


def test_a_thread_killed_from_outside_is_reported(folder: Path) -> None:
    program = compile_program(folder, "process_exits")
    seen = run([program, "kill"], "off")
    assert b"SIGKILL" in seen.stderr


@pytest.mark.parametrize("access", ACCESSES)
def test_limits_of_memory_and_files_hold_as_native(folder: Path, access: str) -> None:
    """The library's own memory does not count; forks, which need that much again, still work."""
    program = compile_program(folder, "process_limits")
    expected, seen = run([program]), run([program], access)
    assert (expected.returncode, expected.stderr) == (seen.returncode, seen.stderr) == (0, b"")
