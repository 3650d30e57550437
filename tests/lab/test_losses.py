# SPDX-License-Identifier: MIT
"""What is missing in a recording is said: where, why, and how much of it is known; what cannot be recorded is an error
that says what to do."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from lab.build import own_pmu
from lab.exact import check_exact, decoded, executed, gaps, packets
from lab.machine import Job


@pytest.mark.lab("overflow")
def test_packets_that_the_processor_dropped_are_gaps_and_the_rest_is_right(job: Job) -> None:
    bundle = decoded(job)
    (ran,) = job.oracle
    overflows = int(job.text("overflows"))
    kinds = [gap["kind"] for gap in gaps(bundle)]
    assert overflows > 20
    assert kinds == ["overflow"] * overflows
    ((count, _),) = executed(bundle).values()
    seen = ran.count - ran.unseen
    # before each overflow, what followed the last packet is not known, up to the next branch
    assert seen - 50 * overflows <= count <= seen


@pytest.mark.lab("junk")
def test_bytes_that_are_no_packets_are_one_gap_of_known_place_and_size(job: Job) -> None:
    bundle = decoded(job)
    (gap,) = gaps(bundle)
    trace = packets(bundle)["0"].read_bytes()
    assert gap["kind"] == "decode_error"
    place, size = int(str(gap["offset"])), int(str(gap["bytes"]))
    assert trace.count(b"\xff" * 32) == 1
    assert place <= trace.index(b"\xff" * 32) < place + 16  # what stands before it may not be whole without it
    assert trace.find(b"\x02\x82" * 8, place) == place + size
    ((count, _),) = executed(bundle).values()
    (ran,) = job.oracle
    assert ran.count - 200 * size <= count < ran.count


@pytest.mark.lab("truncated")
def test_a_trace_goes_on_after_the_kernel_had_to_stop_it(job: Job) -> None:
    bundle = decoded(job)
    stopped = int(job.text("stopped"))
    found = gaps(bundle)
    assert {gap["kind"] for gap in found} <= {"lost", "truncated"}
    assert any(gap["kind"] == "lost" and gap["offset"] == stopped for gap in found)
    assert packets(bundle)["0"].stat().st_size == int(job.text("bytes")) > stopped
    ((count, _),) = executed(bundle).values()
    (ran,) = job.oracle
    skipped = sum(int(str(gap["bytes"])) for gap in found)  # up to the next PSB
    assert 0 <= ran.count - count < 1000 + 100 * skipped
    assert count > 0.9 * ran.count
    stream = bundle.ledger()["trace/0"]
    assert stream.produced == stream.stored == int(job.text("bytes"))


@pytest.mark.lab("lost")
def test_records_that_the_kernel_dropped_are_counted_exactly(job: Job) -> None:
    seen, stored = Counter(json.loads(job.text("seen"))), Counter(json.loads(job.text("stored")))
    told = stored.pop("LOST")
    lost = int(job.text("lost"))
    assert told >= 1
    assert lost > 100
    seen["AUX"] = int(job.text("outs")) + 1  # one whenever it is taken from its processor, and one at its end
    more = seen.total() - stored.total() - lost
    assert 0 <= more < seen["AUX"] / 20 if own_pmu() else more == 0  # ours leaves none where there were no packets
    assert all(stored[kind] <= seen[kind] for kind in stored)
    assert decoded(job).ledger()["sideband"].lost == {"the kernel's ring was full": lost}


@pytest.mark.lab("errors")
def test_what_cannot_be_is_an_error_with_a_remedy_and_leaves_nothing(job: Job) -> None:
    said = job.text("stderr").splitlines()
    assert (job.text("three_pages"), job.text("left_three")) == ("3\n", "False\n")
    assert (job.text("busy"), job.text("left_busy")) == ("3\n", "False\n")
    assert any("does not take 12288 bytes" in line and "a power of two" in line for line in said)
    assert any("in use by somebody else" in line and "end the other tracer" in line for line in said)


@pytest.mark.lab("errors")
def test_once_the_other_tracer_has_ended_recording_works(job: Job) -> None:
    assert job.text("free") == "0\n"
    check_exact(job, "free")
