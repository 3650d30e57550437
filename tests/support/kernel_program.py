# SPDX-License-Identifier: MIT
"""Random programs on a machine whose kernel is traced as well: system calls and interrupts lead into another random
program at the kernel's addresses, which changes page tables (PIP) and VMCS, and whose own code changes at times."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field, replace
from pathlib import Path

from support.assembler import Code, assemble
from support.random_program import Instruction, Kind, generate
from support.timed_program import TimedMachine

KERNEL = 0xFFFFFFFF81000000
FIRST = 10_000
"""Number of the kernel's first instruction."""

NOP = bytes.fromhex("0f1f440000")
SITE = ".byte 0x0f, 0x1f, 0x44, 0x00, 0x00"
"""A place as static keys have: five bytes that are a NOP or a jump."""

LEAVE, PAGING, VMCS = "iretq", "mov %rax, %cr3", "vmptrld (%rax)"


@dataclass(frozen=True)
class Poked:
    """At `tsc` the code at `address` was changed."""

    tsc: int
    address: int
    old: bytes
    new: bytes


@dataclass
class KernelMachine(TimedMachine):
    """`pokes`: how the kernel's code changed. With `often` 0 it does not."""

    often: float = 0.0
    pokes: list[Poked] = field(default_factory=list)
    jumps: dict[int, bool] = field(default_factory=dict)  # sites, and whether they jump
    back: int = 0  # where the kernel returns to
    now_at: int = 0  # the instruction being executed
    cr3: int = 0x1000

    def _execute(self, pc: int) -> int:
        instruction = self.program[pc]
        self.now_at = pc
        if pc < FIRST and self.chance.random() < self.often:
            self._poke(pc)
        if instruction.kind is Kind.RETURN and self.compressed and (self.compressed[-1] < FIRST) != (pc < FIRST):
            self._flush()
            self._psb(pc)  # nobody returns into what the other one called
        if instruction.kind is not Kind.SYSCALL and instruction.text not in (LEAVE, PAGING, VMCS, SITE):
            return super()._execute(pc)
        self.pass_time(1)
        self.executed.append(self.ip(pc))
        if instruction.text == SITE:
            return instruction.target if self.jumps[pc] else pc + 1
        self._flush()
        if instruction.kind is Kind.SYSCALL:
            return self._enter(pc + 1)
        if instruction.text == LEAVE:
            return self._tip(self.back)
        if instruction.text == VMCS:
            self.packets.vmcs(self.chance.choice((0x1000, 0x2000)))
        else:
            self.cr3 = self.chance.choice((0x1000, 0x2000))
            self.packets.pip(self.cr3)
        return pc + 1

    def _enter(self, back: int) -> int:
        self.back = back
        if self.chance.random() < 0.3:
            self.packets.pip(self.cr3)
        return self._tip(self.chance.choice([index for index in self.program if index >= FIRST]))

    def _interrupt(self, pc: int) -> int:
        self._flush()
        self.now_at = pc
        if pc >= FIRST or self.chance.random() < 0.3:
            return super()._interrupt(pc)
        self.packets.fup(self.ip(pc))
        return self._enter(pc)

    def _anywhere(self) -> int:
        return self.chance.choice([index for index in self.program if (index < FIRST) == (self.now_at < FIRST)])

    def _poke(self, pc: int) -> None:
        """Some sites change at once, at a time that no packet is near."""
        self._flush()
        self.pass_time(20_000)
        for site in self.chance.sample(sorted(self.jumps), min(len(self.jumps), self.chance.choice((1, 1, 3)))):
            at = self.ip(site)
            jump = b"\xe9" + struct.pack("<i", self.ip(self.program[site].target) - at - len(NOP))
            old, new = (jump, NOP) if self.jumps[site] else (NOP, jump)
            self.jumps[site] = not self.jumps[site]
            self.pokes.append(Poked(self.now(), at, old, new))
            self.pass_time(3)
        self.pass_time(20_000)
        self._psb(pc)


def kernel_run(seed: int, folder: Path, steps: int = 1500, *, often: float = 0.0, mtc: bool = True, cyc: bool = True,
               mtc_shift: int = 3) -> KernelMachine:
    """Two random programs that ran for `steps` instructions; everything is decided by `seed`.

    Their code is in `folder` and in its folder `kernel`, as it was at first.
    """
    chance = random.Random(seed)
    program = dict(enumerate(generate(chance, chance.choice((20, 100)))))
    inside = [_privileged(one, chance, index, 60) for index, one in enumerate(generate(chance, 60))]
    user = assemble(_text(program), folder)
    program |= {FIRST + index: replace(one, target=FIRST + one.target) for index, one in enumerate(inside)}
    kernel = assemble("_text:\n" + _text(dict(enumerate(inside))) + "\n.space 4096", folder / "kernel", KERNEL)
    labels = user.labels | {f"i{FIRST + int(name[1:])}": at for name, at in kernel.labels.items()
                            if name[1:].isdigit()}
    machine = KernelMachine(Code(user.data, user.base, labels), program, chance, return_compression=True,
                            long_tnt=False, mtc=mtc, cyc=cyc, mtc_shift=mtc_shift, often=often)
    machine.jumps = {index: False for index, one in program.items() if one.text == SITE}
    machine.run(steps)
    return machine


def _text(program: dict[int, Instruction]) -> str:
    return "\n".join(f"i{index}: {one.text}" for index, one in program.items())


def _privileged(one: Instruction, chance: random.Random, index: int, count: int) -> Instruction:
    """What stands in a kernel for an instruction of a user's program."""
    if one.kind is Kind.SYSCALL:
        return Instruction(Kind.FILL, LEAVE)
    if one.kind is not Kind.FILL or index > count - 3 or chance.random() < 0.5:
        return one
    text = chance.choice((LEAVE, LEAVE, PAGING, VMCS, SITE, SITE))
    return Instruction(Kind.FILL, text, chance.randrange(index + 2, count) if text == SITE else -1)
