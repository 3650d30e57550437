# SPDX-License-Identifier: MIT
"""Long traces, many slices: memory stays bounded, work stays in proportion."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ptweave.data.sideband import SidebandKind
from ptweave.decode import assemble as assembling
from ptweave.decode.flow import decode_flow
from ptweave.decode.perfimport import Options, import_perf
from support.assembler import assemble
from support.perf_writer import PerfWriter
from support.pt_writer import PtWriter
from support.trace_bundle import TraceBundle

AT = 0x500000
TSC = 3_094_328_170_983_760


def anonymous_memory() -> int:
    """Bytes of this process that no file backs."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10
    raise AssertionError("no RssAnon")


def test_memory_does_not_grow_with_the_trace(tmp_path: Path) -> None:
    """Six threads of 14 million branches with a time stamp now and then, none like the last, so that no path is joined
    to the one before: keeping one step's columns each would take some 25 MB a step, over 300 MB in all."""
    code = assemble("loop: dec %eax\njnz loop\njmp loop", tmp_path)
    bits = random.Random(7)
    packets = PtWriter().psb_plus().mode_exec().pge(code["loop"])
    for index in range(300):
        packets.tsc(1000 + index).raw(b"".join(
            PtWriter().tnt_long("".join(bits.choice("!.") for _ in range(47))).data for _ in range(1000)))
    bundle = TraceBundle(tmp_path / "run.ptw").map(code.data, code.base)
    for number in range(6):
        bundle.thread(packets.data, number=number)
    written = bundle.write()
    seen: list[tuple[int, int, int]] = []
    decode_flow(written, lambda done, total: seen.append((done, total, anonymous_memory())))
    early = max(memory for done, total, memory in seen if done <= total // 3)
    late = max(memory for done, total, memory in seen if done > total // 3)
    assert late - early < 100 << 20
    assert len(seen) >= 12


def test_thousands_of_epochs_take_time_in_proportion(tmp_path: Path) -> None:
    """Code that is unmapped and mapped again three thousand times, as a just-in-time compiler would."""
    code = assemble("nop\nsyscall", tmp_path, AT)
    part = bytes(PtWriter().psb_plus().mode_exec().pge(AT).pgd().data)
    epochs = 3000
    bundle = TraceBundle(tmp_path / "run.ptw")
    for number in range(20):
        bundle.map(b"\x90" * 64, AT + 0x1000 * (number + 1), name=f"library{number}")
    for epoch in range(epochs):
        bundle.row(SidebandKind.UNMAP, addr=AT, size=len(code.data), epoch=epoch)
        bundle.map(code.data, AT, epoch=epoch)
    slices = tuple((len(part) * epoch, 0, epoch) for epoch in range(epochs))
    begin = time.process_time()
    decoded = bundle.thread(part * epochs, slices=slices).decode()
    assert time.process_time() - begin < 30
    assert decoded.thread()["blocks"] == epochs
    assert decoded.gaps() == []
    assert len(decoded.rows("blocks")) == 1


def test_a_tasks_rows_are_opened_once_however_many_processes_took_turns_on_the_cpu(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opened for each turn, and held by the rows to be written, it took memory with the square of the turns."""
    opened: list[bool] = []

    class Counted(assembling.TaskFile):
        def __init__(self, path: Path, columns: Iterable[str]) -> None:
            super().__init__(path, wanted := list(columns))
            opened.append("clock_seq" in wanted)

    monkeypatch.setattr(assembling, "TaskFile", Counted)
    turns = 500
    code = assemble("a: nop\njz b\nnop\nb: nop\njz a\nret", tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "prog").write_bytes(bytes(0x1000) + bytes(code.data))
    writer, packets, first = PerfWriter(cyc=False, mtc=False), PtWriter().psb_plus(tsc=TSC - 10000), (0, 0)
    for turn in range(turns):
        begin, second = TSC + 1000 * turn, (100 + turn, 100 + turn)
        writer.comm(*second, "prog").mmap(second[0], code.base, 0x1000, 0x1000, "/bin/prog")
        writer.switch_pair(begin, 0, first, second)
        packets.tsc(begin + 100).mode_exec().pge(code["a"]).tnt("!!!!").tsc(begin + 300).fup(code["a"]).pgd()
        first = second
    writer.auxtrace(bytes(packets.data), reference=TSC, cpu=0).write(tmp_path / "perf.data")
    bundle = import_perf(Options(tmp_path / "perf.data", tmp_path / "run.ptw", tmp_path)).bundle
    decode_flow(bundle)
    assert sorted(pq.read_table(bundle.tables / "flow")["thread"].to_pylist()) == list(range(turns))
    assert pq.read_table(bundle.tables / "gaps").num_rows == 0
    assert sum(opened) == 1
