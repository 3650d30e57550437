# SPDX-License-Identifier: MIT
"""A recorder that is killed leaves a bundle that can be read: what is in it is the beginning of what ran."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.exact import decoded, executed, gaps
from lab.machine import Job
from ptweave.data import Bundle, State
from ptweave.decode.dump import Form
from ptweave.decode.flow import decode_flow
from ptweave.wrapper.supervisor import Repaired, repair
from support.dumping import flow_lines


def addresses(bundle: Bundle) -> list[str]:
    """Of all instructions that were executed."""
    decode_flow(bundle)
    return flow_lines(bundle, Form.IPS)[0]


def left_behind(folder: Path) -> list[Bundle]:
    """Bundles of recorders that lived long enough to begin one, and not to its end."""
    found = [Bundle.open(path) for path in sorted(folder.glob("[0-9]*.ptw")) if (path / "run.json").exists()]
    return [bundle for bundle in found if bundle.manifest.state is State.RECORDING]


@pytest.mark.lab("killed")
def test_what_a_killed_recorder_leaves_is_the_true_beginning_of_the_run(job: Job) -> None:
    whole = Bundle.open(job.folder / "whole.ptw")
    reference = addresses(whole)
    assert gaps(whole) == []
    sizes = []
    for bundle in left_behind(job.folder):
        assert repair(bundle) is Repaired.RECORDER_DIED
        again = Bundle.open(bundle.path)
        assert again.manifest.state is State.PARTIAL
        assert again.ledger().check() == []
        assert not (bundle.path / "spool").exists()
        found = addresses(again)
        assert found == reference[:len(found)]
        sizes.append(len(found))
    assert int(job.text("killed")) >= 5
    assert len(set(sizes)) > 2, f"the moments were all the same: {sizes}"


@pytest.mark.lab("killed")
def test_the_target_of_a_killed_recorder_is_unharmed(job: Job) -> None:
    lines = job.text("said").splitlines()
    begun = 1 + sum((bundle.path / "trace").is_dir() and any(path.stat().st_size for path in bundle.trace.glob("*.pt"))
                    for bundle in left_behind(job.folder))
    assert len(set(lines)) == 1
    assert len(lines) >= begun


@pytest.mark.lab("dies")
def test_a_target_that_dies_while_it_shakes_hands_leaves_its_trace_and_a_line_that_says_which_is_missing(
        job: Job) -> None:
    assert job.text("ended") == "-9\n"
    assert "1 (tid " in job.text("stderr") and "there is no such process (any more)" in job.text("stderr")
    bundle = decoded(job)
    assert bundle.manifest.state is State.COMPLETE
    assert bundle.ledger()["threads"].lost == {"no trace could be begun": 1}
    (first,) = [ran for ran in job.oracle if ran.tid == ran.pid]
    assert executed(bundle)[first.tid] == (first.count, first.hash)
