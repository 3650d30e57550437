# SPDX-License-Identifier: MIT
"""Where the kernel's code was, and where to get it: a copy of kcore, or vmlinux moved to where the kernel ran."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ptweave.data.errors import BadInput
from ptweave.data.perf.records import Mmap
from ptweave.decode.elf import PF_X, PT_LOAD, SHT_SYMTAB, BadElf, Elf, text_at
from ptweave.decode.importing import Images, open_given
from ptweave.decode.perfimport.files import Mismatch, plain_id, same_build_id

SPLIT = 1 << 63
"""Addresses from here on are the kernel's."""

KALLSYMS = "[kernel.kallsyms]"
NAMES = (KALLSYMS, "[kernel.vmlinux]")
"""What perf calls the kernel, where it names no file; the name of a symbol may follow."""

SYMBOL = 24


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


def _symbol(elf: Elf, name: str) -> int | None:
    wanted = name.encode("utf-8", "surrogateescape")
    for section in elf.sections:
        if section.type != SHT_SYMTAB or not elf.is_64 or not 0 < section.link < len(elf.sections):
            continue
        try:
            table, strings = elf.bytes_of(section), bytes(elf.bytes_of(elf.sections[section.link]))
        except BadElf:
            continue
        at = strings.find(b"\0" + wanted + b"\0") + 1
        if not at:
            continue
        for position in range(0, len(table) - SYMBOL + 1, SYMBOL):
            if int.from_bytes(table[position:position + 4], "little") == at:
                return int.from_bytes(table[position + 8:position + 16], "little")
        names = range(0, len(table) - SYMBOL + 1, SYMBOL)
        for position in names:  # a name may be the end of a longer one
            if text_at(strings, int.from_bytes(table[position:position + 4], "little"), 256) == name:
                return int.from_bytes(table[position + 8:position + 16], "little")
    return None
