# SPDX-License-Identifier: MIT
"""Protocol buffers' wire format, as much of it as is written here: varints, fixed64, and what has a length.

https://protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

VARINT, FIXED64, LENGTH = 0, 1, 2
"""Wire types."""
_ONE_BYTE = [bytes([value]) for value in range(0x80)]
"""Varints of one byte: most there are."""


def varint(value: int) -> bytes:
    """An unsigned number below 2**64, 7 bits a byte, the lowest first."""
    if 0 <= value < 0x80:
        return _ONE_BYTE[value]
    if not 0 <= value < 1 << 64:
        raise ValueError(f"{value} is no number of 64 bits")
    found = bytearray()
    while value > 0x7f:
        found.append(value & 0x7f | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def number(field: int, value: int) -> bytes:
    """A field of type uint32, uint64, int32, int64 (negative ones as their two's complement), bool or an enum."""
    return varint(field << 3 | VARINT) + varint(value & (1 << 64) - 1)


def fixed64(field: int, value: int) -> bytes:
    """A field of type fixed64."""
    return varint(field << 3 | FIXED64) + value.to_bytes(8, "little")


def chunk(field: int, value: bytes) -> bytes:
    """A field of type bytes, or a message."""
    return varint(field << 3 | LENGTH) + varint(len(value)) + value


def text(field: int, value: str) -> bytes:
    """A field of type string."""
    return chunk(field, value.encode("utf-8", "replace"))
