# SPDX-License-Identifier: MIT
"""Switches of threads while a processor's trace goes on: whose each instruction is, and when it ran, as perf has it."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from ptweave.decode.flow import decode_flow
from support import perf_case, perf_script
from support.assembler import assemble
from support.event_program import event_run
from support.kernel_program import KERNEL, kernel_run
from support.perf_case import CODE, SIZE, finish, keep_code, keep_vmlinux, ours, perfs
from support.perf_writer import PerfWriter, When
from support.power_program import sleeping_run
from support.pt_writer import PtWriter
from support.ptwrite_program import Address, writing_run
from support.timed_program import START, TimedMachine, timed_run

pytestmark = pytest.mark.skipif(not perf_script.available(), reason="no perf here (Debian package linux-perf)")

TIMING = {"tsc": {"mtc": False, "cyc": False}, "mtc": {"cyc": False}, "mtc+cyc": {}, "cyc": {"mtc": False},
          "rare mtc": {"mtc_shift": 9}}
CUTS = (1, 300, 900)
"""Bytes of ranges that traces are decoded in as well."""

TIDS = (100, 200, 300)

PROGRAMS: dict[str, Callable[..., TimedMachine]] = {
    "plain": timed_run,
    "events": lambda *what, **more: event_run(*what, flags=False, **more),
    "ptwrite with FUP": lambda *what, **more: writing_run(*what, Address.ALWAYS, **more),
    "ptwrite without": lambda *what, **more: writing_run(*what, Address.NEVER, **more),
    "ptwrite with or without": lambda *what, **more: writing_run(*what, Address.AT_TIMES, **more),
    "sleep": sleeping_run,
    "kernel": kernel_run,
    "kernel that changes": lambda *what, **more: kernel_run(*what, often=0.02, **more),
}


def interrupted(folder: Path, program: str, seed: int, timing: str,
                switches: int = 12) -> tuple[Path, Path | None, TimedMachine]:
    """A program whose trace goes on while the CPU is said to be given to another thread, at any moment: all have its
    code mapped. The recording, the kernel's code, and the machine."""
    machine = PROGRAMS[program](seed, folder / "work", **TIMING[timing])
    kernel = program.startswith("kernel")
    writer = PerfWriter(mtc=machine.mtc, cyc=machine.cyc, mtc_period=machine.mtc_shift, user_only=not kernel)
    path = keep_code(folder / "work", folder / "sys", "prog")
    for tid in TIDS:
        writer.comm(tid, tid, "prog").mmap(tid, CODE, SIZE, 0x1000, path)
    if kernel:
        writer.mmap(-1, KERNEL, 0x100000, KERNEL, "[kernel.kallsyms]_text", kernel=True)
    chance, now = random.Random(7 * seed + 1), (0, 0)
    for tsc in [START - 5000, *sorted(chance.sample(range(START + 200, machine.now()), switches))]:
        chosen = chance.choice([tid for tid in TIDS if tid != now[0]])
        writer.switch_pair(tsc, 0, now, (chosen, chosen))
        now = (chosen, chosen)
    writer.auxtrace(bytes(machine.packets.data), reference=START, tid=-1)
    finish(writer, machine, tid=now[0])
    for poked in getattr(machine, "pokes", []):
        writer.text_poke(poked.address, poked.old, poked.new, When(0, 0, writer.ns(poked.tsc), 0))
    vmlinux = keep_vmlinux(folder / "work", folder / "sys") if kernel else None
    return writer.round().write(folder / "perf.data"), vmlinux, machine


def agree(file: Path, vmlinux: Path | None) -> perf_case.Answer:
    """Both say the same, wherever our ranges are cut."""
    symfs = file.parent / "sys"
    expected, errors = perfs(file, symfs, *(["--vmlinux", str(vmlinux)] if vmlinux is not None else []))
    assert errors == []
    found, made = ours(file, symfs, file.with_suffix(".ptw"), vmlinux=vmlinux)
    assert {tid: len(ran) for tid, ran in found.items()} == {tid: len(ran) for tid, ran in expected.items()}
    assert found == expected
    for size in CUTS:
        decode_flow(made.bundle, size=size)
        assert perf_case.answer(made) == expected
    made.bundle.ledger().check()
    return found


@pytest.mark.parametrize("timing", TIMING)
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("seed", [0, 2])
def test_an_instruction_is_of_the_thread_whose_turn_it_is_when_it_runs(seed: int, program: str, timing: str,
                                                                       tmp_path: Path) -> None:
    file, vmlinux, machine = interrupted(tmp_path, program, seed, timing)
    found = agree(file, vmlinux)
    assert sum(len(ran) for ran in found.values()) == len(machine.executed)
    assert len(found) > 1


def by_hand(folder: Path, packets: PtWriter, *switches: tuple[int, int]) -> Path:
    """A trace of threads that have the same code, the first of which is 100's."""
    writer = PerfWriter(mtc=False, cyc=False)
    path = keep_code(folder / "work", folder / "sys", "prog")
    for tid in TIDS:
        writer.comm(tid, tid, "prog").mmap(tid, CODE, SIZE, 0x1000, path)
    now = 0
    for tsc, tid in ((START - 5000, 100), *switches):
        writer.switch_pair(tsc, 0, (now, now), (tid, tid))
        now = tid
    writer.auxtrace(bytes(packets.data), reference=START, tid=-1)
    return writer.exit(now, now, When(now, now, writer.ns(START + 10**6), 0)).round().write(folder / "perf.data")


def ran(found: perf_case.Answer) -> dict[int, list[int]]:
    return {tid: [ip for _, ip in each] for tid, each in found.items()}


@pytest.mark.parametrize("blocks", [1, 3])
def test_a_branch_is_the_first_of_the_new_thread(blocks: int, tmp_path: Path) -> None:
    """The packet a branch uses is the first with a time after the switch: the branch has it, not what leads there."""
    jumps = "".join(f"jmp l{number}\nl{number}: nop\n" for number in range(1, blocks))
    code = assemble(f"a: nop\nnop\n{jumps}b: jz c\nc: nop\nd: jmp *%rax", tmp_path / "work", CODE)
    packets = PtWriter().psb_plus(tsc=START).mode_exec().pge(code["a"]).tsc(START + 1000).tnt(".").tip(code["a"]).tsc(
        START + 2000).tnt(".").fup(code["c"]).pgd()
    found = agree(by_hand(tmp_path, packets, (START + 500, 200)), None)
    both = ran(found)
    assert both[100][:2] == [code["a"], code["a"] + 1]
    assert code["b"] not in both[100]
    assert both[200][:3] == [code["b"], code["c"], code["d"]]
    assert both[100] + both[200][:1] == both[200][3:]


def test_where_execution_stood_at_a_psb_the_new_thread_begins(tmp_path: Path) -> None:
    """Twice, with nothing but straight code between: each instruction is another thread's."""
    code = assemble("a: nop\nb: nop\nc: nop\nd: nop\ne: jmp *%rax", tmp_path / "work", CODE)
    packets = PtWriter().psb_plus(tsc=START).mode_exec().pge(code["a"])
    packets.psb_plus(code["b"], START + 1000).psb_plus(code["d"], START + 2000).tip(code["a"]).fup(code["a"]).pgd()
    found = agree(by_hand(tmp_path, packets, (START + 500, 200), (START + 1500, 300)), None)
    assert ran(found) == {100: [code["a"]], 200: [code["b"], code["c"]], 300: [code["d"], code["e"]]}


def test_what_ran_is_not_the_idle_tasks_where_the_kernel_is_not_traced(tmp_path: Path) -> None:
    """An estimate of the time may go too far. perf has the branch in task 0 then, and looks for more code there."""
    code = assemble("a: nop\nnop\njz a\nb: nop\njz b\nc: nop", tmp_path / "work", CODE)
    packets = PtWriter().psb_plus(tsc=START).mode_exec().pge(code["a"]).tsc(START + 1000).tnt("!").tsc(START + 2000)
    packets.fup(code["a"]).pgd().tsc(START + 3000).pge(code["b"]).tsc(START + 4000).tnt(".").fup(code["c"]).pgd()
    file = by_hand(tmp_path, packets, (START + 500, 0), (START + 2500, 200))
    found, _ = ours(file, tmp_path / "sys", tmp_path / "run.ptw")
    assert ran(found) == {100: [code["a"], code["a"] + 1, code["a"] + 2], 200: [code["b"], code["b"] + 1]}
    assert found[100][-1][0] > found[100][0][0]
    assert ran(perfs(file, tmp_path / "sys")[0])[0] == [code["a"] + 2]


def test_a_switch_elsewhere_shows_as_a_difference(tmp_path: Path) -> None:
    """The control."""
    file, _, _ = interrupted(tmp_path / "one", "plain", 2, "mtc+cyc")
    other, _, _ = interrupted(tmp_path / "other", "plain", 2, "mtc+cyc", switches=11)
    expected, _ = perfs(other, tmp_path / "other" / "sys")
    found, _ = ours(file, tmp_path / "one" / "sys", tmp_path / "run.ptw")
    assert sorted(one for each in found.values() for one in each) == sorted(
        one for each in expected.values() for one in each)
    assert found != expected
