# SPDX-License-Identifier: MIT
"""Functions of ELF files: symbol tables, PLT stubs, separate debug files. Tables are read whole, with numpy.

A file may be anything the target made: what is malformed gives no names, and is counted, never an error.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ptweave.decode.elf import SHT_DYNSYM, SHT_REL, SHT_RELA, SHT_SYMTAB, Addresses, BadElf, Elf, Section, text_at

DEBUG_ROOT = Path("/usr/lib/debug")

STT_NOTYPE, STT_FUNC, STT_GNU_IFUNC = 0, 2, 10
STB_GLOBAL, STB_WEAK = 1, 2

SYMBOL_64 = np.dtype([("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"),
                      ("size", "<u8")])
SYMBOL_32 = np.dtype([("name", "<u4"), ("value", "<u4"), ("size", "<u4"), ("info", "u1"), ("other", "u1"),
                      ("section", "<u2")])
RELOCATION = {  # (64-bit, with addend) → layout
    (True, True): np.dtype([("offset", "<u8"), ("info", "<u8"), ("addend", "<i8")]),
    (True, False): np.dtype([("offset", "<u8"), ("info", "<u8")]),
    (False, True): np.dtype([("offset", "<u4"), ("info", "<u4"), ("addend", "<i4")]),
    (False, False): np.dtype([("offset", "<u4"), ("info", "<u4")]),
}

PLT_SECTIONS = (".plt", ".plt.sec", ".plt.got")

Table = npt.NDArray[np.void]


@dataclass
class Functions:
    """Functions of one file, sorted by address, no two at the same one. `names[i]` is text or (table, offset)."""

    starts: Addresses
    ends: Addresses  # 0 size unknown: up to the next function
    names: list[str | tuple[bytes, int]]
    reach: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    def __post_init__(self) -> None:
        # a function that contains others reaches beyond them: the last one of the farthest end so far
        farthest = np.maximum.accumulate(self.ends) if len(self.ends) else self.ends
        changed = np.concatenate(([True], farthest[1:] > farthest[:-1])) if len(farthest) else np.zeros(0, np.bool_)
        self.reach = np.maximum.accumulate(np.where(changed, np.arange(len(self.ends)), 0))

    def find(self, addresses: Addresses) -> npt.NDArray[np.int64]:
        """Index of the function each address is in, −1 none."""
        if not len(self.starts):
            return np.full(len(addresses), -1, np.int64)
        nearest = np.searchsorted(self.starts, addresses, side="right") - 1
        at = np.maximum(nearest, 0)
        inside = (addresses < self.ends[at]) | (self.ends[at] == 0)
        around = self.reach[at]
        enclosed = addresses < self.ends[around]
        return np.where(nearest < 0, -1, np.where(inside, at, np.where(enclosed, around, -1))).astype(np.int64)

    def name(self, index: int) -> str:
        """The symbol's name as it is in the file (not demangled)."""
        entry = self.names[index]
        return entry if isinstance(entry, str) else text_at(*entry)


def functions_of(elf: Elf) -> Functions:
    """All functions an ELF file names. Raises BadElf when its tables are malformed."""
    starts: list[npt.NDArray[np.uint64]] = []
    sizes: list[npt.NDArray[np.uint64]] = []
    ranks: list[npt.NDArray[np.int64]] = []
    names: list[str | tuple[bytes, int]] = []
    for section in elf.sections:
        if section.type in (SHT_SYMTAB, SHT_DYNSYM):
            symbols, strings = _symbols(elf, section)
            chosen = symbols[_is_code(elf, symbols)]
            starts.append(chosen["value"].astype(np.uint64))
            sizes.append(chosen["size"].astype(np.uint64))
            ranks.append(_rank(chosen))
            names += [(strings, int(offset)) for offset in chosen["name"]]
    stubs = plt_stubs(elf)
    starts.append(np.array([start for start, _, _ in stubs], np.uint64))
    sizes.append(np.array([size for _, size, _ in stubs], np.uint64))
    ranks.append(np.full(len(stubs), 9, np.int64))
    names += [name for _, _, name in stubs]
    return _merge(np.concatenate(starts), np.concatenate(sizes), np.concatenate(ranks), names)


def _merge(starts: Addresses, sizes: Addresses, ranks: npt.NDArray[np.int64],
           names: list[str | tuple[bytes, int]]) -> Functions:
    """One name an address: the best rank, then the largest, then the first in the file."""
    order = np.lexsort((np.arange(len(starts)), ~sizes, ranks, starts))
    starts, sizes = starts[order], sizes[order]
    first = np.concatenate(([True], starts[1:] != starts[:-1])) if len(starts) else np.zeros(0, np.bool_)
    starts, sizes, kept = starts[first], sizes[first], order[first]
    limit = np.uint64((1 << 64) - 1)
    ends = np.where(sizes == 0, np.uint64(0), starts + np.minimum(sizes, limit - starts))
    return Functions(starts, ends, [names[index] for index in kept])


def _symbols(elf: Elf, section: Section) -> tuple[Table, bytes]:
    """A symbol table and its strings."""
    layout = SYMBOL_64 if elf.is_64 else SYMBOL_32
    raw = elf.bytes_of(section)
    symbols = np.frombuffer(raw, layout, count=len(raw) // layout.itemsize)
    if section.link >= len(elf.sections):
        raise BadElf("symbol table without strings")
    return symbols, bytes(elf.bytes_of(elf.sections[section.link]))


def _is_code(elf: Elf, symbols: Table) -> npt.NDArray[np.bool_]:
    kind = symbols["info"] & 15
    named = (symbols["section"] != 0) & (symbols["name"] != 0)
    code = (kind == STT_FUNC) | (kind == STT_GNU_IFUNC) | (kind == STT_NOTYPE)
    result: npt.NDArray[np.bool_] = named & code & elf.executable(symbols["value"].astype(np.uint64))
    return result


def _rank(symbols: Table) -> npt.NDArray[np.int64]:
    """How good a name is, 0 best: functions before labels, global before weak before local."""
    binding = symbols["info"] >> 4
    label = (symbols["info"] & 15) == STT_NOTYPE
    rank: npt.NDArray[np.int64] = np.where(binding == STB_GLOBAL, 0, np.where(binding == STB_WEAK, 1, 2)) + 3 * label
    return rank


# --- PLT ----------------------------------------------------------------------------------------------------------


def plt_stubs(elf: Elf) -> list[tuple[int, int, str]]:
    """(address, size, `name@plt`) of the stubs through which other files' functions are called."""
    slots = _slots(elf)
    stubs = []
    for name in PLT_SECTIONS:
        section = elf.section(name)
        if section is not None and slots:
            stubs += _stubs_in(elf, section, slots)
    return stubs


def _slots(elf: Elf) -> dict[int, str]:
    """GOT slot → name of the symbol the linker puts there; slots of .rela.plt in its order."""
    slots: dict[int, str] = {}
    for section in elf.sections:
        if section.type not in (SHT_RELA, SHT_REL) or section.name not in (
                ".rela.plt", ".rela.dyn", ".rel.plt", ".rel.dyn") or section.link >= len(elf.sections):
            continue
        table = elf.sections[section.link]
        if table.type not in (SHT_DYNSYM, SHT_SYMTAB):
            continue
        symbols, strings = _symbols(elf, table)
        layout = RELOCATION[elf.is_64, section.type == SHT_RELA]
        raw = elf.bytes_of(section)
        entries = np.frombuffer(raw, layout, count=len(raw) // layout.itemsize)
        which = entries["info"] >> (32 if elf.is_64 else 8)
        good = (which > 0) & (which < len(symbols))
        for slot, index in zip(entries["offset"][good].tolist(), which[good].tolist(), strict=True):
            name = text_at(strings, int(symbols["name"][index]))
            if name:
                slots.setdefault(slot, name)
    return slots


def _stubs_in(elf: Elf, section: Section, slots: dict[int, str]) -> list[tuple[int, int, str]]:
    """Stubs are recognised by their jump through a GOT slot (FF 25), or by the relocation number they push."""
    code = bytes(elf.bytes_of(section))
    stride = section.entry_size if section.entry_size in (8, 16) else 16
    order = _plt_order(elf, slots) if section.name == ".plt" else []
    stubs = []
    for start in range(0, len(code) - stride + 1, stride):
        entry = code[start:start + stride]
        name = _through_slot(elf, entry, section.address + start, slots) or _by_number(entry, order)
        if name:
            stubs.append((section.address + start, stride, f"{name}@plt"))
    return stubs


def _through_slot(elf: Elf, entry: bytes, address: int, slots: dict[int, str]) -> str | None:
    at = entry.find(b"\xff\x25")
    if at < 0 or at + 6 > len(entry):
        return None
    (displacement,) = struct.unpack_from("<i", entry, at + 2)
    return slots.get(address + at + 6 + displacement if elf.is_64 else displacement & 0xFFFFFFFF)


def _by_number(entry: bytes, order: list[str]) -> str | None:
    """Lazy stubs of IBT-enabled files: endbr64, push NUMBER, jmp."""
    if not entry.startswith(b"\xf3\x0f\x1e\xfa\x68"):
        return None
    (number,) = struct.unpack_from("<I", entry, 5)
    return order[number] if number < len(order) else None


def _plt_order(elf: Elf, slots: dict[int, str]) -> list[str]:
    section = elf.section(".rela.plt")
    if section is None:
        return []
    layout = RELOCATION[elf.is_64, True]
    raw = elf.bytes_of(section)
    entries = np.frombuffer(raw, layout, count=len(raw) // layout.itemsize)
    return [slots.get(slot, "") for slot in entries["offset"].tolist()]


# --- separate debug files -----------------------------------------------------------------------------------------


def debug_file(elf: Elf, path: str | None, root: Path = DEBUG_ROOT) -> Elf | None:
    """The separate debug file of `elf`, found by build id, or by debuglink beside its original path, below `root`.

    Only a file with the same build id is believed when `elf` has one.
    """
    candidates = []
    build_id = elf.build_id
    if build_id and len(build_id) > 2:
        candidates.append(root / ".build-id" / build_id[:2] / f"{build_id[2:]}.debug")
    link = elf.debug_link
    if link and path and path.startswith("/"):
        candidates.append(root / path.lstrip("/").rpartition("/")[0] / link)
    for candidate in candidates:
        try:
            found = Elf.open(candidate)
        except BadElf:
            continue
        if not build_id or found.build_id == build_id:
            return found
    return None
