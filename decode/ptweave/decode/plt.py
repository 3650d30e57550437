# SPDX-License-Identifier: MIT
"""PLT stubs: the pieces of code through which other files' functions are called, named `name@plt`.

A stub is recognised by its jump through a GOT slot (FF 25), whose relocation names the function; lazy stubs of files
built for IBT by the number of the relocation they push (System V ABI, x86-64 supplement, 5.2 and 13.2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ptweave.decode.elf import SHT_DYNSYM, SHT_REL, SHT_RELA, SHT_SYMTAB, Addresses, Elf, Section
from ptweave.decode.functions import Candidates, Names, Numbers
from ptweave.decode.symbols import PLT_RANK, read_table

RELOCATION = {  # (64-bit, with addend) → layout
    (True, True): np.dtype([("offset", "<u8"), ("info", "<u8"), ("addend", "<i8")]),
    (True, False): np.dtype([("offset", "<u8"), ("info", "<u8")]),
    (False, True): np.dtype([("offset", "<u4"), ("info", "<u4"), ("addend", "<i4")]),
    (False, False): np.dtype([("offset", "<u4"), ("info", "<u4")]),
}
PLT_SECTIONS = (".plt", ".plt.sec", ".plt.got")
RELOCATION_SECTIONS = (".rela.plt", ".rel.plt", ".rela.dyn", ".rel.dyn")

PUSH_NUMBER = np.frombuffer(b"\xf3\x0f\x1e\xfa\x68", np.uint8)  # endbr64; push imm32

Code = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class _Slots:
    """GOT slots whose relocation has a symbol, in the relocations' order; `names` are offsets in `strings`.

    `numbers`: which relocation of the section it is.
    """

    addresses: Addresses
    names: Numbers
    numbers: Numbers
    strings: memoryview


def plt_stubs(elf: Elf) -> list[Candidates]:
    """The stubs of a file. Raises BadElf when one of the tables is malformed."""
    slots = [found for name in RELOCATION_SECTIONS if (found := _slots(elf, name)) is not None]
    stubs = []
    for name in PLT_SECTIONS:
        section = elf.section(name)
        if section is not None:
            stubs += _stubs(elf, section, slots)
    return stubs


def _slots(elf: Elf, name: str) -> _Slots | None:
    section = elf.section(name)
    if section is None or section.type not in (SHT_RELA, SHT_REL) or section.link >= len(elf.sections):
        return None
    table = elf.sections[section.link]
    if table.type not in (SHT_DYNSYM, SHT_SYMTAB):
        return None
    symbols, strings = read_table(elf, table)
    layout = RELOCATION[elf.is_64, section.type == SHT_RELA]
    raw = elf.bytes_of(section)
    entries = np.frombuffer(raw, layout, count=len(raw) // layout.itemsize)
    which = (entries["info"] >> (32 if elf.is_64 else 8)).astype(np.int64)
    numbers = np.flatnonzero((which > 0) & (which < len(symbols)))
    names = symbols["name"][which[numbers]].astype(np.int64)
    named = (names > 0) & (names < len(strings))
    return _Slots(entries["offset"][numbers][named].astype(np.uint64), names[named], numbers[named], strings)


def _stubs(elf: Elf, section: Section, slots: list[_Slots]) -> list[Candidates]:
    stride = section.entry_size if section.entry_size in (8, 16) else 16
    raw = elf.bytes_of(section)
    code = np.frombuffer(raw, np.uint8, count=len(raw) // stride * stride).reshape(-1, stride)
    starts = np.uint64(section.address & 0xFFFF_FFFF_FFFF_FFFF) + np.arange(len(code), dtype=np.uint64) * np.uint64(
        stride)
    used, has_jump = _jump_slots(elf, code, starts)
    pushed, has_number = _pushed_numbers(code) if section.name == ".plt" else (None, np.zeros(len(code), np.bool_))
    found = []
    for group in slots:
        rows = np.flatnonzero(has_jump)
        place, known = _lookup(group.addresses, used[rows])
        found.append(_candidates(starts[rows[known]], group, place[known], stride))
        has_jump[rows[known]] = False
        if pushed is not None and group is slots[0]:
            rows = np.flatnonzero(has_number)
            place, known = _lookup(group.numbers.astype(np.uint64), pushed[rows])
            found.append(_candidates(starts[rows[known]], group, place[known], stride))
    return found


def _candidates(starts: Addresses, slots: _Slots, place: Numbers, stride: int) -> Candidates:
    count = len(starts)
    return Candidates(starts, np.full(count, stride, np.uint64), starts, np.full(count, PLT_RANK, np.int64),
                      np.zeros(count, np.bool_), slots.names[place], Names(slots.strings, "@plt"))


def _lookup(keys: Addresses, wanted: Addresses) -> tuple[Numbers, npt.NDArray[np.bool_]]:
    """Where each wanted value is among the keys (the first of equal ones), and whether it is there."""
    if not len(keys):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.bool_)
    order = np.argsort(keys, kind="stable")
    at = np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)
    return order[at], keys[order][at] == wanted


def _jump_slots(elf: Elf, code: Code, starts: Addresses) -> tuple[Addresses, npt.NDArray[np.bool_]]:
    """The slot each stub jumps through, and whether it does."""
    slots, has = np.zeros(len(code), np.uint64), np.zeros(len(code), np.bool_)
    for at in range(code.shape[1] - 5):
        rows = np.flatnonzero(~has & (code[:, at] == 0xFF) & (code[:, at + 1] == 0x25))
        displacement = _word(code[rows], at + 2)
        if elf.is_64:
            slots[rows] = starts[rows] + np.uint64(at + 6) + displacement.astype(np.int64).astype(np.uint64)
        else:
            slots[rows] = displacement.view(np.uint32).astype(np.uint64)
        has[rows] = True
    return slots, has


def _pushed_numbers(code: Code) -> tuple[Addresses, npt.NDArray[np.bool_]]:
    if code.shape[1] < 9:
        return np.zeros(len(code), np.uint64), np.zeros(len(code), np.bool_)
    has = (code[:, :5] == PUSH_NUMBER).all(axis=1)
    return _word(code, 5).view(np.uint32).astype(np.uint64), has


def _word(code: Code, at: int) -> npt.NDArray[np.int32]:
    return np.ascontiguousarray(code[:, at:at + 4]).view("<i4").reshape(-1)
