# SPDX-License-Identifier: MIT
"""Switches of threads in a kernel that is traced and has symbols: whose each instruction is, as perf has it.

The machine that writes the recordings knows whose each instruction was. So does perf, at `__switch_to`, as long as what
it sees first, the place or the record, is not mixed up; where it is, perf lists nothing more of the trace.
"""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from ptweave.decode import leads
from ptweave.decode.flow import Decoder, decode_flow
from support import perf_case, perf_script
from support.kernel_program import FIRST, KERNEL
from support.perf_case import CODE, SIZE, keep_code, keep_vmlinux, ours, perfs, stops
from support.perf_writer import PerfWriter, When
from support.switch_program import SCHEDULER, SwitchMachine, switch_run
from support.timed_program import START

pytestmark = pytest.mark.skipif(not perf_script.available(), reason="no perf here (Debian package linux-perf)")

TIMING = {"tsc": {"mtc": False, "cyc": False}, "mtc": {"cyc": False}, "mtc+cyc": {}, "cyc": {"mtc": False},
          "rare mtc": {"mtc_shift": 9}}
CUTS = (1, 300, 900)
"""Bytes of ranges that traces are decoded in as well."""

WHOLE = [("tsc", 9), ("tsc", 10), ("mtc", 3), ("mtc", 4), ("mtc", 8), ("mtc+cyc", 0), ("mtc+cyc", 3), ("mtc+cyc", 4),
         ("mtc+cyc", 6), ("cyc", 1), ("cyc", 6), ("cyc", 4), ("cyc", 5), ("rare mtc", 1), ("rare mtc", 6)]
"""Recordings with the kernel's own records of switches that perf lists to the end."""


class Recording:
    """A recording of machines, one a processor, and of their code."""

    def __init__(self, folder: Path, *machines: SwitchMachine, told_by: int = 3, snapshot: bool = False) -> None:
        first = machines[0]
        self.folder = folder
        self.machines = machines
        self.writer = PerfWriter(mtc=first.mtc, cyc=first.cyc, mtc_period=first.mtc_shift, user_only=False,
                                 have_sched_switch=told_by, snapshot=snapshot)
        self.vmlinux = keep_vmlinux(folder / "work0", folder / "sys")
        self.writer.mmap(-1, KERNEL, 0x100000, KERNEL, "[kernel.kallsyms]_text", kernel=True)
        for cpu, machine in enumerate(machines):
            for tid in machine.tids:
                path = keep_code(folder / f"work{cpu}" / f"user{tid}", folder / "sys", f"prog{tid}")
                self.writer.comm(tid, tid, f"prog{tid}").mmap(tid, CODE, SIZE, 0x1000, path)
            self._begin(cpu, machine.tids[0])
            machine.write(self.writer, cpu)

    def _begin(self, cpu: int, tid: int) -> None:
        """What ran before anything was traced."""
        when, writer = self.writer.ns(START - 5000), self.writer
        if writer.have_sched_switch == 3:
            writer.switch_pair(START - 5000, cpu, (0, 0), (tid, tid))
        elif writer.have_sched_switch == 2:
            writer.switch(When(tid, tid, when, cpu), out=False)
        else:
            writer.sched_switch(When(0, 0, when, cpu), tid)

    def full(self) -> Recording:
        for cpu, machine in enumerate(self.machines):
            self.writer.auxtrace(machine.trace(), reference=START, tid=-1, cpu=cpu, index=cpu)
        return self

    def file(self) -> Path:
        tid, end = self.machines[0].tids[0], max(machine.now() for machine in self.machines) + 50_000
        self.writer.exit(tid, tid, When(tid, tid, self.writer.ns(end), 0))
        return self.writer.round().write(self.folder / "perf.data")

    def both(self) -> tuple[perf_case.Answer, perf_case.Answer]:
        """Ours, which is the same wherever ranges are cut and whatever decodes them; and perf's."""
        file, symfs = self.file(), self.folder / "sys"
        expected, errors = perfs(file, symfs, "--vmlinux", str(self.vmlinux))
        assert errors == []
        found, made = ours(file, symfs, file.with_suffix(".ptw"), vmlinux=self.vmlinux)
        for size in CUTS:
            decode_flow(made.bundle, size=size)
            assert perf_case.answer(made) == found
        decode_flow(made.bundle, size=300, decoder=Decoder.LIBIPT, jobs=2)
        assert perf_case.answer(made) == found
        made.bundle.ledger().check()
        return found, expected


def recorded(folder: Path, seed: int, timing: str, *, told_by: int = 3, **more: object) -> Recording:
    machine = switch_run(seed, folder / "work0", told_by=told_by, **more, **TIMING[timing])  # type: ignore[arg-type]
    return Recording(folder, machine, told_by=told_by)


def ran(found: perf_case.Answer) -> dict[int, list[int]]:
    return {tid: [ip for _, ip in each] for tid, each in found.items()}


@pytest.mark.parametrize("timing", TIMING)
@pytest.mark.parametrize("seed", range(4))
def test_the_next_thread_goes_on_where_the_kernel_switches(seed: int, timing: str, tmp_path: Path) -> None:
    """Told by a tracepoint before; whether that or the place is first by time does not matter."""
    recording = recorded(tmp_path, seed, timing, told_by=1, most=(2, 16)[seed % 2]).full()
    found, expected = recording.both()
    assert found == expected
    assert ran(found) == recording.machines[0].ran


@pytest.mark.parametrize(("timing", "seed"), WHOLE)
def test_so_it_does_with_records_from_before_and_after(timing: str, seed: int, tmp_path: Path) -> None:
    recording = recorded(tmp_path, seed, timing).full()
    found, expected = recording.both()
    assert found == expected
    assert ran(found) == recording.machines[0].ran
    assert len(found) > 1


@pytest.mark.parametrize(("timing", "seed"), [("tsc", 1), ("tsc", 6), ("mtc", 2), ("mtc+cyc", 1), ("cyc", 3)])
def test_where_perf_lists_nothing_more_the_trace_goes_on(seed: int, timing: str, tmp_path: Path) -> None:
    """perf waits at the place for a record that tells of it, and what it comes to is the one of the switch before."""
    recording = recorded(tmp_path, seed, timing).full()
    found, expected = recording.both()
    listed = sum(len(each) for each in expected.values())
    assert 0 < listed < sum(len(each) for each in recording.machines[0].ran.values())
    assert {tid: found[tid][:len(each)] for tid, each in expected.items()} == expected
    assert ran(found) == recording.machines[0].ran


@pytest.mark.parametrize("told_by", [3, 1])
@pytest.mark.parametrize("timing", TIMING)
def test_the_trace_of_one_thread_is_off_where_the_kernel_switches(timing: str, told_by: int, tmp_path: Path) -> None:
    """What is traced of the kernel between the record and there is the old thread's."""
    recording = recorded(tmp_path, 1, timing, told_by=told_by, only=100, steps=4000).full()
    found, expected = recording.both()
    assert found == expected
    assert ran(found) == recording.machines[0].ran == {100: recording.machines[0].ran[100]}


def test_processors_switch_each_for_itself(tmp_path: Path) -> None:
    machines = [switch_run(seed, tmp_path / f"work{cpu}", told_by=1, tids=tids, kernel=2)
                for cpu, (seed, tids) in enumerate(((2, (100, 200)), (3, (300, 400, 500))))]
    found, expected = Recording(tmp_path, *machines, told_by=1).full().both()
    assert found == expected
    assert ran(found) == machines[0].ran | machines[1].ran


@pytest.mark.parametrize("told_by", [1, 3])
@pytest.mark.parametrize("timing", ["tsc", "mtc+cyc"])
def test_of_what_was_before_a_range_a_little_is_enough(timing: str, told_by: int, tmp_path: Path,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    """Leads that begin in the middle of the trace: there nothing is known of switches."""
    monkeypatch.setattr(leads, "LEAD", 1000)
    recording = recorded(tmp_path, 4, timing, told_by=told_by, steps=8000).full()
    assert len(recording.machines[0].trace()) > 3 * leads.LEAD
    found, made = ours(recording.file(), tmp_path / "sys", tmp_path / "run.ptw", vmlinux=recording.vmlinux)
    assert ran(found) == recording.machines[0].ran
    for size in CUTS:
        decode_flow(made.bundle, size=size)
        assert perf_case.answer(made) == found


@pytest.mark.parametrize("ring", [1600, 3000])
@pytest.mark.parametrize("timing", ["mtc+cyc", "cyc"])
def test_in_snapshots_too(timing: str, ring: int, tmp_path: Path) -> None:
    machine = switch_run(3, tmp_path / "work0", 4000, told_by=1, **TIMING[timing])  # type: ignore[arg-type]
    recording = Recording(tmp_path, machine, told_by=1, snapshot=True)
    data, chance, last = machine.trace(), random.Random(3), ring
    for end in stops(machine):
        if end >= last:
            begin = max(0, end - ring)
            recording.writer.auxtrace(data[begin:end], offset=begin % ring, reference=START, tid=-1)
            last = end + chance.choice((8, 50, 300, ring // 2, 2 * ring))
    found, expected = recording.both()
    assert found == expected
    assert len(found) > 1


class Overflowing(SwitchMachine):
    """A machine that loses packets in the kernel now and then, but none that would have said anything."""

    def _execute(self, pc: int) -> int:
        if FIRST <= pc < SCHEDULER and self.chance.random() < 0.01:
            self._flush()
            self.compressed.clear()
            self.packets.ovf().fup(self.ip(pc))
            self._psb(pc)
        return super()._execute(pc)


@pytest.mark.parametrize("seed", [3, 10, 15])
def test_after_an_overflow_perf_switches_by_time_and_we_go_on(seed: int, tmp_path: Path) -> None:
    machine = switch_run(seed, tmp_path / "work0", told_by=1, made=Overflowing)
    recording = Recording(tmp_path, machine, told_by=1).full()
    file, symfs = recording.file(), tmp_path / "sys"
    expected, errors = perfs(file, symfs, "--vmlinux", str(recording.vmlinux))
    assert errors
    assert all("Overflow packet" in error for error in errors)
    found, made = ours(file, symfs, tmp_path / "run.ptw", vmlinux=recording.vmlinux)
    assert ran(found) == machine.ran != ran(expected)
    for size in CUTS:
        decode_flow(made.bundle, size=size)
        assert perf_case.answer(made) == found


@pytest.mark.parametrize(("told_by", "known"), [(1, False), (3, False), (2, True)])
def test_else_it_goes_on_at_the_time_of_the_record(told_by: int, known: bool, tmp_path: Path) -> None:
    """Where the symbols are of the kernel's own, or switches are told of only behind them. And the control."""
    recording = recorded(tmp_path, 6, "mtc+cyc", told_by=told_by, known=known).full()
    found, expected = recording.both()
    assert found == expected
    assert ran(found) != recording.machines[0].ran
    assert sum(map(len, found.values())) == sum(map(len, recording.machines[0].ran.values()))


@pytest.mark.parametrize("kind", ["T", "t"])
@pytest.mark.parametrize("told_by", [3, 1])
def test_kcore_has_its_symbols_beside_it(told_by: int, kind: str, tmp_path: Path) -> None:
    """As `perf record --kcore` puts them there; small letters are symbols of one object file's own."""
    recording = recorded(tmp_path, 3, "mtc+cyc", told_by=told_by).full()
    folder = tmp_path / "perf.kcore"
    (folder / "kcore_dir").mkdir(parents=True)
    shutil.move(recording.file(), folder / "data")
    shutil.copy(recording.vmlinux, folder / "kcore_dir" / "kcore")
    (folder / "kcore_dir" / "modules").touch()
    (folder / "kcore_dir" / "kallsyms").write_text(_kallsyms(recording.vmlinux, kind))
    expected, errors = perfs(folder, tmp_path / "sys")
    assert errors == []
    found, _ = ours(folder, tmp_path / "sys", tmp_path / "run.ptw")
    assert found == expected
    assert (ran(found) == recording.machines[0].ran) == (kind == "T")


def _kallsyms(vmlinux: Path, kind: str) -> str:
    listed = subprocess.run(["nm", "-n", vmlinux], capture_output=True, text=True, check=True).stdout.splitlines()
    symbols = [(address, name) for address, _, name in map(str.split, listed) if not name[1:].isdigit()]
    lines = [f"{address} {'T' if name == '_text' else kind} {name}" for address, name in symbols]
    return "\n".join([f"{KERNEL:016x} T _stext", *lines, f"{KERNEL + 0x2000:016x} T _etext", ""])
