# SPDX-License-Identifier: MIT
"""What the hardware recorder brought home, exported as perf.data: `perf script` finds what ran in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.exact import decoded, threads
from lab.machine import Job
from ptweave.decode.dump import Form
from ptweave.decode.export_perf import export_perf
from support import perf_script
from support.dumping import flow_lines

pytestmark = pytest.mark.skipif(not perf_script.available(), reason="no perf here (Debian package linux-perf)")


def agree(job: Job, folder: Path, name: str = "run") -> None:
    bundle = decoded(job, name)
    made = export_perf(bundle, folder / "run.perf")
    ran, errors = perf_script.script(made.path / "perf.data", made.path / "symfs")
    assert (made.lacks, errors) == ([], [])
    tids = threads(bundle)
    assert {one.tid for one in ran} == set(tids)
    for tid, thread in tids.items():
        ours = [int(line, 16) for line in flow_lines(bundle, Form.IPS, threads=[str(thread)])[0]]
        assert [one.ip for one in ran if one.tid == tid] == ours


@pytest.mark.lab("signals")
def test_a_trace_of_a_thread(job: Job, tmp_path: Path) -> None:
    agree(job, tmp_path)


@pytest.mark.lab("hops")
def test_traces_of_processors(job: Job, tmp_path: Path) -> None:
    agree(job, tmp_path)


@pytest.mark.lab("filters")
def test_a_filtered_trace(job: Job, tmp_path: Path) -> None:
    agree(job, tmp_path, "one")
