# SPDX-License-Identifier: MIT
"""Threads that call what keeps state in the C and C++ libraries: the same output as natively, in every mode, as they
are and under the soft engine. The libraries' locks, what they load and allocate are nothing the program names."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.command import ptweave
from support.modes import NATIVE, UNDER_LIBTTHREAD, Mode, run
from support.programs import compile_program

ROUNDS = 3
"""What two threads do at a time differs from run to run."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(tmp_path_factory.mktemp("built"), "library_calls")


@pytest.mark.parametrize("mode", UNDER_LIBTTHREAD, ids=str)
def test_threads_in_the_libraries_at_the_same_time_see_what_they_see_natively(mode: Mode, built: Path,
                                                                              tmp_path: Path) -> None:
    native = run(NATIVE, tmp_path, [built, tmp_path])
    assert native.status == 0 and native.out.count(b"thrown") == 6 * 8
    for i in range(ROUNDS):
        folder = tmp_path / str(i)
        folder.mkdir()
        ran = run(mode, folder, [built, folder])
        assert (ran.status, ran.out, ran.err) == (0, native.out, "")


@pytest.mark.parametrize("mode", UNDER_LIBTTHREAD, ids=str)
def test_the_same_under_the_engine(mode: Mode, built: Path, tmp_path: Path) -> None:
    native = run(NATIVE, tmp_path, [built, tmp_path])
    ran = ptweave("record", "-q", "-o", tmp_path / "run.ptw", "--engine", "soft", *mode.options(), "--", built,
                  tmp_path)
    assert (ran.status, ran.out) == (0, native.out), ran.err
