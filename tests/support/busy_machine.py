# SPDX-License-Identifier: MIT
"""Programs of random branches on a machine on which more happens: tracing turned off by any branch, clocks and bus
ratios between any two packets, everything a PSB+ can hold, and now and then what only libipt decodes."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from support.assembler import Code, assemble
from support.pt_writer import PtWriter
from support.random_program import Instruction, Kind, Machine, generate

LEAVE = {Kind.COND, Kind.JUMP, Kind.CALL, Kind.IND_JUMP, Kind.IND_CALL, Kind.RETURN}


@dataclass
class Habits:
    """How often what happens, for each instruction."""

    psb: float = 0.003
    interrupt: float = 0.004
    leave: float = 0.003
    clock: float = 0.01
    ratio: float = 0.003
    noise: float = 0.01
    odd: float = 0.0
    full_psb: bool = False

    @classmethod
    def random(cls, chance: random.Random) -> Habits:
        def rate(most: float) -> float:
            return chance.choice((0.0, most / 10, most))
        return cls(psb=rate(0.02), interrupt=rate(0.05), leave=rate(0.03), clock=rate(0.1), ratio=rate(0.03),
                   noise=rate(0.1), odd=chance.choice((0.0, 0.0, 0.002)), full_psb=chance.random() < 0.5)


@dataclass
class BusyMachine(Machine):
    """A processor with habits."""

    habits: Habits | None = None
    cycles: bool = False

    def run(self, steps: int) -> None:
        habits = self.habits or Habits()
        self._psb(None)
        self.packets.mode_exec().pge(self.ip(0))
        pc = 0
        for _ in range(steps):
            if self.chance.random() < habits.psb:
                self._flush()
                self._psb(pc)
            if self.chance.random() < habits.interrupt:
                pc = self._interrupt(pc)
            if self.chance.random() < habits.clock:
                self._now_and_then()
                self._tick()
            if self.chance.random() < habits.ratio:
                self._flush()
                self.packets.cbr(self.chance.randrange(8, 40))
            if self.chance.random() < habits.noise:
                self._noise()
            if self.chance.random() < habits.odd:
                pc = self._odd(pc)
            if self.program[pc].kind in LEAVE and self.chance.random() < habits.leave:
                pc = self._leave(pc)
            else:
                pc = self._execute(pc)
        self._flush()
        if self.chance.random() < 0.7:
            self.packets.fup(self.ip(pc)).pgd()

    def _now_and_then(self) -> None:
        if self.chance.random() < 0.5:
            self._flush()

    def _noise(self) -> None:
        self._now_and_then()
        if self.chance.random() < 0.6:
            self.packets.pad(self.chance.randrange(1, 4))
        elif not self.cycles or self.chance.random() < 0.5:
            self.packets.mtc(self.chance.randrange(256))
        else:
            self.packets.cyc(self.chance.randrange(1, 100_000))

    def _tick(self) -> None:
        super()._tick()
        if self.chance.random() < 0.2:
            self.packets.tma(self.chance.randrange(1 << 16), self.chance.randrange(1 << 9))

    def _leave(self, pc: int) -> int:
        """A branch out of what is traced: the packet may or may not say where to."""
        self.executed.append(self.ip(pc))
        self._flush()
        kind = self.program[pc].kind
        if kind is Kind.IND_CALL:  # a decoder sees the call and puts its return address on the stack
            self.compressed = [*self.compressed[-63:], pc + 1]
        outside = self.chance.random() < 0.5 and kind not in (Kind.JUMP, Kind.CALL)
        if kind in (Kind.JUMP, Kind.CALL):
            self.executed.pop()
            self.packets.fup(self.ip(pc))
            outside = True
        self.packets.pgd(0x7F00_0000_1000 + self.chance.randrange(4096) if outside else None)
        if self.chance.random() < 0.5:
            self._tick()
        if self.chance.random() < 0.3:
            self._psb(None)
        if self.chance.random() < 0.2:
            self.packets.cbr(self.chance.randrange(8, 40))
        if self.chance.random() < 0.2:
            self.packets.mode_exec()
        target = pc + 1 if self.chance.random() < 0.5 else pc if self.chance.random() < 0.3 else self._anywhere()
        if target == len(self.program):
            target = 0
        self.packets.pge(self.ip(target))
        return target

    def _odd(self, pc: int) -> int:
        """What only libipt decodes."""
        self._flush()
        what = self.chance.randrange(7)
        if what == 0:
            self.packets.ovf()
            pc = self._anywhere()
            self.packets.fup(self.ip(pc))
        elif what == 1:
            self.packets.mnt(self.chance.randrange(1 << 60))
        elif what == 2:
            self.packets.ptw(5, fup=True).fup(self.ip(pc))
        elif what == 3:
            self.packets.raw(b"\x02\xff")
        elif what == 4:
            self.packets.tnt("!" * 6)
        elif what == 5:
            self.packets.fup(0x1234).pgd().pge(self.ip(pc))
        else:
            self.packets.pwre(1, 2)
        return pc

    def _psb(self, pc: int | None) -> None:
        if not (self.habits and self.habits.full_psb):
            super()._psb(pc)
            if self.habits and pc is None:  # decoding may have to begin here
                self.packets.data[-2:] = PtWriter().mode_exec().psbend().data
            return
        self.psbs.append(len(self.packets))
        self.compressed.clear()
        self.tsc += 100
        self.packets.psb()
        parts = [lambda: self.packets.tsc(self.tsc).tma(7, 3), lambda: self.packets.cbr(21),
                 lambda: self.packets.mode_tsx(), lambda: self.packets.pip(0x1000), lambda: self.packets.vmcs(0x5000),
                 lambda: self.packets.mtc(9), lambda: self.packets.pad(2)]
        self.chance.shuffle(parts)
        for part in parts[:self.chance.randrange(len(parts) + 1)]:
            part()
        if pc is not None:
            self.packets.mode_exec().fup(self.ip(pc))
        else:
            self.packets.mode_exec()
        self.packets.psbend()


@dataclass
class Program:
    """A random program: assembled once, to be run many times."""

    code: Code
    instructions: list[Instruction]

    @classmethod
    def random(cls, seed: int, folder: Path) -> Program:
        chance = random.Random(seed)
        program = generate(chance, chance.choice((20, 100, 400)))
        text = "\n".join(f"i{index}: {instruction.text}" for index, instruction in enumerate(program))
        return cls(assemble(text, folder), program)

    def run(self, seed: int, steps: int = 1000) -> BusyMachine:
        """A run of `steps` instructions; everything is decided by `seed`."""
        chance = random.Random(seed)
        machine = BusyMachine(self.code, self.instructions, chance, return_compression=chance.random() < 0.7,
                              long_tnt=chance.random() < 0.5, packets=PtWriter(), habits=Habits.random(chance),
                              cycles=chance.random() < 0.1)
        machine.run(steps)
        return machine
