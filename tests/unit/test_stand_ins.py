# SPDX-License-Identifier: MIT
"""Packets that libipt does not know (events, records of PEBS): nothing of the flow is lost, and they are events."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ptweave.data import Manifest
from ptweave.decode import task
from ptweave.decode._ipt import ffi, lib
from ptweave.decode.flow import Decoder
from ptweave.decode.stand_ins import may_need_stand_ins
from support.assembler import assemble
from support.event_program import EVIDENCE, EventMachine, Said, event_run
from support.pt_writer import PtWriter
from support.timed_program import timed_run
from support.trace_bundle import Decoded, TraceBundle

TOLD = {"cfe", "pebs", "interrupt_flag", "exstop", *EVIDENCE.values()}


def decode(folder: Path, machine: EventMachine, **options: object) -> Decoded:
    bundle = TraceBundle(folder / "run.ptw", engine="intel_pt").map(machine.code.data, machine.code.base)
    decoded = bundle.thread(bytes(machine.packets.data)).decode(**options)
    decoded.check()
    return decoded


def told(decoded: Decoded) -> list[Said]:
    return [(row["kind"], row["ip"], row["detail"]) for row in decoded.rows("pt_events") if row["kind"] in TOLD]


def addresses(decoded: Decoded) -> list[int]:
    return [int(ip) for part in decoded.addresses(0) for ip in part]


@pytest.mark.parametrize("size", [1 << 40, 1])
@pytest.mark.parametrize("decoder", [Decoder.LIBIPT, Decoder.PATHS])
@pytest.mark.parametrize("seed", range(6))
def test_all_instructions_and_all_events_are_told(seed: int, decoder: Decoder, size: int, tmp_path: Path) -> None:
    machine = event_run(seed, tmp_path)
    assert len(machine.said) > 20
    decoded = decode(tmp_path, machine, decoder=decoder, size=size)
    assert decoded.gaps() == []
    assert addresses(decoded) == machine.executed
    assert told(decoded) == machine.said
    assert (decoded.bundle.trace / "0.pt").read_bytes() == machine.packets.data, "the trace stays as it is"


def test_without_stand_ins_the_same_packets_are_gaps(tmp_path: Path) -> None:
    machine = event_run(1, tmp_path)
    bundle = TraceBundle(tmp_path / "run.ptw", engine="soft").map(machine.code.data, machine.code.base)
    decoded = bundle.thread(bytes(machine.packets.data)).decode()
    assert decoded.gaps() != []
    assert len(addresses(decoded)) < len(machine.executed)
    assert {kind for kind, _, _ in told(decoded)} <= {"exstop"}


def test_an_exstop_among_them_stays_one(tmp_path: Path) -> None:
    code = assemble("a: nop\nb: nop\nc: nop\nd: nop\nsyscall", tmp_path)
    packets = PtWriter().psb_plus().mode_exec().pge(code["a"]).exstop(fup=True).fup(code["b"])
    packets.cfe(1, 14, fup=True).fup(code["c"]).exstop(fup=True).fup(code["d"]).exstop().pgd()
    packets.psb_plus().mode_exec().pge(code["a"]).exstop(fup=True).fup(code["b"]).pgd()
    bundle = TraceBundle(tmp_path / "run.ptw", engine="intel_pt").map(code.data, code.base).thread(packets.data)
    found = [(row["kind"], row["ip"]) for row in bundle.decode().rows("pt_events") if row["kind"] in ("exstop", "cfe")]
    assert found == [("exstop", code["b"]), ("cfe", code["c"]), ("exstop", code["d"]), ("exstop", None),
                     ("exstop", code["b"])]


def test_a_record_without_its_end_is_no_gap_in_a_range_that_is_libipts_only_late(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "STEP_ROWS", 1 << 10)  # memory is let go of between two steps
    code = assemble("a: jmp *%rax\nb: ptwrite %rax\njmp *%rax", tmp_path)
    packets = PtWriter().psb_plus().mode_exec().pge(code["a"]).bbp(4).bip(1, 2)
    for _ in range(2000):
        packets.tip(code["a"]).tip(code["a"]).psb_plus(ip=code["a"])
    packets.tip(code["b"]).ptw(1, fup=True).fup(code["b"]).tip(code["a"]).pgd()
    decoded = []
    for decoder in (Decoder.PATHS, Decoder.LIBIPT):
        bundle = TraceBundle(tmp_path / f"{decoder}.ptw", engine="intel_pt").map(code.data, code.base)
        decoded.append(bundle.thread(packets.data).decode(decoder=decoder, size=1 << 40))
    assert [one.gaps() for one in decoded] == [[], []]
    assert decoded[0].flow() == decoded[1].flow()


def replaced(data: bytes) -> tuple[bytes, bool]:
    packets = bytearray(data)
    made = ffi.new("struct ptd_stand_ins **")
    assert lib.ptd_stand_ins_create(ffi.from_buffer("uint8_t[]", packets), len(packets), made) == 0
    lib.ptd_stand_ins_destroy(made[0])
    return bytes(packets), bool(made[0])


@pytest.mark.parametrize("seed", range(5))
def test_where_there_are_none_nothing_is_changed(seed: int, tmp_path: Path) -> None:
    data = bytes(timed_run(seed, tmp_path, 1500).packets.data)
    hidden = PtWriter()
    for payload in (0x1302, 0x5302, 0x6302, 0x3302, 0xB302):  # they look like one inside another packet
        hidden.ptw(payload << 8, size=8).tip(0x400000 | payload)
    assert replaced(data + bytes(hidden.data)) == (data + bytes(hidden.data), False)


@pytest.mark.parametrize("seed", range(40))
def test_any_bytes_are_read_to_their_end(seed: int) -> None:
    chance = random.Random(seed)
    packets = PtWriter().psb_plus(tsc=1000)
    for _ in range(chance.randrange(1, 60)):
        kind = chance.randrange(7)
        if kind == 0:
            packets.cfe(chance.randrange(32), chance.randrange(256), fup=chance.random() < 0.5)
        elif kind == 1:
            packets.evd(chance.randrange(64), chance.randrange(1 << 64))
        elif kind == 2:
            packets.bbp(chance.randrange(32), small=chance.random() < 0.5)
        elif kind == 3:
            packets.bip(chance.randrange(32), chance.randrange(1 << 64))
        elif kind == 4:
            packets.bep(fup=chance.random() < 0.5)
        elif kind == 5:
            packets.psb_plus(tsc=2000)
        else:
            packets.raw(chance.randbytes(chance.randrange(1, 9)))
    data = bytes(packets.data)[:chance.randrange(1, len(packets.data) + 1)]
    once, _ = replaced(data)
    assert len(once) == len(data)
    assert replaced(once)[0] == once, "what was replaced needs nothing more"


def test_only_traces_of_processors_are_looked_at() -> None:
    assert may_need_stand_ins(Manifest(engine="intel_pt"))
    assert may_need_stand_ins(Manifest(engine=""))
    assert not may_need_stand_ins(Manifest(engine="soft"))
