# SPDX-License-Identifier: MIT
"""Whether a place can be patched, and which instructions move when it is.

A patch is a jump of five bytes; what stood there, whole instructions, is executed in the trampoline. It is refused
where that could change what the program does: whoever jumps to a byte behind the first would execute half a jump, and
whoever returns to one, too.
"""

from __future__ import annotations

from dataclasses import dataclass

from iced_x86 import Code as Op
from iced_x86 import FlowControl, Instruction, OpKind, Register

from ptweave.wrapper.probes.code import Code, table_targets

JUMP = 5
PADDING = 16
"""What functions are aligned to."""
_CALLS = {FlowControl.CALL, FlowControl.INDIRECT_CALL}
_LEAVES = {FlowControl.UNCONDITIONAL_BRANCH, FlowControl.INDIRECT_BRANCH, FlowControl.RETURN, FlowControl.EXCEPTION}
_NEVER = {FlowControl.INTERRUPT, FlowControl.XBEGIN_XABORT_XEND}


@dataclass(frozen=True)
class Site:
    """A place that can be patched. `address`: of the jump (behind an endbr64); `moved`: what stood there.

    `entry`: the function begins here.
    """

    asked: int
    address: int
    function: str
    entry: bool
    moved: tuple[Instruction, ...]

    @property
    def size(self) -> int:
        return sum(instruction.len for instruction in self.moved)


@dataclass(frozen=True)
class Refusal:
    """A place that cannot, and why."""

    address: int
    function: str
    reason: str


def examine_site(code: Code, address: int, *, padded: bool = False) -> Site | Refusal:
    """Decide about the instruction at `address`. `padded`: what fills the space to the next function may be used."""
    index = code.function(address)
    if index < 0:
        return Refusal(address, "", "it is in no function that is known")
    begin, end, name = int(code.starts[index]), int(code.ends[index]), code.name(index)
    before: Instruction | None = None
    for instruction in code.instructions(begin, end):
        if instruction.ip >= address:
            break
        if instruction.is_invalid:
            return Refusal(address, name, f"the function's code cannot be disassembled at {instruction.ip:#x}")
        before = instruction
    if before is not None and before.next_ip > address:
        return Refusal(address, name, f"it is in the middle of an instruction ({before:n} at {before.ip:#x})")
    first = next(code.instructions(begin, end), None)
    marked = begin + 4 if first is not None and first.code == Op.ENDBR64 else begin
    place = marked if address == begin else address
    moved, reason = _move(code, place, end + PADDING if padded else end, begin)
    if not reason:
        reason = _jumps(code, index, place, moved, entry=place == marked)
    return Refusal(address, name, reason) if reason else Site(address, place, name, place == marked, moved)


def _move(code: Code, place: int, end: int, begin: int) -> tuple[tuple[Instruction, ...], str]:
    """The instructions that make room for a jump, or why there are none."""
    if end - begin < JUMP:
        return (), f"the function is shorter than the five bytes of a jump ({end - begin})"
    moved: list[Instruction] = []
    size = 0
    for instruction in code.instructions(place, min(end, place + 32)):
        if size >= JUMP:
            break
        reason = _unmovable(instruction)
        if reason:
            return (), reason
        if moved and (moved[-1].flow_control in _LEAVES) and not _is_filler(instruction):
            return (), f"control leaves after {size} bytes, and a jump takes five"
        if moved and moved[-1].flow_control in _CALLS:
            return (), f"a call returns after {size} bytes, into the five of a jump"
        moved.append(instruction)
        size += instruction.len
    if size < JUMP:
        return (), f"only {size} bytes are left to the function's end, and a jump takes five"
    return tuple(moved), ""


def _is_filler(instruction: Instruction) -> bool:
    return instruction.code in (Op.NOPD, Op.NOPW, Op.NOPQ, Op.INT3, Op.NOP_RM16, Op.NOP_RM32, Op.NOP_RM64)


def _unmovable(instruction: Instruction) -> str:
    if instruction.is_invalid:
        return f"the code cannot be disassembled at {instruction.ip:#x}"
    if instruction.flow_control in _NEVER and instruction.code != Op.INT3:
        return f"{instruction:n} cannot be executed elsewhere"
    if instruction.is_privileged or instruction.is_call_far or instruction.is_call_far_indirect \
            or instruction.is_jmp_far or instruction.is_jmp_far_indirect:
        return f"{instruction:n} cannot be executed elsewhere"
    if instruction.flow_control == FlowControl.INDIRECT_CALL and Register.RSP in (
            instruction.op0_register, instruction.memory_index):
        return f"{instruction:n} cannot be executed elsewhere"
    return ""


def _jumps(code: Code, index: int, place: int, moved: tuple[Instruction, ...], *, entry: bool) -> str:
    """Why something may jump behind the first byte; empty: nothing does."""
    if len(moved) == 1:
        return ""
    last = moved[-1].next_ip
    target = code.jumped_to(place + 1, last)
    if target is not None and target in code.landings:
        return f"an exception's handler begins at {target:#x}, inside the five bytes of a jump"
    if target is not None:
        return f"something jumps to {target:#x}, inside the five bytes of a jump"
    begin, end = int(code.starts[index]), int(code.ends[index])
    tables: list[int] = []
    jumps = False
    for instruction in code.instructions(begin, end):
        if instruction.flow_control == FlowControl.INDIRECT_BRANCH:
            # through a slot of its own (a call at the end of a function): to no place here
            jumps |= not instruction.is_ip_rel_memory_operand
        elif instruction.is_ip_rel_memory_operand and instruction.code == Op.LEA_R64_M:
            tables += table_targets(code, instruction.ip_rel_memory_address, begin, end)
    inside = [one for one in tables if place < one < last]
    if inside:
        return f"a jump table leads to {inside[0]:#x}, inside the five bytes of a jump"
    if jumps and not tables and not entry and not code.fixed:
        return "the function jumps through a register, and where to is not known"
    return ""


def is_memory_call(instruction: Instruction) -> bool:
    """An indirect call through memory."""
    return bool(instruction.flow_control == FlowControl.INDIRECT_CALL and instruction.op0_kind == OpKind.MEMORY)
