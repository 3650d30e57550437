# SPDX-License-Identifier: MIT
"""A flight recorder keeps the newest packets when it is asked to, when a function is reached, and when the program
crashes; what it keeps is what ran, and what it does not keep is counted."""

from __future__ import annotations

import pytest

from lab.exact import decoded, executed, gaps, packets
from lab.machine import Job
from lab.stretches import NOT_KEPT, addresses, addresses_between, check_is_the_end_of, parts, stretches
from ptweave.data import Bundle
from ptweave.data.perf.packets import PSB
from ptweave.decode.dump import Form
from support.dumping import flow_lines

RING = 64 << 10


@pytest.fixture
def taken(job: Job) -> Bundle:
    return decoded(job)


@pytest.mark.lab("snapshot")
def test_a_snapshot_on_a_signal_decodes_to_the_end_of_what_ran_before_it(job: Job, taken: Bundle) -> None:
    """The second of the three was taken before the ring was full again: it goes on where the first ended."""
    ran, found = parts(job), stretches(taken)
    assert len(ran) == 30
    assert len(found) == 2
    assert check_is_the_end_of(found[0], ran[:16]) >= 7
    assert check_is_the_end_of(found[1], ran[16:29]) >= 5


@pytest.mark.lab("snapshot")
def test_a_snapshot_with_one_instruction_less_is_noticed(job: Job, taken: Bundle) -> None:
    """The control: the comparison can fail."""
    found, ran = stretches(taken)[0], parts(job)[:16]
    with pytest.raises(AssertionError):
        check_is_the_end_of(found[:-1], ran)
    with pytest.raises(AssertionError):
        check_is_the_end_of(found[:20000] + found[20001:], ran)


@pytest.mark.lab("snapshot")
def test_what_is_in_no_snapshot_is_counted_to_the_byte(job: Job, taken: Bundle) -> None:
    stream = taken.ledger()["trace/0"]
    assert stream.produced == int(job.text("bytes"))
    assert stream.stored == packets(taken)["0"].stat().st_size == int(job.text("stored29"))
    assert stream.lost == {NOT_KEPT: stream.produced - stream.stored}
    assert taken.ledger().check() == []


@pytest.mark.lab("snapshot")
def test_where_packets_are_missing_there_are_gaps(job: Job, taken: Bundle) -> None:
    first, second, third = (int(job.text(f"stored{number}")) for number in (14, 16, 29))
    assert (first, third - second) == (RING, RING)
    found = [(gap["kind"], gap["offset"], gap["detail"]) for gap in gaps(taken) if gap["kind"] == "lost"]
    assert found == [
        ("lost", 0, "snapshot (SIGUSR2): the packets before these were overwritten"),
        ("lost", first, "snapshot (SIGUSR2): tracing was off while it was stored"),
        ("lost", second, "snapshot (SIGUSR2): the packets before these were overwritten"),
        ("lost", third, "the thread ended: packets that are in no snapshot")]
    begins = [gap for gap in gaps(taken) if gap["kind"] == "truncated"]
    trace = packets(taken)["0"].read_bytes()
    assert [(gap["offset"], gap["bytes"]) for gap in begins] == [
        (begin, trace.index(PSB, begin) - begin) for begin in (0, second) if trace.index(PSB, begin) > begin]


def check_is_a_part_of(found: list[int], whole: list[int]) -> int:
    """`found` ran somewhere in `whole`; returns where it ends there."""
    tail = found[-200:]
    ends = [at + 200 for at in range(len(whole) - 199) if whole[at] == tail[0] and whole[at:at + 200] == tail]
    matching = [end for end in ends if whole[end - len(found):end] == found]
    assert len(matching) == 1
    return matching[0]


def reference(job: Job, name: str, oracle: str) -> list[int]:
    """What ran, with the module's word for it."""
    bundle = decoded(job, name)
    assert gaps(bundle) == []
    assert executed(bundle) == {ran.tid: (ran.count, ran.hash) for ran in job.executed(oracle)}
    return addresses(bundle)


def between_losses(bundle: Bundle) -> list[list[int]]:
    """What ran in the first thread from one loss of packets to the next. Where the ring is a processor's, a thread that
    changed processors has another ring's beginning, too."""
    begins = sorted({0} | {int(str(gap["seq"])) for gap in gaps(bundle) if (gap["kind"], gap["thread"]) == ("lost", 0)})
    return [addresses_between(bundle, begin, end) for begin, end in zip(begins, [*begins[1:], None], strict=True)]


@pytest.mark.lab("snapshot_at")
@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_a_snapshot_is_taken_when_a_function_is_reached(job: Job, kind: str) -> None:
    """The program runs on until it rests, and crashes later."""
    whole = reference(job, f"{kind}_whole", f"{kind}_oracle")
    bundle = decoded(job, f"{kind}_at")
    assert any(str(gap["detail"]).startswith("snapshot (reached was reached)") for gap in gaps(bundle))
    lines = flow_lines(bundle, Form.INSTRUCTIONS, threads=["0"])[0]
    (place,) = {int(line.split()[2], 16) for line in lines if "reached+0x0" in line}
    (found,) = [part for part in between_losses(bundle) if place in part]
    end = check_is_a_part_of(found, whole)
    assert whole.count(place) == found.count(place) == 1
    assert whole.index(place) < end


@pytest.mark.lab("snapshot_at")
@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_a_snapshot_is_taken_when_the_program_crashes(job: Job, kind: str) -> None:
    assert job.text(f"{kind}_crashed") == job.text(f"{kind}_whole") == job.text("segv")
    whole = reference(job, f"{kind}_whole", f"{kind}_oracle")
    bundle = decoded(job, f"{kind}_crashed")
    found = between_losses(bundle)[-1]
    assert len(found) > 10_000
    assert found == whole[-len(found):]
    assert any("ended by SIGSEGV" in str(gap["detail"]) for gap in gaps(bundle))
    assert bundle.ledger().check() == []


@pytest.mark.lab("snapshot_at")
def test_all_threads_of_a_program_that_crashes_are_kept(job: Job) -> None:
    bundle = decoded(job, "dynamic_crashed")
    (waited,) = [ran for ran in job.executed("dynamic_crashed_oracle") if ran.tid != ran.pid and ran.count]
    assert len(packets(bundle)) == 2
    assert executed(bundle)[waited.tid] == (waited.count, waited.hash)


@pytest.mark.lab("snapshot_at")
def test_a_run_without_a_snapshot_says_so(job: Job) -> None:
    assert job.text("nothing") == "0\n"
    bundle = decoded(job, "nothing")
    assert sum(path.stat().st_size for path in packets(bundle).values()) == 0
    assert any("no snapshot was taken" in line for line in bundle.manifest.lacks)
    assert sum(count for _, why, count, _ in bundle.ledger().losses if why == NOT_KEPT) > 1000


@pytest.mark.lab("snapshot_at")
def test_places_that_cannot_be_watched_are_errors(job: Job) -> None:
    assert [job.text(f"bad{number}") for number in range(4)] == ["2\n"] * 4
    for words in ("there is no function none", "cannot be read", "is not SYMBOL or SYMBOL@FILE",
                  "no more than 4 breakpoints"):
        assert words in job.text("stderr")
