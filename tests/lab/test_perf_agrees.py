# SPDX-License-Identifier: MIT
"""What `perf record` makes on the same machine, imported: real perf.data files, of the same program."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path

import pytest

from lab.exact import decoded, executed, gaps
from lab.machine import Job
from ptweave.data import Bundle
from ptweave.decode.dump import Form
from ptweave.decode.flow import decode_flow
from ptweave.decode.perfimport import Options, import_perf
from support.dumping import flow_lines


@pytest.fixture
def imported(job: Job, tmp_path: Path) -> Bundle:
    made = import_perf(Options(job.folder / "perf.data", tmp_path / "perf.ptw", symfs=job.folder / "symfs"))
    decode_flow(made.bundle)
    return made.bundle


@pytest.mark.lab("perf_record")
def test_an_imported_perf_recording_decodes_to_what_ran(job: Job, imported: Bundle) -> None:
    assert executed(imported) == {ran.tid: (ran.count, ran.hash) for ran in job.executed("oracle_perf")}
    assert [gap for gap in gaps(imported) if gap["kind"] != "missing_image"] == []


@pytest.mark.lab("perf_record")
def test_perf_and_we_record_the_same_instructions_of_the_same_program(job: Job, imported: Bundle) -> None:
    """But for its start, which looks at an environment that is not the same."""
    ours = flow_lines(decoded(job), Form.IPS)[0]
    theirs = flow_lines(imported, Form.IPS)[0]
    pairs = zip(reversed(ours), reversed(theirs), strict=False)
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    assert len(ours) > 100_000
    assert same > 0.8 * len(ours)
