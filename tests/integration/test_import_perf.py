# SPDX-License-Identifier: MIT
"""perf.data files decode to what `perf script` makes of them: every address and every time, to the nanosecond."""

from __future__ import annotations

import lzma
import random
from itertools import pairwise
from pathlib import Path

import pytest

from ptweave.data import Bundle, Times
from ptweave.decode import task
from ptweave.decode.expand import Expansion
from ptweave.decode.flow import Decoder, decode_flow
from support import perf_case, perf_script
from support.assembler import assemble
from support.event_program import event_run
from support.kernel_program import KERNEL, KernelMachine, Poked, kernel_run
from support.perf_case import (
    CODE,
    SIZE,
    Scheduled,
    decoded,
    finish,
    keep_code,
    keep_vmlinux,
    ours,
    packet_ends,
    perfs,
    single,
    stops,
)
from support.perf_writer import PerfWriter, When
from support.power_program import sleeping_run
from support.pt_writer import PtWriter
from support.ptwrite_program import Address, writing_run
from support.reference_traces import FOLDER
from support.timed_program import START, TimedMachine, timed_run
from support.trace_bundle import Decoded

pytestmark = pytest.mark.skipif(not perf_script.available(), reason="no perf here (Debian package linux-perf)")

TIMING = {"tsc": {"mtc": False, "cyc": False}, "mtc": {"cyc": False}, "mtc+cyc": {}, "cyc": {"mtc": False},
          "rare mtc": {"mtc_shift": 9}}


CUTS = (1, 700)
"""Bytes of ranges that traces are decoded in as well: a range at every PSB, and one at some of them."""


def agree(file: Path, symfs: Path, vmlinux: Path | None = None) -> perf_case.Answer:
    """Decode with both; they must agree, without an error, wherever our ranges are cut. Returns the answer."""
    expected, errors = perfs(file, symfs, *(["--vmlinux", str(vmlinux)] if vmlinux is not None else []))
    assert errors == []
    assert expected
    found, made = ours(file, symfs, file.with_suffix(".ptw"), vmlinux=vmlinux)
    assert {tid: len(ran) for tid, ran in found.items()} == {tid: len(ran) for tid, ran in expected.items()}
    for tid, ran in expected.items():
        assert [ip for _, ip in found[tid]] == [ip for _, ip in ran]
        differ = [(index, mine, theirs) for index, (mine, theirs) in enumerate(zip(found[tid], ran, strict=True))
                  if mine != theirs]
        assert differ == []
    decoded(made).bundle.ledger().check()
    for size in CUTS:
        decode_flow(made.bundle, size=size)
        assert perf_case.answer(made) == found
    return found


def one(folder: Path, seed: int, **more: object) -> tuple[PerfWriter, list[int], Path]:
    """One process on one CPU, all of its trace in one AUXTRACE record."""
    writer, machine, symfs = single(folder, seed, **more)  # type: ignore[arg-type]
    writer.switch_pair(START - 5000, 0, (0, 0), (100, 100))
    writer.itrace_start(100, 100, When(100, 100, writer.ns(START - 4000), 0))
    writer.auxtrace(bytes(machine.packets.data), reference=START, tid=100)
    finish(writer, machine)
    return writer, machine.executed, symfs


def recorded(folder: Path, machine: TimedMachine, *, user_only: bool = True) -> PerfWriter:
    """A process on one CPU, whose code is in `work`."""
    writer = PerfWriter(mtc=machine.mtc, cyc=machine.cyc, mtc_period=machine.mtc_shift, user_only=user_only)
    path = keep_code(folder / "work", folder / "sys", "prog")
    writer.comm(100, 100, "prog").mmap(100, CODE, SIZE, 0x1000, path)
    writer.switch_pair(START - 5000, 0, (0, 0), (100, 100))
    writer.auxtrace(bytes(machine.packets.data), reference=START, tid=100)
    return finish(writer, machine)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("timing", TIMING)
def test_addresses_and_times_of_one_process(timing: str, seed: int, tmp_path: Path) -> None:
    writer, executed, symfs = one(tmp_path, seed + 10, **TIMING[timing])
    found = agree(writer.write(tmp_path / "perf.data"), symfs)
    assert [ip for _, ip in found[100]] == executed


@pytest.mark.parametrize("seed", [0, 5, 9])
@pytest.mark.parametrize("timing", ["tsc", "mtc", "mtc+cyc"])
@pytest.mark.parametrize("address", Address)
def test_programs_that_write_to_their_trace(address: Address, timing: str, seed: int, tmp_path: Path) -> None:
    machine = writing_run(seed, tmp_path / "work", address, **TIMING[timing])
    file = recorded(tmp_path, machine).write(tmp_path / "perf.data")
    found = agree(file, tmp_path / "sys")
    assert [ip for _, ip in found[100]] == machine.executed
    assert len(machine.said) > 50
    rows = Decoded(Bundle.open(file.with_suffix(".ptw"))).rows("pt_events")
    assert [(row["ip"], row["detail"]) for row in rows if row["kind"] == "ptwrite"] == machine.said


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("timing", TIMING)
def test_events_and_records_of_pebs_that_libipt_does_not_know(timing: str, seed: int, tmp_path: Path) -> None:
    machine = event_run(seed, tmp_path / "work", flags=False, **TIMING[timing])
    writer = recorded(tmp_path, machine)
    found = agree(writer.write(tmp_path / "perf.data"), tmp_path / "sys")
    assert [ip for _, ip in found[100]] == machine.executed


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("timing", TIMING)
def test_programs_that_fall_asleep(timing: str, seed: int, tmp_path: Path) -> None:
    machine = sleeping_run(seed, tmp_path / "work", **TIMING[timing])
    file = recorded(tmp_path, machine).write(tmp_path / "perf.data")
    found = agree(file, tmp_path / "sys")
    assert [ip for _, ip in found[100]] == machine.executed
    kinds = {row["kind"] for row in Decoded(Bundle.open(file.with_suffix(".ptw"))).rows("pt_events")}
    assert {"mwait", "pwre", "exstop", "pwrx"} <= kinds


def test_changes_of_the_interrupt_flag_are_no_branches(tmp_path: Path) -> None:
    machine = event_run(4, tmp_path / "work")
    file = recorded(tmp_path, machine).write(tmp_path / "perf.data")
    expected, errors = perfs(file, tmp_path / "sys")
    found, _ = ours(file, tmp_path / "sys", tmp_path / "run.ptw")
    assert errors == []
    assert [ip for _, ip in found[100]] == [ip for _, ip in expected[100]] == machine.executed


def with_kernel(folder: Path, machine: KernelMachine, pokes: list[Poked]) -> tuple[PerfWriter, Path]:
    """The same with the kernel's code, whose changes are recorded; and that code as it was at first."""
    writer = recorded(folder, machine, user_only=False)
    writer.mmap(-1, KERNEL, 0x100000, KERNEL, "[kernel.kallsyms]_text", kernel=True)
    for poked in pokes:
        writer.text_poke(poked.address, poked.old, poked.new, When(0, 0, writer.ns(poked.tsc), 0))
    return writer.round(), keep_vmlinux(folder / "work", folder / "sys")


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("timing", TIMING)
def test_the_kernel_and_what_it_was_called_from(timing: str, seed: int, tmp_path: Path) -> None:
    machine = kernel_run(seed, tmp_path / "work", **TIMING[timing])
    writer, vmlinux = with_kernel(tmp_path, machine, [])
    found = agree(writer.write(tmp_path / "perf.data"), tmp_path / "sys", vmlinux)
    assert [ip for _, ip in found[100]] == machine.executed
    assert sum(ip >= KERNEL for ip in machine.executed) > 100


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("timing", ["tsc", "mtc+cyc"])
def test_code_that_the_kernel_changes_is_what_it_was_when_it_ran(timing: str, seed: int, tmp_path: Path) -> None:
    machine = kernel_run(seed, tmp_path / "work", often=0.02, **TIMING[timing])
    writer, vmlinux = with_kernel(tmp_path, machine, machine.pokes)
    found = agree(writer.write(tmp_path / "perf.data"), tmp_path / "sys", vmlinux)
    assert len(machine.pokes) > 5
    assert [ip for _, ip in found[100]] == machine.executed


def test_the_kernels_code_may_be_from_after_its_changes(tmp_path: Path) -> None:
    machine = kernel_run(3, tmp_path / "work", often=0.02)
    writer, vmlinux = with_kernel(tmp_path, machine, machine.pokes)
    code = bytearray(vmlinux.read_bytes())
    for poked in machine.pokes:
        at = 0x1000 + poked.address - KERNEL
        code[at:at + len(poked.new)] = poked.new
    vmlinux.write_bytes(code)
    found, _ = ours(writer.write(tmp_path / "perf.data"), tmp_path / "sys", tmp_path / "run.ptw", vmlinux=vmlinux)
    assert [ip for _, ip in found[100]] == machine.executed


def test_a_process_that_begins_after_a_change_has_the_changed_kernel(tmp_path: Path) -> None:
    machine = kernel_run(3, tmp_path / "work", often=0.02)
    writer, vmlinux = with_kernel(tmp_path, machine, machine.pokes)
    path = keep_code(tmp_path / "work", tmp_path / "sys", "again")
    when = When(100, 100, writer.ns(machine.pokes[1].tsc + 10_000), 0)  # an exec, while nothing runs
    writer.comm(100, 100, "again", when, exec_=True).mmap(100, CODE, SIZE, 0x1000, path, when)
    found = agree(writer.write(tmp_path / "perf.data"), tmp_path / "sys", vmlinux)
    assert [ip for _, ip in found[100]] == machine.executed


def test_control_without_records_of_its_changes_other_code_is_decoded(tmp_path: Path) -> None:
    machine = kernel_run(3, tmp_path / "work", often=0.02)
    writer, vmlinux = with_kernel(tmp_path, machine, [])
    found, _ = ours(writer.write(tmp_path / "perf.data"), tmp_path / "sys", tmp_path / "run.ptw", vmlinux=vmlinux)
    assert [ip for _, ip in found[100]] != machine.executed


@pytest.mark.parametrize("form", ["pipe", "compressed", "pipe, compressed"])
def test_pipe_mode_and_compressed_records(form: str, tmp_path: Path) -> None:
    writer, executed, symfs = one(tmp_path, 5)
    file = writer.write(tmp_path / "perf.data", pipe="pipe" in form, compressed="compressed" in form)
    found = agree(file, symfs)
    assert [ip for _, ip in found[100]] == executed


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("mode", [3, 2], ids=["switch_cpu_wide", "switch"])
def test_processes_sharing_cpus(mode: int, seed: int, tmp_path: Path) -> None:
    writer = PerfWriter(have_sched_switch=mode)
    run = Scheduled(tmp_path, seed, writer).run()
    found = agree(writer.write(tmp_path / "perf.data"), tmp_path / "sys")
    for tid, executed in run.executed.items():
        assert [ip for _, ip in found.get(tid, [])] == executed


@pytest.mark.parametrize("mode", [3, 2], ids=["switch_cpu_wide", "switch"])
def test_a_thread_that_changes_its_cpu_is_in_order_though_nobody_ran_where_it_was(mode: int, tmp_path: Path) -> None:
    writer = PerfWriter(have_sched_switch=mode)
    run = Scheduled(tmp_path, 7, writer, alone=True).run()
    found = agree(writer.write(tmp_path / "perf.data"), tmp_path / "sys")
    assert [ip for _, ip in found[run.tids[0]]] == run.executed[run.tids[0]]


def test_switches_may_come_from_the_tracepoint(tmp_path: Path) -> None:
    answers = []
    for mode in (3, 1):
        writer = PerfWriter(have_sched_switch=mode)
        Scheduled(tmp_path / str(mode), 1, writer).run()
        file = writer.write(tmp_path / f"{mode}.data")
        answers.append(ours(file, tmp_path / str(mode) / "sys", tmp_path / f"{mode}.ptw")[0])
    assert answers[0] == answers[1]
    assert len(answers[0]) == 3


def test_a_thread_of_its_own_trace(tmp_path: Path) -> None:
    writer, machine, symfs = single(tmp_path, 3, per_cpu=False, have_sched_switch=0)
    writer.auxtrace(bytes(machine.packets.data), reference=START, tid=100, cpu=-1)
    finish(writer, machine, cpu=-1)
    found = agree(writer.write(tmp_path / "perf.data"), symfs)
    assert [ip for _, ip in found[100]] == machine.executed


def test_a_full_trace_in_many_buffers(tmp_path: Path) -> None:
    writer, machine, symfs = single(tmp_path, 4, cyc=False)
    data = bytes(machine.packets.data)
    writer.switch_pair(START - 5000, 0, (0, 0), (100, 100))
    cuts = [0, *sorted(psb & ~7 for psb in machine.psbs[1:] if psb % 8 == 0), len(data)]
    for begin, end in pairwise(cuts):
        writer.auxtrace(data[begin:end], offset=begin, reference=START, tid=100)
    finish(writer, machine)
    agree(writer.write(tmp_path / "perf.data"), symfs)


@pytest.mark.parametrize("ring", [700, 1600, 4000])
def test_snapshots_are_stitched_and_nothing_is_decoded_twice(ring: int, tmp_path: Path) -> None:
    writer, machine, symfs = single(tmp_path, 6, snapshot=True, cyc=False, steps=4000)
    data = bytes(machine.packets.data)
    writer.switch_pair(START - 5000, 0, (0, 0), (100, 100))
    ends = packet_ends(machine)
    for end in range(ring, len(data), 600):
        end = next(at for at in ends if at >= end)
        begin = max(0, end - ring)
        writer.auxtrace(data[begin:end], offset=begin % ring, reference=START, tid=100)
    finish(writer, machine)
    agree(writer.write(tmp_path / "perf.data"), symfs)


@pytest.mark.parametrize("ring", [700, 3000])
@pytest.mark.parametrize("program", ["plain", "ptwrite"])
@pytest.mark.parametrize("timing", TIMING)
def test_what_cycles_count_from_is_known_behind_what_is_missing_between_snapshots(
        timing: str, program: str, ring: int, tmp_path: Path) -> None:
    if program == "plain":
        machine = timed_run(0, tmp_path / "work", 4000, **TIMING[timing])
    else:
        machine = writing_run(0, tmp_path / "work", Address.ALWAYS, 4000, **TIMING[timing])
    writer = PerfWriter(mtc=machine.mtc, cyc=machine.cyc, mtc_period=machine.mtc_shift, snapshot=True)
    writer.comm(100, 100, "prog")
    writer.mmap(100, CODE, SIZE, 0x1000, keep_code(tmp_path / "work", tmp_path / "sys", "prog"))
    writer.switch_pair(START - 5000, 0, (0, 0), (100, 100))
    data, chance, last = bytes(machine.packets.data), random.Random(0), 0
    for end in stops(machine):
        if end >= last:
            begin = max(0, end - ring)
            writer.auxtrace(data[begin:end], offset=begin % ring, reference=START, tid=100)
            last = end + chance.choice((8, 50, 300, 600, ring // 2))
    agree(finish(writer, machine).write(tmp_path / "perf.data"), tmp_path / "sys")


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("timing", ["mtc+cyc", "cyc", "rare mtc"])
def test_a_ring_that_begins_in_the_middle_of_a_packet_tells_no_time_up_to_its_first_psb(
        timing: str, seed: int, tmp_path: Path) -> None:
    writer, machine, symfs = single(tmp_path, seed, snapshot=True, steps=3000, **TIMING[timing])
    data = bytes(machine.packets.data)
    writer.switch_pair(START - 5000, 0, (0, 0), (100, 100))
    begin = random.Random(seed).randrange(1, len(data) // 2)
    writer.auxtrace(data[begin:], offset=begin, reference=START, tid=100)
    finish(writer, machine)
    agree(writer.write(tmp_path / "perf.data"), symfs)


def test_samples_that_carry_the_trace(tmp_path: Path) -> None:
    writer, machine, symfs = single(tmp_path, 6, aux_samples=True, cyc=False, steps=4000)
    data = bytes(machine.packets.data)
    writer.switch_pair(START - 5000, 0, (0, 0), (100, 100))
    end, ends = machine.now(), packet_ends(machine)
    for at in range(1500, len(data), 1500):
        at = next(end for end in ends if end >= at)
        time = START + (end - START) * at // len(data)
        writer.aux_sample(data[max(0, at - 2048):at], When(100, 100, writer.ns(time), 0))
    finish(writer, machine)
    agree(writer.write(tmp_path / "perf.data"), symfs)


def by_hand(folder: Path, trace: PtWriter) -> Path:
    """A recording of a process that runs what was assembled in `folder`/work."""
    writer = PerfWriter(mtc=False, cyc=False).comm(100, 100, "prog")
    writer.mmap(100, CODE, SIZE, 0x1000, keep_code(folder / "work", folder / "sys", "prog"))
    writer.switch_pair(START - 5000, 0, (0, 0), (100, 100)).auxtrace(bytes(trace.data))
    return writer.exit(100, 100, When(100, 100, writer.ns(START + 5000), 0)).round().write(folder / "perf.data")


@pytest.mark.parametrize("decoder", [Decoder.AUTO, Decoder.LIBIPT])
@pytest.mark.parametrize("what", ["psb", "cbr"])
def test_packets_of_time_between_the_last_branch_and_a_cut_hold_up_to_the_cut(
        what: str, decoder: Decoder, tmp_path: Path) -> None:
    code = assemble("a: jmp *%rax\nb: nop\nnop\nc: jmp *%rbx", tmp_path / "work", CODE)
    trace = PtWriter().psb().tsc(START).cbr(20).psbend().mode_exec().pge(code["a"]).tip(code["b"])
    if what == "psb":
        trace.psb().tsc(START + 100).cbr(20).mode_exec().fup(code["b"]).psbend()
    else:
        trace.tsc(START + 100).cbr(30)
    cut = len(trace)
    trace.psb().tsc(START + 200).cbr(30).mode_exec().fup(code["c"]).psbend().tip(code["a"]).fup(code["a"]).pgd()
    file = by_hand(tmp_path, trace)
    found, made = ours(file, tmp_path / "sys", tmp_path / "run.ptw")
    assert [ip for _, ip in found[100]] == [code["a"], code["b"], code["b"] + 1, code["c"]]
    assert found == perfs(file, tmp_path / "sys")[0]
    decode_flow(made.bundle, size=cut, decoder=decoder)
    assert perf_case.answer(made) == found


def test_an_overflow_in_the_psb_where_decoding_begins_takes_no_time_ahead(tmp_path: Path) -> None:
    code = assemble("a: jmp *%rax\nb: nop\njmp *%rbx", tmp_path / "work", CODE)
    trace = PtWriter().psb().tsc(START).mode_exec().ovf().fup(code["a"]).tip(code["b"]).tsc(START + 500).tip(code["a"])
    trace.tsc(START + 1000).ovf().fup(code["b"]).tip(code["a"]).fup(code["a"]).pgd()
    file = by_hand(tmp_path, trace)
    found, _ = ours(file, tmp_path / "sys", tmp_path / "run.ptw")
    assert found == perfs(file, tmp_path / "sys")[0]
    assert len({time for time, _ in found[100]}) == 3


@pytest.mark.parametrize("decoder", Decoder)
def test_a_conditional_branch_out_of_what_is_traced_does_not_end_what_is_known_of_time(
        decoder: Decoder, tmp_path: Path) -> None:
    """A filter of addresses: TIP.PGD says where it led, there is no TNT."""
    code = assemble("a: nop\njz out\nb: nop\njmp *%rax\nout: nop", tmp_path / "work", CODE)
    path = keep_code(tmp_path / "work", tmp_path / "sys", "prog")
    writer = PerfWriter(mtc=False, cyc=False, filter=f"filter 0x1000/{code['out'] - CODE:#x}@{path}")
    writer.comm(100, 100, "prog").mmap(100, CODE, SIZE, 0x1000, path).switch_pair(START - 5000, 0, (0, 0), (100, 100))
    packets = PtWriter().psb_plus(tsc=START).mode_exec().pge(code["a"])
    for later in range(1, 6):
        packets.pgd(code["out"]).tsc(START + 3000 * later).pge(code["a"])
    packets.tnt(".").tip(code["b"]).tsc(START + 30_000).tip(code["b"]).pgd()
    writer.auxtrace(bytes(packets.data)).exit(100, 100, When(100, 100, writer.ns(START + 50_000), 0)).round()
    file = writer.write(tmp_path / "perf.data")
    expected, errors = perfs(file, tmp_path / "sys")
    _, made = ours(file, tmp_path / "sys", tmp_path / "run.ptw")
    decode_flow(made.bundle, decoder=decoder)
    found = perf_case.answer(made)[100]
    assert errors == []
    # perf shows where a TIP.PGD leads, too
    assert [time for time, ip in found if ip == code["a"]] == [time for time, ip in expected[100] if ip == code["a"]]
    assert [one for one in found if ip_in(one, code["b"])] == [one for one in expected[100] if ip_in(one, code["b"])]
    assert found[-1][0] == writer.ns(START + 30_000)


def ip_in(ran: tuple[int, int], place: int) -> bool:
    return place <= ran[1] < place + 3


@pytest.mark.parametrize("timing", ["tsc", "mtc+cyc"])
@pytest.mark.parametrize("exec_", [True, False], ids=["exec", "mapped over"])
@pytest.mark.parametrize("per_cpu", [True, False], ids=["a CPU's trace", "a thread's"])
def test_another_image_in_mid_trace_and_the_times_in_it(
        per_cpu: bool, exec_: bool, timing: str, tmp_path: Path) -> None:
    writer, first, symfs = single(tmp_path, 7, per_cpu=per_cpu, have_sched_switch=3 if per_cpu else 0, **TIMING[timing])
    cpu = 0 if per_cpu else -1
    if per_cpu:
        writer.switch_pair(START - 5000, 0, (0, 0), (100, 100))
    writer.itrace_start(100, 100, When(100, 100, writer.ns(START - 4000), cpu))
    second = timed_run(8, tmp_path / "second", 500, **TIMING[timing])
    # the second program's trace goes on where the first one's ended, in time and in bytes
    trace = first.packets
    second.packets, second.clock, second.executed, second.cbr_said = trace, first.clock + 20_000, [], -1
    second._stamp()
    trace.mode_exec().pge(second.ip(0))
    place = 0
    for _ in range(400):
        place = second._execute(place)
    second._flush()
    trace.fup(second.ip(place)).pgd()
    when = When(100, 100, writer.ns(int(first.clock) + 10_000), cpu)
    if exec_:
        writer.comm(100, 100, "second", when, exec_=True)
    writer.mmap(100, CODE, SIZE, 0x1000, perf_case.keep_code(tmp_path / "second", symfs, "second"), when)
    writer.auxtrace(bytes(trace.data), reference=START, tid=100, cpu=cpu)
    finish(writer, second, cpu=cpu)
    found = agree(writer.write(tmp_path / "perf.data"), symfs)
    assert [ip for _, ip in found[100]] == first.executed + second.executed


def test_code_mapped_over_other_code_is_used_from_then_on(tmp_path: Path) -> None:
    writer, executed, symfs = one(tmp_path, 9)
    other = timed_run(30, tmp_path / "other", 10)
    path = perf_case.keep_code(tmp_path / "other", symfs, "other")
    writer.mmap(100, CODE, SIZE, 0x1000, path, When(100, 100, writer.ns(1 << 53), 0))  # long after all of it
    del other
    found = agree(writer.write(tmp_path / "perf.data"), symfs)
    assert [ip for _, ip in found[100]] == executed


# --- controls ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [3, 1], ids=["switch_cpu_wide", "sched_switch"])
@pytest.mark.parametrize("known", [True, False])
def test_before_a_first_switch_the_task_ran_that_goes_off(known: bool, mode: int, tmp_path: Path) -> None:
    code = assemble("a: nop\njmp *%rax\nb: nop\njmp *%rbx", tmp_path / "work", CODE)
    path = keep_code(tmp_path / "work", tmp_path / "sys", "prog")
    writer = PerfWriter(have_sched_switch=mode, mtc=False, cyc=False)
    for tid in (100, 200) if known else (100,):
        writer.comm(tid, tid, "prog").mmap(tid, CODE, SIZE, 0x1000, path)
    if mode == 3:
        writer.switch_pair(START + 500, 0, (200, 200), (100, 100))
    else:
        writer.sched_switch(When(200, 200, writer.ns(START + 500), 0), 100)
    packets = PtWriter().psb_plus(tsc=START).mode_exec().pge(code["a"]).tip(code["b"]).pgd()
    packets.psb_plus(tsc=START + 1000).mode_exec().pge(code["b"]).tip(code["a"]).pgd()
    writer.auxtrace(bytes(packets.data)).exit(100, 100, When(100, 100, writer.ns(START + 5000), 0)).round()
    found, made = ours(writer.write(tmp_path / "perf.data"), tmp_path / "sys", tmp_path / "run.ptw")
    ran = {tid: [ip for _, ip in part] for tid, part in found.items()}
    assert ran[100][0] == code["b"]
    assert ran.get(200, [None])[0] == (code["a"] if known else None)
    assert bool(decoded(made).rows("gaps")) is not known


def test_what_ran_before_a_first_switch_is_known_though_the_kernel_changed_its_code(tmp_path: Path) -> None:
    code = assemble("a: nop\njmp *%rax\nb: nop\njmp *%rbx", tmp_path / "work", CODE)
    path = keep_code(tmp_path / "work", tmp_path / "sys", "prog")
    writer = PerfWriter(user_only=False, mtc=False, cyc=False)
    for tid in (100, 200):
        writer.comm(tid, tid, "prog").mmap(tid, CODE, SIZE, 0x1000, path)
    writer.text_poke(KERNEL, b"\x90", b"\xcc", When(0, 0, writer.ns(START + 100), 1))
    writer.switch_pair(START + 500, 0, (200, 200), (100, 100))
    packets = PtWriter().psb_plus(tsc=START).mode_exec().pge(code["a"]).tip(code["b"]).pgd()
    packets.psb_plus(tsc=START + 1000).mode_exec().pge(code["b"]).tip(code["a"]).pgd()
    writer.auxtrace(bytes(packets.data)).exit(100, 100, When(100, 100, writer.ns(START + 5000), 0)).round()
    found, made = ours(writer.write(tmp_path / "perf.data"), tmp_path / "sys", tmp_path / "run.ptw")
    assert {tid: part[0][1] for tid, part in found.items()} == {100: code["b"], 200: code["a"]}
    assert decoded(made).rows("gaps") == []


@pytest.mark.parametrize("at_psb", [False, True])
def test_a_virtual_machines_addresses_are_not_taken_for_the_hosts(at_psb: bool, tmp_path: Path) -> None:
    code = assemble("enter: vmresume\nback: jmp *%rax\nnop\nend: jmp *%rbx", tmp_path / "work", CODE)
    path = keep_code(tmp_path / "work", tmp_path / "sys", "prog")
    writer = PerfWriter(user_only=False, mtc=False, cyc=False).comm(100, 100, "prog")
    writer.mmap(100, CODE, SIZE, 0x1000, path).switch_pair(START - 5000, 0, (0, 0), (100, 100))
    packets = PtWriter().psb().tsc(START).pip(0x1000).mode_exec().fup(code["enter"]).psbend()
    packets.pip(0x2000, non_root=True).tip(code["back"])
    if at_psb:
        packets.psb().tsc(START + 50).pip(0x2000, non_root=True).mode_exec().fup(code["back"]).psbend()
    packets.tip(code["end"]).pip(0x1000).tip(code["back"])
    packets.psb().tsc(START + 100).pip(0x1000).mode_exec().fup(code["back"]).psbend().tip(code["end"]).pgd()
    writer.auxtrace(bytes(packets.data)).exit(100, 100, When(100, 100, writer.ns(START + 5000), 0)).round()
    found, made = ours(writer.write(tmp_path / "perf.data"), tmp_path / "sys", tmp_path / "run.ptw")
    assert [ip for _, ip in found[100]] == [code["enter"], code["back"], code["end"]]
    gaps = decoded(made).rows("gaps")
    assert [(gap["kind"], "virtual machine" in gap["detail"]) for gap in gaps] == [("missing_image", True)]


def test_a_range_that_begins_without_what_was_before_it_tells_other_times(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, _, symfs = one(tmp_path, 102)
    found, made = ours(writer.write(tmp_path / "perf.data"), symfs, tmp_path / "run.ptw")
    monkeypatch.setattr(task, "Leads", lambda *what: None)
    decode_flow(made.bundle, size=300)
    cut = perf_case.answer(made)
    assert [ip for _, ip in cut[100]] == [ip for _, ip in found[100]]
    assert cut != found


def test_a_changed_tsc_shows_as_a_difference(tmp_path: Path) -> None:
    writer, _, symfs = one(tmp_path, 11)
    expected, _ = perfs(writer.write(tmp_path / "perf.data"), symfs)
    data = (tmp_path / "perf.data").read_bytes()
    tsc = data.index(b"\x19" + START.to_bytes(7, "little"))
    changed = tmp_path / "changed.data"
    changed.write_bytes(data[:tsc + 1] + (START + 1000).to_bytes(7, "little") + data[tsc + 8:])
    found, _ = ours(changed, symfs, tmp_path / "run.ptw")
    assert [ip for _, ip in found[100]] == [ip for _, ip in expected[100]]
    assert found != expected


def test_a_changed_bit_of_a_tnt_shows_as_a_difference(tmp_path: Path) -> None:
    writer, machine, symfs = single(tmp_path, 12)
    data = bytearray(machine.packets.data)
    writer.switch_pair(START - 5000, 0, (0, 0), (100, 100))
    good = PerfWriter(**{name: getattr(writer, name) for name in ("mtc", "cyc", "mtc_period")},
                      records=list(writer.records))
    finish(good.auxtrace(bytes(data), reference=START, tid=100), machine)
    at = next(at for at in packet_ends(machine) if data[at] == 0x06)  # TNT of one bit, taken
    data[at] = 0x04
    finish(writer.auxtrace(bytes(data), reference=START, tid=100), machine)
    expected, _ = perfs(good.write(tmp_path / "good.data"), symfs)
    found, _ = ours(writer.write(tmp_path / "bad.data"), symfs, tmp_path / "run.ptw")
    assert found != expected


# --- real recordings --------------------------------------------------------------------------------------------------

RECORDED = sorted(path.parent for path in FOLDER.glob("*/perf6.1.instructions.txt.xz"))


@pytest.mark.skipif(not RECORDED, reason=f"no recordings in {FOLDER} (set PTWEAVE_PTDATA)")
@pytest.mark.parametrize("folder", RECORDED, ids=lambda folder: folder.name)
def test_a_real_recording_is_what_perf_printed_of_it(folder: Path, tmp_path: Path) -> None:
    expected: perf_case.Answer = {}
    for line in lzma.decompress((folder / "perf6.1.instructions.txt.xz").read_bytes()).decode().splitlines():
        _cpu, tid, time, ip = line.split()
        expected.setdefault(int(tid), []).append((int(time.replace(".", "")), int(ip, 16)))
    found, made = ours(folder / "perf.data", folder / "sysroot", tmp_path / "run.ptw")
    assert found == expected
    assert made.bundle.ledger().check() == []


def test_with_times_of_tsc_packets_only_the_same_flow_comes_without_libipt(tmp_path: Path) -> None:
    """MTC is passed over: the path decoder needs libipt nowhere, and what ran is the same; the times are coarser."""
    writer, machine, symfs = single(tmp_path, 21, steps=4000, cyc=False, per_cpu=False, have_sched_switch=0)
    writer.auxtrace(bytes(machine.packets.data), reference=START, tid=100, cpu=-1)
    finish(writer, machine, cpu=-1)
    _, made = ours(writer.write(tmp_path / "perf.data"), symfs, tmp_path / "run.ptw")
    moments = {}
    for times in (Times.FULL, Times.TSC):
        made.bundle.manifest.times = times
        decode_flow(made.bundle)
        ran = [int(ip) for part in Expansion(made.bundle).addresses(0) for ip in part]
        assert ran == machine.executed[:len(ran)]
        assert len(ran) > len(machine.executed) - 100
        moments[times] = Decoded(made.bundle).table("clock").num_rows
    assert moments[Times.FULL] > 2 * moments[Times.TSC] > 0
