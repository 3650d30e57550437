# SPDX-License-Identifier: MIT
"""Golden cases (tests/golden/*.ptasm): what decoding makes of them, in the words of their expectations."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ptweave.data.manifest import Cpu, Filter, FilterKind
from ptweave.decode.expand import Expansion
from support.assembler import PROGRAMS, ROOT, compile_c
from support.pt_assembler import Case, Event, Gap, Packet, assemble_case, case_texts
from support.trace_bundle import Decoded, TraceBundle

FOLDER = ROOT / "tests" / "golden"


@functools.cache
def texts() -> dict[str, tuple[str, object]]:
    """All cases by name: file and text. Names are unique."""
    found: dict[str, tuple[str, object]] = {}
    for path in sorted(FOLDER.glob("*.ptasm")):
        for text in case_texts(path):
            assert text.name not in found, f"two cases are called {text.name}"
            found[text.name] = (path.name, text)
    return found


@functools.cache
def load(name: str) -> Case:
    """One assembled case."""
    file, text = texts()[name]
    return assemble_case(text, file)  # type: ignore[arg-type]


def bundle(case: Case, path: Path) -> TraceBundle:
    """The case as a bundle with one thread."""
    timing = dict(case.timing.items())
    identity = ("GenuineIntel", *case.cpu) if case.cpu else ("",)
    ticks = bool(timing.pop("ticks", 0))
    cpu = Cpu(*identity, **timing)  # type: ignore[arg-type]
    filters = [Filter(FilterKind(kind), first, last) for kind, first, last in case.filters]
    made = TraceBundle(path, engine="intel_pt", cpu=cpu, filters=filters, ticks=ticks)
    for number, piece in enumerate(case.program.pieces):
        made.map(piece.data, piece.address, name=f"code-{number}", keep=piece.kept, path=f"/golden/code-{number}")
    return made.thread(case.trace)


def addresses(decoded: Decoded) -> list[int]:
    """Every instruction executed, from the stored tables."""
    return [int(ip) for part in Expansion(decoded.bundle).addresses(0) for ip in part]


def instructions_before(decoded: Decoded) -> list[int]:
    """Instructions executed before each block, by seq."""
    return list(itertools.accumulate((count for _, count, _ in decoded.flow()), initial=0))


def events(decoded: Decoded) -> list[Event]:
    before = instructions_before(decoded)
    return [Event(before[row["seq"]], row["kind"], row["ip"], row["target"], row["detail"], row["size"],
                  row["update"], row["tsc"], row["offset"], row["lost_mtc"], row["lost_cyc"])
            for row in decoded.rows("pt_events")]


def gaps(decoded: Decoded) -> list[Gap]:
    before = instructions_before(decoded)
    return [Gap(before[row["seq"]], row["kind"], row["offset"], row["bytes"], row["ip"], row["detail"])
            for row in decoded.rows("gaps")]


def clock(decoded: Decoded) -> list[tuple[int, int]]:
    before = instructions_before(decoded)
    return [(before[seq], tsc) for seq, tsc in decoded.clock()]


def named(case: Case, ip: int | None) -> str:
    """An address as a label where there is one: for messages."""
    names = {address: name for name, address in case.program.labels.items()}
    if ip is None:
        return "-"
    return names.get(ip, f"{ip:#x}")


def differences(case: Case, decoded: Decoded) -> list[str]:
    """Everything the decode made different from what the case says; empty when it agrees."""
    found = []
    ran = addresses(decoded)
    if ran != case.run:
        found.append(f"instructions: {' '.join(named(case, ip) for ip in ran)}\n"
                     f"    expected: {' '.join(named(case, ip) for ip in case.run)}")
    for what, got, wanted in (("event", events(decoded), case.events), ("gap", gaps(decoded), case.gaps)):
        for number in range(max(len(got), len(wanted))):
            have = got[number] if number < len(got) else None
            want = wanted[number] if number < len(wanted) else None
            if not agree(have, want):
                found.append(f"{what} {number}: {show(case, have)}\n    expected: {show(case, want)}")
    if case.clock != clock(decoded):
        found.append(f"clock: {clock(decoded)}\n    expected: {case.clock}")
    return found


def agree(have: Event | Gap | None, want: Event | Gap | None) -> bool:
    """Whether a row is what is expected; a tsc, an offset or a text that is not expected may be anything."""
    if isinstance(have, Event) and isinstance(want, Event):
        asked = ("tsc", "offset", "lost_mtc", "lost_cyc")
        return dataclasses.replace(have, **{name: None for name in asked if getattr(want, name) is None}) == want
    if isinstance(have, Gap) and isinstance(want, Gap):
        offset = have.offset if want.offset >= 0 else want.offset
        return dataclasses.replace(have, text=want.text, offset=offset) == want and want.text in have.text
    return have is want


def show(case: Case, row: Event | Gap | None) -> str:
    if row is None:
        return "nothing"
    text = f"before {row.before}: {row.kind} ip={named(case, row.ip)}"
    if isinstance(row, Event):
        detail = "-" if row.detail is None else f"{row.detail:#x}"
        more = f"size={row.size} {'update ' * row.update}tsc={row.tsc} at={row.offset} lost={row.lost_cyc}"
        return f"{text} target={named(case, row.target)} detail={detail} {more}"
    return f"{text} {row.offset}..{row.offset + row.size} {row.text!r}"


class PacketLister:
    """libipt's packet decoder in a program of its own (tests/programs/packet_list.c)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.program = compile_c(PROGRAMS / "packet_list.c", folder / "packet_list", "-lipt")

    def packets(self, trace: bytes, cpu: tuple[int, int, int] | None = None) -> list[Packet]:
        """The packets it finds in a trace of `cpu`; errors are left out: what could not be read is not listed."""
        file = self.folder / "trace.pt"
        file.write_bytes(trace)
        command = [self.program, file, *map(str, cpu or ())]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        found = []
        for line in listed.splitlines():
            offset, size, kind, *values = line.split()
            if kind != "error":
                found.append(Packet(int(offset), int(size), kind, tuple(map(_value, values)) or _none(kind)))
        return found


def _value(text: str) -> object:
    return int(text) if text.isdigit() else text


def _none(kind: str) -> tuple[object, ...]:
    return ("",) if kind.startswith("tnt") else ()


def counted(packets: Sequence[Packet]) -> dict[str, int]:
    """How many packets there are of each kind."""
    kinds: dict[str, int] = {}
    for packet in packets:
        kinds[packet.kind] = kinds.get(packet.kind, 0) + 1
    return kinds
