# SPDX-License-Identifier: MIT
"""Damaged traces: what is right is kept, every byte that is not is in a gap, and nothing crashes or hangs."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.assembler import Code, assemble
from support.pt_writer import PSB, PtWriter
from support.random_program import Machine, random_run
from support.trace_bundle import Decoded, TraceBundle

LOOP = "loop: dec %eax\njnz loop\nsyscall\nnop\nhlt"
SETTINGS = settings(max_examples=60, deadline=None, derandomize=True,
                    suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Code:
    return assemble(LOOP, tmp_path_factory.mktemp("loop"))


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    found = random_run(5, tmp_path_factory.mktemp("machine"), steps=600)
    assert len(found.psbs) > 2
    return found


class Runs:
    """Decodes many traces of one program; each gets a folder of its own."""

    def __init__(self, folder: Path, code: Code) -> None:
        self.folder = folder
        self.code = code
        self.count = 0

    def __call__(self, packets: bytes | bytearray, *, finished: bool = True) -> Decoded:
        self.count += 1
        bundle = TraceBundle(self.folder / f"{self.count}.ptw").map(self.code.data, self.code.base)
        decoded = bundle.thread(bytes(packets), finished=finished).decode()
        decoded.check()
        return decoded


def once(code: Code) -> bytes:
    return bytes(PtWriter().psb_plus().mode_exec().pge(code["loop"]).tnt("!!.").pgd().data)


ONCE = 4  # blocks it runs


def test_bytes_before_the_first_psb_are_a_gap(tmp_path: Path, code: Code) -> None:
    decoded = Runs(tmp_path, code)(b"\x55\xaa" * 50 + once(code))
    assert decoded.gaps() == [("truncated", 0, 100)]
    assert len(decoded.flow()) == ONCE
    assert "mid-stream" in decoded.rows("gaps")[0]["detail"]


def test_a_trace_without_a_psb_is_all_gap(tmp_path: Path, code: Code) -> None:
    decoded = Runs(tmp_path, code)(b"\x11" * 300)
    assert decoded.gaps() == [("truncated", 0, 300)]
    assert decoded.flow() == []


def test_a_trace_of_padding_is_no_gap(tmp_path: Path, code: Code) -> None:
    assert Runs(tmp_path, code)(bytes(300)).gaps() == []


def test_an_unknown_packet_is_a_gap_up_to_the_next_psb(tmp_path: Path, code: Code) -> None:
    part = once(code)
    decoded = Runs(tmp_path, code)(part + b"\x02\xff" + b"\x99" * 9 + part)
    (gap,) = decoded.rows("gaps")
    assert gap["kind"] == "decode_error"
    assert gap["offset"] + gap["bytes"] == len(part) + 11
    assert gap["bytes"] >= 11
    assert gap["seq"] in (ONCE - 1, ONCE)
    assert [ip for ip, _, _ in decoded.flow()][-ONCE:] == [code["loop"]] * 3 + [code["loop"] + 4]
    assert gap["detail"]


def test_each_error_is_a_gap_of_its_own(tmp_path: Path, code: Code) -> None:
    part = once(code)
    decoded = Runs(tmp_path, code)((part + b"\x02\xff") * 3 + part)
    assert [kind for kind, _, _ in decoded.gaps()] == ["decode_error"] * 3


def test_a_psb_read_ahead_is_not_lost_with_the_packets_before_it(tmp_path: Path, code: Code) -> None:
    """The first segment runs into missing code while its last packet is being read, right before a PSB."""
    packets = PtWriter().psb_plus().mode_exec().pge(0x999000).pgd()
    whole = packets.data + once(code)
    decoded = Runs(tmp_path, code)(whole)
    assert [kind for kind, _, _ in decoded.gaps()] == ["missing_image"]
    assert len(decoded.flow()) == ONCE
    assert [row["kind"] for row in decoded.rows("pt_events")].count("enabled") == 2


def test_a_segment_that_began_is_not_decoded_twice(tmp_path: Path, code: Code) -> None:
    """Code is missing right after the address of a PSB+: its events and blocks are taken once."""
    bare = assemble("nop\nnop", tmp_path / "bare", base=0x600000)
    packets = PtWriter().psb_plus(ip=bare.base, tsc=1100).tnt("!!!!").tip(code["loop"])
    bundle = TraceBundle(tmp_path / "run.ptw").map(bare.data, bare.base)
    decoded = bundle.thread(packets.data).decode()
    decoded.check()
    assert decoded.flow() == [(bare.base, 2, "other")]
    assert [row["kind"] for row in decoded.rows("pt_events")] == ["exec_mode"]
    assert [kind for kind, _, _ in decoded.gaps()] == ["missing_image"]


def test_a_packet_cut_at_the_end_is_a_gap_of_its_bytes(tmp_path: Path, code: Code) -> None:
    packets = PtWriter().raw(once(code)).tsc(0x123456)
    decoded = Runs(tmp_path, code)(packets.data[:-3], finished=False)
    assert decoded.gaps() == [("truncated", len(once(code)), 5)]
    assert "middle of a packet" in decoded.rows("gaps")[0]["detail"]


def test_an_end_between_packets_is_no_gap(tmp_path: Path, code: Code) -> None:
    """A target that was killed: the trace just stops, and all of it is decoded."""
    packets = PtWriter().psb_plus().mode_exec().pge(code["loop"]).tnt("!!!")
    decoded = Runs(tmp_path, code)(packets.data, finished=False)
    assert decoded.gaps() == []
    assert len(decoded.flow()) == 3


def test_a_psb_cut_at_the_end_is_a_gap(tmp_path: Path, code: Code) -> None:
    part = once(code)
    for size in range(1, 18):
        decoded = Runs(tmp_path / str(size), code) if (tmp_path / str(size)).mkdir() is None else None
        assert decoded is not None
        found = decoded(part + (PSB + b"\x02\x23")[:size], finished=False)
        assert len(found.flow()) == ONCE
        assert sum(size for _, _, size in found.gaps()) <= size


def test_code_in_circles_ends_in_a_gap(tmp_path: Path) -> None:
    code = assemble("here: jmp here", tmp_path)
    packets = PtWriter().psb_plus().mode_exec().pge(code["here"]).tnt("!!")
    decoded = Runs(tmp_path, code)(packets.data + PtWriter().psb_plus().data)
    (gap,) = decoded.rows("gaps")
    assert gap["kind"] == "decode_error"
    assert "circles" in gap["detail"]


def test_a_loop_left_by_an_interrupt_is_no_error(tmp_path: Path) -> None:
    code = assemble("here: nop\njmp here", tmp_path)
    packets = PtWriter().psb_plus().mode_exec().pge(code["here"]).fup(code["here"] + 1).pgd()
    assert Runs(tmp_path, code)(packets.data).gaps() == []


def test_bytes_that_are_no_instruction_are_a_decode_error(tmp_path: Path) -> None:
    code = assemble("nop\n.fill 16, 1, 0x66\nnop", tmp_path)
    decoded = Runs(tmp_path, code)(PtWriter().psb_plus().mode_exec().pge(code.base).tnt("!").data)
    assert [kind for kind, _, _ in decoded.gaps()] == ["decode_error"]


def test_a_psb_plus_without_its_end_is_a_gap(tmp_path: Path, code: Code) -> None:
    broken = PtWriter().psb().tsc(1234).raw(b"\x02\xff").data
    decoded = Runs(tmp_path, code)(broken + once(code))
    assert [kind for kind, _, _ in decoded.gaps()] == ["decode_error"]
    assert decoded.gaps()[0][1:] == (0, len(broken))
    assert len(decoded.flow()) == ONCE


def test_cut_at_every_byte_what_was_decoded_is_a_prefix(tmp_path: Path, machine: Machine) -> None:
    packets = bytes(machine.packets.data)
    runs = Runs(tmp_path, machine.code)
    whole = expand(runs(packets), machine)
    assert whole == machine.executed
    for size in range(min(len(packets), 260)):
        decoded = runs(packets[:size], finished=False)
        part = expand(decoded, machine)
        # the last packet may be a FUP without what follows it: nothing after it is known, all before it is
        assert part == whole[:len(part)]
        assert {kind for kind, _, _ in decoded.gaps()} <= {"truncated"}


def expand(decoded: Decoded, machine: Machine) -> list[int]:
    """Executed addresses, from blocks and the program's own list of where instructions begin."""
    starts = sorted(machine.ip(index) for index in range(len(machine.program)))
    position = {ip: index for index, ip in enumerate(starts)}
    return [ip for block, instructions, _ in decoded.flow()
            for ip in starts[position[block]:position[block] + instructions]]


@SETTINGS
@given(data=st.data())
def test_flipped_bytes_never_crash_and_every_byte_is_accounted_for(
        data: st.DataObject, machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> None:
    packets = bytearray(machine.packets.data)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(packets) - 1))
        packets[at] ^= 1 << data.draw(st.integers(0, 7))
    Runs(tmp_path_factory.mktemp("flip"), machine.code)(packets)


@SETTINGS
@given(noise=st.binary(max_size=400), psb=st.booleans())
def test_noise_never_crashes_and_every_byte_is_accounted_for(
        noise: bytes, psb: bool, machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> None:
    Runs(tmp_path_factory.mktemp("noise"), machine.code)((PSB + b"\x02\x23" if psb else b"") + noise)


@pytest.mark.parametrize("seed", range(8))
def test_wrong_code_never_crashes(tmp_path: Path, machine: Machine, seed: int) -> None:
    """The right packets over code with bytes changed: the decoder meets every kind of contradiction."""
    chance = random.Random(seed)
    wrong = bytearray(machine.code.data)
    for _ in range(20):
        wrong[chance.randrange(len(wrong))] = chance.randrange(256)
    bundle = TraceBundle(tmp_path / "run.ptw").map(bytes(wrong), machine.code.base)
    decoded = bundle.thread(machine.packets.data).decode()
    decoded.check()


def test_losing_a_segment_leaves_the_others_whole(tmp_path: Path, machine: Machine) -> None:
    """Noise in the middle of a PSB segment: what comes after the next PSB is as it was."""
    packets = bytearray(machine.packets.data)
    end = machine.psbs[1]
    packets[end // 2:end // 2 + 8] = b"\x02\xff" * 4
    runs = Runs(tmp_path, machine.code)
    rest = expand(runs(machine.packets.data[end:]), machine)
    found = expand(runs(packets), machine)
    assert found != machine.executed
    assert found[-len(rest):] == rest
