# SPDX-License-Identifier: MIT
"""Too little memory and too few threads are one line with a remedy; defects are none of them."""

from __future__ import annotations

import pytest

from ptweave.cli.scarce import scarcity


@pytest.mark.parametrize(("error", "what"), [
    (MemoryError(), "memory"),
    (ImportError("libx.so: failed to map segment from shared object"), "memory"),
    (ImportError("libx.so: cannot allocate memory in static TLS block"), "memory"),
    (RuntimeError("can't start new thread"), "threads")])
def test_what_runs_out_is_named_with_a_remedy(error: BaseException, what: str) -> None:
    lacking = scarcity(error)
    assert lacking is not None and what in lacking.what and "ulimit" in lacking.remedy


@pytest.mark.parametrize("error", [ImportError("No module named 'x'"), RuntimeError("a defect"), ValueError()])
def test_control_other_errors_are_not_taken_for_it(error: BaseException) -> None:
    assert scarcity(error) is None
