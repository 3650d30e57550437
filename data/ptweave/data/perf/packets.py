# SPDX-License-Identifier: MIT
"""Just enough of the packets (SDM vol. 3, 33.4) to say whether tracing was off at a place in a trace."""

from __future__ import annotations

from pathlib import Path

PSB = b"\x02\x82" * 8
LOOK_BACK = 1 << 16

_EXTENDED = {0x82: 16, 0x23: 2, 0xF3: 2, 0x83: 2, 0xA3: 8, 0x43: 8, 0xC8: 7, 0x73: 7, 0x03: 4, 0xC2: 10, 0x22: 4,
             0xA2: 7, 0x62: 2, 0xE2: 2, 0x63: 3, 0x33: 2, 0xB3: 2, 0x13: 4, 0x53: 11}
_BIP = 4
"""The lowest three bits of a BIP packet: between BBP and BEP no TNT has them."""
_IP_BYTES = (0, 2, 4, 6, 6, 0, 8, 0)


def length(data: bytes, at: int) -> int:
    """Bytes of the packet at `at`; 0 for one that is not known or not complete."""
    size = _length(data, at)
    return size if at + size <= len(data) else 0


def _length(data: bytes, at: int) -> int:
    first = data[at]
    if first == 0x02:
        if at + 1 >= len(data):
            return 0
        second = data[at + 1]
        if second == 0xC3:
            return 11
        if second & 0x1F == 0x12:
            return 2 + (4, 8, 0, 0)[second >> 5 & 3]
        return _EXTENDED.get(second, 0)
    if first & 1 == 0:
        return 1  # PAD and short TNT
    if first & 0x1F in (0x0D, 0x11, 0x01, 0x1D):
        return 1 + _IP_BYTES[first >> 5]
    if first & 3 == 3:  # CYC
        size, more = 1, first & 4
        while more and at + size < len(data):
            more = data[at + size] & 1
            size += 1
        return size
    return {0x99: 2, 0x19: 8, 0x59: 2}.get(first, 0)


def _item(data: bytes, at: int, before: int) -> int:
    """Bytes of a BIP packet behind the extended packet at `at`; 0: the record of PEBS they are of is over."""
    second = data[at + 1]
    if second == 0x63:  # BBP
        return 5 if data[at + 2] & 0x80 else 9
    return 0 if second in (0x33, 0xB3, 0x82, 0xF3) else before  # BEP, PSB, OVF


def tracing_is_off(path: Path, place: int) -> bool:
    """Whether a packet ends at byte `place` of the trace, and the last of flow before it is a TIP.PGD."""
    with path.open("rb") as file:
        file.seek(max(0, place - LOOK_BACK))
        data = file.read(place - file.tell())
    at = data.rfind(PSB)
    if at < 0:
        return False
    off, item = False, 0
    while at < len(data):
        first = data[at]
        in_item = item and first & 7 == _BIP
        size = item if in_item else length(data, at)
        if not size or at + size > len(data):
            return False
        if first == 0x02:
            item = _item(data, at, item)
        elif first & 0x1F == 0x01:
            off = True
        elif first & 0x1F in (0x0D, 0x11) or (first & 1 == 0 and first != 0x00 and not in_item):
            off = False
        at += size
    return off
