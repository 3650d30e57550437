# SPDX-License-Identifier: MIT
"""The flight recorder of threads that are processes, and of a process that ran already."""

from __future__ import annotations

import pytest

from lab.exact import decoded, executed, gaps, packets, threads
from lab.machine import Job
from lab.stretches import NOT_KEPT, addresses, check_is_the_end_of, parts, stretches
from ptweave.data import Bundle
from ptweave.decode.dump import Form
from support.dumping import flow_lines

RING = 64 << 10
AT_REST = 500
"""Instructions before a thread waits that are the same in every run. Those before may not be: which thread looks at a
page first, and is told of it, differs."""


def ran(job: Job, name: str) -> dict[int, tuple[int, int]]:
    """What the module says of each task."""
    return {one.tid: (one.count, one.hash) for one in job.executed(f"oracle_{name}")}


def same_end(one: list[int], other: list[int]) -> int:
    """How many of the last instructions are the same."""
    pairs = zip(reversed(one), reversed(other), strict=False)
    return next((count for count, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def begun(bundle: Bundle) -> dict[int, tuple[int, int]]:
    """What was decoded of each task."""
    return {tid: found for tid, found in executed(bundle).items() if found[0]}


@pytest.mark.lab("snapshot_process")
def test_a_snapshot_of_threads_that_are_processes_is_what_ran_where_the_rings_hold_it(job: Job) -> None:
    bundle = decoded(job, "whole")
    assert job.text("whole") == "0\n"
    assert begun(bundle) == ran(job, "whole")
    assert len(begun(bundle)) == 4
    assert not any("were overwritten" in str(gap["detail"]) for gap in gaps(bundle))
    assert bundle.ledger().check() == []


@pytest.mark.lab("snapshot_process")
def test_a_smaller_ring_has_the_end_of_what_each_of_them_ran(job: Job) -> None:
    """From its first PSB on. A processor makes one after so many bytes of all its threads' packets: of two that take
    turns, one may have none for a ring's length."""
    whole, small = decoded(job, "whole"), decoded(job, "small")
    references = {thread: addresses(whole, str(thread)) for thread in threads(whole).values()}
    assert len(references) == 4
    kept, same = [], []
    for thread in threads(small).values():
        found = addresses(small, str(thread))
        kept.append(len(found))
        same.append(max(same_end(found, reference) for reference in references.values()))
        assert 0 < kept[-1] < max(map(len, references.values()))
        assert same[-1] >= min(AT_REST, kept[-1])
    assert len(kept) == 4
    assert sum(count > 1000 for count in kept) >= 2
    assert max(count for count, all_same in zip(kept, same, strict=True) if count == all_same) > 1000, \
        "no thread is the same to the last instruction that was kept"
    lost = {stream for stream, why, count, _ in small.ledger().losses if why == NOT_KEPT and count}
    assert lost == {f"trace/{thread}" for thread in references}
    assert small.ledger().check() == []


@pytest.mark.lab("snapshot_process")
def test_a_crash_keeps_all_threads_that_are_processes(job: Job) -> None:
    bundle = decoded(job, "crashed")
    assert job.text("crashed") == job.text("segv")
    assert begun(bundle) == ran(job, "crashed")
    assert len(begun(bundle)) == 2
    assert bundle.ledger().check() == []


@pytest.mark.lab("snapshot_attach")
def test_a_snapshot_of_a_process_that_was_attached_to_is_the_end_of_what_it_ran(job: Job) -> None:
    """The second was taken before the ring was full again: it goes on where the first ended."""
    wanted, found = parts(job), stretches(decoded(job))
    assert (job.text("status_of_record"), job.text("status_of_target")) == ("0\n", "0\n")
    assert len(wanted) == 15
    (kept,) = found
    assert check_is_the_end_of(kept, wanted[:14]) >= 7
    with pytest.raises(AssertionError):  # the control
        check_is_the_end_of(kept[:-1], wanted[:14])


@pytest.mark.lab("snapshot_attach")
def test_a_snapshot_is_taken_when_an_attached_process_reaches_a_function_first(job: Job) -> None:
    bundle = decoded(job, "at")
    assert job.text("status_at") == "0\n"
    assert not any("no snapshot was taken" in line for line in bundle.manifest.lacks)
    lines = flow_lines(bundle, Form.INSTRUCTIONS)[0]
    reached = next(number for number, line in enumerate(lines) if "odd+0x0" in line)
    assert reached > 0 and reached + 1000 < len(lines)


@pytest.mark.lab("snapshot_attach")
def test_what_is_in_no_snapshot_of_an_attached_process_is_counted_to_the_byte(job: Job) -> None:
    bundle = decoded(job)
    stream = bundle.ledger()["trace/cpu-1"]
    assert stream.produced == int(job.text("bytes"))
    assert stream.stored == packets(bundle)["cpu-1"].stat().st_size == int(job.text("stored14"))
    assert int(job.text("stored12")) == RING
    assert stream.lost == {NOT_KEPT: stream.produced - stream.stored}
    assert bundle.ledger().check() == []
