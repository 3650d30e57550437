# SPDX-License-Identifier: MIT
"""Traces decoded in ranges between PSBs: together they are the whole, no instruction is missing or there twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptweave.decode import ranges
from ptweave.decode._ipt import ffi, lib
from support.assembler import Code, assemble
from support.pt_oracle import Oracle
from support.pt_writer import Ip, PtWriter
from support.random_program import Machine, random_run
from support.trace_bundle import Decoded, TraceBundle

EVERY_PSB = 1
NEVER = 1 << 60

CODE = """
start: nop
    inc %eax
    rep movsb
    inc %ebx
    jmp middle
    hlt
middle: call next
    hlt
next: nop
    dec %ecx
    jnz start
after: nop
    syscall
spin: pause
    jmp spin
"""


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Code:
    return assemble(CODE, tmp_path_factory.mktemp("code"))


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    return Oracle(tmp_path_factory.mktemp("oracle"))


def decode(folder: Path, code: Code, packets: PtWriter | bytes | bytearray, size: int = EVERY_PSB) -> Decoded:
    data = packets.data if isinstance(packets, PtWriter) else packets
    folder.mkdir(exist_ok=True)
    bundle = TraceBundle(folder / f"{size}.ptw").map(code.data, code.base).thread(bytes(data))
    decoded = bundle.decode(size=size)
    decoded.check()
    return decoded


def sequence(decoded: Decoded) -> list[int]:
    return [ip for part in decoded.addresses() for ip in part]


def events(decoded: Decoded) -> list[tuple[object, ...]]:
    """Events with the number of instructions before them."""
    before = [0]
    for _, instructions, _ in decoded.flow():
        before.append(before[-1] + instructions)
    return [(before[row["seq"]], row["kind"], row["ip"], row["target"], row["detail"])
            for row in decoded.rows("pt_events")]


# --- where execution stood at a PSB ----------------------------------------------------------------------------------


def stood(data: bytes | bytearray, psb: int = 0) -> tuple[int, int]:
    ip = ffi.new("uint64_t *")
    return lib.ptd_psb_ip(ffi.from_buffer("uint8_t[]", bytes(data)), len(data), psb, ip), int(ip[0])


@pytest.mark.parametrize(("form", "ip"), [
    (Ip.UPDATE_16, 0x1234), (Ip.UPDATE_32, 0x401000), (Ip.SEXT_48, 0xFFFF_8000_1234_5678), (Ip.SEXT_48, 0x7FFF_1234),
    (Ip.UPDATE_48, 0x8000_1234_5678), (Ip.FULL, 0x00FF_8000_1234_5678)])
def test_the_address_in_a_psb_plus_is_read_in_every_compression(form: Ip, ip: int) -> None:
    assert stood(PtWriter().psb().tsc(5).cbr(3).mode_exec().fup(ip, form).psbend().data) == (1, ip)


def test_a_psb_plus_without_an_address_has_none() -> None:
    assert stood(PtWriter().psb().tsc(5).psbend().pge(0x401000).data)[0] == 0
    assert stood(PtWriter().psb().fup(None).psbend().data)[0] == 0


def test_an_address_before_tracing_is_turned_on_says_nothing() -> None:
    """Erratum BDM70."""
    assert stood(PtWriter().psb_plus(ip=0x401000).tsc(7).mode_exec().pge(0x401000).data)[0] == 0
    assert stood(PtWriter().psb_plus(ip=0x401000).tsc(7).tnt("!").pge(0x401000).data)[0] == 1


def test_an_overflow_may_end_a_psb_plus() -> None:
    assert stood(PtWriter().psb().mode_exec().fup(0x401000).ovf().data) == (1, 0x401000)
    assert stood(PtWriter().psb().ovf().fup(0x401000).data)[0] == 0


@pytest.mark.parametrize("data", [b"", b"\x02\x82" * 8, PtWriter().psb().tnt("!").psbend().data,
                                  PtWriter().psb().fup(0x401000).data, PtWriter().psb().raw(b"\x02\xff").data,
                                  PtWriter().psb().psb().psbend().data])
def test_a_psb_plus_that_is_none_is_known(data: bytes) -> None:
    assert stood(data)[0] == -1


def after(data: bytes, start: int = 0) -> int:
    return int(lib.ptd_psb_after(ffi.from_buffer("uint8_t[]", data), len(data), start))


def test_psbs_are_found_where_they_are() -> None:
    part = bytes(PtWriter().psb_plus().pad(5).data)
    assert [after(part * 3, start) for start in (0, 1, len(part), len(part) + 1)] == [
        0, len(part), len(part), 2 * len(part)]
    assert after(part, 1) == ranges.NONE
    assert after(b"\x02\x82" * 7) == ranges.NONE
    assert after(b"") == ranges.NONE


def test_a_payload_that_looks_like_a_psb_is_not_taken_for_its_beginning() -> None:
    packets = PtWriter().ptw(0x8202_8202_8202_8202)
    assert after(bytes(PtWriter().raw(bytes(packets.data)).psb_plus().data)) == len(packets)


# --- the tail of a range ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", ["start", "middle", "next"])
@pytest.mark.parametrize("offset", [0, 1])
def test_a_range_ends_where_the_next_psb_says(tmp_path: Path, code: Code, at: str, offset: int) -> None:
    ip = code[at] + (offset if at != "middle" else 0)
    packets = PtWriter().psb_plus().mode_exec().pge(code["start"]).tnt("!")
    packets.psb_plus(ip=ip, tsc=1100).tnt(".").pgd()
    whole, parts = decode(tmp_path, code, packets, NEVER), decode(tmp_path, code, packets)
    assert parts.gaps() == []
    assert sequence(parts) == sequence(whole)
    assert events(parts) == events(whole)


def test_a_string_instruction_interrupted_by_a_psb_is_there_once(tmp_path: Path, code: Code) -> None:
    rep = code["start"] + 3
    packets = PtWriter().psb_plus().mode_exec().pge(code["start"]).psb_plus(ip=rep, tsc=1)
    packets.psb_plus(ip=rep, tsc=2).tnt(".").pgd()
    decoded = decode(tmp_path, code, packets)
    assert decoded.gaps() == []
    assert sequence(decoded).count(rep) == 1
    assert sequence(decoded) == sequence(decode(tmp_path, code, packets, NEVER))


def test_the_first_time_execution_comes_by_is_where_it_stood(tmp_path: Path, code: Code) -> None:
    packets = PtWriter().psb_plus().mode_exec().pge(code["spin"]).psb_plus(ip=code["spin"] + 2, tsc=1)
    decoded = decode(tmp_path, code, packets.fup(code["spin"]).pgd())
    assert sequence(decoded) == [code["spin"], code["spin"] + 2]
    assert decoded.gaps() == []


def test_a_psb_right_behind_a_target_leaves_no_tail(tmp_path: Path, code: Code) -> None:
    jump = assemble("a: jmp *%rax\nb: nop\nsyscall", tmp_path / "jump")
    packets = PtWriter().psb_plus().mode_exec().pge(jump["a"]).tip(jump["b"]).psb_plus(ip=jump["b"], tsc=1).pgd()
    decoded = decode(tmp_path / "run", jump, packets)
    assert decoded.flow() == [(jump["a"], 1, "ind_jump"), (jump["b"], 2, "syscall")]
    assert decoded.gaps() == []


def test_psbs_while_tracing_is_off_cut_nothing(tmp_path: Path, code: Code) -> None:
    packets = PtWriter().psb_plus(tsc=1).mode_exec().pge(code["after"]).pgd().psb_plus(tsc=2).psb_plus(tsc=3)
    packets.mode_exec().pge(code["after"]).pgd().psb_plus(tsc=4)
    decoded = decode(tmp_path, code, packets)
    assert decoded.flow() == [(code["after"], 2, "syscall")] * 2
    assert decoded.gaps() == []


def test_a_tail_longer_than_a_path_is_whole(tmp_path: Path) -> None:
    code = assemble(".rept 9000\ncall 1f\n1: nop\n.endr\nlast: syscall", tmp_path)
    packets = PtWriter().psb_plus().mode_exec().pge(code["_start"]).psb_plus(ip=code["last"], tsc=1).pgd()
    decoded = decode(tmp_path, code, packets)
    assert decoded.gaps() == []
    assert len(sequence(decoded)) == 18001


def test_an_address_the_code_does_not_lead_to_is_a_gap(tmp_path: Path, code: Code) -> None:
    packets = PtWriter().psb_plus().mode_exec().pge(code["start"]).psb_plus(ip=code["after"], tsc=1).pgd()
    decoded = decode(tmp_path, code, packets)
    (gap,) = decoded.rows("gaps")
    assert (gap["kind"], gap["bytes"], gap["ip"]) == ("decode_error", 0, code["after"])
    assert "the next PSB" in gap["detail"]
    assert sequence(decoded)[-2:] == [code["after"], code["after"] + 1]


def test_an_address_in_the_middle_of_an_instruction_is_a_gap(tmp_path: Path, code: Code) -> None:
    packets = PtWriter().psb_plus().mode_exec().pge(code["start"]).psb_plus(ip=code["start"] + 2, tsc=1)
    gaps = decode(tmp_path, code, packets.fup(code["after"]).pgd()).gaps()
    assert gaps[0][0] == "decode_error"


def test_code_in_circles_that_never_gets_there_is_a_gap(tmp_path: Path, code: Code) -> None:
    packets = PtWriter().psb_plus().mode_exec().pge(code["spin"]).psb_plus(ip=code["after"], tsc=1).pgd()
    (gap,) = decode(tmp_path, code, packets).rows("gaps")
    assert "the next PSB" in gap["detail"]


def test_missing_code_in_the_tail_is_a_missing_image(tmp_path: Path) -> None:
    code = assemble("nop\nnop", tmp_path / "code")
    packets = PtWriter().psb_plus().mode_exec().pge(code.base).psb_plus(ip=code.base + 64, tsc=1)
    (first, *_) = decode(tmp_path, code, packets).rows("gaps")
    assert (first["kind"], first["bytes"], first["ip"]) == ("missing_image", 0, code.base + 2)


def test_tracing_that_was_off_and_is_on_at_the_psb_is_a_gap(tmp_path: Path, code: Code) -> None:
    packets = PtWriter().psb_plus().mode_exec().pge(code["after"]).pgd().psb_plus(ip=code["after"], tsc=1).pgd()
    decoded = decode(tmp_path, code, packets)
    (gap,) = decoded.rows("gaps")
    assert (gap["kind"], gap["bytes"]) == ("decode_error", 0)
    assert "tracing was off" in gap["detail"]
    assert decoded.flow() == [(code["after"], 2, "syscall")] * 2


def test_an_overflow_before_a_psb_is_one_gap(tmp_path: Path, code: Code) -> None:
    packets = PtWriter().psb_plus().mode_exec().pge(code["start"]).tnt(".").ovf()
    packets.psb_plus(ip=code["after"], tsc=1).pgd()
    decoded = decode(tmp_path, code, packets)
    assert [kind for kind, _, _ in decoded.gaps()] == ["overflow"]
    assert decoded.flow()[-1] == (code["after"], 2, "syscall")


def test_half_a_packet_before_a_psb_doubles_nothing(tmp_path: Path, code: Code) -> None:
    packets = PtWriter().psb_plus().mode_exec().pge(code["start"]).tnt("!")
    packets.raw(b"\x19\x01\x02").psb_plus(ip=code["next"], tsc=1).tnt(".").pgd()
    decoded = decode(tmp_path, code, packets)
    assert [kind for kind, _, _ in decoded.gaps()] == ["truncated"]
    assert sequence(decoded).count(code["next"]) == 2


def test_a_psb_plus_nothing_can_be_decoded_from_is_not_cut_at(tmp_path: Path, code: Code) -> None:
    packets = PtWriter().psb_plus().mode_exec().pge(code["after"]).pgd().psb().raw(b"\x02\xff")
    packets.psb_plus(tsc=1).mode_exec().pge(code["after"]).pgd()
    whole, parts = decode(tmp_path, code, packets, NEVER), decode(tmp_path, code, packets)
    assert parts.gaps() == whole.gaps()
    assert sequence(parts) == sequence(whole)


# --- against the instruction decoder ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_ranges_together_are_what_the_instruction_decoder_finds(tmp_path: Path, seed: int, oracle: Oracle) -> None:
    machine = random_run(1000 + seed, tmp_path, steps=3000)
    assert len(machine.psbs) > 2
    whole = decode(tmp_path, machine.code, machine.packets, NEVER)
    parts = decode(tmp_path, machine.code, machine.packets)
    assert sequence(parts) == machine.executed == sequence(whole)
    assert parts.gaps() == []
    assert events(parts) == events(whole)
    found = oracle.run(machine.packets.data, [(machine.code.data, machine.code.base)])
    assert (found.count, found.errors) == (len(machine.executed), 0)
    assert parts.hash() == (found.count, found.hash)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return random_run(1003, tmp_path, steps=3000)


def test_control_without_the_next_psbs_address_instructions_are_missing(
        tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "_stop", lambda *_: None)
    assert sequence(decode(tmp_path, machine.code, machine.packets)) != machine.executed


def test_control_a_wrong_address_is_noticed(
        tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "_stop", lambda *_: machine.code.base - 1)
    decoded = decode(tmp_path, machine.code, machine.packets)
    assert sequence(decoded) != machine.executed
    assert decoded.gaps() != []
