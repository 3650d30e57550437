# SPDX-License-Identifier: MIT
"""The reader of reference cases: what command lines say, and that nothing it does not understand is passed over."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import reference_traces as reference
from support.reference_traces import Case, CaseError, parse


def test_options_of_the_processor() -> None:
    options = parse("ptxed --cpu 6/94/3 --mtc-freq 0x3 --nom-freq 32 --cpuid-0x15.eax 2 --cpuid-0x15.ebx 266 --pt t.pt")
    assert options.cpu == (6, 94, 3)
    assert options.numbers == {"mtc-freq": 3, "nom-freq": 32, "cpuid-0x15.eax": 2, "cpuid-0x15.ebx": 266}
    assert (options.trace, options.span) == ("t.pt", (0, None))


@pytest.mark.parametrize(("text", "cpu"), [("none", None), ("6/158", (6, 158, 0)), ("6/61/4", (6, 61, 4))])
def test_processors(text: str, cpu: tuple[int, int, int] | None) -> None:
    assert parse(f"ptdump --cpu {text} trace.pt").cpu == cpu


def test_images() -> None:
    options = parse("ptxed --raw a.bin:0x1000-0x3000:0x400000 --raw b.bin:0x500000 --elf c --elf d:0x7f00 "
                    "--pt t:0x10-0x20")
    assert options.images == [
        {"kind": "raw", "file": "a.bin", "file_offset": 0x1000, "size": 0x2000, "vaddr": 0x400000},
        {"kind": "raw", "file": "b.bin", "file_offset": 0, "size": None, "vaddr": 0x500000},
        {"kind": "elf", "file": "c", "base": "link address"}, {"kind": "elf", "file": "d", "base": 0x7F00}]
    assert options.span == (0x10, 0x20)


def test_sideband_options_are_known() -> None:
    options = parse("ptxed --insn-decoder --no-inst --event:ip --pevent:primary a --pevent:sample-config 0:1 "
                    "--sb:time t")
    assert options.trace == "t"


@pytest.mark.parametrize("command", ["ptxed --frobnicate --pt t", "ptxed --cpu auto --pt t", "ptxed --raw file --pt t"])
def test_what_is_not_known_is_an_error(command: str) -> None:
    with pytest.raises(CaseError):
        parse(command)


@pytest.mark.parametrize(("text", "event"), [
    ("[enabled, ip: 0000000000401000]", ("enabled", 0x401000)),
    ("[000031a42d832f82  resumed, ip: 0000000000401000]", ("resumed", 0x401000)),
    ("[disabled]", ("disabled", None)),
    ("[disabled, at: 0000000000401007, ip: 0000000000000001]", ("disabled", 0x401007)),
    ("[cbr: 1c]", ("cbr", 0x1C)),
    ("[exec mode: 64-bit, ip: 0000000000401000]", ("exec_mode", 64)),
    ("[exec mode: 32-bit]", ("exec_mode", 32)),
    ("[ptwrite: 42, ip: 0000000000401000]", ("ptwrite", 0x42)),
    ("[interrupt, from: 10, to: 20]", ("async_branch", 0x10)),
    ("[paging, cr3: 0000000012345000]", ("paging", 0x12345000)),
    ("[overflow]", ("overflow", None)),
])
def test_events_of_the_reference(text: str, event: tuple[str, int | None]) -> None:
    assert reference._event(text, "case") == event


def test_an_unknown_event_is_an_error() -> None:
    with pytest.raises(CaseError, match="hiccup"):
        reference._event("[hiccup, ip: 10]", "case")


def test_a_trace_that_is_not_the_one_expected_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "t.pt").write_bytes(b"\0\0")
    case = Case(tmp_path, {}, {"trace": "t.pt", "bytes": 3, "sha256": ""})
    with pytest.raises(CaseError, match=r"not the one"):
        case.data()
