# SPDX-License-Identifier: MIT
"""Address spaces, epochs and slices: every byte of a trace is decoded with the code that was there."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptweave.data.errors import BadInput
from ptweave.data.sideband import SidebandKind
from ptweave.decode.flow import decode_flow
from support.assembler import Code, assemble
from support.pt_writer import PtWriter
from support.trace_bundle import Decoded, TraceBundle

AT = 0x500000


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Code:
    return assemble("nop\nsyscall", tmp_path_factory.mktemp("short"), AT)


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Code:
    return assemble("nop\nnop\nnop\nsyscall", tmp_path_factory.mktemp("long"), AT)


def once(ip: int = AT) -> bytes:
    """Run from `ip` to the system call there."""
    return bytes(PtWriter().psb_plus().mode_exec().pge(ip).pgd().data)


def test_epochs_give_each_slice_its_own_code(tmp_path: Path, short: Code, long: Code) -> None:
    part = once()
    decoded = (TraceBundle(tmp_path / "run.ptw")
               .map(short.data, AT, name="short")
               .row(SidebandKind.UNMAP, addr=AT, size=len(short.data), epoch=1)
               .map(long.data, AT, name="long", epoch=1)
               .thread(part * 2, slices=((0, 0, 0), (len(part), 0, 1))).decode())
    decoded.check()
    assert decoded.flow() == [(AT, 2, "syscall"), (AT, 4, "syscall")]
    assert decoded.gaps() == []
    assert [(row["start"], row["image"], row["since"], row["until"]) for row in decoded.rows("maps")] == [
        (AT, 0, 0, 1), (AT, 1, 1, None)]


def test_spaces_are_apart_and_seq_runs_through_an_exec(tmp_path: Path, short: Code, long: Code) -> None:
    part = once()
    decoded = (TraceBundle(tmp_path / "run.ptw")
               .map(short.data, AT, name="short").map(long.data, AT, name="long", space=1)
               .thread(part * 2, slices=((0, 0, 0), (len(part), 1, 0))).decode())
    decoded.check()
    assert decoded.flow() == [(AT, 2, "syscall"), (AT, 4, "syscall")]
    assert [row["seq"] for row in decoded.rows("flow")] == [0, 1]
    assert [row["space"] for row in decoded.rows("maps")] == [0, 1]


def test_nothing_is_lost_where_an_overflow_cut_a_psb_short(tmp_path: Path, long: Code) -> None:
    packets = PtWriter().psb_plus().mode_exec().pge(AT).psb().ovf().fup(AT + 1).pgd()
    packets.psb_plus().mode_exec().pge(AT).pgd()
    decoded = TraceBundle(tmp_path / "run.ptw").map(long.data, AT).thread(bytes(packets.data)).decode()
    whole = decoded.flow()
    assert (AT + 1, 3, "syscall") in whole
    decode_flow(decoded.bundle, size=1)
    assert decoded.flow() == whole


def test_a_map_covers_what_was_there(tmp_path: Path, short: Code, long: Code) -> None:
    decoded = (TraceBundle(tmp_path / "run.ptw")
               .map(short.data * 3, AT - len(short.data), name="short").map(long.data, AT, name="long")
               .thread(once()).decode())
    assert decoded.flow() == [(AT, 4, "syscall")]


def test_code_is_read_where_the_mapping_says(tmp_path: Path, long: Code) -> None:
    decoded = (TraceBundle(tmp_path / "run.ptw")
               .map(b"\xcc" * 4096 + long.data, AT, offset=4096).thread(once()).decode())
    assert decoded.flow() == [(AT, 4, "syscall")]
    assert decoded.rows("blocks")[0]["offset"] == 4096


def test_neighbouring_maps_of_one_file_are_one_stretch_of_code(tmp_path: Path, long: Code) -> None:
    decoded = (TraceBundle(tmp_path / "run.ptw")
               .map(long.data, AT, size=2).map(long.data, AT + 2, offset=2).thread(once()).decode())
    assert decoded.flow() == [(AT, 4, "syscall")]


def test_an_instruction_may_span_two_images(tmp_path: Path) -> None:
    code = assemble("nop\nmovabs $0x1122334455667788, %rax\nsyscall", tmp_path, AT)
    decoded = (TraceBundle(tmp_path / "run.ptw")
               .map(code.data[:6], AT, name="head").map(code.data[6:], AT + 6, name="tail").thread(once()).decode())
    decoded.check()
    assert sum(instructions for _, instructions, _ in decoded.flow()) == 3
    assert decoded.gaps() == []


def test_missing_image_names_the_file_and_the_address(tmp_path: Path, short: Code) -> None:
    packets = PtWriter().psb_plus().mode_exec().pge(AT + 0x1000).pgd()
    resumes = len(packets)
    packets.psb_plus().mode_exec().pge(AT).pgd()
    decoded = (TraceBundle(tmp_path / "run.ptw")
               .map(short.data, AT)
               .map(short.data, AT + 0x1000, name="0badc0de", path="/lib/libgone.so", keep=False)
               .thread(packets.data).decode())
    decoded.check()
    (gap,) = decoded.rows("gaps")
    assert (gap["kind"], gap["ip"], gap["seq"]) == ("missing_image", AT + 0x1000, 0)
    assert gap["offset"] + gap["bytes"] == resumes
    assert "/lib/libgone.so" in gap["detail"]
    assert "0badc0de" in gap["detail"]
    assert decoded.flow() == [(AT, 2, "syscall")]
    assert {row["path"]: row["kind"] for row in decoded.rows("images")} == {
        "/bin/code": "raw", "/lib/libgone.so": "missing"}


def test_an_image_that_was_never_kept_is_missing_too(tmp_path: Path) -> None:
    decoded = (TraceBundle(tmp_path / "run.ptw")
               .map(b"\x90" * 64, AT, name=None, path="/lib/libgone.so").thread(once()).decode())
    assert [row["kind"] for row in decoded.rows("gaps")] == ["missing_image"]
    assert decoded.rows("images")[0]["name"] is None


def test_falling_off_the_end_of_an_image_is_a_gap_at_the_next_address(tmp_path: Path) -> None:
    decoded = TraceBundle(tmp_path / "run.ptw").map(b"\x90" * 8, AT).thread(once()).decode()
    decoded.check()
    (gap,) = decoded.rows("gaps")
    assert (gap["kind"], gap["ip"]) == ("missing_image", AT + 8)
    assert "knows no code" in gap["detail"]
    assert decoded.flow() == [(AT, 8, "other")]


@pytest.mark.parametrize("name", ["../../secret", "/etc/passwd", "", ".hidden", "a/b", "x" * 300])
def test_image_names_never_leave_the_folder(tmp_path: Path, short: Code, name: str) -> None:
    (tmp_path / "secret").write_bytes(short.data)
    bundle = TraceBundle(tmp_path / "a" / "run.ptw")
    bundle.path.parent.mkdir()
    decoded = bundle.map(short.data, AT, name=name, keep=False).thread(once()).decode()
    assert [row["kind"] for row in decoded.rows("gaps")] == ["missing_image"]
    assert decoded.flow() == []


def test_a_link_is_not_followed(tmp_path: Path, short: Code) -> None:
    (tmp_path / "secret").write_bytes(short.data)
    bundle = TraceBundle(tmp_path / "run.ptw").map(short.data, AT, name="link", keep=False).thread(once())
    written = bundle.write()
    (written.images / "link").symlink_to(tmp_path / "secret")
    decode_flow(written)
    decoded = Decoded(written)
    assert decoded.flow() == []
    assert [kind for kind, _, _ in decoded.gaps()] == ["missing_image"]


def test_known_losses_are_gaps_and_nothing_is_decoded_across_them(tmp_path: Path, short: Code) -> None:
    part = once()
    decoded = (TraceBundle(tmp_path / "run.ptw").map(short.data, AT)
               .row(SidebandKind.LOST, thread=0, offset=len(part), size=777, detail="the ring was full")
               .thread(part * 2).decode())
    decoded.check()
    (gap,) = decoded.rows("gaps")
    assert (gap["kind"], gap["offset"], gap["bytes"], gap["seq"], gap["detail"]) == (
        "lost", len(part), 777, 1, "the ring was full")
    assert len(decoded.flow()) == 2
    assert decoded.thread()["lost_bytes"] == 777
    assert decoded.bundle.ledger()["decode/0"].lost == {}


def test_a_trace_without_slices_is_one_gap(tmp_path: Path, short: Code) -> None:
    decoded = TraceBundle(tmp_path / "run.ptw").map(short.data, AT).thread(once(), slices=()).decode()
    decoded.check()
    assert decoded.gaps() == [("missing_image", 0, len(once()))]


def test_a_thread_without_a_trace_says_so(tmp_path: Path) -> None:
    decoded = TraceBundle(tmp_path / "run.ptw").row(SidebandKind.THREAD, thread=4, tid=9).decode()
    decoded.check()
    assert decoded.gaps(4) == [("no_trace", 0, 0)]


def test_an_empty_trace_that_ended_orderly_has_no_gap(tmp_path: Path) -> None:
    decoded = TraceBundle(tmp_path / "run.ptw").thread(b"").decode()
    decoded.check()
    assert decoded.gaps() == []
    assert decoded.thread()["blocks"] == 0


def test_bytes_after_the_orderly_end_are_not_decoded(tmp_path: Path, short: Code) -> None:
    part = once()
    bundle = TraceBundle(tmp_path / "run.ptw").map(short.data, AT).thread(part)
    bundle.traces[0] += b"\xff" * 10
    decoded = bundle.decode()
    decoded.check()
    assert decoded.gaps() == [("truncated", len(part), 10)]


def test_padding_after_the_orderly_end_is_no_loss(tmp_path: Path, short: Code) -> None:
    bundle = TraceBundle(tmp_path / "run.ptw").map(short.data, AT).thread(once())
    bundle.traces[0] += bytes(4096)
    assert bundle.decode().gaps() == []


def test_a_trace_the_sideband_does_not_know_is_listed(tmp_path: Path) -> None:
    bundle = TraceBundle(tmp_path / "run.ptw")
    bundle.traces[7] = once()
    decoded = bundle.decode()
    decoded.check()
    assert decoded.gaps(7) == [("missing_image", 0, len(once()))]


def test_a_link_in_place_of_a_trace_is_not_read(tmp_path: Path, short: Code) -> None:
    bundle = TraceBundle(tmp_path / "run.ptw").map(short.data, AT).thread(once(), finished=False)
    written = bundle.write()
    (tmp_path / "elsewhere").write_bytes(once())
    (written.trace / "0.pt").unlink()
    (written.trace / "0.pt").symlink_to(tmp_path / "elsewhere")
    decode_flow(written)
    assert written.ledger()["decode/0"].produced == 0


def test_decoding_again_gives_the_same_tables(tmp_path: Path, short: Code) -> None:
    decoded = TraceBundle(tmp_path / "run.ptw").map(short.data, AT).thread(once() * 3).decode()
    names = ["images", "maps", "blocks", "paths", "flow", "clock", "pt_events", "gaps"]
    before = [decoded.table(name) for name in names]
    ledger = decoded.bundle.ledger().to_json()
    decode_flow(decoded.bundle)
    assert [decoded.table(name) for name in names] == before
    assert decoded.bundle.ledger().to_json() == ledger


def test_a_bundle_without_sideband_is_bad_input(tmp_path: Path) -> None:
    bundle = TraceBundle(tmp_path / "run.ptw").write()
    bundle.sideband.unlink()
    with pytest.raises(BadInput):
        decode_flow(bundle)


def test_progress_ends_at_the_whole(tmp_path: Path, short: Code) -> None:
    bundle = TraceBundle(tmp_path / "run.ptw").map(short.data, AT).thread(once()).thread(once(), number=1).write()
    seen: list[tuple[int, int]] = []
    decode_flow(bundle, lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert seen[-1] == (2 * len(once()), 2 * len(once()))
