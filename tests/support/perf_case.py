# SPDX-License-Identifier: MIT
"""Recordings to be decoded by us and by perf, and both answers in one form: (time, address) of each thread."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from ptweave.data.perf.packets import length
from ptweave.data.sideband import read_sideband
from ptweave.decode.expand import Expansion
from ptweave.decode.flow import decode_flow
from ptweave.decode.perfimport import Imported, Options, import_perf
from support import perf_script
from support.assembler import assemble
from support.perf_writer import PerfWriter, When
from support.pt_writer import PtWriter
from support.random_program import generate
from support.timed_program import START, TimedMachine, timed_run
from support.trace_bundle import Decoded

CODE, SIZE = 0x401000, 0x4000
Answer = dict[int, list[tuple[int, int]]]


def ours(file: Path, symfs: Path | None, out: Path, **options: object) -> tuple[Answer, Imported]:
    """What we decode, by tid."""
    shutil.rmtree(out, ignore_errors=True)
    made = import_perf(Options(file, out, symfs, **options))  # type: ignore[arg-type]
    decode_flow(made.bundle)
    return answer(made), made


def answer(made: Imported) -> Answer:
    expansion = Expansion(made.bundle)
    found: Answer = {}
    for row in read_sideband(made.bundle.sideband).to_pylist():
        if row["kind"] == "thread":
            ips = [ip for part in expansion.addresses(row["thread"]) for ip in part.tolist()]
            times = [time for part in expansion.times(row["thread"]) for time in part.tolist()]
            assert len(ips) == len(times)
            if ips:
                found.setdefault(row["tid"], []).extend(zip(times, ips, strict=True))
    return found


def decoded(made: Imported) -> Decoded:
    return Decoded(made.bundle)


def perfs(file: Path, symfs: Path, *more: str) -> tuple[Answer, list[str]]:
    """What perf decodes, by tid, and its errors."""
    ran, errors = perf_script.script(file, symfs, *more)
    found: Answer = {}
    for one in ran:
        found.setdefault(one.tid, []).append((one.time, one.ip))
    return found, errors


def packet_ends(machine: TimedMachine) -> list[int]:
    """Where packets end: a ring buffer is read out between two of them."""
    data, at, ends = bytes(machine.packets.data), 0, []
    while at < len(data):
        at += length(data, at)
        ends.append(at)
    return ends


def stops(machine: TimedMachine) -> list[int]:
    """Where the packets of a stop of tracing end: a ring is copied while the processor does not write to it."""
    data = bytes(machine.packets.data)
    begins = [0, *packet_ends(machine)]
    return [end for begin, end in pairwise(begins) if data[begin] & 0x1F == 0x01]


def keep_code(machine_folder: Path, symfs: Path, name: str) -> str:
    """Put an assembled program where perf and we look for it; returns its path there."""
    target = symfs / "bin" / name
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(machine_folder / "code.elf", target)
    return f"/bin/{name}"


def keep_vmlinux(folder: Path, symfs: Path) -> Path:
    """Where the kernel's code is, for us and for perf: it reads it once as it is called, and once below `symfs`."""
    vmlinux = (folder / "kernel" / "code.elf").resolve()
    inside = symfs / str(vmlinux).lstrip("/")
    inside.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(vmlinux, inside)
    return vmlinux


def single(folder: Path, seed: int, *, steps: int = 1500, mtc: bool = True, cyc: bool = True,
           mtc_shift: int = 3, **more: object) -> tuple[PerfWriter, TimedMachine, Path]:
    """One process that ran on one CPU, recorded but for its AUX area; and where its code is."""
    symfs = folder / "sys"
    machine = timed_run(seed, folder / "work", steps, mtc=mtc, cyc=cyc, mtc_shift=mtc_shift)
    path = keep_code(folder / "work", symfs, "prog")
    writer = PerfWriter(mtc=mtc, cyc=cyc, mtc_period=mtc_shift, **more)  # type: ignore[arg-type]
    writer.comm(100, 100, "prog").mmap(100, CODE, SIZE, 0x1000, path)
    return writer, machine, symfs


def finish(writer: PerfWriter, machine: TimedMachine, *, cpu: int = 0, tid: int = 100) -> PerfWriter:
    """The task ends."""
    end = machine.now() + 50_000
    if writer.per_cpu and writer.have_sched_switch == 3:
        writer.switch_pair(end + 50_000, cpu, (tid, tid), (0, 0))
    return writer.exit(tid, tid, When(tid, tid, writer.ns(end), cpu)).round()


@dataclass
class Scheduled:
    """Processes with code of their own at the same addresses, sharing CPUs; each CPU has a trace."""

    folder: Path
    seed: int
    writer: PerfWriter
    tids: tuple[int, ...] = (100, 200, 300)
    cpus: int = 2
    slices: int = 40
    alone: bool = False  # the first one runs, now on one CPU, now on another, and nobody else
    traces: dict[int, PtWriter] = field(default_factory=dict)
    executed: dict[int, list[int]] = field(default_factory=dict)

    def run(self) -> Scheduled:
        chance = random.Random(self.seed)
        symfs = self.folder / "sys"
        machines, places = {}, {}
        for tid in self.tids:
            work = self.folder / f"work{tid}"
            program = generate(chance, chance.choice((20, 60, 200)))
            text = "\n".join(f"i{index}: {one.text}" for index, one in enumerate(program))
            machines[tid] = TimedMachine(assemble(text, work, CODE), program, chance, return_compression=True,
                                         long_tnt=False, mtc=self.writer.mtc, cyc=self.writer.cyc,
                                         mtc_shift=self.writer.mtc_period)
            places[tid] = 0
            path = keep_code(work, symfs, f"prog{tid}")
            self.writer.comm(tid, tid, f"prog{tid}").mmap(tid, CODE, SIZE, 0x1000, path)
        self.traces = {cpu: PtWriter() for cpu in range(self.cpus)}
        clock = float(START)
        switches: list[tuple[int, int, int, int]] = []  # tsc, cpu, old, new
        running = dict.fromkeys(range(self.cpus), 0)
        for _ in range(self.slices):
            ends = []
            for cpu, tid in self._chosen(chance):
                machine = machines[tid]
                machine.clock = clock + chance.randrange(500)
                switches.append((machine.now() - 60, cpu, running[cpu], tid))
                running[cpu] = tid
                places[tid] = self._slice(machine, cpu, places[tid], chance, first=not self.traces[cpu].data)
                ends.append(machine.clock)
                if self.alone or chance.random() < 0.5:
                    switches.append((machine.now() + 60, cpu, tid, 0))
                    running[cpu] = 0
            clock = max(ends) + chance.randrange(300, 3000)
        self.executed = {tid: machine.executed for tid, machine in machines.items()}
        for tsc, cpu, old, new in sorted(switches):
            self._switch(tsc, cpu, old, new)
        for cpu, trace in self.traces.items():
            self.writer.auxtrace(bytes(trace.data), reference=START, index=cpu, cpu=cpu)
        end = When(0, 0, self.writer.ns(int(clock) + 100_000), 0)
        for tid in self.tids:
            self.writer.exit(tid, tid, end)
        return self

    def _chosen(self, chance: random.Random) -> list[tuple[int, int]]:
        """Who runs next, and where."""
        if self.alone:
            return [(chance.randrange(self.cpus), self.tids[0])]
        return list(enumerate(chance.sample(self.tids, self.cpus)))

    def _slice(self, machine: TimedMachine, cpu: int, place: int, chance: random.Random, *, first: bool) -> int:
        machine.packets = self.traces[cpu]
        machine.compressed.clear()
        machine.cycles, machine.cbr_said = 0.0, -1
        if first or chance.random() < 0.3:
            machine._psb(None)
        else:
            machine._stamp()
        machine.packets.mode_exec().pge(machine.ip(place))
        for _ in range(chance.randrange(5, 120)):
            place = machine._execute(place)
        machine._flush()
        machine.packets.fup(machine.ip(place)).pgd()
        return place

    def _switch(self, tsc: int, cpu: int, old: int, new: int) -> None:
        writer = self.writer
        if writer.have_sched_switch == 3:
            writer.switch_pair(tsc, cpu, (old, old), (new, new))
        elif writer.have_sched_switch == 2:
            writer.switch(When(old, old, writer.ns(tsc), cpu), out=True)
            writer.switch(When(new, new, writer.ns(tsc + 20), cpu), out=False)
        elif writer.have_sched_switch == 1:
            writer.sched_switch(When(old, old, writer.ns(tsc), cpu), new)
