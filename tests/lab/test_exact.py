# SPDX-License-Identifier: MIT
"""What the recorder brings home decodes to what ran, instruction by instruction: counts and hashes of all executed
addresses are the module's own, which it keeps beside the packets."""

from __future__ import annotations

import pytest

from lab.exact import check_exact, decoded, executed, packets
from lab.machine import Job
from ptweave.data.sideband import read_sideband
from ptweave.decode.expand import instruction_hash


@pytest.mark.lab("single")
def test_a_program_with_one_thread_decodes_to_what_ran(job: Job) -> None:
    bundle = check_exact(job)
    assert (bundle.manifest.engine, bundle.manifest.events) == ("intel_pt", "perf")
    assert len(job.oracle) == 1


@pytest.mark.lab("single")
def test_one_address_less_is_noticed(job: Job) -> None:
    """The control: the comparison can fail."""
    bundle = decoded(job)
    (ran,) = job.oracle
    assert instruction_hash(bundle, 0, 1) != (ran.count, ran.hash)


@pytest.mark.lab("native")
def test_four_threads_decode_to_what_each_ran(job: Job) -> None:
    bundle = check_exact(job)
    assert len(packets(bundle)) == 5


@pytest.mark.lab("turns")
def test_threads_that_take_turns_at_the_same_system_call_decode_to_what_each_ran(job: Job) -> None:
    check_exact(job)


@pytest.mark.lab("family")
def test_forked_executed_and_spawned_programs_decode_to_what_ran(job: Job) -> None:
    bundle = check_exact(job)
    rows = read_sideband(bundle.sideband).to_pylist()
    begun = sorted((row["detail"], str(row["path"]).rsplit("/", 1)[-1]) for row in rows if row["kind"] == "process")
    assert begun == [("exec", "deterministic"), ("exec", "deterministic"), ("exec", "family"), ("fork", "family"),
                     ("fork", "family")]


@pytest.mark.lab("signals")
def test_signal_handlers_and_a_jump_out_of_one_decode_to_what_ran(job: Job) -> None:
    check_exact(job)


@pytest.mark.lab("wraps")
def test_a_ring_that_wraps_often_loses_nothing(job: Job) -> None:
    bundle = check_exact(job)
    assert packets(bundle)["0"].stat().st_size >= 8 * (64 << 10)


@pytest.mark.lab("static")
def test_a_static_program_is_recorded_by_cpu_and_decodes_to_what_ran(job: Job) -> None:
    bundle = check_exact(job)
    assert set(packets(bundle)) == {"cpu-0", "cpu-1"}
    assert len(executed(bundle)) == 1


@pytest.mark.lab("process")
def test_threads_that_are_processes_decode_to_what_each_ran(job: Job) -> None:
    bundle = check_exact(job)
    assert len(packets(bundle)) == 5
    rows = read_sideband(bundle.sideband).to_pylist()
    assert sorted(row["detail"] for row in rows if row["kind"] == "process") == ["exec", *["thread"] * 4]


@pytest.mark.lab("serial")
def test_threads_that_have_ended_hold_neither_descriptors_nor_memory(job: Job) -> None:
    bundle = check_exact(job)
    assert len(packets(bundle)) == 31
    assert int(job.text("descriptors")) <= 40


@pytest.mark.lab("hops")
def test_a_program_recorded_by_cpu_that_changes_it_all_the_time_decodes_in_the_order_it_ran_in(job: Job) -> None:
    bundle = check_exact(job)
    assert all(path.stat().st_size > 1000 for path in packets(bundle).values())
