# SPDX-License-Identifier: MIT
"""Golden cases: annotated assembly in tests/golden/*.ptasm decodes to exactly what is written there."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from ptweave.decode.flow import EVENTS
from ptweave.decode.packets import count_packets
from support import golden
from support.golden import PacketLister
from support.pt_assembler import Event


@pytest.fixture(scope="module")
def lister(tmp_path_factory: pytest.TempPathFactory) -> PacketLister:
    return PacketLister(tmp_path_factory.mktemp("packets"))


@pytest.mark.parametrize("name", golden.texts())
def test_decodes_as_written(name: str, tmp_path: Path) -> None:
    case = golden.load(name)
    decoded = golden.bundle(case, tmp_path / "run.ptw").decode()
    found = golden.differences(case, decoded)
    assert not found, f"{case.file}: {name}: {case.about}\n  " + "\n  ".join(found)
    decoded.check()


@pytest.mark.parametrize("name", golden.texts())
def test_packets_are_as_written(name: str, lister: PacketLister) -> None:
    case = golden.load(name)
    assert lister.packets(case.trace, case.cpu) == case.packets


def test_there_are_cases_of_every_packet_and_event() -> None:
    cases = [golden.load(name) for name in golden.texts()]
    assert len(cases) >= 180
    kinds = {packet.kind for case in cases for packet in case.packets}
    assert kinds == {"psb", "psbend", "pad", "tnt.8", "tnt.64", "tip", "tip.pge", "tip.pgd", "fup", "mode.exec",
                     "mode.tsx", "pip", "vmcs", "cbr", "tsc", "tma", "mtc", "cyc", "stop", "ovf", "mnt", "exstop",
                     "mwait", "pwre", "pwrx", "ptw"}
    assert {event.kind for case in cases for event in case.events} == set(EVENTS) - {"unknown"}
    gaps = {gap.kind for case in cases for gap in case.gaps}
    assert gaps == {"decode_error", "missing_image", "overflow", "truncated"}


@pytest.mark.parametrize("what", ["instruction", "event", "gap", "clock", "packet"])
def test_a_wrong_expectation_fails(what: str, tmp_path: Path, lister: PacketLister) -> None:
    """The control: with one flipped expectation of each kind the comparison says so, and only that."""
    case = dataclasses.replace(golden.load("time.cyc-at-jumps" if what == "clock" else "bad.to-nowhere"))
    decoded = golden.bundle(case, tmp_path / "run.ptw").decode()
    assert golden.differences(case, decoded) == []
    if what == "instruction":
        case.run = [*case.run[:-1], case.run[-1] + 1]
    elif what == "event":
        case.events = [dataclasses.replace(case.events[0], target=1), *case.events[1:]]
    elif what == "gap":
        case.gaps = [dataclasses.replace(case.gaps[0], size=case.gaps[0].size + 1)]
    elif what == "clock":
        case.clock = [*case.clock[:-1], (case.clock[-1][0], case.clock[-1][1] + 1)]
    else:
        case.packets = [dataclasses.replace(case.packets[-1], offset=0)]
        assert lister.packets(case.trace) != case.packets
        return
    (difference,) = golden.differences(case, decoded)
    assert difference.startswith(what)


@pytest.mark.parametrize("field", ["size", "update", "detail", "tsc", "offset", "ip", "target", "before"])
def test_a_wrong_event_fails_in_every_field(field: str) -> None:
    event = Event(3, "ptwrite", 0x1000, 0x2000, 7, 8, False, 5000, 40)
    assert golden.agree(event, dataclasses.replace(event))
    other = True if field == "update" else getattr(event, field) + 1
    assert not golden.agree(event, dataclasses.replace(event, **{field: other}))


@pytest.mark.parametrize("name", ["psb.mid-trace-time", "async.branch-back", "ret.mixed-with-branches", "ptw.two",
                                  "mode.async", "ovf.bits-lost"])
def test_a_trace_cut_at_every_byte_gives_a_prefix(name: str, tmp_path: Path) -> None:
    """What is left of a trace decodes to the beginning of what the whole decodes to; every byte is accounted for."""
    case = golden.load(name)
    for end in range(1, len(case.trace)):
        part = dataclasses.replace(case, trace=case.trace[:end])
        decoded = golden.bundle(part, tmp_path / f"{end}.ptw").decode()
        decoded.check()
        ran = golden.addresses(decoded)
        assert ran == case.run[:len(ran)], f"cut at {end}"
        assert not [gap for gap in golden.gaps(decoded) if gap.kind == "decode_error"], f"cut at {end}"


@pytest.mark.parametrize("name", golden.texts())
def test_packets_are_counted_as_written(name: str) -> None:
    case = golden.load(name)
    counts = count_packets(case.trace)
    bits = "".join(str(packet.values[0]) for packet in case.packets if packet.kind.startswith("tnt"))
    times = [packet.values[0] for packet in case.packets if packet.kind == "tsc"]
    assert (counts.packets, counts.by_kind) == (len(case.packets), golden.counted(case.packets))
    assert (counts.tnt_bits, counts.tnt_taken) == (len(bits), bits.count("!"))
    assert counts.cyc_sum == sum(int(str(packet.values[0])) for packet in case.packets if packet.kind == "cyc")
    assert (counts.tsc_first, counts.tsc_last) == ((times[0], times[-1]) if times else (None, None))
    assert counts.first_sync == (case.packets[0].offset if case.packets else None)
