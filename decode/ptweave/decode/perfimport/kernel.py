# SPDX-License-Identifier: MIT
"""Where the kernel's code was, and where to get it: a copy of kcore, or vmlinux moved to where the kernel ran."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ptweave.data.errors import BadInput
from ptweave.data.perf.records import Mmap
from ptweave.data.sideband import SWITCH_TO
from ptweave.decode.elf import PF_X, PT_LOAD, SHT_SYMTAB, BadElf, Elf
from ptweave.decode.importing import Images, open_given
from ptweave.decode.perfimport.files import Mismatch, plain_id, same_build_id

SPLIT = 1 << 63
"""Addresses from here on are the kernel's."""

KALLSYMS = "[kernel.kallsyms]"
NAMES = (KALLSYMS, "[kernel.vmlinux]")
"""What perf calls the kernel, where it names no file; the name of a symbol may follow."""

SYMBOL = np.dtype([("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"),
                   ("size", "<u8")])
"""`Elf64_Sym`."""

STB_GLOBAL = 1

KALLSYMS_MAX = 64 << 20
"""Bytes of a kernel's list of symbols: real ones have some 10 MB."""


@dataclass(frozen=True)
class KernelMap:
    """Kernel code at an address; `image` is None when there is no code to be had."""

    start: int
    size: int
    offset: int
    path: str
    image: str | None


def kernel_id(records: list[Mmap], ids: Mapping[str, str]) -> str | None:
    """The kernel's build id, as its maps or the header's list of files (path → id) have it."""
    told = [record.build_id for record in records if record.path.startswith(NAMES)]
    told += [build_id for path, build_id in ids.items() if path.startswith(NAMES)]
    return next((build_id for build_id in told if plain_id(build_id)), None)


def other_kernel(vmlinux: Path, wanted: str | None) -> Mismatch | None:
    """What says that it is not the kernel that ran, if it is known to be another. Raises BadInput for no ELF file."""
    found = _open(vmlinux).build_id
    if wanted is None or (found is not None and same_build_id(found, wanted)):
        return None
    return Mismatch(str(vmlinux), wanted, found or "none")


def kernel_maps(records: list[Mmap], images: Images, *, kcore: Path | None, vmlinux: Path | None) -> list[KernelMap]:
    """The kernel's maps. Raises BadInput when a file the user named cannot be used."""
    recorded = [KernelMap(record.start, min(record.size, (1 << 64) - 2 - record.start), 0, record.path, None)
                for record in records if SPLIT <= record.start < (1 << 64) - 2 and record.size]
    if kcore is not None:
        return recorded + _segments(kcore, images, 0)
    if vmlinux is not None:
        return recorded + _segments(vmlinux, images, _slide(vmlinux, records))
    return recorded


def _open(path: Path) -> Elf:
    try:
        return Elf.open(path)
    except BadElf as error:
        raise BadInput(f"is no ELF file with kernel code ({error})", where=str(path),
                       remedy="give a copy of /proc/kcore, or a vmlinux") from error


def _segments(path: Path, images: Images, slide: int) -> list[KernelMap]:
    elf = _open(path)
    name = images.keep(open_given(path), str(path)).name
    found = []
    for segment in elf.segments:
        start = segment.address + slide & (1 << 64) - 1
        size = min(segment.size, (1 << 64) - 2 - start)
        if segment.type == PT_LOAD and segment.flags & PF_X and start >= SPLIT and size > 0:
            found.append(KernelMap(start, size, segment.offset, str(path), name))
    return found


def _slide(path: Path, records: list[Mmap]) -> int:
    """How far the kernel was moved: the map of its text is named after a symbol, and says where that was."""
    for record in records:
        if record.path.startswith(KALLSYMS) and len(record.path) > len(KALLSYMS) and record.offset:
            value = _symbol(_open(path), record.path[len(KALLSYMS):])
            if value is not None:
                return record.offset - value
    return 0


@dataclass(frozen=True)
class _Symbol:
    """A symbol that is defined in a file; `known`: to all of its object files."""

    address: int
    known: bool


def _symbol(elf: Elf, name: str) -> int | None:
    return next((symbol.address for symbol in _symbols(elf, name)), None)


def _symbols(elf: Elf, name: str) -> list[_Symbol]:
    """All symbols of that name, by address."""
    found = []
    for section in elf.sections:
        if section.type != SHT_SYMTAB or not elf.is_64 or not 0 < section.link < len(elf.sections):
            continue
        try:
            table, strings = elf.bytes_of(section), bytes(elf.bytes_of(elf.sections[section.link]))
        except BadElf:
            continue
        rows = np.frombuffer(table, SYMBOL, len(table) // SYMBOL.itemsize)
        named = rows[np.isin(rows["name"], _places(strings, name)) & (rows["section"] != 0)]
        found += [_Symbol(int(row["value"]), row["info"] >> 4 == STB_GLOBAL) for row in named]
    return sorted(found, key=lambda symbol: symbol.address)


def _places(strings: bytes, name: str) -> list[int]:
    """Where in a table of strings that name is; it may be the end of a longer one."""
    wanted = name.encode("utf-8", "surrogateescape") + b"\0"
    return [match.start() for match in re.finditer(re.escape(wanted), strings)]


# --- where the kernel goes from one thread to the next ---


def kernel_entries(maps: list[KernelMap], records: list[Mmap], *, kcore: Path | None, vmlinux: Path | None,
                   teller: str) -> dict[str, int]:
    """Addresses of `__switch_to` and, if it is there, of `teller`; empty where the kernel's symbols are not known, or
    its code is not to be had. They are vmlinux's own, or those of a file `kallsyms` beside kcore."""
    if kcore is not None:
        found = _of_kallsyms(kcore.with_name("kallsyms"), teller)
    elif vmlinux is not None:
        found = _of_vmlinux(vmlinux, _slide(vmlinux, records), teller)
    else:
        return {}
    known = {name: address for name, address in found.items()
             if any(one.image is not None and one.start <= address < one.start + one.size for one in maps)}
    return known if SWITCH_TO in known else {}


def _of_vmlinux(path: Path, slide: int, teller: str) -> dict[str, int]:
    elf = _open(path)
    found = {SWITCH_TO: [symbol for symbol in _symbols(elf, SWITCH_TO) if symbol.known],
             teller: _symbols(elf, teller)}
    return {name: symbols[0].address + slide & (1 << 64) - 1 for name, symbols in found.items() if symbols}


def _of_kallsyms(path: Path, teller: str) -> dict[str, int]:
    try:
        with os.fdopen(open_given(path), "rb") as file:
            text = file.read(KALLSYMS_MAX)
    except BadInput:
        return {}
    line = re.compile(rb"^([0-9a-f]{8,16}) (\w) (%s|%s)$" % (SWITCH_TO.encode(), teller.encode()), re.MULTILINE)
    found: dict[str, int] = {}
    for address, kind, name in line.findall(text):
        if name.decode() != SWITCH_TO or kind in b"TDRBA":  # small letters: of one object file's own
            found.setdefault(name.decode(), int(address, 16))
    return found
