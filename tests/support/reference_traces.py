# SPDX-License-Identifier: MIT
"""Real traces with ground truth made by other decoders, as bundles. They are not part of the project: a folder beside
it, or the one PTWEAVE_PTDATA names, may hold them.

A case is a folder with `expected.json`. What a trace was decoded with is what the reference's command line says
(`ptxed …`); images it does not name are those of `images`. Nothing in a case is passed over: what this reader does not
understand is a CaseError with the case, the field and the value.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import os
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from elftools.elf.elffile import ELFFile

from ptweave.data.manifest import Cpu
from support.assembler import ROOT
from support.trace_bundle import Decoded, TraceBundle

FOLDER = Path(os.environ.get("PTWEAVE_PTDATA") or ROOT.parent / "shared" / "ptdata")

FLAGS = re.compile(r"--(insn-decoder|block-decoder|no-inst|time|raw-insn|att|check|offset|sync|quiet|event:\S+|sb:\S+"
                   r"|block:\S+|insn:\S+|stat\S*|no-\S+)$")
"""Options of ptxed that take nothing and change nothing about what is decoded."""
IGNORED = re.compile(r"--(pevent:\S+|iscache-limit)$")
"""Options with a value that say nothing about packets and code."""


class CaseError(Exception):
    """A case says something this reader does not understand."""


@dataclass
class Options:
    """What a reference's command line says."""

    cpu: tuple[int, int, int] | None = None
    numbers: dict[str, int] = field(default_factory=dict)  # mtc-freq, nom-freq, cpuid-0x15.eax, cpuid-0x15.ebx
    images: list[dict[str, Any]] = field(default_factory=list)
    trace: str | None = None
    span: tuple[int, int | None] = (0, None)


def parse(command: str) -> Options:
    """Read a ptxed or ptdump command line. Raises CaseError for an option that is not known."""
    options = Options()
    words = iter(shlex.split(command)[1:])
    for word in words:
        name = word.removeprefix("--")
        if word in ("--mtc-freq", "--nom-freq", "--cpuid-0x15.eax", "--cpuid-0x15.ebx"):
            options.numbers[name] = int(next(words), 0)
        elif word == "--cpu":
            options.cpu = _cpu(next(words))
        elif word == "--raw":
            options.images.append(_raw(next(words)))
        elif word == "--elf":
            file, _, base = next(words).partition(":")
            options.images.append({"kind": "elf", "file": file, "base": int(base, 0) if base else "link address"})
        elif word == "--pt" or not word.startswith("--"):
            options.trace, options.span = _span(next(words) if word == "--pt" else word)
        elif IGNORED.match(word):
            next(words)
        elif not FLAGS.match(word):
            raise CaseError(f"option {word} of {command[:60]}… is not known")
    return options


def _cpu(text: str) -> tuple[int, int, int] | None:
    if text == "none":
        return None
    parts = text.split("/")
    if len(parts) not in (2, 3) or not all(part.isdigit() for part in parts):
        raise CaseError(f"--cpu {text} names no processor")
    family, model, stepping = (*map(int, parts), 0)[:3]
    return family, model, stepping


def _raw(text: str) -> dict[str, Any]:
    """FILE[:FROM[-TO]]:ADDRESS."""
    match = re.fullmatch(r"(.+?)(?::(0x[0-9a-f]+|\d+)(?:-(0x[0-9a-f]+|\d+))?)?:(0x[0-9a-f]+|\d+)", text)
    if not match:
        raise CaseError(f"--raw {text} is no file and address")
    file, begin, end, address = match.groups()
    first = int(begin or "0", 0)
    return {"kind": "raw", "file": file, "file_offset": first, "size": int(end, 0) - first if end else None,
            "vaddr": int(address, 0)}


def _span(text: str) -> tuple[str, tuple[int, int | None]]:
    """FILE[:FROM[-[TO]]]."""
    file, _, span = text.partition(":")
    begin, _, end = span.partition("-")
    return file, (int(begin or "0", 0), int(end, 0) if end else None)


@dataclass(frozen=True)
class Case:
    """One trace of one case."""

    folder: Path
    expected: dict[str, Any]
    trace: dict[str, Any]

    @property
    def name(self) -> str:
        return f"{self.folder.name}/{self.trace.get('trace')}"

    @property
    def truth(self) -> dict[str, Any] | None:
        """What the reference decoder found; None for a case of packets only."""
        return self.trace.get("ptxed_insn")

    @property
    def packets(self) -> dict[str, Any] | None:
        """What the reference's packet listing came to."""
        return self.trace.get("ptdump")

    def data(self) -> bytes:
        """The trace's bytes. Raises CaseError when they are not those the truth was made from."""
        data = (self.folder / self.trace["trace"]).read_bytes()
        if len(data) != self.trace["bytes"] or hashlib.sha256(data).hexdigest() != self.trace["sha256"]:
            raise CaseError(f"{self.name}: the trace is not the one of expected.json")
        return data

    def options(self) -> Options:
        truth = self.truth
        if truth is None or not isinstance(truth.get("cmd"), str):
            raise CaseError(f"{self.name}: no command line of the reference decoder")
        return parse(truth["cmd"])

    def bundle(self, path: Path) -> TraceBundle:
        """The case as a bundle with one thread. Raises CaseError."""
        options = self.options()
        numbers = options.numbers
        cpu = Cpu(mtc_freq=numbers.get("mtc-freq", 0), nom_freq=numbers.get("nom-freq", 0),
                  tsc_ratio=(numbers.get("cpuid-0x15.ebx", 0), numbers.get("cpuid-0x15.eax", 0)))
        if options.cpu:
            cpu.vendor, (cpu.family, cpu.model, cpu.stepping) = "GenuineIntel", options.cpu
        bundle = TraceBundle(path, engine="intel_pt", cpu=cpu)
        for image in options.images or self.expected.get("images") or []:
            self._map(bundle, image)
        if options.span[0]:
            raise CaseError(f"{self.name}: only part of the trace was decoded ({options.span})")
        return bundle.thread(self.data()[:options.span[1]], finished=False)

    def _map(self, bundle: TraceBundle, image: dict[str, Any]) -> None:
        data = (self.folder / image["file"]).read_bytes()
        name, kind = hashlib.sha256(data).hexdigest(), image.get("kind", "raw")
        if kind == "elf":
            for address, offset, size in _segments(self.folder / image["file"], image.get("base", "link address")):
                bundle.map(data, address, name=name, offset=offset, size=size, path=image["file"])
        elif kind == "raw":
            offset, size = image.get("file_offset", 0), image.get("size")
            kept = len(data) - offset
            bundle.map(data, image["vaddr"], name=name, offset=offset, size=kept if size is None else min(size, kept),
                       path=image.get("name") or image["file"])
        else:
            raise CaseError(f"{self.name}: an image of kind {kind!r}")

    # --- what the reference found

    def addresses(self) -> npt.NDArray[np.uint64]:
        """Every instruction address, from the case's own list. Raises CaseError when it is not the list hashed."""
        path = self.folder / f"{self.trace['trace']}.insn.ips.u64le.xz"
        found = np.frombuffer(lzma.decompress(path.read_bytes()), "<u8")
        if self.truth is None or len(found) != self.truth["instructions"] or digest(found) != self.truth[
                "ip_list_sha256"]:
            raise CaseError(f"{self.name}: {path.name} is not the list of expected.json")
        return found

    def artefacts(self) -> list[tuple[int, int]]:
        """(index, count) of instructions that never ran: a listing without them is as right."""
        found = self.trace.get("entry_breakpoint_artefact") or self.expected.get("entry_breakpoint_artefact") or []
        return [(entry["insn_index"], entry["count"]) for entry in found]

    def events(self) -> list[tuple[int, str, int | None]]:
        """(instructions before it, kind, value) of the reference's events. Raises CaseError for an unknown text."""
        listing = self.folder / f"{self.trace['trace']}.insn.events.jsonl.xz"
        found = []
        for line in lzma.decompress(listing.read_bytes()).decode().splitlines():
            index, text = json.loads(line)
            found.append((int(index), *_event(text, self.name)))
        return found

    def errors(self) -> list[tuple[int, int]]:
        """(instructions before it, address) of the reference's errors."""
        return [(error["insn_index"], int(error["ip"], 16)) for error in (self.truth or {}).get("errors", [])]


def _segments(path: Path, base: object) -> list[tuple[int, int, int]]:
    """(address, offset, size) of an ELF file's segments, as ptxed loads them."""
    with path.open("rb") as file:
        loads = [(part["p_vaddr"], part["p_offset"], part["p_filesz"]) for part in ELFFile(file).iter_segments()
                 if part["p_type"] == "PT_LOAD" and part["p_filesz"]]
    if base == "link address" or base is None:
        shift = 0
    elif isinstance(base, int) or (isinstance(base, str) and re.fullmatch(r"0x[0-9a-fA-F]+|\d+", base)):
        shift = int(str(base), 0) - min(address for address, _, _ in loads)
    else:
        raise CaseError(f"{path}: base {base!r}")
    return [(address + shift, offset, size) for address, offset, size in loads]


WORDS = (
    ("enabled", "enabled"), ("resumed", "resumed"), ("disabled", "disabled"), ("overflow", "overflow"),
    ("interrupt", "async_branch"), ("paging", "paging"), ("exec mode", "exec_mode"), ("begin transaction", "tsx"),
    ("committed", "tsx"), ("aborted", "tsx"), ("transaction", "tsx"), ("stop", "stop"), ("stopped", "stop"),
    ("vmcs", "vmcs"), ("exstop", "exstop"), ("mwait", "mwait"), ("pwre", "pwre"), ("pwrx", "pwrx"),
    ("ptwrite", "ptwrite"), ("tick", "tick"), ("cbr", "cbr"), ("mnt", "mnt"))
"""How the reference calls events, and what they are here."""

VALUED = {"cbr": r"cbr: ([0-9a-f]+)", "ptwrite": r"ptwrite: ([0-9a-f]+)", "mnt": r"mnt: ([0-9a-f]+)",
          "paging": r"cr3: ([0-9a-f]+)", "vmcs": r"base: ([0-9a-f]+)", "exec_mode": r"mode: (\d+)-bit",
          "enabled": r"ip: ([0-9a-f]+)", "resumed": r"ip: ([0-9a-f]+)", "overflow": r"ip: ([0-9a-f]+)",
          "disabled": r"at: ([0-9a-f]+)", "async_branch": r"from: ([0-9a-f]+)"}
"""The number that is compared, where an event has one."""


def _event(text: str, name: str) -> tuple[str, int | None]:
    """Kind and value of "[TSC  kind, details]", the TSC only where there is time."""
    body = re.sub(r"^\[(?:[0-9a-f]{16}  )?", "", text).rstrip("]")
    for words, kind in WORDS:
        if body == words or re.match(re.escape(words) + r"[:, ]", body):
            value = re.search(VALUED[kind], body) if kind in VALUED else None
            return kind, None if value is None else int(value[1], 10 if kind == "exec_mode" else 16)
    raise CaseError(f"{name}: an event {text!r}")


def cases() -> list[Case]:
    """All traces of all cases; empty when the folder is absent. Raises CaseError for a case that has none."""
    found = []
    for path in sorted(FOLDER.glob("*/expected.json")):
        expected = json.loads(path.read_text())
        if not expected.get("traces"):
            raise CaseError(f"{path}: no traces")
        found += [Case(path.parent, expected, trace) for trace in expected["traces"]]
    return found


def digest(addresses: npt.NDArray[np.uint64]) -> str:
    """sha256 over a line `%016x` for each address."""
    state = hashlib.sha256()
    for part in np.array_split(addresses, len(addresses) // 65536 + 1):
        state.update("".join(f"{ip:016x}\n" for ip in part.tolist()).encode())
    return state.hexdigest()


# --- what we found, in the reference's words ------------------------------------------------------------------------


def instructions_before(decoded: Decoded) -> list[int]:
    """Instructions executed before each block, by seq."""
    before = [0]
    for _, instructions, _ in decoded.flow():
        before.append(before[-1] + instructions)
    return before


PLAIN = {"async_disabled": "disabled", "async_paging": "paging", "async_vmcs": "vmcs"}


def events(decoded: Decoded) -> list[tuple[int, str, int | None]]:
    """Events as the reference prints them: none that a PSB+ only repeats, modes only where they change."""
    before = instructions_before(decoded)
    stops = {row["seq"] for row in decoded.rows("gaps") if row["kind"] in ("decode_error", "missing_image")}
    mode, found = 0, []
    for row in decoded.rows("pt_events"):
        kind = PLAIN.get(row["kind"], row["kind"])
        if kind == "enabled" and row["detail"] == 1:
            kind = "resumed"
        if kind == "exec_mode":
            same = row["detail"] == mode and row["seq"] not in stops
            mode = row["detail"]
            if same:
                continue
        if not row["update"]:
            found.append((before[row["seq"]], kind, _value(kind, row)))
    return found


def _value(kind: str, row: dict[str, Any]) -> int | None:
    if kind in ("enabled", "resumed", "overflow"):
        return None if row["target"] is None else int(row["target"])
    if kind in ("disabled", "async_branch"):
        return None if row["ip"] is None else int(row["ip"])
    if kind == "paging":
        return int(row["detail"]) & ~1
    if kind == "exec_mode" and not row["detail"]:
        return None
    if kind in ("cbr", "ptwrite", "mnt", "vmcs", "exec_mode"):
        return int(row["detail"]) % (1 << 64)
    return None


def errors(decoded: Decoded) -> list[tuple[int, int]]:
    """(instructions before it, address) of our errors."""
    before = instructions_before(decoded)
    return [(before[row["seq"]], row["ip"] or 0) for row in decoded.rows("gaps")
            if row["kind"] in ("decode_error", "missing_image")]
