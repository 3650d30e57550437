# SPDX-License-Identifier: MIT
"""Real traces with ground truth made by other decoders, as bundles. They are not part of the project: a folder beside
it, or the one PTWEAVE_PTDATA names, may hold them."""

from __future__ import annotations

import hashlib
import json
import lzma
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptweave.data.manifest import Cpu
from ptweave.decode.elf import PT_LOAD, Elf
from support.assembler import ROOT
from support.trace_bundle import Decoded, TraceBundle

FOLDER = Path(os.environ.get("PTWEAVE_PTDATA") or ROOT.parent / "shared" / "ptdata")
ET_EXEC = 2


@dataclass(frozen=True)
class Case:
    """One trace of one case."""

    folder: Path
    expected: dict[str, Any]
    trace: dict[str, Any]

    @property
    def truth(self) -> dict[str, Any]:
        """What the reference decoder found."""
        truth: dict[str, Any] = self.trace["ptxed_insn"]
        return truth

    def bundle(self, path: Path) -> TraceBundle:
        """The case as a bundle with one thread."""
        cpu = self.truth["cmd"].split("--cpu ")[1].split()[0].split("/")
        bundle = TraceBundle(path, engine="intel_pt", cpu=Cpu("GenuineIntel", *map(int, cpu)))
        for image in self.expected["images"]:
            data = (self.folder / image["file"]).read_bytes()
            name = hashlib.sha256(data).hexdigest()
            if image.get("kind") == "elf":
                self._map_elf(bundle, data, name, image)
            else:
                bundle.map(data, image["vaddr"], name=name, offset=image["file_offset"],
                           size=min(image["size"], len(data)), path=image["name"])
        packets = (self.folder / self.trace["trace"]).read_bytes()
        return bundle.thread(packets, finished=False)

    @staticmethod
    def _map_elf(bundle: TraceBundle, data: bytes, name: str, image: dict[str, Any]) -> None:
        elf = Elf(data)
        loads = [segment for segment in elf.segments if segment.type == PT_LOAD and segment.size]
        base = 0 if elf.type == ET_EXEC else image["base"] - min(segment.address for segment in loads)
        for segment in loads:
            bundle.map(data, base + segment.address, name=name, offset=segment.offset, size=segment.size,
                       path=image["file"])

    def events(self) -> list[tuple[int, str]]:
        """(instructions before it, kind) of the reference's tracing events."""
        listing = self.folder / f"{self.trace['trace']}.insn.events.jsonl.xz"
        found = []
        for line in lzma.decompress(listing.read_bytes()).decode().splitlines():
            index, text = json.loads(line)  # "[TSC  kind, details]", the TSC only where there is time
            kind = re.match(r"\[(?:[0-9a-f]{16}  )?(enabled|resumed|disabled|overflow)\b", text)
            if kind:
                found.append((index, kind[1]))
        return found


def cases() -> list[Case]:
    """All cases with code to decode; empty when the folder is absent."""
    found = []
    for path in sorted(FOLDER.glob("*/expected.json")):
        expected = json.loads(path.read_text())
        found += [Case(path.parent, expected, trace) for trace in expected["traces"] if trace.get("ptxed_insn")]
    return found


def tracing_events(decoded: Decoded) -> list[tuple[int, str]]:
    """(instructions before it, kind) of a decode's tracing events, in the reference's words."""
    before = [0]
    for _, instructions, _ in decoded.flow():
        before.append(before[-1] + instructions)
    found = []
    for row in decoded.rows("pt_events"):
        kind = {"async_disabled": "disabled"}.get(row["kind"], row["kind"])
        if kind == "enabled" and row["detail"] == 1:
            kind = "resumed"
        if kind in ("enabled", "resumed", "disabled", "overflow"):
            found.append((before[row["seq"]], kind))
    return found
