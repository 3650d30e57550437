# SPDX-License-Identifier: MIT
"""What time it is where a range begins: packets read for their time only."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from ptweave.decode._ipt import ffi, lib
from support.pt_writer import PtWriter
from support.timed_program import timed_run

CPU = {"mtc_freq": 3, "nom_freq": 30, "cpuid_0x15_eax": 2, "cpuid_0x15_ebx": 200}


def passed(data: bytes, *stops: int) -> bytes:
    """The `struct ptd_timing` at the last of `stops`, read from one to the next."""
    cpu = ffi.new("struct ptd_cpu *", CPU)
    timing = ffi.new("struct ptd_timing *")
    packets = ffi.from_buffer("uint8_t[]", data)
    at = 0
    for stop in stops:
        assert lib.ptd_timing_pass(cpu, packets + at, stop - at, ffi.NULL, timing) == 0
        at = stop
    return bytes(ffi.buffer(timing))


def known(timing: bytes) -> Any:
    return ffi.from_buffer("struct ptd_timing *", timing)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("timing", [{}, {"cyc": False}, {"mtc": False}])
def test_what_is_known_at_a_psb_does_not_depend_on_where_reading_was_interrupted(
        timing: dict[str, bool], seed: int, tmp_path: Path) -> None:
    machine = timed_run(seed, tmp_path, 1500, **timing)
    data, psbs = bytes(machine.packets.data), machine.psbs
    assert len(psbs) > 1
    at_once = [passed(data, psb) for psb in psbs[1:]]
    assert [passed(data, *psbs[1:count + 1]) for count in range(1, len(psbs))] == at_once
    assert len(set(at_once)) == len(at_once)


def test_malformed_packets_are_left_out_up_to_the_next_psb() -> None:
    packets = PtWriter().psb_plus(tsc=1000)
    packets.data += bytes([0x02, 0x0B])  # an opcode there is none of
    packets.tsc(5000)
    packets.psb_plus(tsc=3000)
    assert known(passed(bytes(packets.data), len(packets.data))).tsc == 3000
    packets.data += bytes([0x02, 0x0B])
    assert known(passed(bytes(packets.data), len(packets.data))).tsc == 3000


@pytest.mark.parametrize("seed", range(40))
def test_any_bytes_are_read_to_their_end(seed: int) -> None:
    chance = random.Random(seed)
    data = chance.randbytes(chance.randrange(1, 4000))
    for _ in range(chance.randrange(3)):
        at = chance.randrange(len(data))
        data = data[:at] + bytes(PtWriter().psb_plus(tsc=chance.randrange(1 << 56)).data) + data[at:]
    passed(data, *sorted(chance.randrange(len(data) + 1) for _ in range(3)), len(data))
