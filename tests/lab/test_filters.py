# SPDX-License-Identifier: MIT
"""Address filters: what is traced is what the processor was told to trace, and decodes to what ran there."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from lab.exact import decoded, executed, gaps
from lab.machine import Job
from ptweave.data import Bundle
from ptweave.data.manifest import Filter, FilterKind
from ptweave.data.sideband import SidebandKind, read_sideband
from ptweave.decode.dump import Form
from ptweave.decode.flow import Decoder, decode_flow
from ptweave.wrapper.perf.filters import parse_filters
from support.dumping import flow_lines, packet_lines


@pytest.mark.lab("filters")
def test_only_the_function_asked_for_is_traced_and_all_of_it(job: Job) -> None:
    bundle = decoded(job, "one")
    (ran,) = job.executed("oracle_one")
    assert gaps(bundle) == []
    assert executed(bundle) == {ran.tid: (ran.count, ran.hash)}
    (one,) = bundle.manifest.filters
    assert one.kind is FilterKind.FILTER
    ips = [int(line, 16) for line in flow_lines(bundle, Form.IPS)[0]]
    assert ran.count > 5000
    assert one.first == min(ips) and max(ips) <= one.last


@pytest.mark.lab("filters")
def test_a_trace_ends_where_it_is_to_stop(job: Job) -> None:
    """And goes on when the thread comes back to the processor after it was taken from it: the kernel's driver knows no
    end for good."""
    bundle = decoded(job, "stopped")
    (ran,) = job.executed("oracle_stopped")
    assert gaps(bundle) == []
    assert executed(bundle) == {ran.tid: (ran.count, ran.hash)}
    lines = flow_lines(bundle, Form.INSTRUCTIONS)[0]
    calls = [at for at, line in enumerate(lines) if "main+" in line and re.search(r" call .*\bmain\+", line)]
    answered = [at for at in calls if at + 1 < len(lines) and re.search(r"\b(plain|odd|deep)\+0x0\b", lines[at + 1])]
    assert len(calls) > len(answered)
    assert any(line.split()[1] == "stop" for line in packet_lines(bundle)[0])
    assert not any("choose+" in line for line in lines)


@pytest.mark.lab("filters")
def test_a_decoder_that_is_told_of_the_stop_drops_nothing(job: Job, tmp_path: Path) -> None:
    bundle = decoded(job, "stopped")
    expected = executed(bundle)
    shutil.copytree(bundle.path, tmp_path / "told.ptw")
    told = Bundle.open(tmp_path / "told.ptw")
    (row,) = (row for row in read_sideband(told.sideband).to_pylist() if str(row["path"]).endswith("deterministic")
              and row["kind"] == SidebandKind.MAP)
    (choose,) = parse_filters([f"stop choose@{told.images / row['image']}"])
    first = row["addr"] + choose.offset - row["offset"]
    told.manifest.filters = [Filter(FilterKind.STOP, first, first + choose.size - 1)]
    told.save_manifest()
    for decoder in Decoder:
        decode_flow(told, decoder=decoder)
        assert executed(told) == expected
        assert gaps(told) == []


@pytest.mark.lab("filters")
def test_what_cannot_be_filtered_is_an_error(job: Job) -> None:
    said = job.text("stderr")
    assert [job.text(f"bad{number}") for number in range(5)] == ["2\n"] * 5
    assert job.text("three") == "3\n"
    for words in ("start is nothing the kernel does", "there is no function none", "cannot be read",
                  "ACTION SYMBOL@FILE", "is no ELF file", "this processor has 2 address ranges, 3 are asked for"):
        assert words in said
