# SPDX-License-Identifier: MIT
"""perf.data files of every form are read; damaged ones say so once and never break anything."""

from __future__ import annotations

import random
import shutil
import struct
from pathlib import Path

import pytest

from ptweave.data.errors import BadInput
from ptweave.data.manifest import State
from ptweave.data.perf.packets import tracing_is_off
from ptweave.data.perf.records import Auxtrace, Comm, IntelPt, Mmap, Switch
from ptweave.data.sideband import read_sideband
from ptweave.decode.flow import decode_flow
from ptweave.decode.perfdata.reader import PerfData
from ptweave.decode.perfimport import Imported, Options, import_perf
from ptweave.decode.perfimport.files import open_inside
from ptweave.decode.perfimport.traces import overlap
from support.elf_writer import ElfWriter
from support.perf_writer import PerfWriter, When
from support.pt_writer import PSB, PtWriter

TSC = 3_094_328_170_983_760


def recording() -> PerfWriter:
    writer = PerfWriter()
    writer.comm(100, 100, "prog").mmap(100, 0x401000, 0x1000, 0x1000, "/bin/prog", build_id=bytes(range(20)))
    writer.old_mmap(100, 0x501000, 0x1000, 0, "/lib/old.so")
    writer.switch_pair(TSC, 1, (0, 0), (100, 100))
    packets = PtWriter().psb_plus(0x401000, TSC + 100).pgd()
    writer.auxtrace(bytes(packets.data), reference=TSC, cpu=1)
    return writer.exit(100, 100, When(100, 100, writer.ns(TSC + 1000), 1))


def imported(folder: Path, data: bytes, **options: object) -> Imported:
    (folder / "perf.data").write_bytes(data)
    shutil.rmtree(folder / "run.ptw", ignore_errors=True)
    return import_perf(Options(folder / "perf.data", folder / "run.ptw", folder, **options))  # type: ignore[arg-type]


@pytest.mark.parametrize("pipe", [False, True])
@pytest.mark.parametrize("compressed", [False, True])
def test_records_of_all_forms_are_the_same(pipe: bool, compressed: bool, tmp_path: Path) -> None:
    perf = PerfData(recording().write(tmp_path / "perf.data", pipe=pipe, compressed=compressed))
    records = list(perf.records())
    assert [type(record) for record in records] == [Comm, Mmap, Mmap, Switch, Switch, Auxtrace, type(records[-1])]
    mapped = records[1]
    assert isinstance(mapped, Mmap)
    assert (mapped.pid, mapped.start, mapped.size, mapped.offset, mapped.path, mapped.build_id) == (
        100, 0x401000, 0x1000, 0x1000, "/bin/prog", bytes(range(20)).hex())
    switch = records[3]
    assert isinstance(switch, Switch)
    assert (switch.out, switch.other_tid, switch.when.cpu, switch.when.tid) == (True, 100, 1, 0)
    assert perf.info is not None
    assert (perf.info.tsc_ctc_ratio_n, perf.info.max_nonturbo_ratio, perf.info.have_sched_switch) == (266, 32, 3)
    assert perf.features.cpuid == "GenuineIntel,6,94,3"
    assert perf.source.damage is None
    assert not perf.malformed


def test_time_is_converted_in_integers_both_ways() -> None:
    info = IntelPt(time_shift=31, time_mult=672770566, time_zero=-12607119952)
    writer = PerfWriter()
    for tsc in (TSC, TSC + 1, 1 << 60):
        ns = writer.ns(tsc)
        assert writer.ns(info.tsc_of(ns)) in (ns, ns - 1)
        assert abs(info.tsc_of(ns) - tsc) < 8


def test_what_perf_knew_goes_into_the_manifest(tmp_path: Path) -> None:
    made = imported(tmp_path, recording().file())
    manifest = made.bundle.manifest
    assert (manifest.engine, manifest.state) == ("intel_pt", State.COMPLETE)
    cpu = manifest.cpu
    assert (cpu.vendor, cpu.family, cpu.model, cpu.stepping) == ("GenuineIntel", 6, 94, 3)
    assert (cpu.mtc_freq, cpu.nom_freq, cpu.tsc_ratio) == (3, 32, (266, 2))
    assert manifest.clocks.to_ns(TSC) == PerfWriter().ns(TSC)
    assert made.bundle.ledger().check() == []
    switches = [row for row in read_sideband(made.bundle.sideband).to_pylist() if row["kind"] == "switch"]
    assert [(row["cpu"], row["thread"], row["tid"]) for row in switches] == [(1, 0, 100)]


def test_without_tsc_packets_a_trace_is_the_tasks_it_was_recorded_for(tmp_path: Path) -> None:
    class WithoutTsc(PerfWriter):
        def config(self) -> int:
            return 0x2001

    writer = WithoutTsc(mtc=False, cyc=False).comm(100, 100, "prog").comm(200, 200, "other")
    writer.switch_pair(TSC, 1, (0, 0), (200, 200)).switch_pair(TSC + 50, 1, (200, 200), (100, 100))
    made = imported(tmp_path, writer.auxtrace(bytes(PtWriter().psb_plus(0x401000).pgd().data), tid=100, cpu=1).file())
    switches = [row for row in read_sideband(made.bundle.sideband).to_pylist() if row["kind"] == "switch"]
    assert [(row["tsc"], row["cpu"], row["tid"]) for row in switches] == [(0, 1, 100)]


def test_a_missing_file_is_named_with_its_build_id(tmp_path: Path) -> None:
    made = imported(tmp_path, recording().file())
    maps = [row for row in read_sideband(made.bundle.sideband).to_pylist() if row["kind"] == "map"]
    assert maps[0]["image"] is None
    assert maps[0]["path"] == f"/bin/prog [build id {bytes(range(20)).hex()}]"


@pytest.mark.parametrize("right", [True, False])
def test_a_file_is_used_only_with_the_recorded_build_id(right: bool, tmp_path: Path) -> None:
    elf = ElfWriter().build_id(bytes(range(20)) if right else bytes(20)[::-1] + b"x")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/prog").write_bytes(elf.data())
    made = imported(tmp_path, recording().file())
    maps = [row for row in read_sideband(made.bundle.sideband).to_pylist() if row["kind"] == "map"]
    assert (maps[0]["image"] is not None) is right
    assert any("another file" in line for line in made.bundle.manifest.lacks) is not right


def test_another_file_at_the_recorded_path_is_no_matter_where_the_cache_has_the_right_one(tmp_path: Path) -> None:
    cache = tmp_path / ".build-id/00" / bytes(range(1, 20)).hex()
    for folder, build_id in ((tmp_path / "bin", b"x" * 20), (cache, bytes(range(20)))):
        folder.mkdir(parents=True)
        (folder / ("prog" if folder.name == "bin" else "elf")).write_bytes(ElfWriter().build_id(build_id).data())
    made = imported(tmp_path, recording().file())
    maps = [row for row in read_sideband(made.bundle.sideband).to_pylist() if row["kind"] == "map"]
    assert maps[0]["image"] == bytes(range(20)).hex()
    assert made.bundle.manifest.lacks == []


def test_a_folder_of_several_files_is_refused_rather_than_read_in_part(tmp_path: Path) -> None:
    folder = tmp_path / "perf.data"
    folder.mkdir()
    (folder / "data").write_bytes(recording().file())
    (folder / "data.0").write_bytes(b"".join(recording().records))
    with pytest.raises(BadInput, match="--threads"):
        import_perf(Options(folder, tmp_path / "run.ptw", tmp_path))
    (folder / "data.0").unlink()  # what perf record --kcore makes
    assert import_perf(Options(folder, tmp_path / "run.ptw", tmp_path)).traces == 1


@pytest.mark.parametrize("right", [True, False])
def test_a_vmlinux_is_used_only_with_the_recorded_build_id(right: bool, tmp_path: Path) -> None:
    start, wanted = 0xFFFFFFFF81000000, bytes(range(20))
    kernel = ElfWriter().build_id(wanted if right else b"x" * 20).segment(0, start, 0x40)
    (tmp_path / "vmlinux").write_bytes(kernel.data())
    writer = PerfWriter(user_only=False, build_ids=[("[kernel.kallsyms]", wanted, 1)])
    writer.old_mmap(-1, start, 0x1000, start, "[kernel.kallsyms]_text", kernel=True)
    writer.switch_pair(TSC, 1, (0, 0), (100, 100))
    writer.auxtrace(bytes(PtWriter().psb_plus(start, TSC + 100).pgd().data), cpu=1)
    made = imported(tmp_path, writer.file(), vmlinux=tmp_path / "vmlinux")
    images = {row["image"] for row in read_sideband(made.bundle.sideband).to_pylist() if row["kind"] == "map"}
    assert (wanted.hex() in images) is right
    assert len(images) == 1 + right
    assert any("vmlinux" in line for line in made.bundle.manifest.lacks) is not right


def test_a_name_in_the_kernels_map_that_is_no_text_is_the_name_of_no_symbol(tmp_path: Path) -> None:
    start = 0xFFFFFFFF81000000
    (tmp_path / "vmlinux").write_bytes(ElfWriter().segment(0, start, 0x40).symbols([("_text", start, 8, 2)]).data())
    writer = PerfWriter(user_only=False)
    writer.old_mmap(-1, start, 0x1000, start, "[kernel.kallsyms]_te\udcf5t", kernel=True)
    writer.switch_pair(TSC, 1, (0, 0), (100, 100))
    writer.auxtrace(bytes(PtWriter().psb_plus(start, TSC + 100).pgd().data), cpu=1)
    made = imported(tmp_path, writer.file(), vmlinux=tmp_path / "vmlinux")
    maps = [row for row in read_sideband(made.bundle.sideband).to_pylist() if row["kind"] == "map"]
    assert {row["addr"] for row in maps if row["image"]} == {start}


@pytest.mark.parametrize("places", [10, 3000])
def test_more_changes_of_the_kernels_code_than_can_be_followed_are_told(places: int, tmp_path: Path) -> None:
    start = 0xFFFFFFFF81000000
    (tmp_path / "vmlinux").write_bytes(ElfWriter().segment(0, start, 0x40).data())
    writer = PerfWriter(user_only=False)
    writer.old_mmap(-1, start, 0x100000, start, "[kernel.kallsyms]_text", kernel=True)
    writer.switch_pair(TSC, 1, (0, 0), (100, 100))
    for place in range(places):
        writer.text_poke(start + 16 * place, b"\x90", b"\xcc", When(0, 0, writer.ns(TSC + 100) + 10_000 * place, 1))
    writer.auxtrace(bytes(PtWriter().psb_plus(start, TSC + 100).pgd().data), cpu=1)
    made = imported(tmp_path, writer.file(), vmlinux=tmp_path / "vmlinux")
    maps = [row for row in read_sideband(made.bundle.sideband).to_pylist() if row["path"] == "[kernel text_poke]"]
    assert bool(maps) is (places == 10)
    assert any("changed its code too often" in line for line in made.bundle.manifest.lacks) is (places == 3000)


def test_names_never_lead_out_of_the_root(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "a").mkdir(parents=True)
    (tmp_path / "secret").write_text("x")
    (root / "a/file").write_text("inside")
    (root / "a/up").symlink_to("../../secret")
    (root / "a/absolute").symlink_to("/a/file")
    (root / "a/circle").symlink_to("circle")
    for name in ("../secret", "/../secret", "a/../../secret", "a/up", "a/circle", "a", "", "a/\0", "a/nothing"):
        with pytest.raises((OSError, ValueError)):
            open_inside(root, name)
    with open(open_inside(root, "/a/absolute")) as file:
        assert file.read() == "inside"


def test_overlap_of_two_copies_of_a_ring() -> None:
    trace = b"".join(PSB + bytes([7 * i % 251 + 1 | 1]) * 60 for i in range(20))
    assert overlap(trace[:600], trace[200:900]) == 400
    assert overlap(trace[:600] + bytes(5), trace[200:900]) == 400  # padded by the recorder
    assert overlap(trace[:400], trace[700:900]) == 0
    assert overlap(b"", trace) == overlap(trace, b"") == 0


def test_copies_of_a_ring_overlap_though_a_psb_is_near_the_end_of_the_first_one_and_it_was_padded() -> None:
    trace = b"".join(PSB + bytes([7 * i % 251 + 1 | 1]) * 60 for i in range(20))
    for end in range(480, 530):
        assert overlap(trace[:end] + bytes(-end % 8), trace[400:900]) == end - 400


def test_where_tracing_is_off(tmp_path: Path) -> None:
    packets = PtWriter().psb_plus(0x401000, 5).tnt("!").pgd().mtc(3)
    (tmp_path / "t").write_bytes(bytes(packets.data))
    assert tracing_is_off(tmp_path / "t", len(packets))
    assert not tracing_is_off(tmp_path / "t", len(packets) - 1)  # in the middle of a packet
    assert not tracing_is_off(tmp_path / "t", len(packets) - 3)  # before the PGD


@pytest.mark.parametrize("small", [True, False])
def test_where_tracing_is_off_among_records_of_pebs(small: bool, tmp_path: Path) -> None:
    packets = PtWriter().psb_plus(0x401000, 5).pgd()
    packets.bbp(4, small=small).bip(0, 0x11110D11, small=small).mtc(1)
    item = len(packets)
    packets.bip(1, 0x11110D11, small=small)
    ends = [item, len(packets), len(packets.bep().cfe(5, 33).evd(0, 7))]
    (tmp_path / "t").write_bytes(bytes(packets.data))
    assert [tracing_is_off(tmp_path / "t", end) for end in ends] == [True, True, True]
    assert not tracing_is_off(tmp_path / "t", item + 3)  # in the middle of an item
    (tmp_path / "t").write_bytes(bytes(packets.pge(0x401000).tnt("!").data))
    assert not tracing_is_off(tmp_path / "t", len(packets))


# --- damage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("data", "says"), [
    (b"", "empty"), (b"PERFILE2", "empty"), (b"nothing of that kind", "no perf.data"),
    (b"2ELIFREP" + bytes(100), "big-endian"), (b"PERFILE2" + struct.pack("<Q", 16), "no Intel PT"),
    (b"PERFILE2" + struct.pack("<Q", 104) + bytes(88), "records begin")])
def test_what_is_no_recording_is_one_clear_error(data: bytes, says: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=says) as error:
        imported(tmp_path, data)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run.ptw").exists()


def test_a_cut_file_keeps_what_is_there_and_says_so(tmp_path: Path) -> None:
    whole = recording()
    data = whole.file()
    made = imported(tmp_path, data[:data.index(PSB) + 30])
    assert made.bundle.manifest.state is State.PARTIAL
    assert made.bundle.manifest.lacks
    ledger = made.bundle.ledger()
    assert ledger.check() == []
    assert ledger["trace/cpu-1"].lost
    assert (made.bundle.trace / "cpu-1.pt").read_bytes() == data[data.index(PSB):data.index(PSB) + 30]


def test_a_table_of_build_ids_that_breaks_off_is_said_to(tmp_path: Path) -> None:
    writer = recording()
    writer.build_ids = [("/bin/prog", bytes(range(20)), 2), ("/lib/old.so", bytes(range(20)), 2)]
    data = writer.file()
    made = imported(tmp_path, data)
    assert made.bundle.manifest.lacks == []
    at = data.rindex(struct.pack("<I", 67), 0, data.index(b"/lib/old.so", data.index(b"/bin/prog", len(data) // 2)))
    made = imported(tmp_path, data[:at + 6] + b"\4\0" + data[at + 8:])
    assert [line for line in made.bundle.manifest.lacks if "BUILD_ID" in line]


def test_unknown_records_are_counted_and_left_out(tmp_path: Path) -> None:
    writer = recording()
    writer.raw(200, 0, bytes(16)).raw(50, 0, bytes(56))
    made = imported(tmp_path, writer.file())
    assert any("2 records of unknown types" in line for line in made.bundle.manifest.lacks)


def test_records_that_say_nothing_of_the_trace_are_no_loss(tmp_path: Path) -> None:
    writer = recording()
    for kind in (5, 16, 17, 18, 19, 21, 22):  # the kernel's, with a sample id
        writer.record(kind, 0, bytes(24), When(100, 100, 1, 0))
    for kind in (69, 73, 74, 82, 84, 85, 86):
        writer.raw(kind, 0, bytes(16))
    made = imported(tmp_path, writer.file())
    assert made.bundle.manifest.lacks == imported(tmp_path, recording().file()).bundle.manifest.lacks


def strange(what: str) -> bytes:
    """A recording with a number in it that nobody can have meant."""
    writer = recording()
    if what == "kernel map":
        writer.user_only = False
        writer.mmap(-1, (1 << 64) - 1, 0x1000, 0, "[kernel.kallsyms]_text", kernel=True)
    elif what == "AUX offset":
        writer.auxtrace(bytes(PtWriter().psb_plus(0x401000, TSC + 200).pgd().data), offset=(1 << 64) - 8, cpu=1)
    elif what == "time shift":
        writer.shift = 63
    elif what == "time mult":
        writer.mult = 1 << 63
    elif what == "processor":
        writer.cpuid = "GenuineIntel,99999,999,999"
    data = bytearray(writer.file())
    if what == "AUX size":
        struct.pack_into("<Q", data, data.index(struct.pack("<IHH", 71, 0, 48)) + 8, (1 << 64) - 1)
    return bytes(data)


@pytest.mark.parametrize("what", ["kernel map", "AUX offset", "AUX size", "time shift", "time mult", "processor"])
def test_numbers_nobody_can_have_meant_are_decoded_as_far_as_it_goes(what: str, tmp_path: Path) -> None:
    made = imported(tmp_path, strange(what))
    decode_flow(made.bundle)
    assert made.bundle.ledger().check() == []


@pytest.mark.parametrize("form", ["file", "pipe", "compressed"])
def test_cuts_and_flips_never_break_the_import(form: str, tmp_path: Path) -> None:
    chance = random.Random(form)
    writer = recording()
    data = writer.pipe() if form == "pipe" else writer.file(compressed=form == "compressed")
    outcomes = set()
    for _ in range(120):
        bad = bytearray(data)
        for _ in range(chance.choice((1, 1, 4, 30))):
            bad[chance.randrange(len(bad))] = chance.choice((0, 1, 0x7F, 0xFF, chance.randrange(256)))
        if chance.random() < 0.4:
            del bad[chance.randrange(len(bad)):]
        try:
            imported(tmp_path, bytes(bad))
            outcomes.add("made")
        except BadInput:
            outcomes.add("refused")
    assert outcomes == {"made", "refused"}
