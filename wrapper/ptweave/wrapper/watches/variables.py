# SPDX-License-Identifier: MIT
"""Variables of an ELF file: where they are by its symbols, what is in them by its DWARF (both read by pyelftools).

Files are hostile: what makes no sense in one is not there.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elftools.common.exceptions import DWARFError, ELFError
from elftools.dwarf.die import DIE
from elftools.elf.elffile import ELFFile

from ptweave.data import BadInput
from ptweave.wrapper.elf_headers import loads
from ptweave.wrapper.elf_symbols import Kind, Table, read_tables

IDENTITY = 1024
"""Bytes of a file's beginning by which it is known in memory."""
_DEPTH = 64
_KINDS = (Kind.OBJECT, Kind.THREAD_LOCAL, Kind.COMMON)
_ANONYMOUS = b"_GLOBAL__N_1"
_TYPES_THROUGH = {"DW_TAG_typedef", "DW_TAG_const_type", "DW_TAG_volatile_type", "DW_TAG_atomic_type",
                  "DW_TAG_restrict_type"}
_RECORDS = {"DW_TAG_structure_type", "DW_TAG_class_type", "DW_TAG_union_type"}
_BROKEN = (ELFError, DWARFError, ValueError, KeyError, IndexError, AttributeError, struct.error, UnicodeDecodeError,
           RecursionError, AssertionError)


@dataclass(frozen=True)
class Symbol:
    """A variable: `address` as the file is linked, bytes; `thread`: each thread has its own."""

    address: int
    size: int
    thread: bool


@dataclass(frozen=True)
class Piece:
    """What a path leads to: offset from the variable's beginning, bytes (None: not known), its type in words."""

    offset: int
    size: int | None
    type: str


class Variables:
    """The variables of one file. Raises BadInput when it is no ELF file for x86-64."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self._data = ELFFile(file)
                if self._data["e_machine"] != "EM_X86_64" or self._data.elfclass != 64:
                    raise ELFError("another machine")
                loaded = list(loads(self._data))
                self.low = min(int(one["p_vaddr"]) for one in loaded) & -4096
                self.high = max(int(one["p_vaddr"]) + int(one["p_memsz"]) for one in loaded)
                self.relocated = self._data["e_type"] == "ET_DYN"
                file.seek(0)
                self.identity = file.read(IDENTITY)
                self._tables = read_tables(self._data, file)
        except OSError as error:
            raise BadInput(f"cannot be read ({error.strerror})", where=str(path), remedy="check the path") from error
        except _BROKEN as error:
            raise BadInput("is no ELF file for x86-64", where=str(path),
                           remedy="name a program or a library") from error

    def find(self, name: str) -> list[Symbol]:
        """All variables of that name."""
        spellings = _spellings(name)
        found = dict.fromkeys(one for table in self._tables for one in _called(table, spellings))  # both may have it
        return list(found)

    def type_at(self, address: int, path: tuple[str | int, ...], where: str) -> Piece | None:
        """What `path` leads to in the variable at `address`; None when the file's debug information does not have it.
        Raises BadInput for members that are not there and the like."""
        try:
            with self.path.open("rb") as file:
                elf = ELFFile(file)
                if not elf.has_dwarf_info():
                    return None
                die = _variable_at(elf.get_dwarf_info(), address)
                return None if die is None else _walk(_type_of(die), path, where)
        except _BROKEN as error:
            raise BadInput(f"has debug information that cannot be read ({error})", where=str(self.path),
                           remedy="give the place as FILE+ADDRESS:LENGTH (nm shows it)") from error

    def holds(self, address: int, length: int) -> bool:
        """Whether the file takes these bytes in memory."""
        return self.low <= address and address + length <= self.high


def _called(table: Table, spellings: re.Pattern[bytes]) -> Iterator[Symbol]:
    places = {match.start() for match in spellings.finditer(table.names)}
    for _, symbol in table.called(places):
        if symbol.kind in _KINDS and symbol.defined:
            yield Symbol(symbol.address, symbol.size, symbol.kind == Kind.THREAD_LOCAL)


def _spellings(name: str) -> re.Pattern[bytes]:
    """How a symbol of this variable may be spelt, up to its end: as it is, or as a C++ compiler spells `ns::name`
    (nested names; L: known in its file alone). With or without the version of a library that it is of."""
    plain = name.encode(errors="surrogateescape")
    words = [_ANONYMOUS if word == b"(anonymous namespace)" else word for word in plain.split(b"::")]
    nested = b"".join(b"L?%d%s" % (len(word), re.escape(word)) for word in words)
    return re.compile(b"(?:%s|_ZN%sE)(?=[\\0@])" % (re.escape(plain), nested))


# --- debug information ------------------------------------------------------------------------------------------------

def _variable_at(dwarf: Any, address: int) -> DIE | None:
    wanted = [0x03, *struct.pack("<Q", address)]  # DW_OP_addr
    for unit in dwarf.iter_CUs():
        for die in _variables(unit.get_top_DIE(), 0):
            location = die.attributes.get("DW_AT_location")
            if location is not None and list(location.value) == wanted:
                return die
    return None


def _variables(parent: DIE, depth: int) -> Iterator[DIE]:
    """Of a unit, its namespaces, and static ones of its functions and their blocks."""
    for die in parent.iter_children():
        if die.tag == "DW_TAG_variable" and isinstance(_location(die), list):
            yield die
        elif depth < _DEPTH and die.has_children and die.tag in ("DW_TAG_namespace", "DW_TAG_subprogram",
                                                                "DW_TAG_lexical_block"):
            yield from _variables(die, depth + 1)


def _location(die: DIE) -> object:
    found = die.attributes.get("DW_AT_location")
    return None if found is None else found.value


def _type_of(die: DIE) -> DIE | None:
    """Its type, or that of what it completes."""
    for _ in range(_DEPTH):
        if "DW_AT_type" in die.attributes:
            return die.get_DIE_from_attribute("DW_AT_type")
        for link in ("DW_AT_specification", "DW_AT_abstract_origin"):
            if link in die.attributes:
                die = die.get_DIE_from_attribute(link)
                break
        else:
            return None
    return None


def _bare(die: DIE | None) -> DIE | None:
    """Without typedefs and qualifiers."""
    for _ in range(_DEPTH):
        if die is None or die.tag not in _TYPES_THROUGH:
            return die
        die = _type_of(die)
    return None


def _number(die: DIE, name: str) -> int | None:
    found = die.attributes.get(name)
    return int(found.value) if found is not None and isinstance(found.value, int) else None


def _name(die: DIE | None) -> str:
    found = None if die is None else die.attributes.get("DW_AT_name")
    if found is not None:
        return str(found.value.decode(errors="replace"))
    if die is not None and die.tag == "DW_TAG_pointer_type":
        return f"{_name(_type_of(die)) or 'void'} *"
    if die is not None and die.tag == "DW_TAG_array_type":
        return _name(_type_of(die)) + "".join(f"[{count}]" for count in _counts(die))
    return _name(_type_of(die)) if die is not None and die.tag in _TYPES_THROUGH else ""


def _counts(array: DIE) -> list[int]:
    """Elements in each dimension; 0 for one that is not known."""
    found = []
    for one in array.iter_children():
        if one.tag == "DW_TAG_subrange_type":
            last = _number(one, "DW_AT_upper_bound")
            count = _number(one, "DW_AT_count")
            found.append(count if count is not None else 0 if last is None else last + 1)
    return found


def _size(die: DIE | None) -> int | None:
    die = _bare(die)
    if die is None:
        return None
    size = _number(die, "DW_AT_byte_size")
    if size is None and die.tag in ("DW_TAG_pointer_type", "DW_TAG_reference_type", "DW_TAG_rvalue_reference_type"):
        return 8
    if size is None and die.tag == "DW_TAG_array_type":
        size = _size(_type_of(die))
        for count in _counts(die):
            size = None if size is None or not count else size * count
    return size


def _member(record: DIE, name: str, where: str, depth: int = 0) -> tuple[int, DIE | None] | None:
    """Offset and type of a member, also of unnamed members and base classes."""
    for one in record.iter_children():
        if one.tag not in ("DW_TAG_member", "DW_TAG_inheritance"):
            continue
        offset = _number(one, "DW_AT_data_member_location") or 0
        named = one.attributes.get("DW_AT_name")
        if named is not None and named.value.decode(errors="replace") == name:
            if "DW_AT_bit_size" in one.attributes:
                raise BadInput(f"{name} is a bit-field, which has no bytes of its own", where=where,
                               remedy="watch what it is in")
            return offset, _type_of(one)
        inside = _bare(_type_of(one))
        if named is None and inside is not None and inside.tag in _RECORDS and depth < _DEPTH:
            found = _member(inside, name, where, depth + 1)
            if found is not None:
                return offset + found[0], found[1]
    return None


def _walk(die: DIE | None, path: tuple[str | int, ...], where: str) -> Piece:
    offset, passed = 0, 0  # dimensions of an array that indices were given for
    for step in path:
        bare = _bare(die)
        if isinstance(step, int):
            if bare is None or bare.tag != "DW_TAG_array_type":
                raise BadInput(f"{_name(die) or 'it'} is no array", where=where, remedy="leave the index out")
            counts, size = _counts(bare), _size(_type_of(bare))
            if not passed < len(counts) or size is None or (counts[passed] and step >= counts[passed]):
                raise BadInput(f"[{step}] is not in {_name(bare)}", where=where, remedy="indices begin with 0")
            for count in counts[passed + 1:]:
                size *= count
            offset, passed = offset + step * size, passed + 1
            if passed == len(counts):
                die, passed = _type_of(bare), 0
            continue
        found = _member(bare, step, where) if bare is not None and bare.tag in _RECORDS and not passed else None
        if found is None:
            what = f"{_name(die) or 'it'} has no member {step}" if bare is None or bare.tag != "DW_TAG_pointer_type" \
                else "it is a pointer: what it points to may change"
            raise BadInput(what, where=where, remedy="check its declaration; a place can be given as ADDRESS:LENGTH")
        offset, die = offset + found[0], found[1]
    size = _size(die)
    if passed and size is not None:
        for count in _counts(_bare(die))[:passed]:  # type: ignore[arg-type]
            size //= max(count, 1)
    return Piece(offset, size, _name(die))
