# SPDX-License-Identifier: MIT
"""Programs of random branches, run by a small interpreter that writes the packets a processor would.

The interpreter knows nothing of instruction encodings: the assembler says where each instruction lies. So packets and
the executed addresses come from here, and whatever decodes the packets can be held against the addresses.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from support.assembler import Code, assemble
from support.pt_writer import PtWriter

FILLERS = ("nop", "xor %eax, %eax", "lea 8(%rax,%rbx,4), %rcx", "movabs $0x1122334455667788, %r10", "mov %r8, %r9",
           "movl $7, 0x12345678(%rsp)", "lock incl (%rdi)", "rep movsb", "pxor %xmm3, %xmm4",
           "vaddps %ymm1, %ymm2, %ymm3", "nopw 0x0(%rax,%rax,1)", "cpuid", "imul $3, %rdx, %rdx")


class Kind(Enum):
    """What an instruction does to the flow."""

    FILL = "fill"
    COND = "cond"
    JUMP = "jump"
    CALL = "call"
    IND_JUMP = "ind_jump"
    IND_CALL = "ind_call"
    RETURN = "return"
    SYSCALL = "syscall"


@dataclass(frozen=True)
class Instruction:
    kind: Kind
    text: str
    target: int = -1  # index of the instruction a direct branch goes to


def generate(chance: random.Random, count: int) -> list[Instruction]:
    """`count` instructions, the last of which does not fall through."""
    program = []
    for index in range(count):
        kind = chance.choices(list(Kind), weights=(50, 20, 6, 6, 3, 3, 8, 2))[0] if index < count - 1 else Kind.IND_JUMP
        target = chance.randrange(count)
        # Only forwards: code that runs in circles without a packet does not say when it was interrupted. And not to
        # the next instruction: that is no call for return compression.
        if kind in (Kind.JUMP, Kind.CALL):
            target = chance.randrange(index + 2, count + 1)
            kind = Kind.FILL if target == count else kind
        text = {
            Kind.FILL: chance.choice(FILLERS),
            Kind.COND: f"{chance.choice(('jz', 'jl', 'jnp', 'ja'))} i{target}",
            Kind.JUMP: f"jmp i{target}",
            Kind.CALL: f"call i{target}",
            Kind.IND_JUMP: chance.choice(("jmp *%rax", "jmp *8(%rbx)", "notrack jmp *%rdx")),
            Kind.IND_CALL: chance.choice(("call *%rax", "call *0x100(%rip)", "call *(%r12)")),
            Kind.RETURN: chance.choice(("ret", "ret $8", "rep ret")),
            Kind.SYSCALL: "syscall",
        }[kind]
        program.append(Instruction(kind, text, target))
    return program


@dataclass
class Machine:
    """A processor with Intel PT: executes, records `executed`, writes `packets`."""

    code: Code
    program: list[Instruction]
    chance: random.Random
    return_compression: bool
    long_tnt: bool
    packets: PtWriter = field(default_factory=PtWriter)
    executed: list[int] = field(default_factory=list)
    psbs: list[int] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)
    compressed: list[int] = field(default_factory=list)  # return addresses the decoder knows too
    bits: str = ""
    tsc: int = 1000

    def ip(self, index: int) -> int:
        return self.code[f"i{index}"]

    def run(self, steps: int) -> None:
        """Execute `steps` instructions from the first one on, then be interrupted."""
        self._psb(None)
        self.packets.mode_exec().pge(self.ip(0))
        pc = 0
        for _ in range(steps):
            if self.chance.random() < 0.003:
                self._flush()
                self._psb(pc)
            if self.chance.random() < 0.004:
                pc = self._interrupt(pc)
            pc = self._execute(pc)
        self._flush()
        self.packets.fup(self.ip(pc)).pgd()

    def _execute(self, pc: int) -> int:
        self.executed.append(self.ip(pc))
        instruction = self.program[pc]
        if instruction.kind is Kind.COND:
            taken = self.chance.random() < 0.5
            self._bit("!" if taken else ".")
            return instruction.target if taken else pc + 1
        if instruction.kind is Kind.JUMP:
            return instruction.target
        if instruction.kind in (Kind.CALL, Kind.IND_CALL):
            self.calls.append(pc + 1)
            self.compressed = [*self.compressed[-63:], pc + 1]
            return instruction.target if instruction.kind is Kind.CALL else self._tip()
        if instruction.kind is Kind.IND_JUMP:
            return self._tip()
        if instruction.kind is Kind.RETURN:
            return self._return()
        if instruction.kind is Kind.SYSCALL:
            self._flush()
            self.packets.pgd()
            self._tick()
            self.packets.pge(self.ip(pc + 1))
        return pc + 1

    def _return(self) -> int:
        # mostly where the call came from, sometimes elsewhere, as setjmp or a scheduler would
        target = self.calls.pop() if self.calls and self.chance.random() < 0.95 else self._anywhere()
        if self.return_compression and self.compressed and self.compressed[-1] == target:
            self.compressed.pop()
            self._bit("!")
            return target
        return self._tip(target)

    def _anywhere(self) -> int:
        return self.chance.randrange(len(self.program))

    def _tip(self, target: int | None = None) -> int:
        target = self._anywhere() if target is None else target
        self._flush()
        self.packets.tip(self.ip(target))
        return target

    def _interrupt(self, pc: int) -> int:
        """A signal, a fault or an interrupt: asynchronous, with tracing off for a while or not."""
        self._flush()
        target = pc if self.chance.random() < 0.5 else self._anywhere()
        self.packets.fup(self.ip(pc))
        if self.chance.random() < 0.5:
            self.packets.pgd()
            self._tick()
            self.packets.pge(self.ip(target))
        else:
            self.packets.tip(self.ip(target))
        return target

    def _tick(self) -> None:
        self.tsc += self.chance.randrange(1, 1000)
        self.packets.tsc(self.tsc)

    def _psb(self, pc: int | None) -> None:
        self.psbs.append(len(self.packets))
        self.tsc += 100
        self.packets.psb_plus(ip=None if pc is None else self.ip(pc), tsc=self.tsc)
        self.compressed.clear()

    def _bit(self, bit: str) -> None:
        self.bits += bit
        if len(self.bits) == (47 if self.long_tnt else 6):
            self._flush()

    def _flush(self) -> None:
        if len(self.bits) > 6:
            self.packets.tnt_long(self.bits)
        elif self.bits:
            self.packets.tnt(self.bits)
        self.bits = ""


def random_run(seed: int, folder: Path, steps: int = 2000) -> Machine:
    """A random program that ran for `steps` instructions; everything is decided by `seed`."""
    chance = random.Random(seed)
    program = generate(chance, chance.choice((20, 100, 400)))
    text = "\n".join(f"i{index}: {instruction.text}" for index, instruction in enumerate(program))
    machine = Machine(assemble(text, folder), program, chance, return_compression=chance.random() < 0.7,
                      long_tnt=chance.random() < 0.5)
    machine.run(steps)
    return machine
