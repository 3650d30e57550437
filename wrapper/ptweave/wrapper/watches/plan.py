# SPDX-License-Identifier: MIT
"""All watchpoints of a run. `make_plan` decides; `Plan.write` leaves a folder with `plan`, which libtthread reads
(preload/src/watch_format.h), and `watches.json`, which the decoder reads. `counts.json` comes when the run is over."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ptweave.data import BadInput
from ptweave.wrapper.probes.plan import linked_files
from ptweave.wrapper.watches.spec import Spec
from ptweave.wrapper.watches.variables import IDENTITY, Symbol, Variables

MAGIC, VERSION = 0x31304843_54415750, 1  # "PWATCH01"
HEAD, FILE, WATCH = struct.Struct("<QIIII"), struct.Struct(f"<QQII{IDENTITY}s"), struct.Struct("<QiIII")
FOLDER, PLAN_FILE, LIST_FILE, COUNTS_FILE = "watches", "plan", "watches.json", "counts.json"
VARIABLE = "PTWEAVE_WATCHES"
SLOTS, SLOT_BYTES = 4, 8
ANYWHERE = -1
SHOWN = 5


@dataclass(frozen=True)
class Watch:
    """A row of the table `watch_sites`. `address`: as the file is linked, or of the process when `path` is empty."""

    watch: int
    spec: str
    mode: str
    path: str
    address: int
    length: int
    type: str


@dataclass
class Plan:
    """`files`: of the watches that are in one; `late`: those of them that the program is not linked with, but may
    load."""

    watches: list[Watch] = field(default_factory=list)
    files: list[Variables] = field(default_factory=list)
    modes: list[int] = field(default_factory=list)
    late: set[Path] = field(default_factory=set)

    @property
    def slots(self) -> int:
        """Debug registers that it takes."""
        return sum(len(pieces(one.address, one.length)) for one in self.watches)

    def write(self, folder: Path) -> None:
        """Make the folder and everything in it."""
        folder.mkdir(mode=0o700)
        paths = [str(one.path) for one in self.files]
        out = HEAD.pack(MAGIC, VERSION, len(self.files), len(self.watches), 0)
        for one in self.files:
            out += FILE.pack(one.low, one.high, len(one.identity), one.path in self.late, one.identity)
        for watch, mode in zip(self.watches, self.modes, strict=True):
            out += WATCH.pack(watch.address, paths.index(watch.path) if watch.path else ANYWHERE, watch.length, mode, 0)
        (folder / PLAN_FILE).write_bytes(out)
        (folder / LIST_FILE).write_text(json.dumps([asdict(one) for one in self.watches]))


def pieces(address: int, length: int) -> list[tuple[int, int]]:
    """What each debug register takes: 8, 4, 2 or 1 bytes at a multiple of that (SDM volume 3, 18.2.4)."""
    found: list[tuple[int, int]] = []
    while length > 0 and len(found) <= SLOTS:
        size = SLOT_BYTES
        while size > length or address % size:
            size //= 2
        found.append((address, size))
        address, length = address + size, length - size
    return found


def make_plan(specs: Sequence[Spec], executable: Path, linked: Sequence[Path] | None = None) -> Plan:
    """Raises BadInput for what is found nowhere, is ambiguous, or is more than the processor can watch."""
    linked = linked_files(executable) if linked is None else linked
    plan = Plan()
    read: dict[Path, Variables] = {}
    for spec in specs:
        where = f"--watch '{spec.text}'"
        file, address, length, kind = _place(spec, linked, read, where)
        if len(pieces(address, length)) > SLOTS:
            raise BadInput(f"{length} bytes{_shown(address)} take more than the processor's {SLOTS} debug registers, "
                           "of 1, 2, 4 or 8 aligned bytes each", where=where, remedy="watch a part of it")
        if file is not None and file not in plan.files:
            plan.files.append(file)
            if file.path not in linked:
                plan.late.add(file.path)
        plan.watches.append(Watch(len(plan.watches), spec.text, spec.mode.letters, str(file.path) if file else "",
                                  address, length, kind))
        plan.modes.append(int(spec.mode))
        if plan.slots > SLOTS:
            raise BadInput(f"is one too many: all together take {plan.slots} debug registers, and the processor has "
                           f"{SLOTS}", where=where, remedy="watch less at a time")
    return plan


def _shown(address: int) -> str:
    return f" at {address:#x}" if address % SLOT_BYTES else ""


def _place(spec: Spec, linked: Sequence[Path], read: dict[Path, Variables],
           where: str) -> tuple[Variables | None, int, int, str]:
    """File, address, length and type."""
    if not spec.name:
        file = None if spec.file is None else _read(_file(spec.file, linked, where), read)
        if spec.length < 1 or (file is not None and not file.holds(spec.address, spec.length)):
            raise BadInput("has no such bytes in memory" if spec.length else "is no bytes at all", where=where,
                           remedy="check the address, as nm shows it, and the length")
        if file is None and spec.address + spec.length > 1 << 47:
            raise BadInput("is no address of a program", where=where, remedy="check the address")
        return file, spec.address, spec.length, ""
    file, symbol = _variable(spec, linked, read, where)
    if symbol.thread:
        raise BadInput("is thread-local: each thread has its own", where=where,
                       remedy="watch something that they share")
    piece = file.type_at(symbol.address, spec.path, where)
    if piece is None and spec.path:
        raise BadInput(f"the debug information of {file.path} does not have it", where=where,
                       remedy="compile with -g, or give the place as FILE+ADDRESS:LENGTH")
    size = symbol.size if piece is None or (piece.size is None and not spec.path) else piece.size
    if not size:
        raise BadInput(f"its size is not known in {file.path}", where=where, remedy="give it as FILE+ADDRESS:LENGTH")
    return file, symbol.address + (piece.offset if piece else 0), size, piece.type if piece else ""


def _variable(spec: Spec, linked: Sequence[Path], read: dict[Path, Variables],
              where: str) -> tuple[Variables, Symbol]:
    paths = list(linked) if spec.file is None else [_file(spec.file, linked, where)]
    found = [(file, symbol) for path in paths for file in [_read(path, read)] for symbol in file.find(spec.name)]
    if not found:
        raise BadInput(f"no such variable in {_some([path.name for path in paths])}", where=where,
                       remedy="check its spelling with nm; a library loaded later has to be named (PATH:VAR)")
    if len(found) > 1:
        places = _some([f"{file.path}+{symbol.address:#x}:{symbol.size}" for file, symbol in found])
        raise BadInput(f"is ambiguous: {places}", where=where, remedy="say which: FILE:VAR or FILE+ADDRESS:LENGTH")
    return found[0]


def _file(name: str, linked: Sequence[Path], where: str) -> Path:
    for path in linked:
        if name in (str(path), path.name, path.resolve().name) or path.name.startswith(name + ".so") \
                or ("/" in name and Path(name).exists() and Path(name).samefile(path)):
            return path
    if "/" in name and Path(name).is_file():
        return Path(name).resolve()
    raise BadInput(f"the program has no {name} from its start on", where=where,
                   remedy="name the executable or a library as ldd does, one that it loads later by its path")


def _read(path: Path, read: dict[Path, Variables]) -> Variables:
    if path not in read:
        read[path] = Variables(path)
    return read[path]


def _some(words: Sequence[str]) -> str:
    return ", ".join([*words[:SHOWN], *(["…"] if len(words) > SHOWN else [])])


def watches_environment(folder: Path | None) -> dict[str, str]:
    """What the target's environment must have."""
    return {} if folder is None else {VARIABLE: os.fspath((folder / PLAN_FILE).resolve())}
