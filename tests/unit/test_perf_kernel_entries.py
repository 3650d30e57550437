# SPDX-License-Identifier: MIT
"""Where the kernel goes from one thread to the next, as an imported recording has it, and its switches with that."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptweave.data.sideband import SWITCH_TO, TELLERS, SwitchWhen, read_sideband
from ptweave.decode.perfimport import Options, import_perf
from support.elf_writer import ElfWriter
from support.perf_writer import PerfWriter, When
from support.pt_writer import PtWriter

TSC = 3_094_328_170_983_760
LINKED, RAN = 0xFFFFFFFF81000000, 0xFFFFFFFF9A200000
GLOBAL, LOCAL = 0x12, 0x02
TOLD, DONE = int(SwitchWhen.TOLD), int(SwitchWhen.DONE)


def vmlinux(folder: Path, *symbols: tuple[str, int, int]) -> Path:
    """A kernel with symbols (name, offset, info); their names are also the ends of longer ones."""
    longer = [(f"xen{name}", LINKED + 0x800, 8, info) for name, _, info in symbols]
    named = [(name, LINKED + offset, 8, info) for name, offset, info in symbols]
    file = folder / "vmlinux"
    file.write_bytes(ElfWriter().segment(0, LINKED, 0x1000).symbols(
        [("_text", LINKED, 8, GLOBAL), *longer, *named]).data())
    return file


def sideband(folder: Path, writer: PerfWriter, kernel: Path | None) -> list[dict[str, object]]:
    writer.old_mmap(-1, RAN, 0x100000, RAN, "[kernel.kallsyms]_text", kernel=True)
    if writer.have_sched_switch == 3:
        writer.switch_pair(TSC - 50, 1, (0, 0), (100, 100)).switch_pair(TSC + 50, 1, (100, 100), (200, 200))
    else:
        writer.sched_switch(When(0, 0, writer.ns(TSC - 50), 1), 100)
        writer.switch(When(200, 200, writer.ns(TSC + 50), 1), out=False)
    if writer.aux_samples:
        writer.aux_sample(bytes(PtWriter().psb_plus(0x401000, TSC).pgd().data), When(100, 100, writer.ns(TSC), 1))
    else:
        writer.auxtrace(bytes(PtWriter().psb_plus(0x401000, TSC).pgd().data), cpu=1)
    file = folder / "perf.data"
    file.write_bytes(writer.file())
    made = import_perf(Options(file, folder / "run.ptw", vmlinux=kernel))
    return list(read_sideband(made.bundle.sideband).to_pylist())


def entries(rows: list[dict[str, object]]) -> dict[object, object]:
    return {row["detail"]: row["addr"] for row in rows if row["kind"] == "entry"}


def switches(rows: list[dict[str, object]]) -> list[tuple[object, object]]:
    return [(row["tid"], row["value"]) for row in rows if row["kind"] == "switch"]


BOTH = [(SWITCH_TO, 0x100, GLOBAL), (TELLERS[0], 0x200, LOCAL), (TELLERS[1], 0x300, LOCAL)]


def test_places_are_where_the_kernel_ran_and_each_record_is_a_row(tmp_path: Path) -> None:
    rows = sideband(tmp_path, PerfWriter(user_only=False), vmlinux(tmp_path, *BOTH))
    assert entries(rows) == {SWITCH_TO: RAN + 0x100, TELLERS[0]: RAN + 0x200}
    assert switches(rows)[-4:] == [(100, TOLD), (100, DONE), (200, TOLD), (200, DONE)]


def test_a_tracepoint_tells_elsewhere(tmp_path: Path) -> None:
    rows = sideband(tmp_path, PerfWriter(user_only=False, have_sched_switch=1), vmlinux(tmp_path, *BOTH))
    assert entries(rows) == {SWITCH_TO: RAN + 0x100, TELLERS[1]: RAN + 0x300}
    assert switches(rows)[-2:] == [(100, TOLD), (200, TOLD)]


def test_the_first_of_several_counts(tmp_path: Path) -> None:
    rows = sideband(tmp_path, PerfWriter(user_only=False), vmlinux(
        tmp_path, (SWITCH_TO, 0x180, GLOBAL), (SWITCH_TO, 0x140, GLOBAL), (SWITCH_TO, 0x100, LOCAL)))
    assert entries(rows) == {SWITCH_TO: RAN + 0x140}


@pytest.mark.parametrize("symbol", [(SWITCH_TO, 0x100, LOCAL), (SWITCH_TO, 0x2000, GLOBAL),
                                    ("__switch_to_asm", 0, GLOBAL)],
                         ids=["local", "where no code is", "another"])
def test_without_the_place_switches_are_by_time(symbol: tuple[str, int, int], tmp_path: Path) -> None:
    rows = sideband(tmp_path, PerfWriter(user_only=False), vmlinux(tmp_path, symbol, BOTH[1]))
    assert entries(rows) == {}
    assert switches(rows)[-2:] == [(100, None), (200, None)]


@pytest.mark.parametrize("writer", [PerfWriter(user_only=True), PerfWriter(user_only=False, per_cpu=False),
                                    PerfWriter(user_only=False, have_sched_switch=2),
                                    PerfWriter(user_only=False, aux_samples=True)],
                         ids=["no kernel", "per thread", "told of only afterwards", "samples"])
def test_so_they_are_where_the_trace_would_not_show_it(writer: PerfWriter, tmp_path: Path) -> None:
    rows = sideband(tmp_path, writer, vmlinux(tmp_path, *BOTH))
    assert entries(rows) == {}
    assert {value for _, value in switches(rows)} <= {None}


def test_and_without_the_kernels_symbols(tmp_path: Path) -> None:
    assert entries(sideband(tmp_path, PerfWriter(user_only=False), None)) == {}
