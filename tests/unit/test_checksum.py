# SPDX-License-Identifier: MIT
"""The checksum of task files tells any damage from the whole file."""

from __future__ import annotations

import random

from ptweave.decode._ipt import ffi, lib


def checksum(data: bytes) -> int:
    return int(lib.ptd_checksum(ffi.from_buffer("uint8_t[]", data), len(data)))


def test_every_bit_and_every_length_counts() -> None:
    chance = random.Random(1)
    for size in (0, 1, 7, 8, 63, 64, 65, 200):
        data = chance.randbytes(size)
        whole = checksum(data)
        for bit in range(8 * size):
            damaged = bytearray(data)
            damaged[bit // 8] ^= 1 << bit % 8
            assert checksum(bytes(damaged)) != whole
        assert all(checksum(data[:length]) != whole for length in range(size))
        assert checksum(data + b"\0") != whole
        assert checksum(bytes(bytearray(data))) == whole


def test_zeros_and_words_that_changed_places_are_seen() -> None:
    words = [bytes([n]) * 8 for n in range(32)]
    swapped = [words[8], *words[1:8], words[0], *words[9:]]
    assert checksum(b"".join(words)) != checksum(b"".join(swapped))
    assert len({checksum(bytes(size)) for size in range(0, 4096, 8)}) == 512
