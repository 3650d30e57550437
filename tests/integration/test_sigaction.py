# SPDX-License-Identifier: MIT
"""Actions of signals are told to the program as it set them, whoever keeps them: the kernel, libtthread, the engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.engine import compile_c
from support.modes import NATIVE, TRACED, Mode, process_mode, run


@pytest.mark.parametrize("mode", [TRACED, process_mode("held", "shared"), process_mode("exact", "private")], ids=str)
def test_sigaction_tells_handlers_flags_and_masks_as_natively(mode: Mode, tmp_path: Path) -> None:
    program = compile_c("sigaction_tells.c", tmp_path, "-pthread")
    native = run(NATIVE, tmp_path, [program], name="native")
    assert native.status == 0 and len(native.out.splitlines()) == 63
    assert run(mode, tmp_path, [program]).out == native.out
