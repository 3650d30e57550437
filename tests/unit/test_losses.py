# SPDX-License-Identifier: MIT
"""What the last line says is missing: in words, the largest first."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptweave.cli.session import losses
from ptweave.data import Ledger
from support.trace_bundle import TraceBundle


@pytest.mark.parametrize("stream, unit, why, said", [
    ("decode/3", "bytes", "missing_image",
     "7 bytes of the trace of thread 3 (missing_image: code that is not in the bundle; where: table gaps)"),
    ("decode/cpu-1", "bytes", "decode_error",
     "7 bytes of the trace of cpu-1 (decode_error: packets that cannot be decoded; where: table gaps)"),
    ("placed/thunks", "rows", "time", "exact places of 7 thunks (placed by time only)"),
    ("placed/syscalls", "rows", "none", "exact places of 7 syscalls (placed nowhere)"),
    ("decode/3", "bytes", "something new", "7 bytes of decode/3 (something new)"),
    ("perf maps", "bytes", "too many", "7 bytes of perf maps (too many)"),
])
def test_a_loss_is_told_in_words(tmp_path: Path, stream: str, unit: str, why: str, said: str) -> None:
    bundle = TraceBundle(tmp_path / "run.ptw").write()
    ledger = Ledger()
    ledger.add(stream, unit, stored=1, lost={why: 7})
    bundle.save_ledger(ledger)
    assert losses(bundle) == [said]


def test_the_largest_loss_comes_first_and_many_are_left_to_the_ledger(tmp_path: Path) -> None:
    bundle = TraceBundle(tmp_path / "run.ptw").write()
    ledger = Ledger()
    for count in range(1, 40):
        ledger.add(f"stream {count}", "rows", stored=0, lost={"gone": count})
    bundle.save_ledger(ledger)
    found = losses(bundle)
    assert found[0] == "39 rows of stream 39 (gone)"
    assert found[-1] == f"{39 - (len(found) - 1)} more in ledger.json"
