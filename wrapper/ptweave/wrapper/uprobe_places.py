# SPDX-License-Identifier: MIT
"""Where the kernel can put a uprobe, which it does not always say: what it refuses when a program maps the file is not
probed, silently, and what is no instruction's first byte it overwrites (Linux: arch/x86/kernel/uprobes.c)."""

from __future__ import annotations

from itertools import takewhile

from iced_x86 import Code, Decoder

from ptweave.data.errors import BadInput

LONGEST = 15
"""Bytes of an instruction, at most."""
FAR = 1 << 20
"""Offsets up to which instructions are gone over, from the function's first."""

_PREFIXES = frozenset((0x66, 0x67, 0xf0, 0xf2, 0xf3, 0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65))
_REFUSED = frozenset((0xf0, 0x26, 0x2e, 0x36, 0x3e))  # lock, and segments of which 64-bit code knows nothing


def check_place(code: bytes, offset: int, bits: int, where: str) -> None:
    """Raise BadInput unless an instruction that can be probed begins `offset` bytes behind the begin of `code`, where
    one does. `code` goes LONGEST bytes further, or to the end of the file's."""
    before = None
    for instruction in Decoder(bits, code):
        if instruction.ip >= offset:
            break
        before = instruction
    else:
        raise BadInput("is not in the file's code", where=where, remedy="give a smaller offset")
    if instruction.ip > offset and before is not None:
        raise BadInput(f"is inside an instruction ({before}), which would be overwritten", where=where,
                       remedy=f"give the offset at which it begins, +{before.ip}, or the next, +{instruction.ip}")
    prefixes = takewhile(_PREFIXES.__contains__, code[offset:offset + instruction.len])
    if instruction.is_invalid or instruction.code == Code.INT3 or not _REFUSED.isdisjoint(prefixes):
        raise BadInput(f"is an instruction that the kernel does not probe ({instruction})", where=where,
                       remedy=f"probe another one: the next is at +{instruction.next_ip}")
