# SPDX-License-Identifier: MIT
"""Functions that a program finds by dlsym in the C library are followed like those it is linked with."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptweave.data.notices import NoticeKind
from support.engine import compile_c
from support.modes import NATIVE, TRACED, UNDER_LIBTTHREAD, Mode, process_mode, run

OUT = b"count 20; unknown 1 1; again 1; default 1; next 1; own 1\n"


@pytest.fixture
def looked_up(tmp_path: Path) -> Path:
    return compile_c("looked_up.c", tmp_path)


@pytest.mark.parametrize("library", ["libc.so.6", "libpthread.so.0"])
@pytest.mark.parametrize("mode", [TRACED, process_mode("held", "shared")], ids=str)
def test_threads_and_locks_that_are_looked_up_are_logged(mode: Mode, library: str, looked_up: Path,
                                                         tmp_path: Path) -> None:
    """Free Pascal's programs have all of theirs so. Whatever else dlsym is asked is answered as natively."""
    assert run(NATIVE, tmp_path, [looked_up, library], name="native").out == OUT
    ran = run(mode, tmp_path, [looked_up, library])
    assert (ran.status, ran.out) == (0, OUT) and ran.traced is not None
    counts = ran.traced.operations()
    assert {name: counts.get(name, 0) for name in ("create", "join", "start", "mutex_lock", "mutex_unlock")} == {
        "create": 2, "join": 2, "start": 3, "mutex_lock": 20, "mutex_unlock": 20}
    assert [(one.kind, "looked up" in one.text) for one in ran.traced.server.notices.all] == (
        [(NoticeKind.FALLBACK, True)] if mode.access else [])


@pytest.mark.parametrize("mode", UNDER_LIBTTHREAD, ids=str)
def test_a_library_in_between_gets_what_is_behind_it(mode: Mode, tmp_path: Path) -> None:
    """It would get itself, by way of libtthread, and call itself without end."""
    between = compile_c("looked_up_between.c", tmp_path, "-shared", "-fPIC", name="libbetween.so")
    program = compile_c("four_threads.c", tmp_path, "-pthread", "-Wl,--no-as-needed", str(between))
    native = run(NATIVE, tmp_path, [program, "20"], name="native")
    ran = run(mode, tmp_path, [program, "20"])
    assert native.status == 0 and b"between: " in native.out
    assert (ran.status, ran.out) == (0, native.out)
