# SPDX-License-Identifier: MIT
"""The same trace as another recorder would have packed it: the same branches, in other packets."""

from __future__ import annotations

from collections.abc import Iterator

WIDTH = {0: 0, 1: 2, 2: 4, 3: 6, 4: 6, 6: 8}
EXTENDED = {0x82: 16, 0x23: 2, 0xA3: 8, 0x03: 4, 0x43: 8, 0x73: 7, 0xC8: 7, 0xF3: 2, 0x83: 2}


def packets(trace: bytes) -> Iterator[bytes]:
    """The packets of a trace that begins with a PSB. ValueError for one that is not known here."""
    at = 0
    while at < len(trace):
        first = trace[at]
        if first == 0x02:
            if at + 1 >= len(trace) or trace[at + 1] not in EXTENDED:
                raise ValueError(f"packet at {at}")
            size = EXTENDED[trace[at + 1]]
        elif not first & 1:
            size = 1
        elif first == 0x19:
            size = 8
        elif first in (0x59, 0x99):
            size = 2
        elif first & 0x1F in (0x0D, 0x11, 0x01, 0x1D):
            size = 1 + WIDTH[first >> 5]
        else:
            raise ValueError(f"packet at {at}")
        yield trace[at:at + size]
        at += size


def bits_of(packet: bytes) -> str:
    """The branches of a TNT packet; empty for any other."""
    if packet[:2] == b"\x02\xa3":
        return f"{int.from_bytes(packet[2:8], 'little'):b}"[1:]
    if not packet[0] & 1 and packet[0] not in (0, 2):
        return f"{packet[0] >> 1:b}"[1:]
    return ""


def _tnt(bits: str) -> bytes:
    value = int("1" + bits, 2)
    return bytes([value << 1]) if len(bits) <= 6 else b"\x02\xa3" + value.to_bytes(6, "little")


def repacket(trace: bytes, most: int, filler: bytes = b"") -> bytes:
    """`trace` with TNT packets of at most `most` branches, each packet of flow followed by `filler`."""
    out = bytearray()
    bits = ""
    for packet in packets(trace):
        found = bits_of(packet)
        if found:
            bits += found
            while len(bits) >= most:
                out += _tnt(bits[:most]) + filler
                bits = bits[most:]
            continue
        if bits and packet[0]:
            out += _tnt(bits) + filler
            bits = ""
        out += packet
    return bytes(out + (_tnt(bits) if bits else b""))
