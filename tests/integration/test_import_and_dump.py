# SPDX-License-Identifier: MIT
"""Real traces through the command line, import to dump: every address and every packet as the reference tools found
them. The traces are not part of the project (PTWEAVE_PTDATA names their folder)."""

from __future__ import annotations

import hashlib
import json
import lzma
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ptweave.data import Bundle, Cpu
from ptweave.decode.dump import Form, dump_flow
from ptweave.decode.export_lldb import export_lldb
from ptweave.decode.flow import decode_flow
from ptweave.decode.import_lldb import import_lldb
from ptweave.decode.import_raw import ImageSpec, import_raw
from support.command import ptweave
from support.dumping import flow_lines, packet_lines
from support.reference_traces import FOLDER, Case, cases

CASES = [case for case in cases() if case.truth is not None]  # those with code
NO_CASES = pytest.mark.skipif(not CASES, reason=f"no reference traces in {FOLDER} (set PTWEAVE_PTDATA)")


def import_words(case: Case) -> list[str]:
    """The command line that imports a case: its own trace.json, or the trace and its images."""
    own = [path for path in case.folder.glob("*.json") if path.name != "expected.json"]
    if own:
        return ["import", "lldb", str(own[0])]
    traces, images = raw_inputs(case)
    words = ["import", "raw", "--pt", str(traces[0])]
    command = case.truth["cmd"].split()
    words += ["--cpu", command[command.index("--cpu") + 1]]
    for image in images:
        at = "" if image.address is None else f"@{image.address:#x}"
        words += ["--image", f"{image.file}{at}" + ("" if image.size is None else f":{image.offset}:{image.size:#x}")]
    return words


def raw_inputs(case: Case) -> tuple[list[Path], list[ImageSpec]]:
    """A case's trace and where its images lay."""
    images = []
    for image in case.expected["images"]:
        file = case.folder / image["file"]
        if image.get("kind") == "elf":
            movable = file.read_bytes()[16] == 3  # ET_DYN
            images.append(ImageSpec(file, image["base"] if movable else None))
        else:
            size = min(image["size"], file.stat().st_size)
            images.append(ImageSpec(file, image["vaddr"], image["file_offset"], size))
    return [case.folder / case.trace["trace"]], images


@NO_CASES
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.folder.name)
def test_a_reference_trace_comes_out_address_by_address(case: Case, tmp_path: Path) -> None:
    run = tmp_path / "run.ptw"
    done = ptweave(*import_words(case), "-o", run)
    assert (done.status, done.out) == (0, b""), done.err
    decoded = ptweave("decode", "-q", run)
    dumped = ptweave("dump", "--ip-only", run)
    truth = case.truth
    assert dumped.out.count(b"\n") == truth["instructions"]
    assert hashlib.sha256(dumped.out).hexdigest() == truth["ip_list_sha256"]
    text, _ = flow_lines(Bundle.open(run), Form.INSTRUCTIONS)
    gaps = any(line.startswith("-- gap") for line in text)
    assert gaps or not truth["errors"]
    assert (decoded.status, dumped.status) == (int(gaps), int(gaps))
    assert [line for line in dumped.lines if "gaps: " in line] == dumped.lines
    assert bool(dumped.lines) is gaps
    # the other forms show the same flow
    assert [line.split()[2] for line in text if not line.startswith("--")] == dumped.out.decode().split()
    blocks, _ = flow_lines(Bundle.open(run), Form.BLOCKS)
    assert sum(int(line.split()[4]) for line in blocks if not line.startswith("--")) == truth["instructions"]


@NO_CASES
def test_control_without_the_processors_errata_some_trace_comes_out_otherwise(tmp_path: Path) -> None:
    differs = []
    for number, case in enumerate(CASES):
        traces, images = raw_inputs(case)
        bundle = import_raw(tmp_path / f"{number}.ptw", traces, images, Cpu()).bundle
        decode_flow(bundle)
        state = hashlib.sha256()
        dump_flow(bundle, Form.IPS, state.update)
        if state.hexdigest() != case.truth["ip_list_sha256"]:
            differs.append(case.folder.name)
    assert differs


# --- packets ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Listing:
    """A trace and the reference's listing of its packets."""

    folder: Path
    trace: str
    truth: dict[str, Any]

    @property
    def lines(self) -> list[str]:
        saved = (self.folder / self.truth["saved"]).read_bytes()
        return lzma.decompress(saved).decode().splitlines()


def listings() -> list[Listing]:
    found = []
    for path in sorted(FOLDER.glob("*/expected.json")):
        for trace in json.loads(path.read_text())["traces"]:
            found.append(Listing(path.parent, trace["trace"], trace["ptdump"]))
    return found


@NO_CASES
@pytest.mark.parametrize("listing", listings(), ids=lambda listing: listing.folder.name)
def test_packets_are_those_of_the_reference_listing(listing: Listing, tmp_path: Path) -> None:
    run = import_raw(tmp_path / "run.ptw", [listing.folder / listing.trace], [], Cpu()).bundle.path
    done = ptweave("dump", "--packets", run)
    lines = [line for line in done.out.decode().splitlines() if "-- gap" not in line]
    assert Counter(line.split()[1] for line in lines) == listing.truth["by_kind"]
    expected = listing.lines
    assert len(lines) == len(expected) == listing.truth["packets"]
    for ours, theirs in zip(lines, expected, strict=True):
        assert ours == theirs or ours[:-16].rstrip() == theirs.rstrip(), (ours, theirs)  # ours goes on with the IP
    assert done.status == int(b"-- gap" in done.out)
    assert done.status == 0


@NO_CASES
def test_control_a_changed_byte_changes_the_listing(tmp_path: Path) -> None:
    listing = next(listing for listing in listings() if "hello" in listing.folder.name)
    data = bytearray((listing.folder / listing.trace).read_bytes())
    data[len(data) // 2] ^= 0x20
    (tmp_path / "trace").write_bytes(data)
    bundle = import_raw(tmp_path / "run.ptw", [tmp_path / "trace"], [], Cpu()).bundle
    assert packet_lines(bundle)[0] != listing.lines


# --- there and back -----------------------------------------------------------------------------------------------


@NO_CASES
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.folder.name)
def test_an_export_to_lldb_and_back_is_the_same_flow(case: Case, tmp_path: Path) -> None:
    bundle = case.bundle(tmp_path / "run.ptw").write()
    exported = export_lldb(bundle, tmp_path / "lldb")
    back = import_lldb(tmp_path / "back.ptw", exported.path / "trace.json").bundle
    decode_flow(back)
    state = hashlib.sha256()
    dump_flow(back, Form.IPS, state.update)
    assert state.hexdigest() == case.truth["ip_list_sha256"]
