# SPDX-License-Identifier: MIT
"""The shared object with the trampolines of one library's probes.

Its layout is in preload/src/probe_format.h; it is an ELF file so that what runs in it has a name. It is mapped as one
piece, within 2 GB of the library; `nominal` is where it would lie next to it, and what refers to the library (`fixups`)
is moved by the difference.

A trampoline:

    lea rsp, [rsp-128]       what a leaf function keeps below its stack pointer stays
    push HIT                 for each handler
    call [slot]              into libtthread, which keeps all registers and flags
    lea rsp, [rsp+136]
    (the moved instructions)
    jmp behind the patch

A call among the moved ones is made with the return address it had in its place, so that stacks and exceptions are as
ever.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from iced_x86 import BlockEncoder, Decoder, FlowControl, Instruction, Register
from iced_x86 import Code as Op

from ptweave.data import BadInput
from ptweave.wrapper.probes.code import Code
from ptweave.wrapper.probes.sites import Site, is_memory_call

MAGIC, VERSION = 0x3130424F5250_5450, 1  # "PTPROB01"
HEAD = struct.Struct("<QIIIIIIQQQQQQQ")
SITE = struct.Struct("<QIIB31x")
HEAD_AT, TEXT_ALIGN, PAGE = 0x400, 64, 4096
SLOTS = 2
BEFORE_MAX = 24
_PROLOGUE, _EPILOGUE = bytes.fromhex("488d642480"), bytes.fromhex("488da42488000000")

_BRANCHES = {FlowControl.UNCONDITIONAL_BRANCH, FlowControl.CONDITIONAL_BRANCH, FlowControl.CALL}


@dataclass(frozen=True)
class Call:
    """A handler called at a site. `quick`: by the way that keeps less, for handlers that need no registers."""

    hit: int
    quick: bool


@dataclass
class _Text:
    """Machine code under construction; `base` is its nominal address."""

    base: int
    code: bytearray
    fixups: list[int]

    @property
    def ip(self) -> int:
        return self.base + len(self.code)

    def raw(self, data: bytes) -> None:
        self.code += data

    def _away(self, target: int) -> bool:
        return not self.base <= target <= self.ip + 256

    def instruction(self, instruction: Instruction) -> None:
        """Encode as it must be here; fields that lead away from here become fixups."""
        encoder = BlockEncoder(64)
        encoder.add(instruction)
        begin = self.ip
        try:
            data = encoder.encode(begin)
        except ValueError as error:
            raise BadInput(f"{instruction:n} cannot be moved ({error})", where=f"{instruction.ip:#x}") from error
        decoder = Decoder(64, data, ip=begin)
        for one in decoder:
            offsets = decoder.get_constant_offsets(one)
            at = len(self.code) + one.ip - begin
            if one.is_ip_rel_memory_operand and self._away(one.ip_rel_memory_address):
                self.fixups.append(at + offsets.displacement_offset)
            elif offsets.immediate_size == 4 and one.flow_control in _BRANCHES and self._away(one.near_branch_target):
                self.fixups.append(at + offsets.immediate_offset)
        self.code += data


def nominal_base(code: Code) -> int:
    """Where a file of trampolines would lie if it were part of the library: behind it."""
    return (code.high + PAGE - 1 & -PAGE) + PAGE


class Builder:
    """Collects the sites of one file and makes the shared object."""

    def __init__(self, code: Code, sites: Sequence[tuple[Site, Sequence[Call]]]) -> None:
        self._code = code
        self._sites = sites
        self._identity = code.identity
        tables = HEAD_AT + HEAD.size + SITE.size * len(sites) + len(self._identity)
        self._slots_at = (tables + 7) & -8
        self._text_at = (self._slots_at + 8 * SLOTS + TEXT_ALIGN - 1) & -TEXT_ALIGN
        self._base = nominal_base(code)

    def build(self) -> bytes:
        """The file. Raises BadInput when an instruction cannot be moved."""
        text = _Text(self._base + self._text_at, bytearray(), [])
        starts: list[int] = []
        for site, calls in self._sites:
            text.raw(b"\xcc" * (-len(text.code) % 16))
            starts.append(self._text_at + len(text.code))
            self._trampoline(text, site, calls)
        return self._file(text, starts)

    def _trampoline(self, text: _Text, site: Site, calls: Sequence[Call]) -> None:
        text.raw(_PROLOGUE)
        for number, call in enumerate(calls):
            if number:
                text.raw(bytes.fromhex("488d642408"))  # lea rsp, [rsp+8]: the number before
            text.raw(b"\x68" + struct.pack("<i", call.hit))
            slot = self._base + self._slots_at + 8 * (0 if call.quick and site.entry else 1)
            text.raw(b"\xff\x15" + struct.pack("<i", slot - (text.ip + 6)))
        text.raw(_EPILOGUE)
        for instruction in site.moved[:-1]:
            text.instruction(instruction)
        self._last(text, site)

    def _last(self, text: _Text, site: Site) -> None:
        last = site.moved[-1]
        back = last.next_ip
        if last.flow_control in (FlowControl.CALL, FlowControl.INDIRECT_CALL):
            self._call(text, last)
            return
        text.instruction(last)
        if last.flow_control not in (FlowControl.UNCONDITIONAL_BRANCH, FlowControl.INDIRECT_BRANCH, FlowControl.RETURN,
                                     FlowControl.EXCEPTION):
            text.instruction(Instruction.create_branch(Op.JMP_REL32_64, back))

    def _call(self, text: _Text, call: Instruction) -> None:
        """The same call, returning to where it would have."""
        text.raw(b"\x50\x50")  # push rax, twice
        text.raw(b"\x48\x8d\x05")  # lea rax, [rip+x]
        text.fixups.append(len(text.code))
        text.raw(struct.pack("<i", call.next_ip - (text.ip + 4)))
        text.raw(bytes.fromhex("4889442408") + b"\x58")  # mov [rsp+8], rax; pop rax
        if call.flow_control == FlowControl.CALL:
            text.instruction(Instruction.create_branch(Op.JMP_REL32_64, call.near_branch_target))
            return
        jump = call.copy()
        jump.code = Op.JMP_RM64
        if is_memory_call(call) and call.memory_base == Register.RSP:
            jump.memory_displacement = (call.memory_displacement + 8) & (1 << 64) - 1
            jump.memory_displ_size = 8
        text.instruction(jump)

    def _file(self, text: _Text, starts: Sequence[int]) -> bytes:
        fixups_at = self._text_at + (len(text.code) + 7 & -8)
        loaded = fixups_at + 4 * len(text.fixups)
        out = bytearray(fixups_at)
        sites_at = HEAD_AT + HEAD.size
        identity_at = sites_at + SITE.size * len(starts)
        HEAD.pack_into(out, HEAD_AT, MAGIC, VERSION, len(starts), len(text.fixups), SLOTS, len(self._identity), 0,
                       loaded, self._base, self._code.low, self._code.high, sites_at, fixups_at, self._slots_at)
        for number, ((site, _), start) in enumerate(zip(self._sites, starts, strict=True)):
            before = self._code.bytes(site.address, site.size)
            SITE.pack_into(out, sites_at + SITE.size * number, site.address, start, 0, site.size)
            at = sites_at + SITE.size * number + 17
            out[at:at + len(before)] = before
        out[identity_at:identity_at + len(self._identity)] = self._identity
        out[self._text_at:self._text_at + len(text.code)] = text.code
        out += b"".join(struct.pack("<I", self._text_at + at) for at in text.fixups)
        names = [f"probe:{site.function or hex(site.address)}" for site, _ in self._sites]
        ends = [*starts[1:], self._text_at + len(text.code)]
        return _elf(out, self._text_at, len(text.code), [(name, start, end - start) for name, start, end in
                                                         zip(names, starts, ends, strict=True)])


def _elf(out: bytearray, text_at: int, text_size: int, symbols: Sequence[tuple[str, int, int]]) -> bytes:
    """ELF headers into the first bytes, a symbol table and section headers behind (System V ABI)."""
    loaded = len(out)
    strings = bytearray(b"\0")
    table = bytearray(24)
    for name, start, size in symbols:
        table += struct.pack("<IBBHQQ", len(strings), 0x02, 0, 1, start, size)
        strings += name.encode(errors="replace") + b"\0"
    names = b"\0.text\0.symtab\0.strtab\0.shstrtab\0"
    out += b"\0" * (-len(out) % 8)
    at = [text_at]
    for part in (bytes(table), bytes(strings), names):
        at.append(len(out))
        out += part
    out += b"\0" * (-len(out) % 8)
    sections = [(0, 0, 0, 0, 0, 0, 0, 0, 0, 0), (1, 1, 6, text_at, at[0], text_size, 0, 0, 16, 0),
                (7, 2, 0, 0, at[1], len(table), 3, len(table) // 24, 8, 24),
                (15, 3, 0, 0, at[2], len(strings), 0, 0, 1, 0), (23, 3, 0, 0, at[3], len(names), 0, 0, 1, 0)]
    shoff = len(out)
    for section in sections:
        out += struct.pack("<IIQQQQIIQQ", *section)
    struct.pack_into("<16sHHIQQQIHHHHHH", out, 0, b"\x7fELF\x02\x01\x01", 3, 62, 1, 0, 64, shoff, 0, 64, 56, 1, 64,
                     len(sections), 4)
    struct.pack_into("<IIQQQQQQ", out, 64, 1, 5, 0, 0, 0, loaded, loaded, PAGE)
    return bytes(out)
