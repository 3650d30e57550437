# SPDX-License-Identifier: MIT
"""With MTC, CYC and PTWRITE packets in the trace: what decodes is what ran, at finer times, with the values written."""

from __future__ import annotations

from collections import Counter

import pyarrow.parquet as pq
import pytest

from lab.exact import decoded, executed, gaps
from lab.machine import Job
from ptweave.data import Bundle
from ptweave.data.sideband import read_sideband
from support.dumping import packet_lines

ROUNDS = 150
VALUES = [value for i in range(ROUNDS) for value in (0x1122334400000000 + i, 3 * i)]


def kinds(bundle: Bundle) -> Counter[str]:
    """Packets by kind."""
    return Counter(line.split()[1] for lines in [packet_lines(bundle)[0]] for line in lines if len(line.split()) > 1)


def clock(bundle: Bundle) -> list[int]:
    """The times that the flow has."""
    files = sorted((bundle.tables / "clock").rglob("*.parquet"))
    return [int(row["tsc"]) for file in files for row in pq.read_table(file).to_pylist()]


def written(bundle: Bundle) -> list[tuple[int, int]]:
    """Values and sizes of PTWRITE's events."""
    files = sorted((bundle.tables / "pt_events").rglob("*.parquet"))
    rows = [row for file in files for row in pq.read_table(file).to_pylist() if row["kind"] == "ptwrite"]
    return [(row["detail"], row["size"]) for row in rows]


@pytest.mark.lab("timed")
@pytest.mark.parametrize("name", ["plain", "mtc", "all"])
def test_what_decodes_is_what_ran(job: Job, name: str) -> None:
    assert job.text(name) == "0\n"
    bundle = decoded(job, name)
    assert gaps(bundle) == []
    assert executed(bundle) == {ran.tid: (ran.count, ran.hash) for ran in job.executed(f"oracle_{name}")}
    assert bundle.ledger().check() == []


@pytest.mark.lab("timed")
def test_the_recorder_keeps_what_the_clock_packets_mean(job: Job) -> None:
    cpu = Bundle.open(job.folder / "all.ptw").manifest.cpu
    assert (cpu.mtc_freq, cpu.nom_freq, cpu.tsc_ratio) == (6, 20, (256, 1))


@pytest.mark.lab("timed")
def test_the_packets_asked_for_are_there_and_no_others(job: Job) -> None:
    plain, mtc, both = (kinds(Bundle.open(job.folder / f"{name}.ptw")) for name in ("plain", "mtc", "all"))
    assert not {"mtc", "tma", "cyc", "ptw"} & plain.keys()
    assert mtc["mtc"] > 100 and mtc["tma"] and not mtc["cyc"]
    assert both["mtc"] > 100 and both["cyc"] > 1000
    assert mtc["ptw"] == both["ptw"] == 2 * ROUNDS


@pytest.mark.lab("timed")
def test_values_that_the_program_wrote_are_events(job: Job) -> None:
    expected = [(value, 8 if at % 2 == 0 else 4) for at, value in enumerate(VALUES)]
    for name in ("mtc", "all"):
        assert written(decoded(job, name)) == expected
    assert written(decoded(job, "plain")) == []


@pytest.mark.lab("timed")
def test_times_are_finer_and_right(job: Job) -> None:
    """Right: none is before the run or after it, and they go forward."""
    counts = {}
    for name in ("plain", "mtc", "all"):
        bundle = decoded(job, name)
        times = clock(bundle)
        ends = [row["tsc"] for row in read_sideband(bundle.sideband).to_pylist() if row["tsc"]]
        assert times == sorted(times)
        assert min(ends) - 1_000_000 <= times[0]
        assert times[-1] <= max(ends) + 1_000_000
        counts[name] = len(set(times))
    assert counts["plain"] * 5 < counts["mtc"]
    assert counts["plain"] * 5 < counts["all"]
