# SPDX-License-Identifier: MIT
"""What a signal's handler blocks while it runs is under the soft engine what the kernel has it block."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from support.engine import compile_c, record_all


@pytest.fixture
def masks(tmp_path: Path) -> Path:
    return compile_c("handler_masks.c", tmp_path, "-pthread")


def test_handlers_block_what_they_block_natively_with_and_without_sa_nodefer(masks: Path, tmp_path: Path) -> None:
    """Sent and by a fault, one within another, on another stack, in the first thread and in others."""
    native = subprocess.run([masks], capture_output=True, check=True).stdout
    under = record_all([str(masks)], tmp_path)
    assert (under.status, under.stdout) == (0, native)
    assert len(native.splitlines()) == 64 and under.bundle.ledger().losses == []


def test_control_valgrind_alone_does_not_block_what_a_handler_with_sa_nodefer_does(masks: Path) -> None:
    native, alone = (subprocess.run([*words, masks], capture_output=True, check=True).stdout.splitlines()
                     for words in ([], ["valgrind", "-q", "--tool=none"]))
    differ = {line.split()[0] for line, other in zip(native, alone, strict=True) if line != other}
    assert {int(flags, 16) & 0x40000000 for flags in differ} == {0x40000000}
