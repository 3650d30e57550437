# SPDX-License-Identifier: MIT
"""Flow as text: instructions, blocks, addresses and events, with gaps where they are, from the stored tables."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ptweave.data import BadInput
from ptweave.data.bundle import Bundle
from ptweave.data.sideband import SidebandKind
from ptweave.decode.dump import Form, Moment
from ptweave.decode.expand import Expansion
from support.assembler import Code, assemble
from support.disassembly import mnemonic, objdump, registers
from support.dumping import flow_lines
from support.pt_writer import PtWriter
from support.random_program import random_run
from support.trace_bundle import CLOCKS, Decoded, TraceBundle

LOOP = "loop: dec %eax\njnz loop\nmov %rsp, 0x10(%rbx,%rcx,4)\nlea 1f(%rip), %rdi\n1: syscall\nnop\nhlt"
FORMS = (Form.INSTRUCTIONS, Form.BLOCKS, Form.EVENTS)


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Code:
    return assemble(LOOP, tmp_path_factory.mktemp("loop"))


def round_trip(code: Code, folder: Path, packets: PtWriter | None = None) -> Decoded:
    folder.mkdir(parents=True, exist_ok=True)
    packets = packets or PtWriter().psb_plus(tsc=4000).mode_exec().pge(code["loop"]).tnt("!!.").pgd()
    return TraceBundle(folder / "run.ptw").map(code.data, code.base).thread(bytes(packets.data)).decode()


def instructions(lines: list[str]) -> list[tuple[int, int, str]]:
    """(seq, address, text) of instruction lines."""
    found = []
    for line in lines:
        match = re.match(r" *(\d+) +[-0-9.]+  ([0-9a-f]{16})  (.*)$", line)
        assert match, line
        found.append((int(match[1]), int(match[2], 16), match[3].split("  ")[0].rstrip()))
    return found


def test_instructions_have_numbers_addresses_and_text(code: Code, tmp_path: Path) -> None:
    lines, dumped = flow_lines(round_trip(code, tmp_path).bundle, Form.INSTRUCTIONS)
    at, lea = code["loop"], code["loop"] + 9
    loop = [(at, "dec eax"), (at + 2, f"jnz {at:#x}")]
    assert instructions(lines) == [
        (0, *loop[0]), (0, *loop[1]), (1, *loop[0]), (1, *loop[1]), (2, *loop[0]), (2, *loop[1]),
        (3, at + 4, "mov [rbx+rcx*4+0x10], rsp"), (3, lea, f"lea rdi, [{lea + 7:#x}]"), (3, lea + 7, "syscall")]
    assert dumped.lines == 9
    assert not dumped.gaps


def test_bytes_are_shown_when_asked_for(code: Code, tmp_path: Path) -> None:
    lines, _ = flow_lines(round_trip(code, tmp_path).bundle, Form.INSTRUCTIONS, with_bytes=True)
    assert "  ff c8 " in lines[0]
    assert lines[0].rstrip().endswith("dec eax")
    assert "  48 89 64 8b 10 " in lines[6]


def test_blocks_have_sizes_and_classes(code: Code, tmp_path: Path) -> None:
    lines, dumped = flow_lines(round_trip(code, tmp_path).bundle, Form.BLOCKS)
    assert [line.split()[2:6] for line in lines] == [
        [f"{code['loop']:016x}", "4", "2", "cond_jump"]] * 3 + [[f"{code['loop'] + 4:016x}", "14", "3", "syscall"]]
    assert dumped.lines == 4


def test_addresses_are_what_the_tables_expand_to(tmp_path: Path) -> None:
    machine = random_run(11, tmp_path, steps=4000)
    bundle = TraceBundle(tmp_path / "run.ptw").map(machine.code.data, machine.code.base).thread(
        bytes(machine.packets.data)).decode().bundle
    lines, dumped = flow_lines(bundle, Form.IPS)
    expected = np.concatenate(list(Expansion(bundle).addresses(0)))
    assert lines == [f"{ip:016x}" for ip in expected.tolist()]
    assert dumped.lines == len(expected) >= 4000
    assert [ip for _, ip, _ in instructions(flow_lines(bundle, Form.INSTRUCTIONS)[0])] == expected.tolist()


# --- the disassembly ---


SAMPLES = """
addps %xmm1, %xmm2
vaddpd %ymm1, %ymm2, %ymm3
lock cmpxchg %rcx, (%rdi)
movabs $0x1122334455667788, %rax
mov %fs:0x28, %rax
push $-1
cmpb $0x7f, -4(%rbp)
imul $1000, %rsi, %rdi
sar $3, %r10d
movzwl 0x10(%r8,%r9,8), %r11d
cvttsd2si %xmm0, %rax
bswap %r15
btq $5, (%rax)
setne %dl
cmovg %rdx, %rcx
xchg %rax, %r8
test %r12b, %r12b
pshufd $0x1b, %xmm3, %xmm4
fldl 8(%rsp)
crc32b %al, %ecx
popcnt %rsi, %rax
endbr64
leave
"""


def test_the_disassembly_is_binutils(tmp_path: Path) -> None:
    code = assemble(SAMPLES + "syscall", tmp_path)
    packets = PtWriter().psb_plus().mode_exec().pge(code["_start"]).pgd()
    lines, _ = flow_lines(round_trip(code, tmp_path, packets).bundle, Form.INSTRUCTIONS)
    found = instructions(lines)
    file = tmp_path / "oracle.bin"
    file.write_bytes(code.data)
    truth = objdump(file, "-D", "-b", "binary", "-m", "i386:x86-64", f"--adjust-vma={code.base:#x}")
    assert [ip for _, ip, _ in found] == sorted(truth)
    assert len(found) == len(SAMPLES.strip().splitlines()) + 1
    for _, ip, text in found:
        _, theirs = truth[ip]
        assert (mnemonic(text), registers(text)) == (mnemonic(theirs), registers(theirs)), (text, theirs)




# --- gaps ---


def broken(code: Code, folder: Path) -> Decoded:
    packets = PtWriter().psb_plus(tsc=4000).mode_exec().pge(code["loop"]).tnt("!.").pgd()
    packets.psb_plus().mode_exec().pge(0x999000).tnt("!").pgd()
    packets.psb_plus(tsc=7000).mode_exec().pge(code["loop"]).tnt(".").pgd()
    return round_trip(code, folder, packets)


@pytest.mark.parametrize("form", FORMS)
def test_a_gap_is_a_line_in_its_place(form: Form, code: Code, tmp_path: Path) -> None:
    decoded = broken(code, tmp_path)
    lines, dumped = flow_lines(decoded.bundle, form)
    [gap] = decoded.rows("gaps")
    [at] = [index for index, line in enumerate(lines) if line.startswith("-- gap: ")]
    where = f"{gap['bytes']} bytes at {gap['offset']:#x}, ip 0000000000999000: "
    assert lines[at].startswith(f"-- gap: missing_image: {where}")
    seqs = [int(line.split()[0]) for line in lines[:at]], [int(line.split()[0]) for line in lines[at + 1:]]
    assert max(seqs[0]) <= gap["seq"] <= min(seqs[1])
    assert dumped.gaps == {"missing_image": 1}


def test_with_addresses_alone_gaps_are_counted(code: Code, tmp_path: Path) -> None:
    lines, dumped = flow_lines(broken(code, tmp_path).bundle, Form.IPS)
    assert all(re.fullmatch(r"[0-9a-f]{16}", line) for line in lines)
    assert dumped.gaps == {"missing_image": 1}


def test_gaps_after_the_last_block_and_without_any_are_there(code: Code, tmp_path: Path) -> None:
    packets = PtWriter().psb_plus().mode_exec().pge(0x999000).tnt("!").pgd()
    for form in (*FORMS, Form.IPS):
        lines, dumped = flow_lines(round_trip(code, tmp_path / form, packets).bundle, form)
        assert dumped.gaps == {"missing_image": 1}
        assert [line[:22] for line in lines if line.startswith("--")] == (
            [] if form is Form.IPS else ["-- gap: missing_image:"])


def test_gaps_outside_the_span_are_not_shown(code: Code, tmp_path: Path) -> None:
    bundle = broken(code, tmp_path).bundle
    [gap] = Decoded(bundle).rows("gaps")
    before, inside, after = (flow_lines(bundle, Form.BLOCKS, begin, end)[1].gaps for begin, end in (
        (None, str(gap["seq"])), (str(gap["seq"]), None), (str(gap["seq"] + 1), None)))
    assert (before, inside, after) == ({}, {"missing_image": 1}, {})


# --- spans and times ---


def test_a_span_of_blocks_is_what_the_whole_shows_there(tmp_path: Path) -> None:
    machine = random_run(3, tmp_path, steps=1500)
    bundle = TraceBundle(tmp_path / "run.ptw").map(machine.code.data, machine.code.base).thread(
        bytes(machine.packets.data)).decode().bundle
    for form in FORMS:
        whole, _ = flow_lines(bundle, form)
        seqs = [int(line.split()[0]) for line in whole]
        for begin, end in ((0, 1), (1, 2), (17, 400), (399, 401), (1000, 10**9)):
            lines, _ = flow_lines(bundle, form, str(begin), str(end))
            assert lines == [line for line, seq in zip(whole, seqs, strict=True) if begin <= seq < end]


def test_times_are_those_of_the_clock_table_since_the_start(code: Code, tmp_path: Path) -> None:
    packets = PtWriter().psb_plus(tsc=4000).mode_exec().pge(code["loop"]).tnt("!!.").tsc(10_000).pgd(code["loop"] + 20)
    packets.psb_plus(tsc=3_004_000).mode_exec().pge(code["loop"]).tnt(".").pgd()
    decoded = round_trip(code, tmp_path, packets)
    clock = dict(decoded.clock())
    start = min(CLOCKS.to_ns(tsc) for tsc in clock.values())
    lines, _ = flow_lines(decoded.bundle, Form.BLOCKS)
    for line in lines:
        seq, shown = int(line.split()[0]), line.split()[1]
        ns = CLOCKS.to_ns(max(tsc for at, tsc in clock.items() if at <= seq)) - start
        assert shown == f"{ns / 1e9:.9f}"
    assert lines[-1].split()[1] == "0.001000000"
    late = flow_lines(decoded.bundle, Form.BLOCKS, "1ms")[0]
    assert late == lines[4:]
    assert flow_lines(decoded.bundle, Form.BLOCKS, None, "1ms")[0] == lines[:4]
    assert flow_lines(decoded.bundle, Form.BLOCKS, f"t={start + 1_000_000}")[0] == late
    assert flow_lines(decoded.bundle, Form.BLOCKS, f"t={start + 1_000_001}")[0] == []


def test_before_a_moment_is_known_the_time_is_not(code: Code, tmp_path: Path) -> None:
    lines, _ = flow_lines(round_trip(code, tmp_path, PtWriter().psb_plus().mode_exec().pge(code["loop"]).tnt(
        ".").pgd()).bundle, Form.INSTRUCTIONS)
    assert {line.split()[1] for line in lines} == {"-"}


@pytest.mark.parametrize(("text", "moment"), [
    ("0", Moment(seq=0)), ("1000", Moment(seq=1000)), ("0x10", Moment(seq=16)), ("t=12", Moment(t=12)),
    ("12.5ms", Moment(since_start=12_500_000)), ("3s", Moment(since_start=3_000_000_000)),
    ("7ns", Moment(since_start=7)), ("1.25us", Moment(since_start=1250)),
    ("0.000000001s", Moment(since_start=1)), ("1.50000ns".replace("5", "0"), Moment(since_start=1))])
def test_moments_are_read_exactly(text: str, moment: Moment) -> None:
    assert Moment.parse(text) == moment


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "1.5ns", "1h", "t=", "1 ms", "0x", "१"])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="no place in a run"):
        Moment.parse(text)


# --- threads and files ---


def two_threads(code: Code, folder: Path) -> Decoded:
    bundle = TraceBundle(folder / "run.ptw").map(code.data, code.base)
    for number, bits in ((0, "!!!."), (3, "!.")):
        bundle.thread(bytes(PtWriter().psb_plus(tsc=4000 + number).mode_exec().pge(code["loop"]).tnt(bits).pgd().data),
                      number=number)
    return bundle.decode()


def test_threads_come_one_after_the_other_and_can_be_chosen(code: Code, tmp_path: Path) -> None:
    bundle = two_threads(code, tmp_path).bundle
    lines, _ = flow_lines(bundle, Form.BLOCKS)
    first, second = lines.index("-- thread 0"), lines.index("-- thread 3")
    assert (first, second, len(lines)) == (0, 6, 10)
    assert flow_lines(bundle, Form.BLOCKS, threads=["3"])[0] == lines[7:]
    assert len(flow_lines(bundle, Form.IPS)[0]) == 2 * 4 + 3 + 2 * 2 + 3
    with pytest.raises(BadInput, match=r"no thread 1.*it has 0, 3"):
        flow_lines(bundle, Form.BLOCKS, threads=["1"])


def split(bundle: Bundle, table: str) -> None:
    """Make ten and more files of a table, as a decoder that works in parts would."""
    folder = bundle.tables / table
    whole = pq.read_table(folder / "0.parquet")
    (folder / "0.parquet").unlink()
    for number in range(12):
        begin, end = (whole.num_rows * part // 12 for part in (number, number + 1))
        pq.write_table(whole.slice(begin, end - begin), folder / f"{number}.parquet", row_group_size=7)


@pytest.mark.parametrize("form", [*FORMS, Form.IPS])
def test_tables_of_many_files_are_read_in_order(form: Form, code: Code, tmp_path: Path) -> None:
    machine = random_run(3, tmp_path, steps=1500)
    writer = TraceBundle(tmp_path / "run.ptw").map(machine.code.data, machine.code.base)
    for number in (0, 1):
        writer.thread(bytes(machine.packets.data) + b"\x02\xff", number=number, finished=False)
    bundle = writer.decode().bundle
    spans = [(None, None), ("100", "300"), ("1000", None)]
    before = [flow_lines(bundle, form, *span) for span in spans]
    for table in ("flow", "clock", "gaps", "pt_events"):
        split(bundle, table)
    assert [flow_lines(bundle, form, *span) for span in spans] == before
    assert before[0][1].gaps


def test_a_run_that_is_not_decoded_is_one_clear_error(code: Code, tmp_path: Path) -> None:
    bundle = TraceBundle(tmp_path / "run.ptw").map(code.data, code.base).thread(b"").write()
    for form in (*FORMS, Form.IPS):
        with pytest.raises(BadInput, match=r"is not decoded yet: run ptweave decode .*run\.ptw first"):
            flow_lines(bundle, form)


def test_code_that_is_gone_or_changed_is_one_clear_error(code: Code, tmp_path: Path) -> None:
    bundle = round_trip(code, tmp_path).bundle
    (bundle.images / "code").write_bytes(b"\x90" * len(code.data))
    with pytest.raises(BadInput, match="block 0: its code is not in images/, or is not what was decoded"):
        flow_lines(bundle, Form.IPS)
    (bundle.images / "code").unlink()
    with pytest.raises(BadInput, match="block 0"):
        flow_lines(bundle, Form.INSTRUCTIONS)
    (bundle.images / "code").symlink_to("/bin/true")
    with pytest.raises(BadInput, match="block 0"):
        flow_lines(bundle, Form.INSTRUCTIONS)


def replace(bundle: Bundle, table: str, **columns: list[object]) -> None:
    path = bundle.tables / table / "0.parquet"
    rows = pq.read_table(path)
    for name, values in columns.items():
        index = rows.schema.get_field_index(name)
        rows = rows.set_column(index, rows.schema.field(name), pa.chunked_array([pa.array(values, rows[name].type)]))
    pq.write_table(rows, path)


@pytest.mark.parametrize("form", [Form.INSTRUCTIONS, Form.BLOCKS, Form.IPS])
def test_ids_outside_their_tables_are_an_error_not_a_crash(form: Form, code: Code, tmp_path: Path) -> None:
    bundle = round_trip(code, tmp_path).bundle
    rows = pq.read_table(bundle.tables / "flow").num_rows
    for path in (-1, 1 << 30):
        replace(bundle, "flow", path=[path] * rows)
        with pytest.raises(BadInput, match="not there"):
            flow_lines(bundle, form)


def test_blocks_that_lie_about_themselves_are_an_error_not_a_crash(code: Code, tmp_path: Path) -> None:
    for name, value in (("size", -5), ("size", 1 << 30), ("instructions", -1), ("instructions", 1 << 30),
                        ("instructions", 0), ("offset", -8), ("offset", 1 << 60), ("image", -3), ("image", 77),
                        ("last_ip", 3)):
        bundle = round_trip(code, tmp_path / f"{name}{value}").bundle
        rows = pq.read_table(bundle.tables / "blocks").num_rows
        replace(bundle, "blocks", **{name: [value] * rows})
        for form in (Form.INSTRUCTIONS, Form.IPS):
            with pytest.raises(BadInput, match="block"):
                flow_lines(bundle, form)


def test_names_cannot_steer_the_terminal(code: Code, tmp_path: Path) -> None:
    bundle = round_trip(code, tmp_path).bundle
    rows = pq.read_table(bundle.tables / "blocks").num_rows
    replace(bundle, "blocks", function=["a\x1b[2Jb\x9bc\u202ed\nä€"] * rows, file=["x" * 5000] * rows, line=[7] * rows)
    lines, _ = flow_lines(bundle, Form.INSTRUCTIONS)
    assert "a\\x1b[2Jb\\xc2\\x9bc\\xe2\\x80\\xaed\\x0aä€+0x0" in lines[0]
    assert lines[0].endswith("x" * 2048 + "...:7")
    assert all(char.isprintable() for line in lines for char in line)


def test_functions_and_lines_are_shown_where_known(tmp_path: Path) -> None:
    source = tmp_path / "p.c"
    source.write_text("int f(int a)\n{\n  return a + 1;\n}\nint main(void)\n{\n  return f(1);\n}\n")
    program = tmp_path / "p"
    subprocess.run(["gcc", "-O0", "-g", "-no-pie", "-fcf-protection=none", "-o", program, source], check=True)
    nm = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
    at = {name: int(address, 16) for address, name in re.findall(r"([0-9a-f]+) T (f|main)$", nm, re.M)}
    data = program.read_bytes()
    packets = PtWriter().psb_plus().mode_exec().pge(at["main"]).pgd(at["main"] + 0x10)
    decoded = TraceBundle(tmp_path / "run.ptw").map(data, 0x401000, offset=0x1000, size=0x1000, name="p").thread(
        bytes(packets.data)).decode()
    lines, _ = flow_lines(decoded.bundle, Form.INSTRUCTIONS)
    assert re.search(rf"{at['main']:016x}  push rbp +main\+0x0  .*p\.c:6$", lines[0])
    assert re.search(r"mov rbp, rsp +main\+0x1$", lines[1])
    assert re.search(rf"call {at['f']:#x} +main\+0x\w+$", "\n".join(lines), re.M)


def test_modes_are_taken_from_the_table_when_it_has_them(code: Code, tmp_path: Path) -> None:
    decoded = round_trip(code, tmp_path)
    path = decoded.bundle.tables / "blocks" / "0.parquet"
    rows = pq.read_table(path)
    # in 32-bit mode 48 is an instruction of its own: other lengths, so the code does not fit its block any more
    for mode, fits in ((64, True), (32, False)):
        column = pa.array([mode] * rows.num_rows, pa.int32())
        table = rows.drop_columns([n for n in ("mode",) if n in rows.column_names]).append_column("mode", column)
        pq.write_table(table, path)
        if fits:
            assert flow_lines(decoded.bundle, Form.INSTRUCTIONS)[1].lines == 9
        else:
            with pytest.raises(BadInput, match="block"):
                flow_lines(decoded.bundle, Form.INSTRUCTIONS)


def test_events_show_what_the_table_holds(code: Code, tmp_path: Path) -> None:
    packets = PtWriter().psb_plus(tsc=4000).cbr(33).mode_exec().pge(code["loop"]).tnt("!.").pgd()
    packets.psb_plus().ptw(0xBEEF).mode_exec().pge(code["loop"]).tnt(".").pgd()
    decoded = round_trip(code, tmp_path, packets)
    lines, dumped = flow_lines(decoded.bundle, Form.EVENTS)
    rows = decoded.rows("pt_events")
    assert dumped.lines == len(rows) == len(lines) > 2
    for line, row in zip(lines, rows, strict=True):
        words = line.split()
        assert words[0] == str(row["seq"])
        assert int(words[2], 16) == row["offset"]
        assert words[3] == row["kind"]
        assert words[4:6] == ["-" if row[name] is None else f"{row[name]:016x}" for name in ("ip", "target")]
        assert words[6:] == ([] if row["detail"] is None else [hex(row["detail"])])


def test_the_sideband_is_not_needed(code: Code, tmp_path: Path) -> None:
    bundle = round_trip(code, tmp_path).bundle
    bundle.sideband.unlink()
    assert flow_lines(bundle, Form.INSTRUCTIONS)[1].lines == 9
    assert SidebandKind.MAP  # what it would have said is in the tables
