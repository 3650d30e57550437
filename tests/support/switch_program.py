# SPDX-License-Identifier: MIT
"""Random programs on a machine whose kernel gives the processor to other threads, as Linux does: it writes a record of
the switch in a function of perf's, goes on to `__switch_to`, which the next thread comes out of, and writes another."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from pathlib import Path

from ptweave.data.sideband import SWITCH_TO
from support.assembler import Code, assemble
from support.kernel_program import FIRST, KERNEL, SITE, KernelMachine, _privileged, _text
from support.perf_writer import PerfWriter, When
from support.pt_writer import PtWriter
from support.random_program import Instruction, Kind, generate

Program = dict[int, Instruction]
"""Instructions by their numbers."""

SCHEDULER, TELLS, SWITCHES = 20_000, 20_100, 20_200
"""Numbers of the first instructions of the scheduler, of what tells, and of `__switch_to`."""

TO_SWITCH = (Instruction(Kind.JUMP, "jmp __switch_to", SWITCHES), Instruction(Kind.CALL, "call __switch_to", SWITCHES),
             Instruction(Kind.IND_JUMP, "jmp *%rcx"), Instruction(Kind.IND_CALL, "call *%rcx"))
"""How a kernel may get there."""

TOLD, CAME = "mov %rax, %rbx", "mov %rbx, %rax"
"""Where the kernel writes of the thread that leaves, and of the one that came."""

TELLERS = {3: "__perf_event_task_sched_out", 2: "__perf_event_task_sched_out", 1: "perf_trace_sched_switch"}
"""Functions that write of the thread that leaves, by perf's `have_sched_switch`."""


@dataclass(frozen=True)
class Switched:
    """What the kernel wrote at `tsc`: `new` takes the processor from `old`, or has taken it."""

    tsc: int
    old: int
    new: int
    out: bool


@dataclass
class SwitchMachine(KernelMachine):
    """`switches`: what the kernel wrote; `ran`: instructions of each thread, in order. `tids` take turns, beginning
    with `tid`; each has its code, by number, in `users`. `only`: what others run is not traced."""

    tids: tuple[int, ...] = (100, 200, 300)
    tid: int = 100
    only: int = 0
    users: dict[int, Program] = field(default_factory=dict)
    places: dict[int, Code] = field(default_factory=dict)  # of each one's code
    traced: PtWriter | None = None  # what is traced goes on there later
    next_tid: int = 100
    switches: list[Switched] = field(default_factory=list)
    ran: dict[int, list[int]] = field(default_factory=dict)

    def _execute(self, pc: int) -> int:
        if pc == SWITCHES:
            self.tid = self.next_tid
            self.program |= self.users[self.tid]
        if self.traced is None:
            self.ran.setdefault(self.tid, []).append(self.ip(pc))
        text = self.program[pc].text
        after = super()._execute(pc)
        if text in (TOLD, CAME):
            self.pass_time(self.chance.choice((0, 100, 300, 3000)))
        if text == TOLD:
            self.next_tid = self.chance.choice([tid for tid in self.tids if tid != self.tid])
            self.switches.append(Switched(self.now(), self.tid, self.next_tid, out=True))
        elif text == CAME:
            self.switches.append(Switched(self.now(), self.switches[-1].old, self.tid, out=False))
        if self.only == self.tid and text in (TOLD, CAME):
            self._turn(after, on=text == CAME)
        return after

    def _turn(self, pc: int, *, on: bool) -> None:
        """Tracing goes off before the instruction, or on again."""
        if on and self.traced is not None:
            self._flush()
            self.packets, self.traced = self.traced, None
            self._psb(None)
            self.packets.mode_exec().pge(self.ip(pc))
        elif not on and self.traced is None:
            self._flush()
            self.packets.fup(self.ip(pc)).pgd()
            self.traced, self.packets = self.packets, PtWriter()

    def ip(self, index: int) -> int:
        return self.places[self.tid][f"i{index}"] if index < FIRST else super().ip(index)

    def trace(self) -> bytes:
        """All packets."""
        return bytes((self.packets if self.traced is None else self.traced).data)

    def _enter(self, back: int) -> int:
        self.back = back
        if self.chance.random() < 0.3:
            self.packets.pip(self.cr3)
        return self._tip(self.chance.choice([index for index in self.program if FIRST <= index < SCHEDULER]))

    def _return(self) -> int:
        if self.now_at < SCHEDULER:
            return super()._return()
        target = self.calls.pop()  # always where the call came from
        if not self.compressed:
            return self._tip(target)
        self.compressed.pop()
        self._bit("!")
        return target

    def _interrupt(self, pc: int) -> int:
        return pc if pc >= SCHEDULER else super()._interrupt(pc)  # interrupts are off there

    def _anywhere(self) -> int:
        if self.program[self.now_at].text in [one.text for one in TO_SWITCH]:
            return SWITCHES
        return self.chance.choice([index for index in self.program if index < SCHEDULER and
                                   (index < FIRST) == (self.now_at < FIRST)])

    def write(self, writer: PerfWriter, cpu: int = 0) -> None:
        """The kernel's records."""
        for one in self.switches:
            old, new = (one.old, one.old), (one.new, one.new)
            when = When(*(old if one.out else new), writer.ns(one.tsc), cpu)
            if writer.have_sched_switch == 3:
                writer.switch_cpu_wide(when, new if one.out else old, out=one.out)
            elif writer.have_sched_switch == 2:
                writer.switch(when, out=one.out)
            elif one.out:
                writer.sched_switch(when, one.new)


def _scheduler(chance: random.Random, teller: str, most: int) -> Program:
    """Functions by their numbers: one that goes to `teller` and to `__switch_to`, one that tells, and the one in which
    the next thread goes on. Between what they are for each has up to `most` other instructions."""
    jump = chance.choice(list(TO_SWITCH))
    parts: dict[int, list[Instruction | None]] = {
        SCHEDULER: [Instruction(Kind.CALL, f"call {teller}", TELLS), None, jump,
                    Instruction(Kind.IND_JUMP, "jmp *%rbx")],
        TELLS: [Instruction(Kind.FILL, TOLD), None, Instruction(Kind.RETURN, "ret")],
        SWITCHES: [None, Instruction(Kind.FILL, CAME), None, Instruction(Kind.IND_JUMP, "jmp *%rax")],
    }
    made: Program = {}
    for begin, wanted in parts.items():
        at = begin
        for one in wanted:
            for _ in range(1 if one is not None else chance.randint(most // 2, most)):
                made[at] = one or _other(chance, at)
                at += 1
    return made


def _other(chance: random.Random, at: int) -> Instruction:
    if chance.random() < 0.7:
        return Instruction(Kind.COND, f"jz i{at + 1}", at + 1)
    return Instruction(Kind.FILL, chance.choice(("nop", "xor %eax, %eax", "cpuid")))


def _without_calls(program: list[Instruction]) -> list[Instruction]:
    """What a processor compresses depends on calls of the same code."""
    jump = Instruction(Kind.IND_JUMP, "jmp *%rax")
    return [Instruction(Kind.JUMP, one.text.replace("call", "jmp"), one.target) if one.kind is Kind.CALL else
            jump if one.kind in (Kind.IND_CALL, Kind.RETURN) else one for one in program]


def _kernel(chance: random.Random, folder: Path, told_by: int, most: int, *, known: bool) -> tuple[Code, Program]:
    """A random kernel with a few places that lead to the scheduler."""
    inside = dict(enumerate(_privileged(one, chance, index, 60) for index, one in enumerate(generate(chance, 60))))
    for index in chance.sample([index for index, one in inside.items() if one.kind is Kind.FILL and index < 57], 4):
        inside[index] = Instruction(Kind.JUMP, f"jmp i{SCHEDULER}", SCHEDULER - FIRST)
    scheduler = _scheduler(chance, TELLERS[told_by], most)
    names = {TELLS: TELLERS[told_by], SWITCHES: SWITCH_TO}
    lines = [(f"{names[at]}:\n" if at in names else "") + f"i{at}: {one.text}" for at, one in scheduler.items()]
    code = assemble("\n".join(["_text:", *(f".globl {name}" for name in names.values() if known), _text(inside),
                               *lines, ".space 4096"]), folder, KERNEL)
    labels = {f"i{FIRST + int(name[1:]) if int(name[1:]) < FIRST else name[1:]}": at
              for name, at in code.labels.items() if name[1:].isdigit()}
    program = {FIRST + index: replace(one, target=FIRST + one.target) for index, one in inside.items()}
    return Code(code.data, code.base, labels), program | scheduler


def switch_run(seed: int, folder: Path, steps: int = 1500, *, told_by: int = 3, most: int = 16, only: int = 0,
               known: bool = True, kernel: int | None = None, tids: tuple[int, ...] = (100, 200, 300),
               made: type[SwitchMachine] = SwitchMachine, mtc: bool = True, cyc: bool = True,
               mtc_shift: int = 3) -> SwitchMachine:
    """Random programs of users and the kernel that ran for `steps` instructions; everything is decided by `seed`.

    Their code is in folders of `folder`: `user` with the tid, and `kernel`. `told_by`: perf's `have_sched_switch`.
    `most`: how many instructions there are, about, between the kernel's records and the switch; a decoder tells what
    was first by time. `only`: the one thread that is traced, 0 all. `known`: the kernel's functions are global symbols.
    `kernel`: the seed of the kernel's code, if it is another.
    """
    chance = random.Random(seed)
    inside = random.Random(seed if kernel is None else kernel)
    code, program = _kernel(inside, folder / "kernel", told_by, most, known=known)
    size = chance.choice((20, 100))
    users = {tid: dict(enumerate(_without_calls(generate(chance, size)))) for tid in tids}
    places = {tid: assemble(_text(user), folder / f"user{tid}") for tid, user in users.items()}
    machine = made(code, users[tids[0]] | program, chance, return_compression=True, long_tnt=False, mtc=mtc, cyc=cyc,
                   mtc_shift=mtc_shift, tids=tids, tid=tids[0], only=only, users=users, places=places)
    machine.jumps = {index: False for index, one in program.items() if one.text == SITE}
    machine.run(steps)
    return machine
