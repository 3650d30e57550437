# SPDX-License-Identifier: MIT
"""Raw packets and images as a run bundle: where code lies, what is refused, and that nothing is left of a failure."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from ptweave.cli import main
from ptweave.data import BadInput, Bundle, Cpu, State
from ptweave.data.perf.packets import PSB
from ptweave.decode.dump import Form
from ptweave.decode.flow import decode_flow
from ptweave.decode.import_raw import ImageSpec, clocks_of, import_raw
from ptweave.decode.importing import CHUNK
from support.assembler import Code, assemble
from support.dumping import flow_lines
from support.elf_writer import ElfWriter
from support.pt_writer import PtWriter
from support.trace_bundle import Decoded

CPU = Cpu("GenuineIntel", 6, 94, 3)


@pytest.fixture
def code(tmp_path: Path) -> Code:
    return assemble("loop: dec %eax\njnz loop\nsyscall", tmp_path / "code", base=0x401000)


def trace(path: Path, code: Code, base: int | None = None) -> Path:
    at = (code.base if base is None else base)
    path.write_bytes(bytes(PtWriter().psb_plus().mode_exec().pge(at).tnt("!.").pgd().data))
    return path


def imported(folder: Path, *images: str, traces: int = 1, at: int = 0x401000, code: Code) -> Decoded:
    files = [trace(folder / f"{number}.trace", code, at) for number in range(traces)]
    bundle = import_raw(folder / "run.ptw", files, [ImageSpec.parse(image) for image in images], CPU).bundle
    decode_flow(bundle)
    return Decoded(bundle)


def ips(decoded: Decoded) -> list[int]:
    return [block[0] for block in decoded.flow()]


def elf_of(code: Code, kind: int, address: int) -> bytes:
    """An ELF file with its code in a segment at `address`, 0x1000 above its lowest one."""
    head = ElfWriter(type=kind).segment(0, address - 0x1000, 64, 4).segment(64 + 2 * 56, address, len(code.data))
    return head.add(".text", code.data, address=address).data()


# --- where code lies ---


def test_a_raw_file_lies_as_it_is(code: Code, tmp_path: Path) -> None:
    (tmp_path / "flat").write_bytes(code.data)
    decoded = imported(tmp_path, f"{tmp_path}/flat@0x401000", code=code)
    assert ips(decoded) == [0x401000, 0x401000, 0x401004]
    assert decoded.gaps() == []
    [image] = decoded.rows("images")
    assert (image["name"], image["kind"]) == (hashlib.sha256(code.data).hexdigest(), "raw")


def test_a_part_of_a_file_lies_where_it_is_said_to(code: Code, tmp_path: Path) -> None:
    (tmp_path / "flat").write_bytes(b"\xcc" * 100 + code.data + b"\xcc" * 50)
    decoded = imported(tmp_path, f"{tmp_path}/flat@4198400:100:{len(code.data)}", code=code)
    assert ips(decoded) == [0x401000, 0x401000, 0x401004]
    assert [(m["start"], m["end"], m["offset"]) for m in decoded.rows("maps")] == [
        (0x401000, 0x401000 + len(code.data), 100)]


@pytest.mark.parametrize(("kind", "linked", "spec", "at"), [
    (2, 0x401000, "", 0x401000), (2, 0x401000, "@0x400000", 0x401000), (2, 0x401000, "@0x500000", 0x501000),
    (3, 0x1000, "@0x555555554000", 0x555555555000), (3, 0x1000, "@0", 0x1000), (4, 0x401000, "", 0x401000)])
def test_an_elf_file_lies_by_its_segments(kind: int, linked: int, spec: str, at: int, code: Code,
                                          tmp_path: Path) -> None:
    (tmp_path / "a.out").write_bytes(elf_of(code, kind, linked))
    decoded = imported(tmp_path, f"{tmp_path}/a.out{spec}", at=at, code=code)
    assert ips(decoded) == [at, at, at + 4]
    assert decoded.rows("images")[0]["kind"] == "elf"


def test_an_elf_file_with_offset_and_size_lies_as_it_is(code: Code, tmp_path: Path) -> None:
    data = elf_of(code, 3, 0x1000)
    (tmp_path / "a.out").write_bytes(data)
    at = data.index(code.data)
    decoded = imported(tmp_path, f"{tmp_path}/a.out@0x401000:{at:#x}:{len(code.data)}", code=code)
    assert ips(decoded) == [0x401000, 0x401000, 0x401004]


def test_a_later_image_lies_over_earlier_ones(code: Code, tmp_path: Path) -> None:
    (tmp_path / "under").write_bytes(b"\xcc" * 4096)
    (tmp_path / "over").write_bytes(code.data)
    decoded = imported(tmp_path, f"{tmp_path}/under@0x401000", f"{tmp_path}/over@0x401000", code=code)
    assert ips(decoded) == [0x401000, 0x401000, 0x401004]


def test_an_instruction_may_begin_in_one_file_and_end_in_another(tmp_path: Path) -> None:
    text = "loop: dec %eax\njnz far\nnop\n.skip 200\nfar: jnz loop\nend: syscall"
    code = assemble(text, tmp_path / "code", base=0x401000)
    (tmp_path / "one").write_bytes(code.data[:4])  # jnz is of 6 bytes, from 2 on
    (tmp_path / "other").write_bytes(code.data[4:])
    decoded = imported(tmp_path, f"{tmp_path}/one@0x401000", f"{tmp_path}/other@0x401004", code=code)
    assert ips(decoded) == [0x401000, code["far"], code["end"]]
    lines, dumped = flow_lines(decoded.bundle, Form.INSTRUCTIONS)
    assert [line.split()[2] for line in lines] == [f"{ip:016x}" for ip in (0x401000, 0x401002, code["far"],
                                                                    code["end"])]
    assert "(bad)" in lines[1]  # no file has all of it
    assert dumped.gaps == {}


def test_code_may_lie_up_to_the_last_address(code: Code, tmp_path: Path) -> None:
    (tmp_path / "flat").write_bytes(code.data.ljust(4096, b"\xcc"))
    top = (1 << 64) - 4096
    decoded = imported(tmp_path, f"{tmp_path}/flat@{top:#x}", at=top, code=code)
    assert ips(decoded) == [top, top, top + 4]
    assert decoded.gaps() == []


def test_a_name_may_hold_an_at_sign(code: Code, tmp_path: Path) -> None:
    (tmp_path / "a@b").write_bytes(elf_of(code, 2, 0x401000))
    assert ImageSpec.parse(f"{tmp_path}/a@b") == ImageSpec(tmp_path / "a@b")
    assert ImageSpec.parse(f"{tmp_path}/a@b@16") == ImageSpec(tmp_path / "a@b", 16)
    assert ips(imported(tmp_path, f"{tmp_path}/a@b", code=code))


def test_several_traces_are_threads_of_one_space(code: Code, tmp_path: Path) -> None:
    (tmp_path / "flat").write_bytes(code.data)
    decoded = imported(tmp_path, f"{tmp_path}/flat@0x401000", traces=3, code=code)
    assert {row["thread"] for row in decoded.rows("flow")} == {0, 1, 2}
    assert decoded.flow(0) == decoded.flow(1) == decoded.flow(2)
    assert len(decoded.rows("images")) == 1
    assert [name for name, _ in decoded.bundle.ledger()] == [f"{what}/{n}" for what in ("decode", "trace")
                                                             for n in range(3)]


def test_the_bundle_is_complete_and_says_what_processor_it_is_of(code: Code, tmp_path: Path) -> None:
    (tmp_path / "flat").write_bytes(code.data)
    bundle = Bundle.open(imported(tmp_path, f"{tmp_path}/flat@0x401000", code=code).bundle.path)
    assert bundle.manifest.state is State.COMPLETE
    assert bundle.manifest.engine == "intel_pt"
    assert bundle.manifest.cpu == CPU
    assert bundle.manifest.lacks == []


def test_without_an_image_everything_is_a_gap(code: Code, tmp_path: Path) -> None:
    decoded = imported(tmp_path, code=code)
    assert [gap[0] for gap in decoded.gaps()] == ["missing_image"]


def test_time_is_ticks_at_the_frequency_that_is_known() -> None:
    assert clocks_of(Cpu(nom_freq=37)).to_ns(3_700_000_000) == 1_000_000_000
    assert clocks_of(Cpu(nom_freq=37, tsc_hz=2_000_000_000)).to_ns(3) == 1
    assert clocks_of(Cpu()).to_ns(12345) == 0


# --- what is refused ---


BAD = {
    "missing": ("{0}/none@0x1000", "cannot be read"),
    "a folder": ("{0}@0x1000", "is not a file"),
    "no number": ("{0}/flat@x", "is not ADDR"),
    "negative": ("{0}/flat@-1", "is not ADDR"),
    "two parts": ("{0}/flat@1:2", "is not ADDR"),
    "no address": ("{0}/flat", "needs an address"),
    "address too large": ("{0}/flat@0x10000000000000000", "needs an address below"),
    "beyond the end": ("{0}/flat@0xfffffffffffffffe", "beyond the last address"),
    "outside the file": ("{0}/flat@0x1000:4:100", "has 6 bytes, not 100 from byte 4 on"),
    "offset outside": ("{0}/flat@0x1000:0x7fffffffffffffff:1", "has 6 bytes"),
    "no bytes": ("{0}/flat@0x1000:0:0", "has 6 bytes"),
    "empty": ("{0}/empty@0x1000", "has 0 bytes"),
    "needs a base": ("{0}/pie", "it needs an address"),
    "nothing to load": ("{0}/hollow@0x1000", "nothing to load"),
    "ELF, address too large": ("{0}/pie@0x10000000000000000", "beyond the last address"),
    "ELF, beyond the end": ("{0}/pie@0xffffffffffffffff", "beyond the last address"),
    "more digits than any address": ("{0}/flat@" + 5000 * "9", "is not ADDR"),
    "segment outside": ("{0}/lying@0x1000", "lies outside the file"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_image_is_one_clear_line_and_leaves_nothing(name: str, code: Code, tmp_path: Path) -> None:
    (tmp_path / "flat").write_bytes(b"\x90" * 6)
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "pie").write_bytes(elf_of(code, 3, 0x1000))
    (tmp_path / "hollow").write_bytes(ElfWriter().data())
    (tmp_path / "lying").write_bytes(ElfWriter().segment(64, 0x1000, 1 << 40).data())
    text, words = BAD[name]
    with pytest.raises(BadInput, match=words) as caught:
        import_raw(tmp_path / "run.ptw", [trace(tmp_path / "0.trace", code)],
                   [ImageSpec.parse(text.format(tmp_path))], CPU)
    assert "\n" not in caught.value.line()
    assert caught.value.remedy
    assert not (tmp_path / "run.ptw").exists()


def test_bad_traces_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "none", tmp_path, tmp_path / "fifo"):
        with pytest.raises(BadInput):
            import_raw(tmp_path / "run.ptw", [path], [], CPU)
        assert not (tmp_path / "run.ptw").exists()


@pytest.mark.parametrize("before", [0, 1, CHUNK - 24, CHUNK - 9, CHUNK - 1, CHUNK, 2 * CHUNK - 7])
def test_a_psb_is_found_wherever_it_is_in_a_file(before: int, tmp_path: Path) -> None:
    (tmp_path / "trace").write_bytes(bytes(before) + PSB + bytes(3))
    assert import_raw(tmp_path / "run.ptw", [tmp_path / "trace"], [], CPU).bundle.manifest.lacks == []


@pytest.mark.parametrize("data", [b"", b"root:x:0:0", bytes(3 * CHUNK), PSB[:-1]])
def test_a_file_without_a_psb_is_kept_and_told(data: bytes, code: Code, tmp_path: Path,
                                               capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "wrong").write_bytes(data)
    good, output = trace(tmp_path / "good", code), tmp_path / "run.ptw"
    assert main(["import", "raw", "--pt", str(good), "--pt", str(tmp_path / "wrong"), "--cpu", "6/94/3", "-o",
                 str(output)]) == 1
    assert capfd.readouterr().err == (f"ptweave: {output}: incomplete: lacks packets of thread 1: no PSB is in "
                                      f"{tmp_path / 'wrong'}, so nothing of it can be decoded\n")
    bundle = Bundle.open(output)
    assert (bundle.trace / "1.pt").read_bytes() == data and (bundle.trace / "0.pt").read_bytes() == good.read_bytes()


def test_a_bundle_that_is_there_is_left_alone(code: Code, tmp_path: Path) -> None:
    (tmp_path / "run.ptw").mkdir()
    (tmp_path / "run.ptw" / "precious").write_text("x")
    with pytest.raises(BadInput, match="exists already"):
        import_raw(tmp_path / "run.ptw", [trace(tmp_path / "0.trace", code)], [], CPU)
    assert (tmp_path / "run.ptw" / "precious").exists()


def test_two_files_with_one_build_id_are_kept_apart(code: Code, tmp_path: Path) -> None:
    other = assemble("loop: inc %eax\njnz loop\nsyscall", tmp_path / "other", base=0x401000)
    for name, text in (("a", code), ("b", other)):
        writer = ElfWriter(type=2).segment(64 + 56, 0x401000, len(text.data)).add(".text", text.data, address=0x401000)
        (tmp_path / name).write_bytes(writer.build_id(b"\x11" * 20).data())
    decoded = imported(tmp_path, f"{tmp_path}/a", f"{tmp_path}/b@0x601000", code=code)
    names = {row["name"] for row in decoded.rows("images")}
    assert len(names) == 2
    assert "11" * 20 in names
    assert ips(decoded) == [0x401000, 0x401000, 0x401004]
