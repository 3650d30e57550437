# SPDX-License-Identifier: MIT
"""Traces of real processors decode to what the reference decoders found: every address, every event, every error."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from ptweave.decode.expand import Expansion
from support.reference_traces import FOLDER, Case, cases, tracing_events
from support.trace_bundle import Decoded

CASES = cases()


def digest(addresses: Iterable[npt.NDArray[np.uint64]], without: range = range(0)) -> tuple[int, str]:
    """How many addresses, and sha256 over `%016x` lines of them; those at the indexes `without` are left out."""
    state, index, count = hashlib.sha256(), 0, 0
    for part in addresses:
        kept = [ip for position, ip in enumerate(part.tolist(), index) if position not in without]
        index += len(part)
        count += len(kept)
        state.update(b"".join(b"%016x\n" % ip for ip in kept))
    return count, state.hexdigest()


@pytest.mark.skipif(not CASES, reason=f"no reference traces in {FOLDER} (set PTWEAVE_PTDATA)")
def test_there_are_cases_of_every_kind() -> None:
    names = {case.folder.name.split("-")[0] for case in CASES}
    assert {"arcus", "lldb", "hase", "dynamorio"} <= names


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.folder.name)
def test_decodes_as_the_reference_did(case: Case, tmp_path: Path) -> None:
    bundle = case.bundle(tmp_path / "run.ptw")
    decoded = bundle.decode()
    count, sha256 = digest(Expansion(decoded.bundle).addresses(0))
    assert (count, sha256) == (case.truth["instructions"], case.truth["ip_list_sha256"])
    assert decoded.thread()["instructions"] == count
    check_errors(case, decoded)
    assert tracing_events(decoded) == case.events()
    ledger = decoded.bundle.ledger()["decode/0"]
    assert ledger.balanced
    assert ledger.produced == case.trace["bytes"]


def check_errors(case: Case, decoded: Decoded) -> None:
    """Errors at the same instructions; what comes before the first PSB is the only other gap."""
    before = [0]
    for _, instructions, _ in decoded.flow():
        before.append(before[-1] + instructions)
    found = [(before[row["seq"]], row["ip"]) for row in decoded.rows("gaps")
             if row["kind"] in ("decode_error", "missing_image")]
    assert found == [(error["insn_index"], int(error["ip"], 16)) for error in case.truth["errors"]]
    others = [gap for gap in decoded.gaps() if gap[0] not in ("decode_error", "missing_image", "overflow")]
    first = case.trace["ptdump"]["first_sync_offset"]
    assert others in ([], [("truncated", 0, first)])


@pytest.mark.skipif(not CASES, reason=f"no reference traces in {FOLDER} (set PTWEAVE_PTDATA)")
def test_without_errata_a_real_trace_decodes_differently(tmp_path: Path) -> None:
    """The control: BDM70 shows in this trace, and shows only when the processor is not named."""
    differs = []
    for number, case in enumerate(CASES):
        bundle = case.bundle(tmp_path / f"{number}.ptw")
        bundle.engine = "soft"
        if bundle.decode().thread()["instructions"] != case.truth["instructions"]:
            differs.append(case.folder.name)
    assert differs
