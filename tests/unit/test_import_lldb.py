# SPDX-License-Identifier: MIT
"""LLDB trace bundles, in all the forms LLDB has written, and from people who mean no good."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest

from ptweave.data import BadInput
from ptweave.data.sideband import read_sideband
from ptweave.decode.flow import decode_flow
from ptweave.decode.import_lldb import import_lldb
from ptweave.decode.lldb_json import Conversion, parse
from support.assembler import Code, assemble
from support.lldb_bundle import BASE, CONVERSION, TEXT, UUID, description, module_file, packets, switch, write_bundle
from support.trace_bundle import Decoded

AT = BASE + TEXT


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Code:
    return assemble("loop: dec %eax\njnz loop\nsyscall", tmp_path_factory.mktemp("code"))


def imported(folder: Path, code: Code, content: Any = None, **more: Any) -> Decoded:
    path = write_bundle(folder / "bundle", code, description() if content is None else content)
    bundle = import_lldb(folder / "run.ptw", path, **more).bundle
    decode_flow(bundle)
    return Decoded(bundle)


def check(decoded: Decoded) -> None:
    assert [block[0] for block in decoded.flow()] == [AT, AT, AT + 4]
    assert decoded.gaps() == []
    assert decoded.bundle.manifest.lacks == []


# --- forms ---


def process(**thread: Any) -> dict[str, Any]:
    return {**description()["processes"][0], "threads": [{"tid": 11, **thread}]}


FORMS: dict[str, dict[str, Any]] = {
    "now": description(),
    "LLDB 14": description(processes=[process(traceBuffer="11.trace")]),
    "LLDB 12": {"trace": {"type": "intel-pt", "cpuInfo": {"vendor": "intel", "family": 6, "model": 79, "stepping": 1}},
                "processes": [process(traceFile="11.trace")]},
    "strings for numbers": description(processes=[{**process(iptTrace="11.trace"), "pid": "10", "modules": [
        {**description()["processes"][0]["modules"][0], "loadAddress": hex(BASE)}]}]),
    "no triple": description(processes=[{k: v for k, v in description()["processes"][0].items() if k != "triple"}]),
    "no uuid": description(processes=[{**process(iptTrace="11.trace"), "modules": [
        {"systemPath": "/x", "file": "modules/libx.so", "loadAddress": BASE}]}]),
    "nulls": description(processes=[{**process(iptTrace="11.trace"), "modules": [
        {"systemPath": "modules/libx.so", "file": None, "loadAddress": BASE, "uuid": None}]}]) | {"cpus": None},
    "members nobody knows": description(future={"a": [1]}),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_lldb_has_written_is_read(form: str, code: Code, tmp_path: Path) -> None:
    decoded = imported(tmp_path, code, FORMS[form])
    check(decoded)
    cpu = decoded.bundle.manifest.cpu
    assert (cpu.vendor, cpu.family, cpu.model, cpu.stepping) == ("GenuineIntel", 6, 79, 1)
    [row] = [row for row in read_sideband(decoded.bundle.sideband).to_pylist() if row["kind"] == "thread"]
    assert (row["pid"], row["tid"]) == (10, 11)


def test_another_maker_of_processors_has_no_errata(code: Code, tmp_path: Path) -> None:
    cpu = {"vendor": "unknown", "family": 25, "model": 1, "stepping": 0}
    assert imported(tmp_path, code, description(cpuInfo=cpu)).bundle.manifest.cpu.vendor == ""


def test_two_threads_may_share_a_file_and_two_processes_a_module(code: Code, tmp_path: Path) -> None:
    threads = [{"tid": 11, "iptTrace": "11.trace"}, {"tid": 12, "iptTrace": "11.trace"}]
    one = {**description()["processes"][0], "threads": threads}
    decoded = imported(tmp_path, code, description(processes=[one, {**one, "pid": 20}]))
    assert len({row["thread"] for row in decoded.rows("flow")}) == 4
    assert len(decoded.rows("images")) == 1
    assert len({row["space"] for row in decoded.rows("maps")}) == 2


def test_time_follows_perfs_numbers(code: Code, tmp_path: Path) -> None:
    path = write_bundle(tmp_path / "bundle", code, description(tscPerfZeroConversion=CONVERSION))
    (tmp_path / "bundle" / "11.trace").write_bytes(packets(code, tsc=4001))
    bundle = import_lldb(tmp_path / "run.ptw", path).bundle
    decode_flow(bundle)
    assert [(row["tsc"], row["t"]) for row in Decoded(bundle).rows("clock")] == [(4001, 100 + 2000)]


def test_a_time_zero_above_the_middle_is_negative() -> None:
    raw = description(tscPerfZeroConversion={"timeMult": 581029125, "timeShift": 31, "timeZero": 18444502336406842448})
    conversion = parse(json.dumps(raw).encode(), "x").conversion
    assert conversion == Conversion(581029125, 31, 18444502336406842448 - (1 << 64))
    tsc = 13406382047626722
    ns = conversion.clocks().to_ns(tsc)
    quot, rest = tsc >> 31, tsc & (1 << 31) - 1  # as perf_event_open(2) says to compute it
    assert ns % (1 << 64) == (18444502336406842448 + quot * 581029125 + (rest * 581029125 >> 31)) % (1 << 64)


# --- modules ---


def test_a_module_that_is_missing_is_a_gap_that_names_it(code: Code, tmp_path: Path) -> None:
    path = write_bundle(tmp_path / "bundle", code, description())
    (tmp_path / "bundle" / "modules" / "libx.so").unlink()
    bundle = import_lldb(tmp_path / "run.ptw", path).bundle
    decode_flow(bundle)
    [gap] = Decoded(bundle).rows("gaps")
    assert (gap["kind"], gap["ip"]) == ("missing_image", AT)
    assert "/usr/lib/libx.so was mapped there, but its code is not in the bundle" in gap["detail"]
    assert bundle.manifest.lacks == ["the module modules/libx.so (does not exist)"]


def test_a_module_with_another_build_id_is_not_used(code: Code, tmp_path: Path) -> None:
    path = write_bundle(tmp_path / "bundle", code, description())
    (tmp_path / "bundle" / "modules" / "libx.so").write_bytes(module_file(code, b"\xff" * 20))
    bundle = import_lldb(tmp_path / "run.ptw", path).bundle
    decode_flow(bundle)
    assert [gap[0] for gap in Decoded(bundle).gaps()] == ["missing_image"]
    assert "has build id " + "ff" * 20 in bundle.manifest.lacks[0]


def test_a_module_that_is_no_elf_file_is_a_gap(code: Code, tmp_path: Path) -> None:
    path = write_bundle(tmp_path / "bundle", code, description())
    (tmp_path / "bundle" / "modules" / "libx.so").write_bytes(b"\x7fELF nonsense")
    bundle = import_lldb(tmp_path / "run.ptw", path).bundle
    decode_flow(bundle)
    assert [gap[0] for gap in Decoded(bundle).gaps()] == ["missing_image"]
    assert bundle.manifest.lacks == ["the module modules/libx.so (no ELF file, or a malformed one)"]


def test_modules_of_this_machine_are_read_only_when_asked_and_only_the_right_ones(code: Code, tmp_path: Path) -> None:
    for name, build_id, asked, found in (("a", None, True, True), ("b", None, False, False),
                                         ("c", b"\xff" * 20, True, False)):
        library = tmp_path / f"lib{name}.so"
        library.write_bytes(module_file(code) if build_id is None else module_file(code, build_id))
        modules = [{"systemPath": str(library), "loadAddress": BASE, "uuid": UUID}]
        (tmp_path / name).mkdir()
        decoded = imported(tmp_path / name, code, description(processes=[{**process(iptTrace="11.trace"),
                                                                         "modules": modules}]), system_modules=asked)
        assert (decoded.gaps() == []) is found
        assert (decoded.bundle.manifest.lacks == []) is found


# --- a hostile bundle ---


def test_no_name_leads_out_of_the_folder(code: Code, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(module_file(code))
    path = write_bundle(tmp_path / "bundle", code, description())
    folder = path.parent
    (folder / "link").symlink_to(secret)
    (folder / "out").symlink_to(tmp_path)
    (folder / "circle").symlink_to("circle")
    os.mkfifo(folder / "fifo")
    names = ["../secret", str(secret), "link", "out/secret", "modules/../../secret", "circle", "fifo", "modules", ".",
             "x" * 4000, "none"]
    for number, name in enumerate(names):
        content = description(processes=[process(iptTrace=name)])
        path.write_text(json.dumps(content))
        with pytest.raises(BadInput) as caught:
            import_lldb(tmp_path / f"{number}.ptw", path)
        assert "\n" not in caught.value.line()
        assert not (tmp_path / f"{number}.ptw").exists()
        content = description()
        content["processes"][0]["modules"][0]["file"] = name
        path.write_text(json.dumps(content))
        run = import_lldb(tmp_path / f"{number}.ptw", path)
        assert list(run.bundle.images.iterdir()) == []
        assert len(run.bundle.manifest.lacks) == 1


def test_a_link_that_stays_in_the_folder_is_followed(code: Code, tmp_path: Path) -> None:
    path = write_bundle(tmp_path / "bundle", code, description(processes=[process(iptTrace="deep/er")]))
    (path.parent / "deep").symlink_to("modules")
    (path.parent / "modules" / "er").symlink_to("../11.trace")
    bundle = import_lldb(tmp_path / "run.ptw", path).bundle
    decode_flow(bundle)
    check(Decoded(bundle))


def without(name: str) -> dict[str, Any]:
    return description(**{name: None})


MALFORMED: dict[str, tuple[Any, str]] = {
    "empty": (b"", "is not JSON"),
    "no text": (b"\xff\xfe\x00", "is not JSON"),
    "cut": (json.dumps(description())[:-10], "is not JSON"),
    "deep": ("[" * 100_000, "is not JSON"),
    "a list": ("[]", "the whole is not an object"),
    "null": ("null", "the whole is not an object"),
    "no type": (without("type"), "the whole has no type"),
    "another type": (description(type="arm-ete"), "is of type 'arm-ete'"),
    "no processor": (without("cpuInfo"), "the whole has no cpuInfo"),
    "no processes": (without("processes"), "has neither processes nor a kernel"),
    "processes": (description(processes=7), "processes is not a list"),
    "a process": (description(processes=[7]), "processes[0] is not an object"),
    "pid": (description(processes=[{"pid": "ten"}]), "processes[0].pid is not a number"),
    "large pid": (description(processes=[{"pid": 1 << 31}]), "processes[0].pid is not a number"),
    "negative": (description(processes=[{"pid": -1}]), "processes[0].pid is not a number"),
    "true": (description(processes=[{"pid": True}]), "processes[0].pid is not a number"),
    "a fraction": (description(processes=[{"pid": 1.5}]), "processes[0].pid is not a number"),
    "infinity": ('{"type":"intel-pt","cpuInfo":{"vendor":"intel","family":1e999}}', "cpuInfo.family is not a number"),
    "digits": ('{"type":"intel-pt","cpuInfo":{"vendor":"intel","family":' + "9" * 5000 + "}}", "is not JSON"),
    "tid": (description(processes=[{"pid": 1, "threads": [{}]}]), "processes[0].threads[0] has no tid"),
    "trace": (description(processes=[process(iptTrace=[])]), "threads[0].iptTrace is not a text"),
    "nul": (description(processes=[process(iptTrace="a\0b")]), "threads[0].iptTrace is not a text"),
    "surrogate": (description(processes=[process(iptTrace="\ud800")]), "threads[0].iptTrace is not Unicode"),
    "address": (description(processes=[{"pid": 1, "modules": [{"systemPath": "x", "loadAddress": 1 << 64}]}]),
                "processes[0].modules[0].loadAddress is not a number"),
    "uuid": (description(processes=[{"pid": 1, "modules": [{"systemPath": "x", "loadAddress": 1, "uuid": "?"}]}]),
             "modules[0].uuid is not a UUID"),
    "cpus without clock": (description(cpus=[{"id": 0, "iptTrace": "11.trace", "contextSwitchTrace": "s"}]),
                           "no tscPerfZeroConversion"),
    "mult": (description(tscPerfZeroConversion={"timeMult": 0, "timeShift": 1, "timeZero": 0}), "timeMult is 0"),
    "shift": (description(tscPerfZeroConversion={"timeMult": 1, "timeShift": 64, "timeZero": 0}),
              "timeShift is not a number"),
    "kernel and processes": (description(kernel={"file": "x"}), "has a kernel"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_json_is_one_clear_line(name: str, code: Code, tmp_path: Path) -> None:
    content, words = MALFORMED[name]
    path = write_bundle(tmp_path / "bundle", code, content)
    with pytest.raises(BadInput) as caught:
        import_lldb(tmp_path / "run.ptw", path)
    assert words in caught.value.line()
    assert str(path) in caught.value.line()
    assert "\n" not in caught.value.line()
    assert not (tmp_path / "run.ptw").exists()


def test_a_huge_description_is_refused(code: Code, tmp_path: Path) -> None:
    path = write_bundle(tmp_path / "bundle", code, b"")
    os.truncate(path, 1 << 40)
    with pytest.raises(BadInput, match="is larger than"):
        import_lldb(tmp_path / "run.ptw", path)


# --- traces of processors ---


def per_cpu(folder: Path, code: Code, records: bytes, **more: Any) -> Path:
    content = description(
        processes=[{**description()["processes"][0], "threads": [{"tid": 11}]}],
        cpus=[{"id": 3, "iptTrace": "3.trace", "contextSwitchTrace": "3.switches"}],
        tscPerfZeroConversion=CONVERSION, **more)
    path = write_bundle(folder / "bundle", code, content)
    (path.parent / "3.trace").write_bytes(packets(code, tsc=2000))
    (path.parent / "3.switches").write_bytes(records)
    return path


def switches(bundle: Any) -> list[tuple[Any, ...]]:
    return [(row["cpu"], row["tsc"], row["thread"], row["tid"]) for row in read_sideband(bundle.sideband).to_pylist()
            if row["kind"] == "switch"]


def test_context_switches_become_switches_by_time(code: Code, tmp_path: Path) -> None:
    other = struct.pack("<IHHQ", 2, 0, 16, 0)  # another record, to be passed over
    records = (switch(10, 11, 600, out=True) + switch(0, 0, 600) + other + switch(0, 0, 700, out=True)
               + switch(10, 12, 700) + switch(10, 12, 800, out=True) + switch(77, 78, 800))
    bundle = import_lldb(tmp_path / "run.ptw", per_cpu(tmp_path, code, records)).bundle
    assert (bundle.trace / "cpu-3.pt").read_bytes() == packets(code, tsc=2000)
    # 600 ns are (600 - 100) * 2 = 1000 ticks; tid 12 is known from its switch alone
    assert switches(bundle) == [(3, 0, 0, 11), (3, 1000, None, None), (3, 1200, 1, 12), (3, 1400, None, None)]
    threads = [(row["thread"], row["tid"]) for row in read_sideband(bundle.sideband).to_pylist()
               if row["kind"] == "thread"]
    assert threads == [(0, 11), (1, 12)]


def test_before_a_first_switch_onto_a_processor_nobody_is_known_to_run(code: Code, tmp_path: Path) -> None:
    bundle = import_lldb(tmp_path / "run.ptw", per_cpu(tmp_path, code, switch(10, 11, 600))).bundle
    assert switches(bundle) == [(3, 0, None, None), (3, 1000, 0, 11)]


@pytest.mark.parametrize(("records", "words"), [
    (switch(10, 11, 600)[:-8], "impossible size"), (switch(10, 11, 600) + b"\0" * 4, "middle of a record"),
    (struct.pack("<IHH", 15, 0, 0), "impossible size"), (struct.pack("<IHHQ", 15, 0, 16, 0), "without time or task"),
    (struct.pack("<IHHQ", 15, 0, 12, 0), "impossible size")])
def test_malformed_switches_are_one_clear_line(records: bytes, words: str, code: Code, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=words):
        import_lldb(tmp_path / "run.ptw", per_cpu(tmp_path, code, records))
    assert not (tmp_path / "run.ptw").exists()


def test_processors_without_switches_are_refused(code: Code, tmp_path: Path) -> None:
    content = description(cpus=[{"id": 3, "iptTrace": "11.trace"}], tscPerfZeroConversion=CONVERSION)
    with pytest.raises(BadInput, match="processor 3 has no contextSwitchTrace"):
        import_lldb(tmp_path / "run.ptw", write_bundle(tmp_path / "bundle", code, content))


def test_a_traced_kernel_is_a_thread_for_each_processor(code: Code, tmp_path: Path) -> None:
    content = description(
        processes=None, kernel={"file": "modules/libx.so", "loadAddress": hex(BASE)}, tscPerfZeroConversion=CONVERSION,
        cpus=[{"id": cpu, "iptTrace": "11.trace", "contextSwitchTrace": "none"} for cpu in (2, 5)])
    decoded = imported(tmp_path, code, content)
    assert decoded.flow(0) == decoded.flow(1) != []
    assert decoded.gaps(0) == []
    assert [row["tid"] for row in read_sideband(decoded.bundle.sideband).to_pylist() if row["kind"] == "thread"] == [
        2, 5]
