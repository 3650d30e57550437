# SPDX-License-Identifier: MIT
"""Where a run of blocks is cut, how what repeats is joined to paths, and that the same run is one path."""

from __future__ import annotations

import random
from pathlib import Path

from support.assembler import Code, assemble
from support.pt_writer import PtWriter
from support.trace_bundle import Decoded, TraceBundle

LOOP = "loop: dec %eax\njnz loop\nsyscall\nnop"


def run(tmp_path: Path, code: Code, packets: PtWriter) -> Decoded:
    tmp_path.mkdir(exist_ok=True)
    decoded = TraceBundle(tmp_path / "run.ptw").map(code.data, code.base).thread(packets.data).decode()
    decoded.check()
    return decoded


def lengths(decoded: Decoded) -> list[int]:
    return [len(path) for path in decoded.paths()]


def test_a_path_is_cut_after_twelve_decisions(tmp_path: Path) -> None:
    code = assemble(LOOP, tmp_path)
    packets = PtWriter().psb_plus().mode_exec().pge(code["loop"]).tnt_long("!" * 29 + ".").pgd()
    assert lengths(run(tmp_path, code, packets)) == [12, 12, 7]


def test_how_the_bits_are_packed_does_not_matter(tmp_path: Path) -> None:
    code = assemble(LOOP, tmp_path)
    head = PtWriter().psb_plus().mode_exec().pge(code["loop"])
    for _ in range(29):
        head.tnt("!")
    assert lengths(run(tmp_path, code, head.tnt(".").pgd())) == [12, 12, 7]


def test_the_same_run_is_one_path(tmp_path: Path) -> None:
    code = assemble(LOOP, tmp_path)
    packets = PtWriter().psb_plus().mode_exec().pge(code["loop"]).tnt_long("!" * 36).tnt("!" * 6).tnt("!" * 6)
    decoded = run(tmp_path, code, packets)
    assert [row["path"] for row in decoded.rows("flow")] == [0, 0, 0, 0]
    assert [row["seq"] for row in decoded.rows("flow")] == [0, 12, 24, 36]
    (path,) = decoded.rows("paths")
    assert (path["length"], path["instructions"], path["blocks"]) == (12, 24, [0] * 12)


def test_returns_count_as_decisions(tmp_path: Path) -> None:
    code = assemble("again: call f\njmp again\nf: ret", tmp_path)
    packets = PtWriter().psb_plus().mode_exec().pge(code["again"]).tnt_long("!" * 24)
    # each round is call, return, jump: the twelfth return ends a path
    assert lengths(run(tmp_path, code, packets)) == [35, 36]


def test_indirect_branches_cut(tmp_path: Path) -> None:
    code = assemble("a: jmp b\nb: jmp *%rax\nc: call *%rax\nd: jmp e\ne: syscall\nf: nop\nhlt", tmp_path)
    packets = PtWriter().psb_plus().mode_exec().pge(code["a"]).tip(code["c"]).tip(code["d"]).pgd()
    assert [[last for _, _, last in path] for path in run(tmp_path, code, packets).paths()] == [
        ["jump", "ind_jump"], ["ind_call"], ["jump", "syscall"]]


def test_events_cut(tmp_path: Path) -> None:
    code = assemble(LOOP, tmp_path)
    packets = PtWriter().psb_plus().mode_exec().pge(code["loop"]).tnt("!!").fup(code["loop"]).pgd()
    packets.pge(code["loop"]).tnt("!.").pgd()
    decoded = run(tmp_path, code, packets)
    assert lengths(decoded) == [2, 3]
    assert [row["seq"] for row in decoded.rows("pt_events")] == [0, 0, 2, 2, 5]


def test_a_psb_cuts(tmp_path: Path) -> None:
    code = assemble(LOOP, tmp_path)
    packets = PtWriter().psb_plus().mode_exec().pge(code["loop"]).tnt("!!!")
    packets.psb_plus(ip=code["loop"], tsc=1100).tnt("!!").pgd()
    assert lengths(run(tmp_path, code, packets))[0] == 3


def test_from_a_psb_on_the_trace_decodes_the_same_alone(tmp_path: Path) -> None:
    code = assemble(LOOP, tmp_path)
    first = PtWriter().psb_plus().mode_exec().pge(code["loop"]).tnt("!!!!!!").tnt("!!!")
    second = PtWriter().psb_plus(ip=code["loop"], tsc=1100).tnt("!!!!!!").tnt("!!!!!!").tnt("!!.").pgd()
    whole = run(tmp_path / "whole", code, PtWriter().raw(bytes(first.data + second.data)))
    alone = run(tmp_path / "alone", code, second)
    assert whole.paths()[-len(alone.paths()):] == alone.paths()
    assert len(whole.paths()) == len(alone.paths()) + 1


def test_very_long_runs_of_direct_calls_are_cut(tmp_path: Path) -> None:
    code = assemble(".rept 5000\ncall 1f\n1: nop\n.endr\nsyscall", tmp_path)
    assert lengths(run(tmp_path, code, PtWriter().psb_plus().mode_exec().pge(code["_start"]).pgd())) == [4096, 905]


def test_blocks_of_more_than_65535_instructions_are_split(tmp_path: Path) -> None:
    code = assemble(".rept 70000\nnop\n.endr\nsyscall", tmp_path)
    decoded = run(tmp_path, code, PtWriter().psb_plus().mode_exec().pge(code["_start"]).pgd())
    assert [(instructions, last) for _, instructions, last in decoded.flow()] == [(65535, "other"),
                                                                                 (4466, "syscall")]


def test_blocks_tell_where_they_lie(tmp_path: Path) -> None:
    code = assemble("xor %eax, %eax\nadd $0x11223344, %eax\njmp *%rax\nnext: nop\nret", tmp_path)
    packets = PtWriter().psb_plus().mode_exec().pge(code["_start"]).tip(code["next"]).fup(code["next"] + 1).pgd()
    bundle = TraceBundle(tmp_path / "run.ptw").map(b"\xcc" * 64 + code.data, code.base - 64)
    first, second = bundle.thread(packets.data).decode().rows("blocks")
    assert (first["image"], first["offset"], first["ip"], first["size"], first["last_ip"]) == (
        0, 64, code.base, 9, code.base + 7)
    assert (second["offset"], second["size"], second["last_ip"]) == (64 + 9, 1, code["next"])


def test_the_same_code_at_two_addresses_is_two_blocks(tmp_path: Path) -> None:
    code = assemble("nop\njmp *%rax", tmp_path)
    bundle = TraceBundle(tmp_path / "run.ptw").map(code.data, 0x401000).map(code.data, 0x501000)
    packets = PtWriter().psb_plus().mode_exec().pge(0x401000).tip(0x501000).tip(0x401000)
    decoded = bundle.thread(packets.data).decode()
    assert [ip for ip, _, _ in decoded.flow()] == [0x401000, 0x501000]
    assert [row["offset"] for row in decoded.rows("blocks")] == [0, 0]


def test_paths_are_shared_between_threads_and_numbered_by_first_use(tmp_path: Path) -> None:
    code = assemble(LOOP, tmp_path)
    packets = PtWriter().psb_plus().mode_exec().pge(code["loop"]).tnt("!!.").pgd().data
    bundle = TraceBundle(tmp_path / "run.ptw").map(code.data, code.base)
    decoded = bundle.thread(packets).thread(packets, number=3).decode()
    decoded.check()
    assert [(row["thread"], row["seq"], row["path"]) for row in decoded.rows("flow")] == [(0, 0, 0), (3, 0, 0)]
    assert decoded.thread(3)["first_block"] == 0


def test_random_branches_make_shorter_paths_instead_of_ever_more(tmp_path: Path) -> None:
    """Two hundred thousand random decisions: far fewer blocks are stored in paths than with paths of any length."""
    code = assemble("a: jz b\nnop\njmp a\nb: jnz a\njmp b", tmp_path)
    chance = random.Random(7)
    packets = PtWriter().psb_plus().mode_exec().pge(code["a"])
    for _ in range(5000):
        packets.tnt_long("".join(chance.choice("!.") for _ in range(40)))
    decoded = run(tmp_path, code, packets)
    assert decoded.thread()["branches"] > 200_000
    assert max(row["length"] for row in decoded.rows("paths")) <= 24


def test_what_repeats_becomes_longer_paths(tmp_path: Path) -> None:
    """A thousand rounds of a loop with an indirect call: far fewer rows than calls, and the blocks are the same."""
    code = assemble("loop: call *%rbx\nback: dec %eax\njnz loop\nsyscall\nf: nop\nret", tmp_path)
    packets = PtWriter().psb_plus().mode_exec().pge(code["loop"])
    for _ in range(1000):
        packets.tip(code["f"]).tnt("!!")
    decoded = run(tmp_path, code, packets)
    round_of = [(code["loop"], 1, "ind_call"), (code["f"], 2, "return"), (code["back"], 2, "cond_jump")]
    assert decoded.flow() == round_of * 1000
    assert len(decoded.rows("flow")) < 250 and len(decoded.rows("paths")) < 20
    assert max(lengths(decoded)) == 3 * 8


def test_what_came_after_something_else_is_not_joined(tmp_path: Path) -> None:
    """Two functions called in turns at random: no pair of calls leads the others by far, paths stay short."""
    code = assemble("loop: call *%rbx\nback: jmp loop\nf: nop\nret\ng: ret\nh: nop\nnop\nret\ni: nop\nnop\nnop\nret",
                    tmp_path)
    packets, chance = PtWriter().psb_plus().mode_exec().pge(code["loop"]), random.Random(3)
    called = [chance.choice("fghi") for _ in range(300)]
    for name in called:
        packets.tip(code[name]).tnt("!")
    decoded = run(tmp_path, code, packets)
    assert [ip for ip, _, last in decoded.flow() if last == "return"] == [code[name] for name in called]
    assert sum(lengths(decoded)) / len(lengths(decoded)) < 6


def test_far_transfers_end_paths_however_often_they_come(tmp_path: Path) -> None:
    code = assemble("loop: nop\nsyscall\nafter: jmp loop", tmp_path)
    packets = PtWriter().psb_plus().mode_exec().pge(code["loop"])
    for _ in range(300):
        packets.tip(code["after"])
    paths = run(tmp_path, code, packets).paths()
    assert all("syscall" not in [last for _, _, last in path[:-1]] for path in paths)
