# SPDX-License-Identifier: MIT
"""Traces of real processors decode to what the reference decoders found: every address, every event, every error,
every kind of packet. The table at the end of the run has a row for each trace."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from ptweave.decode.expand import Expansion
from ptweave.decode.packets import count_packets
from support import reference_traces as reference
from support.reference_traces import FOLDER, Case, CaseError, cases, digest
from support.trace_bundle import Decoded

CASES = cases()
absent = pytest.mark.skipif(not CASES, reason=f"no reference traces in {FOLDER} (set PTWEAVE_PTDATA)")


@dataclass
class Verdict:
    """What a trace came to: words for the table, and everything that differs."""

    cells: dict[str, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def say(self, cell: str, differences: Sequence[str], words: str = "ok") -> None:
        self.wrong += [f"{cell}: {difference}" for difference in differences]
        self.cells[cell] = "DIFFERS" if differences else words


def judge(case: Case, folder: Path) -> Verdict:
    """Hold a trace against all its truths. Raises CaseError when there is none, or it is not understood."""
    verdict = Verdict()
    if case.packets is None and case.truth is None:
        raise CaseError(f"{case.name}: no truth to compare with")
    if case.packets is not None:
        verdict.say("packets", packet_differences(case), f"{case.packets['packets']} ok")
    if case.truth is not None:
        folder.mkdir(exist_ok=True)
        decoded = case.bundle(folder / "run.ptw").decode()
        judge_flow(case, decoded, verdict)
    return verdict


def packet_differences(case: Case) -> list[str]:
    """Packets by kind, decisions, cycles and times against the reference's packet listing."""
    expected = case.packets
    assert expected is not None
    counts = count_packets(case.data())
    found = {"packets": counts.packets, "packets_no_pad": counts.packets - counts.by_kind.get("pad", 0),
             "by_kind": counts.by_kind, "first_sync_offset": counts.first_sync, "tnt_bits": counts.tnt_bits,
             "tnt_taken": counts.tnt_taken, "cyc_sum": counts.cyc_sum, "tsc_first": counts.tsc_first,
             "tsc_last": counts.tsc_last, "n_errors": counts.errors}
    return [f"{name}: {found[name]}, expected {expected[name]}" for name in found
            if name in expected and expected[name] != found[name]]


def judge_flow(case: Case, decoded: Decoded, verdict: Verdict) -> None:
    truth = case.truth
    assert truth is not None
    ran = np.concatenate([np.zeros(0, np.uint64), *Expansion(decoded.bundle).addresses(0)]).astype(np.uint64)
    listing = case.addresses()
    left_out = [np.delete(listing, slice(at, at + count)) for at, count in case.artefacts()]
    readings = [listing, *left_out]
    right = [reading for reading in readings if len(reading) == len(ran)]
    verdict.cells["instructions"] = str(len(ran))
    verdict.say("count", [] if right else [f"{len(ran)} instructions, expected {len(listing)}"])
    verdict.say("hash", addresses_differ(case, ran, readings))
    verdict.say("events", sequences_differ(reference.events(decoded), case.events()))
    verdict.say("errors", sequences_differ(reference.errors(decoded), case.errors()),
                f"{len(case.errors())} ok" if case.errors() else "ok")
    verdict.say("ledger", ledger_differences(case, decoded))


def addresses_differ(case: Case, ran: np.ndarray, readings: list[np.ndarray]) -> list[str]:
    """The whole list, its hash, its first and last elements, and that the reference's block decoder found the same."""
    truth = case.truth
    assert truth is not None
    found = []
    if not any(np.array_equal(ran, reading) for reading in readings):
        shorter = min(len(ran), len(readings[0]))
        differ = np.flatnonzero(ran[:shorter] != readings[0][:shorter])
        found.append(f"the first other address is at {differ[0] if len(differ) else shorter}")
    elif len(ran) == truth["instructions"]:
        first, last = truth["first_ips"], truth["last_ips"]
        if [f"{ip:016x}" for ip in ran[:len(first)].tolist()] != first:
            found.append("first addresses")
        if [f"{ip:016x}" for ip in ran[len(ran) - len(last):].tolist()] != last:
            found.append("last addresses")
        if digest(ran) != truth["ip_list_sha256"]:
            found.append("sha256 of the list")
    block = case.trace.get("ptxed_block")
    if block and case.trace.get("insn_equals_block", True) and block["ip_list_sha256"] != truth["ip_list_sha256"]:
        found.append("the reference's own decoders do not agree")
    return found


def sequences_differ(found: Sequence[object], expected: Sequence[object]) -> list[str]:
    if found == expected:
        return []
    at = next((i for i, (one, other) in enumerate(zip(found, expected, strict=False)) if one != other),
              min(len(found), len(expected)))
    return [f"number {at} of {len(found)} is {found[at:at + 3]}, expected {expected[at:at + 3]} of {len(expected)}"]


def ledger_differences(case: Case, decoded: Decoded) -> list[str]:
    """Every byte is decoded or in a gap; no gaps but errors, overflows, and what lies before the first PSB."""
    found = []
    stream = decoded.bundle.ledger()["decode/0"]
    if not stream.balanced or stream.produced != case.trace["bytes"]:
        found.append(f"{stream}")
    first = (case.packets or {}).get("first_sync_offset")
    for kind, offset, size in decoded.gaps():
        known = kind in ("decode_error", "missing_image", "overflow")
        at_an_end = kind == "truncated" and ((offset, size) == (0, first) or offset + size == case.trace["bytes"])
        if not known and not at_an_end:
            found.append(f"a gap {kind} at {offset} of {size} bytes")
    return found


@absent
def test_there_are_cases_of_every_kind() -> None:
    names = {case.folder.name.split("-")[0] for case in CASES}
    assert {"arcus", "lldb", "hase", "dynamorio", "pkt"} <= names


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_decodes_as_the_reference_did(case: Case, tmp_path: Path, reference_table: list[tuple[str, ...]]) -> None:
    verdict = Verdict()
    try:
        verdict = judge(case, tmp_path)
    except CaseError as error:
        verdict.wrong.append(str(error))
        verdict.cells["packets"] = "NOT UNDERSTOOD"
    finally:
        reference_table.append((case.folder.name, str(case.trace.get("trace")),
                                *(verdict.cells.get(cell, "-") for cell in reference_table[0][2:])))
    assert not verdict.wrong, "\n".join(verdict.wrong)


@absent
@pytest.mark.parametrize("what", ["packets", "addresses", "events", "errors", "processor"])
def test_a_wrong_truth_is_seen(what: str, tmp_path: Path) -> None:
    """The control: with one expectation changed, or without the processor's errata, a trace no longer agrees."""
    case = next(case for case in CASES if case.folder.name == "lldb-multifile")
    assert judge(case, tmp_path / "right").wrong == []
    trace = dict(case.trace)
    if what == "packets":
        trace["ptdump"] = {**trace["ptdump"], "tnt_taken": trace["ptdump"]["tnt_taken"] + 1}
    elif what == "errors":
        trace["ptxed_insn"] = {**trace["ptxed_insn"], "errors": []}
    elif what == "processor":
        trace["ptxed_insn"] = {**trace["ptxed_insn"],
                               "cmd": trace["ptxed_insn"]["cmd"].replace("--cpu 6/79/1", "--cpu none")}
    changed = dataclasses.replace(case, trace=trace)
    if what in ("packets", "errors", "processor"):
        assert judge(changed, tmp_path / "wrong").wrong
    elif what == "events":
        assert sequences_differ([(*event[:2], 1) for event in case.events()], case.events())
    else:
        listing = case.addresses()
        assert addresses_differ(case, listing + np.uint64(1), [listing])
