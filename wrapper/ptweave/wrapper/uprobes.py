# SPDX-License-Identifier: MIT
"""Places in programs where a uprobe tells values: what is told, packed for the BPF program, and `--uprobe`.

    --uprobe BINARY:SYMBOL[%jump][+OFFSET][%return] [NAME=PLACE[:TYPE] …]

A place is argN (the N-th integer argument, 0 to 5, at a function's begin), ret (its result, with %return), a register
(%di), or memory (+8(%si)); a type is u8 to u64, s8 to s64 (u64 when none is given), or string. A SYMBOL may be a file
offset in hexadecimal (0x1234). %jump: not that function, but the one that it ends in a jump to.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from ptweave.data.errors import BadInput
from ptweave.wrapper.elf_places import Places
from ptweave.wrapper.filters import Kind

MOST = 128  # PTW_PROBES
VALUES = 8  # PTW_VALUES
_VALUE = struct.Struct("<BBHIq")  # struct ptw_value
_SPEC = struct.Struct("<II")  # the head of struct ptw_probe_spec


class Source(IntEnum):
    """Where a value is: `enum ptw_source`."""

    REGISTER = 0
    MEMORY = 1
    STRING = 2
    CONSTANT = 3


_PT_REGS = ("r15", "r14", "r13", "r12", "bp", "bx", "r11", "r10", "r9", "r8", "ax", "cx", "dx", "si", "di", "orig_ax",
            "ip", "cs", "flags", "sp")
PLACES = {name: 8 * at for at, name in enumerate(_PT_REGS)}
"""Registers' places in struct pt_regs (arch/x86/include/asm/ptrace.h)."""
ARGUMENTS = ("di", "si", "dx", "cx", "r8", "r9")
"""Registers of integer arguments (System V ABI)."""


@dataclass(frozen=True)
class Value:
    """A value a probe tells; `register` is a name of PLACES."""

    name: str
    source: Source
    register: str = "ax"
    offset: int = 0
    size: int = 8
    signed: bool = False


@dataclass(frozen=True)
class Probe:
    """A place in a file, and what is told when it is reached. `name` says what that means to who reads its records."""

    kind: Kind
    name: str
    path: str
    offset: int
    values: tuple[Value, ...] = ()
    at_return: bool = False
    semaphore: int = 0


def pack(probes: Sequence[Probe]) -> bytes:
    """MOST of `struct ptw_probe_spec`. Raises BadInput for more probes."""
    if len(probes) > MOST:
        raise BadInput(f"{len(probes)} probes are more than {MOST}", remedy="give fewer with --uprobe, or fewer kinds")
    packed = bytearray(MOST * (_SPEC.size + VALUES * _VALUE.size))
    for number, probe in enumerate(probes):
        at = number * (_SPEC.size + VALUES * _VALUE.size)
        _SPEC.pack_into(packed, at, probe.kind, len(probe.values))
        for i, value in enumerate(probe.values):
            _VALUE.pack_into(packed, at + _SPEC.size + i * _VALUE.size, value.source, value.size,
                             PLACES[value.register], 0, value.offset)
    return bytes(packed)


# --- written down ----------------------------------------------------------------------------------------------------

_POINT = re.compile(r"(?P<path>.+):(?P<symbol>[^:+%]+)(?P<jump>%jump)?(?:\+(?P<offset>0x[0-9a-fA-F]+|\d+))?"
                    r"(?P<at_return>%return)?")
_PLACE = re.compile(r"(?:arg(?P<argument>[0-5])|(?P<ret>ret)|%(?P<register>\w+)|"
                    r"(?P<offset>[+-]?(?:0x[0-9a-fA-F]+|\d+))\(%(?P<base>\w+)\))")
_TYPE = re.compile(r"(?P<sign>[us])(?P<bits>8|16|32|64)")


def parse(text: str) -> Probe:
    """A probe as `--uprobe` has it. Raises BadInput for what is none, and for a file or symbol that is not there."""
    words = text.split()
    where = f"--uprobe {text}"
    point = _POINT.fullmatch(words[0]) if words else None
    if point is None:
        raise BadInput("is no probe", where=where,
                       remedy="write BINARY:SYMBOL[%jump][+OFFSET][%return] NAME=PLACE[:TYPE] …")
    if len(words) - 1 > VALUES:
        raise BadInput(f"tells more than {VALUES} values", where=where, remedy="give two probes")
    at_return = point["at_return"] is not None
    values = tuple(_value(word, where, at_return=at_return) for word in words[1:])
    if sum(one.source is Source.STRING for one in values) > 1:
        raise BadInput("tells more than one string", where=where, remedy="give two probes")
    path = str(Path(point["path"]).resolve())
    places = Places.of(path)
    begin = (places.after_jump if point["jump"] else places.offset_of)(point["symbol"], where)
    return Probe(Kind.UPROBE, words[0], path, places.probed(begin, int(point["offset"] or "0", 0), where), values,
                 at_return)


def _value(word: str, where: str, *, at_return: bool) -> Value:
    name, equals, rest = word.partition("=")
    place_text, _, type_text = rest.partition(":")
    place = _PLACE.fullmatch(place_text)
    kind = _TYPE.fullmatch(type_text or "u64")
    if not name.isidentifier() or not equals or place is None or (kind is None and type_text != "string"):
        raise BadInput(f"{word!r} says no value", where=where, remedy="write NAME=PLACE[:TYPE], such as size=arg1:u32, "
                       "path=arg0:string, x=+8(%di):s16, fd=ret:s32")
    if place["ret"] and not at_return:
        raise BadInput("has no result when it begins", where=where, remedy="write %return behind the symbol")
    register = (ARGUMENTS[int(place["argument"])] if place["argument"] else "ax" if place["ret"] else
                place["register"] or place["base"])
    register = register.removeprefix("r") if register[1:] in PLACES and register not in PLACES else register
    if register not in PLACES:
        raise BadInput(f"%{register} is no register", where=where, remedy=f"choose from {', '.join(PLACES)}")
    if type_text == "string":
        if place["offset"]:
            raise BadInput("takes a string's address from a register only", where=where, remedy="leave the offset out")
        return Value(name, Source.STRING, register)
    assert kind is not None
    source = Source.MEMORY if place["offset"] else Source.REGISTER
    return Value(name, source, register, int(place["offset"] or "0", 0), int(kind["bits"]) // 8, kind["sign"] == "s")


__all__ = ["ARGUMENTS", "MOST", "PLACES", "Probe", "Source", "Value", "pack", "parse"]
