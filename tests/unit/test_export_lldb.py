# SPDX-License-Identifier: MIT
"""A run as an LLDB trace bundle: what we read back decodes to the same tables, and what has no place there is said."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ptweave.data import BadInput, Bundle, Clocks
from ptweave.data.perf.records import IntelPt
from ptweave.data.sideband import SidebandKind, read_sideband
from ptweave.decode.export_lldb import conversion_of, export_lldb
from ptweave.decode.exported import Exported
from ptweave.decode.flow import decode_flow
from ptweave.decode.import_lldb import import_lldb
from support.assembler import Code, assemble
from support.lldb_bundle import BASE, CONVERSION, TEXT, UUID, description, module_file, packets, switch, write_bundle
from support.pt_writer import PtWriter
from support.trace_bundle import Decoded, TraceBundle

TABLES = ("images", "maps", "blocks", "paths", "flow", "clock", "pt_events", "gaps")


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Code:
    return assemble("loop: dec %eax\njnz loop\nsyscall", tmp_path_factory.mktemp("code"))


def there_and_back(bundle: Bundle, folder: Path) -> tuple[Exported, Decoded]:
    exported = export_lldb(bundle, folder / "exported")
    back = import_lldb(folder / "back.ptw", exported.path / "trace.json").bundle
    decode_flow(back)
    return exported, Decoded(back)


def trace_json(exported: Exported) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((exported.path / "trace.json").read_text())
    return found


def first_import(folder: Path, code: Code, content: dict[str, Any]) -> Bundle:
    path = write_bundle(folder / "bundle", code, content)
    (path.parent / "11.trace").write_bytes(packets(code, tsc=4001))
    (path.parent / "12.trace").write_bytes(packets(code, tsc=5002, bits="!!!."))
    bundle = import_lldb(folder / "run.ptw", path).bundle
    decode_flow(bundle)
    return bundle


def test_an_imported_bundle_comes_back_with_the_same_tables(code: Code, tmp_path: Path) -> None:
    process = description()["processes"][0]
    process["threads"].append({"tid": 12, "iptTrace": "12.trace"})
    content = description(processes=[process, {**process, "pid": 20}], tscPerfZeroConversion=CONVERSION)
    bundle = first_import(tmp_path, code, content)
    exported, back = there_and_back(bundle, tmp_path)
    assert exported.lacks == []
    for table in TABLES:
        assert back.table(table).equals(Decoded(bundle).table(table)), table
    assert back.flow(3) != []
    assert back.rows("clock") != []


def test_control_a_changed_export_comes_back_otherwise(code: Code, tmp_path: Path) -> None:
    bundle = first_import(tmp_path, code, description())
    exported = export_lldb(bundle, tmp_path / "exported")
    [trace] = (exported.path / "threads").iterdir()
    trace.write_bytes(packets(code, bits="!!."))
    back = import_lldb(tmp_path / "back.ptw", exported.path / "trace.json").bundle
    decode_flow(back)
    assert not Decoded(back).table("paths").equals(Decoded(bundle).table("paths"))


def test_the_description_is_as_lldb_writes_it(code: Code, tmp_path: Path) -> None:
    exported, _ = there_and_back(first_import(tmp_path, code, description(tscPerfZeroConversion=CONVERSION)), tmp_path)
    assert trace_json(exported) == {
        "type": "intel-pt", "cpuInfo": {"vendor": "GenuineIntel", "family": 6, "model": 79, "stepping": 1},
        "processes": [{
            "pid": 10, "triple": "x86_64-*-linux",
            "threads": [{"tid": 11, "iptTrace": "threads/11.intelpt_trace"}],
            "modules": [{"systemPath": "/usr/lib/libx.so", "file": "modules/usr/lib/libx.so",
                         "loadAddress": hex(BASE), "uuid": UUID}]}],
        "tscPerfZeroConversion": CONVERSION}
    assert (exported.path / "modules/usr/lib/libx.so").read_bytes() == module_file(code)


def test_code_that_is_no_elf_file_is_wrapped_into_one(code: Code, tmp_path: Path) -> None:
    writer = TraceBundle(tmp_path / "run.ptw").map(b"\xcc" * 32 + code.data, code.base, offset=32, path="[vdso]")
    decoded = writer.thread(bytes(PtWriter().psb_plus().mode_exec().pge(code["loop"]).tnt("!.").pgd().data)).decode()
    exported, back = there_and_back(decoded.bundle, tmp_path)
    assert back.flow() == decoded.flow() != []
    assert back.gaps() == []
    [module] = trace_json(exported)["processes"][0]["modules"]
    headers = subprocess.run(["readelf", "-lW", exported.path / module["file"]], capture_output=True, text=True,
                             check=True).stdout
    assert re.search(rf"LOAD +0x001000 0x0*{code.base:x} .* R E", headers)
    assert module["loadAddress"] == hex(code.base)


def test_what_was_unmapped_or_came_to_lie_over_other_code_is_said(code: Code, tmp_path: Path) -> None:
    writer = TraceBundle(tmp_path / "run.ptw").map(code.data, code.base).map(
        b"\x90" * 64, code.base, name="other", epoch=1, path="/lib/other.so")
    writer.row(SidebandKind.UNMAP, addr=code.base, size=64, epoch=2)
    first = PtWriter().psb_plus().mode_exec().pge(code["loop"]).tnt(".").pgd()
    bundle = writer.thread(bytes(first.data)).write()
    exported = export_lldb(bundle, tmp_path / "exported")
    assert any("after other code had been there (/lib/other.so" in lack for lack in exported.lacks)
    assert any("unmapped" in lack for lack in exported.lacks)


def test_missing_code_and_traces_are_said(code: Code, tmp_path: Path) -> None:
    writer = TraceBundle(tmp_path / "run.ptw").map(code.data, code.base, name="gone", keep=False, path="/lib/gone.so")
    bundle = writer.thread(b"\0" * 8).write()
    (bundle.trace / "0.pt").unlink()
    exported, back = there_and_back(bundle, tmp_path)
    assert [lack.partition(":")[0] for lack in exported.lacks] == [
        "times to the nanosecond", "the trace of thread 0", "the code of /lib/gone.so"]
    assert back.flow() == []


def test_a_thread_that_went_through_exec_is_one_of_each_process(code: Code, tmp_path: Path) -> None:
    one = bytes(PtWriter().psb_plus().mode_exec().pge(code["loop"]).tnt("!.").pgd().data)
    two = bytes(PtWriter().psb_plus().mode_exec().pge(code["loop"]).tnt("!!!.").pgd().data)
    writer = TraceBundle(tmp_path / "run.ptw").map(code.data, code.base).map(code.data, code.base, space=1)
    decoded = writer.thread(one + two, slices=((0, 0, 0), (len(one), 1, 0))).decode()
    exported, back = there_and_back(decoded.bundle, tmp_path)
    assert back.flow(0) + back.flow(1) == decoded.flow()
    assert any("went on in another image (exec)" in lack for lack in exported.lacks)


def test_paths_of_the_target_do_not_lead_out_of_the_folder(code: Code, tmp_path: Path) -> None:
    for number, path in enumerate(("../../escape", "/../../escape", "..", "/", "a\nb", "x" * 3000, "modules/../..")):
        folder = tmp_path / str(number)
        folder.mkdir()
        bundle = TraceBundle(folder / "run.ptw").map(code.data, code.base, path=path).thread(b"").write()
        exported = export_lldb(bundle, folder / "exported")
        assert sorted(entry.name for entry in folder.iterdir()) == ["exported", "run.ptw"]
        [module] = trace_json(exported)["processes"][0]["modules"]
        assert (exported.path / module["file"]).resolve().is_relative_to(exported.path / "modules")


def test_a_folder_that_is_there_is_left_alone(code: Code, tmp_path: Path) -> None:
    bundle = TraceBundle(tmp_path / "run.ptw").map(code.data, code.base).thread(b"").write()
    (tmp_path / "exported").mkdir()
    with pytest.raises(BadInput, match="exists already"):
        export_lldb(bundle, tmp_path / "exported")


def test_a_link_in_place_of_a_trace_is_refused_and_nothing_is_left(code: Code, tmp_path: Path) -> None:
    bundle = TraceBundle(tmp_path / "run.ptw").map(code.data, code.base).thread(b"x").write()
    (bundle.trace / "cpu-0.pt").symlink_to("/etc/hostname")
    with pytest.raises(BadInput):
        export_lldb(bundle, tmp_path / "exported")
    assert not (tmp_path / "exported").exists()


def test_traces_of_processors_come_back_with_the_same_switches(code: Code, tmp_path: Path) -> None:
    content = description(processes=[{**description()["processes"][0], "threads": [{"tid": 11}]}],
                          cpus=[{"id": 3, "iptTrace": "11.trace", "contextSwitchTrace": "3.switches"}],
                          tscPerfZeroConversion={"timeMult": 827867304, "timeShift": 31, "timeZero": 67710962302152})
    path = write_bundle(tmp_path / "bundle", code, content)
    times = [67710962302152 + 1000 * n + n * n for n in range(300)]
    (path.parent / "3.switches").write_bytes(b"".join(
        switch(10, 11, ns) + switch(10, 11, ns + 17, out=True) + switch(10, 12, ns + 20) + switch(10, 12, ns + 30,
                                                                                                  out=True)
        for ns in times))
    bundle = import_lldb(tmp_path / "run.ptw", path).bundle
    exported = export_lldb(bundle, tmp_path / "exported")
    assert exported.lacks == []
    back = import_lldb(tmp_path / "back.ptw", exported.path / "trace.json").bundle
    rows = [[row for row in read_sideband(one.sideband).to_pylist() if row["kind"] == "switch"]
            for one in (bundle, back)]
    assert rows[0] == rows[1]
    assert len(rows[0]) == 1201
    assert (back.trace / "cpu-3.pt").read_bytes() == (bundle.trace / "cpu-3.pt").read_bytes()


@pytest.mark.parametrize("clocks", [Clocks(1000, 5000, 4000, 6000), Clocks(0, 0, 3_700_000_000, 10**9),
                                    Clocks(10**15, 10**14, 10**15 + 2_600_000_001, 10**14 + 10**9),
                                    Clocks(0, -5, 1 << 31, 827867304 - 5)])
def test_times_are_as_near_as_perfs_numbers_allow(clocks: Clocks) -> None:
    found = conversion_of(clocks)
    assert found is not None
    for tsc in (clocks.tsc0, clocks.tsc1, clocks.tsc0 + 10**10):
        assert abs(found.clocks().to_ns(tsc) - clocks.to_ns(tsc)) <= 4 + (tsc >> 31)


def test_without_clocks_there_is_no_conversion() -> None:
    assert conversion_of(Clocks()) is None
    assert TEXT  # the layout these bundles share


@pytest.mark.parametrize("hertz", [800_000_000, 2_596_134_178, 2_600_000_000, 5_700_000_000])
def test_a_conversion_turned_round_in_64_bits_as_perf_and_lldb_do_it_leads_back(hertz: int) -> None:
    found = conversion_of(Clocks(0, 0, hertz, 1_000_000_000))
    assert found is not None
    theirs = IntelPt(time_shift=found.shift, time_mult=found.mult, time_zero=found.zero)
    for tsc in range(133_743_164_751_846, 133_843_164_751_846, 1_234_567_891):
        time = found.zero + (tsc * found.mult >> found.shift)
        assert abs(theirs.tsc_of(time) - tsc) <= hertz // 1_000_000_000 + 1
