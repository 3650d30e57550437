# SPDX-License-Identifier: MIT
"""Settings of Intel PT reach the processor, and what it has not is an error that says what it has."""

from __future__ import annotations

import pytest

from lab.exact import check_exact, packets
from lab.machine import Job
from ptweave.data import Bundle
from support.dumping import packet_lines

PSB = b"\x02\x82" * 8


def size(bundle: Bundle) -> int:
    return sum(path.stat().st_size for path in packets(bundle).values())


def psbs(bundle: Bundle) -> int:
    return sum(path.read_bytes().count(PSB) for path in packets(bundle).values())


def returns(bundle: Bundle) -> int:
    """Packets with an address."""
    return sum(line.split()[1] == "tip" for line in packet_lines(bundle)[0])


@pytest.mark.lab("settings")
def test_psbs_come_as_often_as_asked_for_and_returns_have_addresses(job: Job) -> None:
    plain, bundle = Bundle.open(job.folder / "plain.ptw"), check_exact(job)
    assert psbs(bundle) > size(bundle) / 4096 > psbs(plain)
    assert returns(bundle) > 2 * returns(plain)


@pytest.mark.lab("settings")
def test_what_the_processor_has_not_is_an_error_that_says_what_it_has(job: Job) -> None:
    assert [job.text(f"bad{number}").strip() for number in range(6)] == ["3", "3", "3", "3", "3", "2"]
    said = job.text("stderr")
    for words in ("has no pwr_evt: leave it out; there is", "takes no mtc_period of 99", "has no sleep: ",
                  "takes no psb_period of 9: choose one of 0, 1, 2,", "takes no psb_period of 99",
                  "without tsc there is nothing to decode"):
        assert words in said
