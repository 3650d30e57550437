# SPDX-License-Identifier: MIT
"""Hidden functions of stripped libraries, found through the exported ones that end in a jump to them.

A stripped library names only what it exports. Where an exported function ends with a call of a hidden one, a compiler
makes that a jump (a tail call), and the hidden function begins where it goes.
"""

from __future__ import annotations

from iced_x86 import Code, Decoder, FlowControl, Instruction, OpKind

from ptweave.data.errors import BadInput

MOST_BYTES = 1 << 16
"""Code that is looked at of one function."""
_DIRECT = (OpKind.NEAR_BRANCH16, OpKind.NEAR_BRANCH32, OpKind.NEAR_BRANCH64)
_ENDS = (FlowControl.RETURN, FlowControl.UNCONDITIONAL_BRANCH, FlowControl.INDIRECT_BRANCH)


def _leaves(code: bytes, address: int, *, bounded: bool) -> list[int]:
    """Addresses outside a function that its unconditional jumps go to, in order. Not `bounded`: where it ends is not
    known; it is taken to end with what never goes on, unless a jump before goes further."""
    found: dict[int, None] = {}
    further = address
    inside: list[Instruction] = []
    for one in Decoder(64, code, ip=address):
        if one.is_invalid:
            break
        inside.append(one)
        if one.op0_kind in _DIRECT and one.flow_control is FlowControl.CONDITIONAL_BRANCH:
            further = max(further, one.near_branch_target)
        if not bounded and one.flow_control in _ENDS and one.next_ip > further:
            break
    end = address + len(code) if bounded else inside[-1].next_ip if inside else address
    for one in inside:
        if one.flow_control is FlowControl.UNCONDITIONAL_BRANCH and one.op0_kind in _DIRECT:
            target = one.near_branch_target
            if not address <= target < end:
                found[target] = None
    return list(found)


def is_import(code: bytes, address: int) -> bool:
    """Whether what begins there goes on to another library: an entry of the procedure linkage table."""
    for one in Decoder(64, code, ip=address):
        if one.code is not Code.ENDBR64:
            return one.flow_control is FlowControl.INDIRECT_BRANCH and one.is_ip_rel_memory_operand
    return False


def only(targets: list[int], where: str, symbol: str) -> int:
    """The one that is meant. Raises BadInput when there is none, or more."""
    if not targets:
        raise BadInput(f"{symbol} does not end in a jump to another function", where=where,
                       remedy="objdump -d shows what it does; a place in the file can be given as 0xOFFSET")
    if len(targets) > 1:
        raise BadInput(f"{symbol} jumps to {len(targets)} other functions", where=where,
                       remedy=f"give one of {', '.join(f'0x{one:x}' for one in targets)} instead")
    return targets[0]


def leaving(code: bytes, address: int, size: int) -> list[int]:
    """Addresses that the function at `address` ends in jumps to, in order. `code`: bytes from there on; `size`: how
    many are the function's, 0 when that is not known."""
    return _leaves(code[:min(size, MOST_BYTES)] if size else code[:MOST_BYTES], address, bounded=bool(size))


__all__ = ["MOST_BYTES", "is_import", "leaving", "only"]
