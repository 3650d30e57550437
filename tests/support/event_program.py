# SPDX-License-Identifier: MIT
"""Random programs on a machine that traces events, PEBS and stops as well."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

from support.assembler import assemble
from support.random_program import generate
from support.timed_program import TimedMachine

Said = tuple[str, int | None, int | None]
"""Kind, address or None, detail."""

EVIDENCE = {0: "page_fault", 1: "vmx_qualification", 2: "vmx_reason", 9: "evd"}


@dataclass
class EventMachine(TimedMachine):
    """`said`: the events as they should be told. With `often` 0 there are none, and all else is the same."""

    often: float = 0.05
    flags: bool = True  # the interrupt flag changes, too
    said: list[Said] = field(default_factory=list)
    interrupts: bool = False
    events: random.Random = field(default_factory=random.Random)

    def _execute(self, pc: int) -> int:
        if self.events.random() < self.often:
            self._flush()
            kinds = (self._cfe, self._evd, self._pebs, self._stop, self._flag)
            self.events.choice(kinds if self.flags else kinds[:-1])(pc)
        return super()._execute(pc)

    def _psb(self, pc: int | None) -> None:
        super()._psb(pc)
        self.interrupts = False  # as its MODE.Exec says

    def _fup(self, pc: int, *, given: bool) -> int | None:
        if given:
            self.packets.fup(self.ip(pc))
        return self.ip(pc) if given else None

    def _cfe(self, pc: int) -> None:
        kind, vector, given = self.events.randrange(1, 13), self.events.randrange(256), self.events.random() < 0.5
        self.packets.cfe(kind, vector, fup=given)
        self.said.append(("cfe", self._fup(pc, given=given), vector << 8 | kind))

    def _evd(self, pc: int) -> None:
        kind, payload = self.events.choice(list(EVIDENCE)), self.events.randrange(1 << 63)
        self.packets.evd(kind, payload)
        self.said.append((EVIDENCE[kind], None, payload))

    def _pebs(self, pc: int) -> None:
        items, given = 0, self.events.random() < 0.5
        for kind in range(self.events.randrange(1, 4)):
            small = self.events.random() < 0.3
            self.packets.bbp(kind, small=small)
            for number in range(self.events.randrange(6)):
                if self.events.random() < 0.2:
                    self._timing()
                self.packets.bip(number, self.events.randrange(1 << (32 if small else 64)), small=small)
                items += 1
        self.packets.bep(fup=given)
        self.said.append(("pebs", self._fup(pc, given=given), items))

    def _stop(self, pc: int) -> None:
        given = self.events.random() < 0.5
        self.packets.exstop(fup=given)
        self.said.append(("exstop", self._fup(pc, given=given), None))

    def _flag(self, pc: int) -> None:
        self.interrupts = not self.interrupts
        self.packets.mode_exec(interrupts=self.interrupts)
        self.said.append(("interrupt_flag", self._fup(pc, given=True), int(self.interrupts)))


def event_run(seed: int, folder: Path, steps: int = 1500, *, often: float = 0.05, flags: bool = True, mtc: bool = True,
              cyc: bool = True, mtc_shift: int = 3) -> EventMachine:
    """A random program that ran for `steps` instructions; everything is decided by `seed`."""
    chance = random.Random(seed)
    program = generate(chance, chance.choice((20, 100, 400)))
    text = "\n".join(f"i{index}: {instruction.text}" for index, instruction in enumerate(program))
    machine = EventMachine(assemble(text, folder, 0x401000), program, chance, return_compression=True, long_tnt=False,
                           mtc=mtc, cyc=cyc, mtc_shift=mtc_shift, often=often, flags=flags,
                           events=random.Random(-seed))
    machine.run(steps)
    return machine
