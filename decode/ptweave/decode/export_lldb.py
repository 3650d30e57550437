# SPDX-License-Identifier: MIT
"""A run as an LLDB trace bundle: `trace.json`, `threads/` or `cpus/`, `modules/`.

LLDB knows a process as one set of modules that are ELF files. So each address space becomes a process; a thread whose
trace runs through several of them (exec) becomes a thread of each; code that is no ELF file, or is mapped otherwise
than its segments say, is wrapped into one. What LLDB has no place for is said, not dropped silently.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import struct
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ptweave.data.bundle import Bundle
from ptweave.data.errors import BadInput
from ptweave.data.manifest import Clocks
from ptweave.data.sideband import SidebandKind, SwitchWhen, read_sideband
from ptweave.decode.elf import PF_X, PT_LOAD
from ptweave.decode.exported import Exported, new_folder
from ptweave.decode.images import Code, Image, Mapping
from ptweave.decode.lldb_json import Conversion
from ptweave.decode.plan import Thread, plan

CHUNK = 1 << 20
MACHINE = {False: 3, True: 62}  # EM_386, EM_X86_64
_SWITCH = struct.Struct("<IHHIIIIQ")
_SWITCH_CPU_WIDE = 15
_SWITCH_OUT = 1 << 13


def export_lldb(bundle: Bundle, output: Path) -> Exported:
    """Write `bundle` as an LLDB trace bundle into the new folder `output`.

    Raises BadInput when the folder exists or the run's traces cannot be read, MachineLacks when it cannot be written.
    """
    with new_folder(output):
        return _Exporter(bundle, output).run()


class _Exporter:
    def __init__(self, bundle: Bundle, output: Path) -> None:
        self.bundle = bundle
        self.sideband = read_sideband(bundle.sideband)
        self.code = Code(self.sideband, bundle.images)
        self.output = output
        self.exported = Exported(output)
        self.copied: dict[int, str] = {}  # image → file
        self.taken: set[str] = set()

    def run(self) -> Exported:
        cpus = sorted(int(path.stem[4:]) for path in self.bundle.trace.glob("cpu-*.pt") if path.stem[4:].isdecimal())
        conversion = self._conversion()
        cpu = self.bundle.manifest.cpu
        description: dict[str, Any] = {
            "type": "intel-pt",
            "cpuInfo": {"vendor": "GenuineIntel" if self._is_intel() else "unknown", "family": cpu.family,
                        "model": cpu.model, "stepping": cpu.stepping},
            "processes": self._processes(bool(cpus)),
        }
        if cpus:
            description["cpus"] = [self._cpu(number, conversion) for number in cpus]
        if conversion is not None:
            description["tscPerfZeroConversion"] = {
                "timeMult": conversion.mult, "timeShift": conversion.shift,
                "timeZero": hex(conversion.zero % (1 << 64))}
        (self.output / "trace.json").write_text(json.dumps(description, indent=2) + "\n")
        return self.exported

    def _is_intel(self) -> bool:
        return self.bundle.manifest.engine == "intel_pt" and self.bundle.manifest.cpu.vendor == "GenuineIntel"

    def _conversion(self) -> Conversion | None:
        conversion = conversion_of(self.bundle.manifest.clocks)
        if conversion is not None and conversion.clocks() != _plain(self.bundle.manifest.clocks):
            self.exported.lack("times to the nanosecond: LLDB's conversion is perf's, a multiplication and a shift")
        return conversion

    # --- processes ---

    def _processes(self, by_cpu: bool) -> list[dict[str, Any]]:
        spaces: dict[int, int] = {}  # number → pid, in order of appearance
        for row in self._rows(SidebandKind.PROCESS, SidebandKind.THREAD, SidebandKind.MAP):
            spaces.setdefault(row["space"], row["pid"])
        threads = self._threads(by_cpu)
        pids: dict[int, int] = {}
        found = []
        for number, pid in spaces.items():
            if number not in threads and number not in self.code.spaces:
                continue
            shown = pid or 1  # 0 is no process to LLDB
            if pids.setdefault(shown, number) != number:
                self.exported.lack(f"that process {shown} went on in another image (exec): it is there twice")
            modules = list(self._modules(number))
            found.append({"pid": shown, "triple": f"{self._architecture(number)}-*-linux",
                          "threads": threads.get(number, []), "modules": modules})
        return found

    def _rows(self, *kinds: SidebandKind) -> Iterator[dict[str, Any]]:
        chosen = self.sideband.filter(pc.is_in(self.sideband["kind"], pa.array([kind.value for kind in kinds])))
        yield from chosen.to_pylist()

    def _architecture(self, space: int) -> str:
        """i386 where all the space's ELF files are 32-bit."""
        elves = [change.image.elf for change in self.code.space(space).changes
                 if change.image is not None and change.image.elf is not None]
        return "i386" if elves and not any(elf.is_64 for elf in elves) else "x86_64"

    # --- threads ---

    def _threads(self, by_cpu: bool) -> dict[int, list[dict[str, Any]]]:
        """The threads of each space, with their packets where they have a trace of their own."""
        found: dict[int, list[dict[str, Any]]] = {}
        tids: dict[int, int] = {}
        homes: dict[int, int] = {}
        for row in self._rows(SidebandKind.THREAD):
            if row["thread"] is not None:
                tids[row["thread"]], homes[row["thread"]] = row["tid"] or 0, row["space"]
        planned = {thread.number: thread for thread in plan(self.bundle, self.sideband) if thread.number >= 0}
        for number in sorted({*tids, *planned}):
            tid = tids.get(number, number)
            thread = planned.get(number)
            if thread is None or (by_cpu and not thread.present):  # its packets are in the processors' traces
                found.setdefault(homes.get(number, 0), []).append({"tid": tid})
                continue
            self._check(thread)
            parts: dict[int, list[tuple[int, int]]] = {}
            for part in thread.slices:
                home = homes.get(thread.number, 0) if part.space is None else part.space
                parts.setdefault(home, []).append((part.begin, part.end))
            for index, (space, ranges) in enumerate(parts.items()):
                name = self._name(f"threads/{tid}" + (f"-{index}" if index else ""), ".intelpt_trace")
                self._copy(thread.path, ranges, name)
                found.setdefault(space, []).append({"tid": tid, "iptTrace": name})
        return found

    def _check(self, thread: Thread) -> None:
        if not thread.present:
            self.exported.lack(f"the trace of thread {thread.number}: the run does not have it")
        spaces = {row["space"] for row in self._rows(SidebandKind.SWITCH)
                  if row["cpu"] is None and row["thread"] == thread.number}
        if len(spaces) > 1:
            self.exported.lack(f"when thread {thread.number} went on in another image (exec)")
        if thread.lost:
            self.exported.lack(f"where the recorder lost packets of thread {thread.number}")
        if thread.end < thread.size:
            self.exported.lack(f"bytes after the orderly end of thread {thread.number}'s trace")

    def _name(self, stem: str, suffix: str) -> str:
        """A file name that is not taken yet."""
        name, number = stem + suffix, 1
        while name in self.taken:
            name, number = f"{stem}.{number}{suffix}", number + 1
        self.taken.add(name)
        (self.output / name).parent.mkdir(parents=True, exist_ok=True)
        return name

    def _copy(self, source: Path, ranges: list[tuple[int, int]], name: str) -> None:
        """Copy byte ranges of a file of the run."""
        try:
            descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise BadInput(f"cannot be read ({error.strerror})", where=str(source),
                           remedy="make the run bundle readable") from error
        with os.fdopen(descriptor, "rb") as file, (self.output / name).open("xb") as sink:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise BadInput("is not a file", where=str(source), remedy="record the run again")
            for begin, end in ranges:
                file.seek(begin)
                while begin < end and (chunk := file.read(min(CHUNK, end - begin))):
                    sink.write(chunk)
                    begin += len(chunk)

    # --- modules ---

    def _modules(self, number: int) -> Iterator[dict[str, Any]]:
        space = self.code.space(number)
        done: set[tuple[int, int]] = set()
        for mapping in self._layout(number):
            image = mapping.image
            path = image.path or f"/anonymous-{mapping.start:x}"
            if image.file is None:
                self.exported.lack(f"the code of {path}: the run does not have it")
                yield {"systemPath": path, "loadAddress": hex(mapping.start)}
                continue
            slide = _slide(image, mapping)
            if slide is None:
                yield {"systemPath": path, "file": self._wrap(mapping, path), "loadAddress": hex(mapping.start)}
            elif (image.number, slide) not in done:
                done.add((image.number, slide))
                assert image.elf is not None
                lowest = min(segment.address for segment in image.elf.segments
                             if segment.type == PT_LOAD and segment.size)
                module = {"systemPath": path, "file": self._module(image, path),
                          "loadAddress": hex((lowest + slide) % (1 << 64))}
                if image.build_id:
                    module["uuid"] = _uuid(image.build_id)
                yield module
        if any(change.image is None for change in space.changes):
            self.exported.lack("when code was unmapped: LLDB takes modules to be there all the time")

    def _layout(self, number: int) -> list[Mapping]:
        """All mappings there ever were, images in order; where two are in each other's way the first one counts."""
        chosen: list[Mapping] = []
        for mapping, _until in self.code.space(number).history():
            in_the_way = [other for other in chosen if other.start < mapping.end and mapping.start < other.end]
            if not in_the_way:
                chosen.append(mapping)
            elif any((other.image.number, other.start - other.offset) != (mapping.image.number,
                                                                          mapping.start - mapping.offset)
                     for other in in_the_way):
                self.exported.lack(f"what was at {mapping.start:#x} after other code had been there ({mapping.image})")
        return sorted(chosen, key=lambda mapping: (mapping.image.number, mapping.start))

    def _module(self, image: Image, path: str) -> str:
        if image.number not in self.copied:
            assert image.file is not None and image.size is not None
            name = self.copied[image.number] = self._name("modules/" + _safe(path), "")
            self._copy(image.file, [(0, image.size)], name)
        return self.copied[image.number]

    def _wrap(self, mapping: Mapping, path: str) -> str:
        """Code that is no ELF file, or lies otherwise than one: in an ELF file of its own."""
        image = mapping.image
        assert image.file is not None and image.size is not None
        size = max(0, min(mapping.end - mapping.start, image.size - mapping.offset))
        name = self._name(f"modules/{_safe(path)}.{mapping.start:x}", "")
        code = self._name(name, ".code")
        self._copy(image.file, [(mapping.offset, mapping.offset + size)], code)
        with (self.output / name).open("xb") as sink:
            sink.write(_elf_header(mapping.start, size))
            with (self.output / code).open("rb") as source:
                shutil.copyfileobj(source, sink, CHUNK)
        (self.output / code).unlink()
        return name

    # --- processors ---

    def _cpu(self, number: int, conversion: Conversion | None) -> dict[str, Any]:
        if conversion is None:
            raise BadInput("has traces of processors and no times: LLDB could not tell whose they are",
                           where=str(self.bundle.path), remedy="import the recording again, with its clock")
        packets, switches = (self._name(f"cpus/{number}", suffix)
                             for suffix in (".intelpt_trace", ".perf_context_switch_trace"))
        path = self.bundle.trace / f"cpu-{number}.pt"
        self._copy(path, [(0, path.lstat().st_size)], packets)
        running: tuple[int, int] | None = None
        rows = (row for row in self._rows(SidebandKind.SWITCH) if row["cpu"] == number)
        with (self.output / switches).open("xb") as sink:
            for index, row in enumerate(rows):
                if row["value"] == SwitchWhen.DONE and running is not None and row["tid"] == running[1]:
                    continue  # the row before it has told of it
                given = index == 0 and row["tsc"] == 0  # what came before the first record: that one tells it
                now = None if row["thread"] is None else (row["pid"] or 1, row["tid"] or 0)
                ns = _perf_time(conversion, row["tsc"])
                if running is not None:
                    sink.write(_record(running, ns, _SWITCH_OUT))
                if now is not None and not given:
                    sink.write(_record(now, ns, 0))
                running = now
        return {"id": number, "iptTrace": packets, "contextSwitchTrace": switches}


# --- helpers ------------------------------------------------------------------------------------------------------


def conversion_of(clocks: Clocks) -> Conversion | None:
    """perf's conversion for a run's clocks: exact where it came from one, else as near as 32 bits get; None: no
    time. Turned round it must not leave 64 bits: a rest below `mult` is shifted by `shift`."""
    ticks, ns = clocks.tsc1 - clocks.tsc0, clocks.t1_ns - clocks.t0_ns
    if ticks <= 0 or ns <= 0:
        return None
    if clocks.tsc0 == 0 and ticks & ticks - 1 == 0 and ns < 1 << 32:
        return Conversion(ns, ticks.bit_length() - 1, clocks.t0_ns)
    shift = 0
    while shift < 63 and (ns << shift + 1) // ticks < 1 << min(32, 63 - shift):
        shift += 1
    mult = (ns << shift) // ticks
    return Conversion(mult, shift, clocks.t0_ns - (clocks.tsc0 * mult >> shift)) if mult else None


def _plain(clocks: Clocks) -> Clocks:
    return Clocks(clocks.tsc0, clocks.t0_ns, clocks.tsc1, clocks.t1_ns)


def _perf_time(conversion: Conversion, tsc: int) -> int:
    """perf's time at which the TSC was `tsc`, so that `Conversion.to_tsc` leads back where that is possible."""
    ns = conversion.clocks().to_ns(tsc)
    return (ns if conversion.to_tsc(ns) >= tsc else ns + 1) % (1 << 64)


def _record(task: tuple[int, int], ns: int, misc: int) -> bytes:
    return _SWITCH.pack(_SWITCH_CPU_WIDE, misc, _SWITCH.size, 0, 0, *task, ns)


def _slide(image: Image, mapping: Mapping) -> int | None:
    """What to add to the ELF file's addresses for it to lie where it is mapped; None: it is none, or part of one."""
    elf = image.elf
    if elf is None or any(segment.type == PT_LOAD and segment.offset + segment.size > len(elf.data)
                          for segment in elf.segments):  # part of one only
        return None
    for segment in elf.segments:  # the executable one first: pages at its edges belong to two
        if segment.type == PT_LOAD and segment.flags & PF_X and _holds(segment.offset, segment.size, mapping):
            return (mapping.start - mapping.offset + segment.offset - segment.address) % (1 << 64)
    for segment in elf.segments:
        if segment.type == PT_LOAD and _holds(segment.offset, segment.size, mapping):
            return (mapping.start - mapping.offset + segment.offset - segment.address) % (1 << 64)
    return None


def _holds(offset: int, size: int, mapping: Mapping) -> bool:
    """Whether the mapping's bytes are the segment's, but for the rest of pages at its edges."""
    page = 4096
    end = mapping.offset + mapping.end - mapping.start
    return offset // page * page <= mapping.offset and end <= -(-(offset + size) // page) * page and (
        mapping.offset < offset + size and end > offset)


def _safe(path: str) -> str:
    """A path as the name of a file below a folder."""
    parts = [part for part in path.split("/") if part not in ("", ".", "..")]
    words = ["".join(char if char.isprintable() else "_" for char in part) for part in parts]
    return "/".join(word.encode("utf-8", "replace")[:200].decode("utf-8", "replace") for word in words) or "module"


def _uuid(build_id: str) -> str:
    """As LLDB writes build ids: in groups, as UUIDs are, with what is left over at the end."""
    digits = build_id.upper()
    cuts = [0, 8, 12, 16, 20, 32, len(digits)]
    return "-".join(part for part in (digits[a:b] for a, b in pairwise(cuts)) if part)


def _elf_header(address: int, size: int) -> bytes:
    """Headers of an ELF file with one segment of code, which follows at the next page."""
    page = 4096
    head = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 2, MACHINE[True], 1, address, 64, 0, 0, 64, 56, 1,
                       0, 0, 0)
    head += struct.pack("<IIQQQQQQ", PT_LOAD, PF_X | 4, page, address, address, size, size, 1)
    return head.ljust(page, b"\0")
