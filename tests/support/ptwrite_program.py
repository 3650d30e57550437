# SPDX-License-Identifier: MIT
"""Random programs that write to their trace: PTWRITE instructions, with and without their address in the packets."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

from support.assembler import assemble
from support.random_program import Kind, generate
from support.timed_program import TimedMachine


class Address(Enum):
    """Whether a FUP behind each PTW packet says where it was (FUPonPTW)."""

    ALWAYS = "always"
    NEVER = "never"
    AT_TIMES = "at times"


@dataclass
class WritingMachine(TimedMachine):
    """`said`: address and payload of each PTWRITE."""

    address: Address = Address.ALWAYS
    said: list[tuple[int, int]] = field(default_factory=list)

    def _execute(self, pc: int) -> int:
        following = super()._execute(pc)
        if self.program[pc].text.startswith("ptwrite"):
            self._write(pc)
        return following

    def _write(self, pc: int) -> None:
        self._flush()
        payload = self.chance.randrange(1 << 63)
        given = self.address is Address.ALWAYS or (self.address is Address.AT_TIMES and self.chance.random() < 0.5)
        self.packets.ptw(payload, fup=given)
        if given:
            self.packets.fup(self.ip(pc))
        self.said.append((self.ip(pc), payload))


def writing_run(seed: int, folder: Path, address: Address, steps: int = 1500, *, mtc: bool = True, cyc: bool = True,
                mtc_shift: int = 3) -> WritingMachine:
    """A random program that ran for `steps` instructions; everything is decided by `seed`."""
    chance = random.Random(seed)
    program = generate(chance, chance.choice((20, 100, 400)))
    program = [replace(one, text="ptwrite %rax") if one.kind is Kind.FILL and chance.random() < 0.15 else one
               for one in program]
    text = "\n".join(f"i{index}: {instruction.text}" for index, instruction in enumerate(program))
    machine = WritingMachine(assemble(text, folder, 0x401000), program, chance, return_compression=True,
                             long_tnt=False, mtc=mtc, cyc=cyc, mtc_shift=mtc_shift, address=address)
    machine.run(steps)
    return machine
