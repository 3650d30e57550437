# SPDX-License-Identifier: MIT
"""Each packet kind by itself: hand-written packets and code in, the blocks and events expected by hand out."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.assembler import Code, assemble
from support.pt_writer import Ip, PtWriter
from support.trace_bundle import Decoded, TraceBundle

LOOP = """
    xor %eax, %eax
loop:
    inc %eax
    cmp $3, %eax
    jne loop
done:
    syscall
after:
    nop
    jmp *%rax
elsewhere:
    nop
    ret
other:
    nop
    hlt
"""


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Code:
    return assemble(LOOP, tmp_path_factory.mktemp("loop"))


def run(tmp_path: Path, code: Code, packets: PtWriter) -> Decoded:
    decoded = TraceBundle(tmp_path / "run.ptw").map(code.data, code.base).thread(packets.data).decode()
    decoded.check()
    return decoded


def test_short_tnt_decides_conditional_branches(tmp_path: Path, code: Code) -> None:
    packets = PtWriter().psb_plus().mode_exec().pge(code["_start"]).tnt("!!.").pgd()
    decoded = run(tmp_path, code, packets)
    assert decoded.flow() == [
        (code["_start"], 4, "cond_jump"),
        (code["loop"], 3, "cond_jump"),
        (code["loop"], 3, "cond_jump"),
        (code["done"], 1, "syscall"),
    ]
    assert decoded.events() == [("enabled", code["_start"], code["_start"]), ("exec_mode", code["_start"], None),
                                ("disabled", None, None)]
    assert decoded.gaps() == []
    assert decoded.thread() == {"thread": 0, "trace_bytes": len(packets), "instructions": 11, "blocks": 4,
                                "branches": 4, "gaps": 0, "lost_bytes": 0, "first_block": 0}


def test_a_bit_changed_changes_the_flow(tmp_path: Path, code: Code) -> None:
    packets = PtWriter().psb_plus().mode_exec().pge(code["_start"]).tnt("!.").pgd()
    assert [ip for ip, _, _ in run(tmp_path, code, packets).flow()] == [code["_start"], code["loop"], code["done"]]


def test_long_tnt_holds_47_decisions(tmp_path: Path, code: Code) -> None:
    packets = PtWriter().psb_plus().mode_exec().pge(code["_start"]).tnt_long("!" * 46 + ".").pgd()
    decoded = run(tmp_path, code, packets)
    assert len(decoded.flow()) == 48
    assert decoded.thread()["instructions"] == 4 + 46 * 3 + 1


@pytest.mark.parametrize("form", [Ip.UPDATE_16, Ip.UPDATE_32, Ip.SEXT_48, Ip.UPDATE_48, Ip.FULL])
def test_tip_gives_the_target_in_every_compression(tmp_path: Path, code: Code, form: Ip) -> None:
    packets = PtWriter().psb_plus().mode_exec().pge(code["after"]).tip(code["elsewhere"], form)
    packets.tip(code["other"], form).fup(code["other"] + 1).pgd()
    decoded = run(tmp_path, code, packets)
    assert decoded.flow() == [(code["after"], 2, "ind_jump"), (code["elsewhere"], 2, "return"),
                              (code["other"], 1, "other")]
    assert decoded.gaps() == []


def test_a_high_address_is_sign_extended(tmp_path: Path) -> None:
    high = assemble(LOOP, tmp_path, base=0xFFFFFFFF81000000)
    packets = PtWriter().psb_plus().mode_exec().pge(high["after"], Ip.SEXT_48).tip(high["other"], Ip.UPDATE_16)
    packets.fup(high["other"] + 1).pgd()
    decoded = run(tmp_path, high, packets)
    assert [ip for ip, _, _ in decoded.flow()] == [high["after"], high["other"]]


def test_psb_with_fup_starts_where_execution_was(tmp_path: Path, code: Code) -> None:
    decoded = run(tmp_path, code, PtWriter().psb_plus(ip=code["loop"], tsc=1300).tnt("!.").pgd())
    assert decoded.flow() == [(code["loop"], 3, "cond_jump")] * 2 + [(code["done"], 1, "syscall")]
    assert decoded.clock() == [(0, 1300)]
    assert decoded.rows("clock")[0]["t"] == 5100


def test_disabled_then_resumed_at_the_same_address_is_marked(tmp_path: Path, code: Code) -> None:
    packets = PtWriter().psb_plus().mode_exec().pge(code["_start"]).tnt(".").pgd().tsc(2500).pge(code["after"])
    decoded = run(tmp_path, code, packets.tip(code["other"]).fup(code["other"] + 1).pgd())
    details = [(row["kind"], row["detail"], row["seq"], row["tsc"]) for row in decoded.rows("pt_events")]
    assert details == [("enabled", None, 0, 0), ("exec_mode", 64, 0, 0), ("disabled", None, 2, 0),
                       ("enabled", 1, 2, 2500), ("async_disabled", None, 4, 2500)]
    assert decoded.clock() == [(2, 2500)]


def test_asynchronous_disable_cuts_the_block_where_the_fup_says(tmp_path: Path, code: Code) -> None:
    at = code["loop"] + 2  # before cmp
    packets = PtWriter().psb_plus().mode_exec().pge(code["_start"]).fup(at).pgd().pge(code["other"])
    decoded = run(tmp_path, code, packets.fup(code["other"] + 1).pgd())
    assert decoded.flow() == [(code["_start"], 2, "other"), (code["other"], 1, "other")]
    assert decoded.events()[2] == ("async_disabled", at, None)
    assert decoded.thread()["branches"] == 0


def test_asynchronous_branch_goes_on_at_the_tip(tmp_path: Path, code: Code) -> None:
    at = code["loop"] + 2
    packets = PtWriter().psb_plus().mode_exec().pge(code["_start"]).fup(at).tip(code["other"])
    decoded = run(tmp_path, code, packets.fup(code["other"] + 1).pgd())
    assert decoded.flow() == [(code["_start"], 2, "other"), (code["other"], 1, "other")]
    assert ("async_branch", at, code["other"]) in decoded.events()


def test_disable_with_a_target_names_it(tmp_path: Path, code: Code) -> None:
    packets = PtWriter().psb_plus().mode_exec().pge(code["after"]).pgd(0x7F0000001000)
    decoded = run(tmp_path, code, packets)
    assert decoded.flow() == [(code["after"], 2, "ind_jump")]
    assert decoded.events()[-1] == ("disabled", None, 0x7F0000001000)


def test_disable_without_a_target_may_follow_any_branch(tmp_path: Path, code: Code) -> None:
    packets = PtWriter().psb_plus().mode_exec().pge(code["after"]).pgd().cbr(20).pge(code["_start"]).tnt(".").pgd()
    decoded = run(tmp_path, code, packets)
    assert decoded.flow() == [(code["after"], 2, "ind_jump"), (code["_start"], 4, "cond_jump"),
                              (code["done"], 1, "syscall")]
    assert decoded.gaps() == []


def test_compressed_return_takes_a_bit(tmp_path: Path) -> None:
    code = assemble("call f\nback: syscall\nf: nop\nret", tmp_path)
    packets = PtWriter().psb_plus().mode_exec().pge(code["_start"]).tnt("!").pgd()
    decoded = run(tmp_path, code, packets)
    assert decoded.flow() == [(code["_start"], 1, "call"), (code["f"], 2, "return"), (code["back"], 1, "syscall")]


def test_uncompressed_return_takes_a_tip(tmp_path: Path) -> None:
    code = assemble("call f\nback: syscall\nf: nop\nret", tmp_path)
    packets = PtWriter().psb_plus().mode_exec().pge(code["_start"]).tip(code["back"]).pgd()
    assert [ip for ip, _, _ in run(tmp_path, code, packets).flow()] == [code["_start"], code["f"], code["back"]]


def test_return_with_an_empty_stack_is_a_decode_error(tmp_path: Path) -> None:
    code = assemble("nop\nret", tmp_path)
    packets = PtWriter().psb_plus().mode_exec().pge(code["_start"]).tnt("!").pgd()
    decoded = run(tmp_path, code, packets)
    (gap,) = decoded.rows("gaps")
    assert gap["kind"] == "decode_error"
    assert "return" in gap["detail"]
    assert gap["ip"] == code["_start"] + 1


@pytest.mark.parametrize(("text", "last", "instructions"), [
    ("jmp there\nnop\nthere: nop", "jump", 1),
    ("call there\nnop\nthere: nop", "call", 1),
    ("call next\nnext: nop", "call", 1),
])
def test_direct_branches_end_a_block_and_need_no_packet(tmp_path: Path, text: str, last: str,
                                                        instructions: int) -> None:
    code = assemble(f"{text}\nsyscall", tmp_path)
    decoded = run(tmp_path, code, PtWriter().psb_plus().mode_exec().pge(code["_start"]).pgd())
    assert decoded.flow()[0] == (code["_start"], instructions, last)
    assert decoded.flow()[1][1:] == (2, "syscall")


@pytest.mark.parametrize(("text", "last"), [
    ("jmp *%rax", "ind_jump"), ("notrack jmp *(%rax)", "ind_jump"), ("jmp *8(%r12,%r13,8)", "ind_jump"),
    ("call *%rax", "ind_call"), ("call *0x1000(%rip)", "ind_call"), ("bnd call *%r11", "ind_call"),
    ("ret", "return"), ("ret $16", "return"), ("rep ret", "return"), ("bnd ret", "return"),
    ("syscall", "syscall"), ("sysenter", "syscall"), ("int $0x80", "syscall"),
    ("int3", "far"), ("iretq", "far"), ("lretq", "far"), ("ljmp *(%rax)", "far"), ("lcall *(%rax)", "far"),
    ("sysretq", "far"), ("ud2\nint1", "far"),
])
def test_the_last_instruction_gives_the_class(tmp_path: Path, text: str, last: str) -> None:
    code = assemble(f"nop\n{text}\nafter: nop\nhlt", tmp_path)
    packets = PtWriter().psb_plus().mode_exec().pge(code["_start"]).tip(code["after"]).fup(code["after"] + 1).pgd()
    decoded = run(tmp_path, code, packets)
    assert decoded.flow()[0] == (code["_start"], 1 + len(text.split("\n")), last)
    assert decoded.gaps() == []


@pytest.mark.parametrize("jump", ["jo", "jnz", "jrcxz", "loop", "loopne"])
def test_conditional_jumps_of_every_kind(tmp_path: Path, jump: str) -> None:
    code = assemble(f"{jump} there\nnop\nthere: syscall", tmp_path)
    decoded = run(tmp_path, code, PtWriter().psb_plus().mode_exec().pge(code["_start"]).tnt("!").pgd())
    assert decoded.flow() == [(code["_start"], 1, "cond_jump"), (code["there"], 1, "syscall")]


def test_events_of_power_software_and_state_become_rows(tmp_path: Path, code: Code) -> None:
    packets = PtWriter().psb_plus().vmcs(0x1000).pip(0x2000).cbr(33).pwre(3, 1).exstop()
    packets.pwrx(2, 5, 1).mnt(0x1122334455667788).stop().ptw(0xABCDEF)
    packets.mode_exec().pge(code["_start"]).tnt(".").pgd()
    decoded = run(tmp_path, code, packets)
    found = {row["kind"]: row["detail"] for row in decoded.rows("pt_events")}
    assert found.pop("exec_mode") == 64
    assert found == {"vmcs": 0x1000, "paging": 0x2000, "cbr": 33, "pwre": 0x301, "exstop": None, "pwrx": 0x10205,
                     "mnt": 0x1122334455667788, "stop": None, "ptwrite": 0xABCDEF, "enabled": None,
                     "disabled": None}


def test_mwait_is_an_event_at_its_address(tmp_path: Path, code: Code) -> None:
    packets = PtWriter().psb_plus().mode_exec().pge(code["_start"]).mwait(7, 9).exstop(fup=True).fup(code["loop"])
    decoded = run(tmp_path, code, packets.tnt(".").pgd())
    assert [(row["kind"], row["ip"], row["detail"]) for row in decoded.rows("pt_events")][2:4] == [
        ("mwait", code["loop"], 9 << 32 | 7), ("exstop", code["loop"], None)]
    assert decoded.flow()[:2] == [(code["_start"], 1, "other"), (code["loop"], 3, "cond_jump")]


def test_transactions_are_events_at_their_address(tmp_path: Path, code: Code) -> None:
    packets = PtWriter().psb_plus().mode_exec().pge(code["_start"]).mode_tsx(begun=True).fup(code["loop"])
    decoded = run(tmp_path, code, packets.tnt(".").pgd())
    assert [(row["ip"], row["detail"]) for row in decoded.rows("pt_events") if row["kind"] == "tsx"] == [
        (code["loop"], 1)]


def test_pads_are_no_event_and_no_loss(tmp_path: Path, code: Code) -> None:
    packets = PtWriter().pad(100).psb_plus().pad(7).mode_exec().pge(code["_start"]).pad(3).tnt(".").pgd().pad(50)
    decoded = run(tmp_path, code, packets)
    assert decoded.gaps() == []
    assert len(decoded.flow()) == 2


def test_overflow_is_a_gap_and_decoding_goes_on_at_its_fup(tmp_path: Path, code: Code) -> None:
    packets = PtWriter().psb_plus().mode_exec().pge(code["_start"]).tnt("!").ovf().fup(code["loop"]).tnt(".").pgd()
    decoded = run(tmp_path, code, packets)
    assert [kind for kind, _, _ in decoded.gaps()] == ["overflow"]
    assert ("overflow", None, code["loop"]) in decoded.events()
    assert decoded.flow()[-2:] == [(code["loop"], 3, "cond_jump"), (code["done"], 1, "syscall")]
    assert decoded.thread()["lost_bytes"] == 0


def test_mtc_and_cyc_between_branches_do_no_harm(tmp_path: Path, code: Code) -> None:
    packets = PtWriter().psb().tsc(5000).tma(3, 4).cbr(20).psbend().mode_exec().pge(code["_start"])
    packets.cyc(12).mtc(4).tnt("!").cyc(1000).tnt(".").mtc(5).pgd()
    decoded = run(tmp_path, code, packets)
    assert [ip for ip, _, _ in decoded.flow()] == [code["_start"], code["loop"], code["done"]]
    assert decoded.clock()[0] == (0, 5000)
    assert decoded.gaps() == []
