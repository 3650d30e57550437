# SPDX-License-Identifier: MIT
"""A recorder that is killed leaves a bundle that can be read: what is in it is the beginning of what ran."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lab.exact import decoded, executed, gaps
from lab.machine import Job
from ptweave.data import Bundle, State
from ptweave.decode.dump import Form, dump_flow
from ptweave.decode.flow import decode_flow
from ptweave.wrapper.supervisor import Repaired, repair

KILLED = ("killed_at_times", "killed_at_sizes")
TIMES = 25
"""In each of them."""
each_way = pytest.mark.parametrize("job_name", [pytest.param(name, marks=pytest.mark.lab(name)) for name in KILLED])


def addresses(bundle: Bundle) -> bytes:
    """Of all instructions that were executed, as text."""
    decode_flow(bundle)
    text: list[bytes] = []
    dump_flow(bundle, Form.IPS, lambda part: text.append(bytes(part)))
    return b"".join(text)


def left_behind(folder: Path) -> list[Bundle]:
    """Bundles of recorders that lived long enough to begin one, and not to its end."""
    found = [Bundle.open(path) for path in sorted(folder.glob("[0-9]*.ptw")) if (path / "run.json").exists()]
    return [bundle for bundle in found if bundle.manifest.state is State.RECORDING]


@each_way
def test_what_a_killed_recorder_leaves_is_the_true_beginning_of_the_run(job: Job, job_name: str) -> None:
    whole = Bundle.open(job.folder / "whole.ptw")
    reference = addresses(whole)
    assert gaps(whole) == []
    sizes = []
    left = left_behind(job.folder)
    for bundle in left:
        shutil.copytree(bundle.path, job.folder / "repaired" / bundle.path.name)
        again = Bundle.open(job.folder / "repaired" / bundle.path.name)
        assert repair(again) is Repaired.RECORDER_DIED
        again = Bundle.open(again.path)
        assert again.manifest.state is State.PARTIAL
        assert again.ledger().check() == []
        assert not (again.path / "spool").exists()
        found = addresses(again)
        assert reference.startswith(found)
        sizes.append(len(found))
    assert int(job.text("killed")) == TIMES
    assert len(left) > TIMES / 4
    assert len(set(sizes)) > 4, f"the moments were all the same: {sizes}"


@each_way
def test_the_targets_of_killed_recorders_are_unharmed(job: Job, job_name: str) -> None:
    """Each that goes on ends well, and says what it says in a whole run."""
    lines = job.text("said").splitlines()
    ended = [line.split() for line in job.text("ended").splitlines()]
    went_on = [int(status) for name, status in ended if name == "dense-static"]
    traced = sum(any(path.stat().st_size for path in bundle.trace.glob("*.pt")) for bundle in left_behind(job.folder))
    assert len(set(lines)) == 1
    assert len(lines) >= 1 + traced
    assert len(went_on) >= TIMES / 4
    assert set(went_on) == {0}


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
