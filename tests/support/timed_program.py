# SPDX-License-Identifier: MIT
"""Random programs on a machine whose packets carry time: TSC, TMA, MTC, CYC and CBR, mixed in as by a processor."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from support.assembler import assemble
from support.random_program import Machine, generate

START = 3_094_328_170_983_760


@dataclass
class TimedMachine(Machine):
    """`mtc`: MTC every 2**mtc_shift crystal ticks; `cyc`: CYC packets before packets of flow."""

    mtc: bool = True
    cyc: bool = True
    mtc_shift: int = 3
    ratio: tuple[int, int] = (266, 2)
    nominal: int = 32
    cbr: int = 33
    clock: float = float(START)  # TSC now
    cycles: float = 0.0  # not said yet
    next_mtc: int = 0
    cbr_said: int = 0
    quiet: bool = False
    syscall_stays: bool = False

    def now(self) -> int:
        return int(self.clock)

    def crystal(self) -> int:
        return self.now() * self.ratio[1] // self.ratio[0]

    def pass_time(self, ticks: float) -> None:
        self.clock += ticks
        self.cycles += ticks * self.cbr / self.nominal

    def _execute(self, pc: int) -> int:
        self.pass_time(self.chance.choice((0.5, 1, 3, 40)))
        if self.chance.random() < 0.002:
            self.cbr = self.chance.choice((20, 28, 33, 36))
        return super()._execute(pc)

    def _timing(self) -> None:
        """What has to be said about time before the next packet of flow."""
        if self.mtc:
            current = self.crystal() >> self.mtc_shift
            if current - self.next_mtc > 250:
                self._stamp()
                current = self.crystal() >> self.mtc_shift
            while self.next_mtc <= current:
                if self.cyc and self.chance.random() < 0.7:
                    self._cycles()
                self.packets.mtc(self.next_mtc & 0xFF)
                self.next_mtc += 1
        if self.cbr_said != self.cbr:
            self.packets.cbr(self.cbr)
            self.cbr_said = self.cbr
        if self.cyc and self.chance.random() < 0.9:
            self._cycles()

    def _cycles(self) -> None:
        whole = int(self.cycles)
        if whole:
            self.packets.cyc(whole)
            self.cycles -= whole

    def _stamp(self) -> None:
        """TSC and TMA."""
        tsc = self.now()
        self.packets.tsc(tsc & (1 << 56) - 1)
        if self.mtc:
            crystal = self.crystal()
            fast = tsc - -(-crystal * self.ratio[0] // self.ratio[1])
            self.packets.tma(crystal & 0xFFFF, max(0, fast) & 0x1FF)
            self.next_mtc = (crystal >> self.mtc_shift) + 1

    def _psb(self, pc: int | None) -> None:
        self.psbs.append(len(self.packets))
        self.compressed.clear()
        self.packets.psb()
        if self.cyc and self.chance.random() < 0.3:
            self._cycles()
        self._stamp()
        self.packets.cbr(self.cbr)
        self.cbr_said = self.cbr
        if pc is not None:
            self.packets.mode_exec().fup(self.ip(pc))
        self.packets.psbend()

    def _tick(self) -> None:
        """Time goes by while tracing is off: cycles are not counted then."""
        self.clock += self.chance.choice((10, 700, 5000, 90_000))
        if self.chance.random() < 0.5:
            self._stamp()
            if self.chance.random() < 0.5:
                self.packets.cbr(self.cbr)
                self.cbr_said = self.cbr
        else:
            self._timing()

    def _flush(self) -> None:
        self._timing()
        super()._flush()

    def _return(self) -> int:
        """Decoders differ in what an uncompressed return takes off their stacks: compress whenever there is one."""
        if not self.compressed:
            return self._tip(self._anywhere())
        target = self.compressed.pop()
        self._bit("!")
        return target

    def _tip(self, target: int | None = None) -> int:
        if self.bits:
            self._flush()
        return super()._tip(target)


def timed_run(seed: int, folder: Path, steps: int = 2000, *, mtc: bool = True, cyc: bool = True,
              mtc_shift: int = 3, base: int = 0x401000) -> TimedMachine:
    """A random program that ran for `steps` instructions; everything is decided by `seed`."""
    chance = random.Random(seed)
    program = generate(chance, chance.choice((20, 100, 400)))
    text = "\n".join(f"i{index}: {instruction.text}" for index, instruction in enumerate(program))
    machine = TimedMachine(assemble(text, folder, base), program, chance, return_compression=True, long_tnt=False,
                           mtc=mtc, cyc=cyc, mtc_shift=mtc_shift)
    machine.run(steps)
    return machine
