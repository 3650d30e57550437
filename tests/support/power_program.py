# SPDX-License-Identifier: MIT
"""Random programs on a machine that falls asleep: MWAIT, PWRE, EXSTOP and PWRX, with packets of time among them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from support.assembler import assemble
from support.random_program import generate
from support.timed_program import TimedMachine


@dataclass
class SleepingMachine(TimedMachine):
    """`often`: how often it falls asleep, an instruction."""

    often: float = 0.02

    def _execute(self, pc: int) -> int:
        if self.chance.random() < self.often:
            self._flush()
            self.chance.choice((self._wait, self._wait_alone, self._enter, self._stop))(pc)
        return super()._execute(pc)

    def _maybe_timing(self) -> None:
        if self.chance.random() < 0.5:
            self.pass_time(self.chance.choice((1, 40, 300)))
            self._timing()

    def _wait(self, pc: int) -> None:
        """All of it: the FUP belongs to the MWAIT and the EXSTOP."""
        self.packets.mwait(0x20, 0)
        self._maybe_timing()
        self.packets.pwre(2, 0)
        self._maybe_timing()
        self._stop(pc, given=True)
        self.packets.pwrx(2, 2, 1)
        self._maybe_timing()

    def _wait_alone(self, pc: int) -> None:
        self.packets.mwait(0x10, 1)
        self._maybe_timing()
        self.packets.fup(self.ip(pc))
        self._maybe_timing()

    def _enter(self, pc: int) -> None:
        self.packets.pwre(1, 1)
        self._maybe_timing()
        if self.chance.random() < 0.5:
            self._stop(pc)

    def _stop(self, pc: int, *, given: bool = False) -> None:
        given = given or self.chance.random() < 0.5
        self.packets.exstop(fup=given)
        if given:
            self.packets.fup(self.ip(pc))
        self.clock += self.chance.choice((10, 700, 5000))
        if self.chance.random() < 0.4:
            self._stamp()
        else:
            self._maybe_timing()


def sleeping_run(seed: int, folder: Path, steps: int = 1500, *, mtc: bool = True, cyc: bool = True,
                 mtc_shift: int = 3) -> SleepingMachine:
    """A random program that ran for `steps` instructions; everything is decided by `seed`."""
    chance = random.Random(seed)
    program = generate(chance, chance.choice((20, 100, 400)))
    text = "\n".join(f"i{index}: {instruction.text}" for index, instruction in enumerate(program))
    machine = SleepingMachine(assemble(text, folder, 0x401000), program, chance, return_compression=True,
                              long_tnt=False, mtc=mtc, cyc=cyc, mtc_shift=mtc_shift)
    machine.run(steps)
    return machine
