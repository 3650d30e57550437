# SPDX-License-Identifier: MIT
"""Packets as text: every kind and its payload, what compressed IPs come to, and what cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptweave.data import BadInput
from ptweave.data.bundle import Bundle
from support.dumping import packet_lines
from support.pt_writer import Ip, PtWriter
from support.trace_bundle import TraceBundle


def bundle_of(folder: Path, *traces: bytes | PtWriter) -> Bundle:
    """A bundle that is not decoded."""
    folder.mkdir(parents=True, exist_ok=True)
    writer = TraceBundle(folder / "run.ptw")
    for number, trace in enumerate(traces):
        writer.thread(bytes(trace.data if isinstance(trace, PtWriter) else trace), number=number)
    return writer.write()


def words(lines: list[str]) -> list[str]:
    """The lines without their offsets."""
    return [line[18:] for line in lines]


KINDS: list[tuple[PtWriter, str]] = [
    (PtWriter().pad(), "pad"),
    (PtWriter().psbend(), "psbend"),
    (PtWriter().ovf(), "ovf"),
    (PtWriter().stop(), "stop"),
    (PtWriter().tnt("!.!"), "tnt.8      !.!"),
    (PtWriter().tnt_long("!" * 3 + "." * 44), "tnt.64     " + "!" * 3 + "." * 44),
    (PtWriter().tip(None), "tip        0: ????????????????"),
    (PtWriter().tip(0x7FFF12345678, Ip.SEXT_48), "tip        3: 00007fff12345678"),
    (PtWriter().tip(0xFFFFFFFF81000000, Ip.SEXT_48), "tip        3: ffffffff81000000"),
    (PtWriter().pge(0xFFFF800000001234, Ip.FULL), "tip.pge    6: ffff800000001234"),
    (PtWriter().pgd(), "tip.pgd    0: ????????????????"),
    (PtWriter().fup(0x401000, Ip.SEXT_48), "fup        3: 0000000000401000"),
    (PtWriter().mode_exec(64), "mode.exec  cs.l"),
    (PtWriter().mode_exec(32), "mode.exec  cs.d"),
    (PtWriter().mode_exec(16), "mode.exec"),
    (PtWriter().mode_tsx(begun=True), "mode.tsx   intx"),
    (PtWriter().mode_tsx(aborted=True), "mode.tsx   abrt"),
    (PtWriter().mode_tsx(), "mode.tsx"),
    (PtWriter().pip(0x12345000), "pip        12345000"),
    (PtWriter().pip(0x12345000, non_root=True), "pip        12345000, nr"),
    (PtWriter().vmcs(0xABCDE000), "vmcs       abcde000"),
    (PtWriter().tsc(0x123456789ABCDE), "tsc        123456789abcde"),
    (PtWriter().tma(0x8ECE, 0x4A), "tma        8ece, 4a"),
    (PtWriter().mtc(0xDA), "mtc        da"),
    (PtWriter().cyc(0), "cyc        0"),
    (PtWriter().cyc(31), "cyc        1f"),
    (PtWriter().cyc(0x12345), "cyc        12345"),
    (PtWriter().cbr(0x21), "cbr        21"),
    (PtWriter().ptw(0xDEADBEEF), "ptw        1: deadbeef"),
    (PtWriter().ptw(0xDEADBEEF, fup=True), "ptw        1: deadbeef, ip"),
    (PtWriter().exstop(), "exstop"),
    (PtWriter().exstop(fup=True), "exstop     ip"),
    (PtWriter().mwait(0x20, 1), "mwait      00000020, 00000001"),
    (PtWriter().pwre(2, 1), "pwre       c3.2"),
    (PtWriter().raw(b"\x02\x22\x08\xff"), "pwre       c0.0, hw"),
    (PtWriter().pwrx(2, 5, 1), "pwrx       int: c3, c6"),
    (PtWriter().pwrx(2, 5, 4), "pwrx       st: c3, c6"),
    (PtWriter().pwrx(2, 5, 8), "pwrx       hw: c3, c6"),
    (PtWriter().pwrx(2, 5, 0), "pwrx       bad: c3, c6"),
    (PtWriter().mnt(0x1122334455667788), "mnt        1122334455667788"),
    (PtWriter().mode_exec(64, interrupts=True), "mode.exec  cs.l, if"),
    (PtWriter().mode_exec(16, interrupts=True), "mode.exec  if"),
    (PtWriter().cfe(1, 0xE), "cfe        1, e"),
    (PtWriter().cfe(4, fup=True), "cfe        4, 0, ip"),
    (PtWriter().evd(2, 0x1122334455667788), "evd        2, 1122334455667788"),
    (PtWriter().bbp(4), "bbp        4, 8"),
    (PtWriter().bep(fup=True), "bep        ip"),
]


@pytest.mark.parametrize(("packet", "line"), KINDS, ids=[line for _, line in KINDS])
def test_a_packet_is_a_line_with_its_kind_and_payload(packet: PtWriter, line: str, tmp_path: Path) -> None:
    lines, dumped = packet_lines(bundle_of(tmp_path, PtWriter().psb().raw(bytes(packet.data)).psbend()))
    assert lines[0] == "0000000000000000  psb"
    assert lines[1] == f"0000000000000010  {line}"
    assert lines[2] == f"{16 + len(packet):016x}  psbend"
    assert len(lines) == 3 == dumped.lines
    assert dumped.gaps == {}
    assert dumped.packets[line.split()[0]] >= 1


def test_an_item_of_a_record_is_told_from_a_tnt_by_what_is_before_it(tmp_path: Path) -> None:
    packets = PtWriter().psb_plus().tnt(".").bbp(1).bip(0, 0x99).mtc(7).bip(31, 1 << 63)
    packets.bbp(4, small=True).bip(2, 0xFFFFFFFF, small=True).bep().tnt(".").bbp(0).tip(0x1000).tnt(".")
    lines, dumped = packet_lines(bundle_of(tmp_path, packets))
    assert words(lines) == [
        "psb", "psbend", "tnt.8      .", "bbp        1, 8", "bip        0, 99", "mtc        7",
        "bip        1f, 8000000000000000", "bbp        4, 4", "bip        2, ffffffff", "bep", "tnt.8      .",
        "bbp        0, 8", "tip        1: ????????????1000  0000000000001000", "tnt.8      ."]
    assert dumped.gaps == {}


def test_a_compressed_ip_is_shown_with_what_it_comes_to(tmp_path: Path) -> None:
    packets = (PtWriter().psb().fup(0x7FFF12345678, Ip.SEXT_48).psbend().tip(0x7FFF12341111, Ip.UPDATE_16)
               .tip(None).tip(0x7FFFAABBCCDD, Ip.UPDATE_32).tip(0x123456789ABC, Ip.UPDATE_48)
               .psb().tip(0xFEED, Ip.UPDATE_16))
    assert words(packet_lines(bundle_of(tmp_path, packets))[0]) == [
        "psb", "fup        3: 00007fff12345678", "psbend",
        "tip        1: ????????????1111  00007fff12341111", "tip        0: ????????????????",
        "tip        2: ????????aabbccdd  00007fffaabbccdd", "tip        4: ????123456789abc  0000123456789abc",
        "psb", "tip        1: ????????????feed  000000000000feed"]


def test_what_cannot_be_read_is_a_line_and_reading_goes_on_at_the_next_psb(tmp_path: Path) -> None:
    bad = PtWriter().psb_plus().raw(b"\x02\xff\x55\x55").psb().tnt("!")
    lines, dumped = packet_lines(bundle_of(tmp_path, bad))
    assert words(lines) == ["psb", "psbend", "-- gap: 4 bytes: unknown opcode", "psb", "tnt.8      !"]
    assert lines[2].startswith("0000000000000012  ")
    assert lines[3].startswith("0000000000000016  ")
    assert sum(dumped.gaps.values()) == 1


def test_a_cut_packet_is_a_line(tmp_path: Path) -> None:
    lines, dumped = packet_lines(bundle_of(tmp_path, bytes(PtWriter().psb_plus().tsc(1).data[:-2])))
    assert words(lines) == ["psb", "psbend", "-- gap: 6 bytes: the trace ends in the middle of a packet"]
    assert dumped.gaps


def test_bytes_before_the_first_psb_are_a_line_unless_they_are_padding(tmp_path: Path) -> None:
    lines, dumped = packet_lines(bundle_of(tmp_path / "a", b"\x04" * 5 + bytes(PtWriter().psb().data)))
    assert lines == ["0000000000000000  -- gap: 5 bytes: before the first PSB", "0000000000000005  psb"]
    assert dumped.gaps
    lines, dumped = packet_lines(bundle_of(tmp_path / "b", bytes(5) + bytes(PtWriter().psb().data)))
    assert lines == ["0000000000000005  psb"]
    assert not dumped.gaps


def test_a_trace_without_a_psb_is_one_gap(tmp_path: Path) -> None:
    lines, dumped = packet_lines(bundle_of(tmp_path, b"\x02\x82" * 5))
    assert lines == ["0000000000000000  -- gap: 10 bytes: before the first PSB"]
    assert dumped.gaps


def test_an_empty_trace_has_no_lines(tmp_path: Path) -> None:
    lines, dumped = packet_lines(bundle_of(tmp_path, b""))
    assert lines == []
    assert not dumped.gaps


def test_a_span_of_bytes_shows_what_the_whole_shows_there(tmp_path: Path) -> None:
    packets = PtWriter()
    for number in range(40):
        packets.psb_plus(0x401000, tsc=number).tip(0x402000 + number).tnt("!.!").tip(0x7FFF00000000 + number)
    bundle = bundle_of(tmp_path, packets)
    whole, _ = packet_lines(bundle)
    for begin, end in ((0, 100), (99, 500), (500, len(packets)), (1000, 1001), (3, 17)):
        lines, dumped = packet_lines(bundle, begin=begin, end=end)
        assert lines == [line for line in whole if begin <= int(line[:16], 16) < end]
        assert dumped.lines == len(lines)


def test_several_traces_have_headings_and_can_be_chosen(tmp_path: Path) -> None:
    bundle = bundle_of(tmp_path, PtWriter().psb(), PtWriter().psbend().psb())
    (bundle.trace / "cpu-3.pt").write_bytes(bytes(PtWriter().psb().stop().data))
    (bundle.trace / "nonsense.pt").write_bytes(b"")
    headings = [line for line in packet_lines(bundle)[0] if line.startswith("-- trace")]
    assert headings == ["-- trace 0", "-- trace 1", "-- trace cpu-3"]
    assert words(packet_lines(bundle, traces=["cpu-3"])[0]) == ["psb", "stop"]
    with pytest.raises(BadInput, match="no trace 7"):
        packet_lines(bundle, traces=["7"])


def test_more_packets_than_fit_into_one_text_are_all_there(tmp_path: Path) -> None:
    packets = PtWriter().psb_plus()
    packets.raw(b"\x06\x04" * 200_000)
    lines, dumped = packet_lines(bundle_of(tmp_path, packets))
    assert len(lines) == 400_002 == dumped.lines
    assert dumped.packets == {"psb": 1, "psbend": 1, "tnt.8": 400_000}
    assert len({line[:16] for line in lines}) == len(lines)


def test_a_link_in_place_of_a_trace_is_refused(tmp_path: Path) -> None:
    bundle = bundle_of(tmp_path, PtWriter().psb())
    (bundle.trace / "1.pt").symlink_to("/etc/hostname")
    with pytest.raises(BadInput, match="cannot be read"):
        packet_lines(bundle, traces=["1"])
