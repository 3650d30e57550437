# SPDX-License-Identifier: MIT
"""An address space that differs in a few sections from one that is gone takes over that one's image: what can be
decoded in it is what its own sections say, address by address, as where every image is made from nothing."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ptweave.decode._ipt import ffi, lib

BASE, UNIT, UNITS = 0x400000, 12, 40
"""Code lies at BASE, in units of so many bytes: each instruction's length divides them."""
INSTRUCTIONS = (b"\x90", b"\x66\x90", b"\x0f\x1f\x00", b"\x0f\x1f\x40\x00", b"\x66\x0f\x1f\x44\x00\x00")
"""One that does nothing, of one to six bytes, is all that a file holds: its length says whose code it is."""


@dataclass(frozen=True)
class Part:
    """Units `start` to `end` of a space, which hold the file's code from unit `offset` on."""

    start: int
    end: int
    file: int
    offset: int


Space = tuple[Part, ...]


def put(space: Space, new: Part) -> Space:
    """`new` over what lies there."""
    kept: list[Part] = []
    for old in space:
        if old.start < min(old.end, new.start):
            kept.append(Part(old.start, min(old.end, new.start), old.file, old.offset))
        if max(old.start, new.end) < old.end:
            start = max(old.start, new.end)
            kept.append(Part(start, old.end, old.file, old.offset + start - old.start))
    return (*kept, new)


def taken(space: Space, start: int, end: int) -> Space:
    """Nothing lies at these units any more."""
    return put(space, Part(start, end, -1, 0))[:-1]


def expected(space: Space) -> list[int | None]:
    """Lengths of the instructions at the beginning of each unit; None: no code."""
    found: list[int | None] = [None] * UNITS
    for part in space:
        found[part.start:part.end] = [len(INSTRUCTIONS[part.file])] * (part.end - part.start)
    return found


class Decoder:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.images = ffi.gc(lib.ptd_images_create(), lib.ptd_images_destroy)
        for number, instruction in enumerate(INSTRUCTIONS):
            (folder / str(number)).write_bytes(instruction * (UNIT * UNITS // len(instruction)))

    def space(self, parts: Space) -> Any:
        sections = [lib.ptd_images_add(self.images, bytes(self.folder / str(part.file)), part.file, UNIT * part.offset,
                                       UNIT * (part.end - part.start), BASE + UNIT * part.start) for part in parts]
        assert all(section >= 0 for section in sections)
        made = ffi.new("struct ptd_space **")
        assert lib.ptd_space_create(self.images, sections, len(sections), made) == 0
        return ffi.gc(made[0], lib.ptd_space_destroy)

    def lengths(self, space: Any) -> list[int | None]:
        return [self._length(space, BASE + UNIT * unit) for unit in range(UNITS)]

    def _length(self, space: Any, ip: int) -> int | None:
        found = ffi.new("uint8_t[1]")
        status = lib.ptd_space_lengths(space, 1, ffi.new("uint64_t[]", [ip]), ffi.new("int32_t[]", [1]),
                                       ffi.new("uint8_t[]", [64]), found, 1)
        return found[0] if status == 1 else None

    @property
    def made(self) -> int:
        return int(lib.ptd_images_made(self.images))


def some_part(chance: random.Random) -> Part:
    start = chance.randrange(UNITS)
    end = chance.randint(start + 1, min(UNITS, start + 8))
    return Part(start, end, chance.randrange(len(INSTRUCTIONS)), chance.randrange(UNITS - (end - start)))


def changed(space: Space, chance: random.Random) -> Space:
    if space and chance.random() < 0.2:
        gone = chance.choice(space)
        return taken(space, gone.start, gone.end)
    return put(space, some_part(chance))


@pytest.mark.parametrize("seed", range(20))
def test_each_space_of_a_program_that_changes_its_code_has_the_code_it_says(seed: int, tmp_path: Path) -> None:
    chance, decoder = random.Random(seed), Decoder(tmp_path)
    parts: Space = ()
    for _ in range(30):
        for _ in range(chance.randint(1, 3)):
            parts = changed(parts, chance)
        space = decoder.space(parts)
        assert decoder.lengths(space) == expected(parts)
        ffi.release(space)
    assert decoder.made < 30


def test_code_that_is_put_over_other_code_is_added_to_the_image_that_is_there(tmp_path: Path) -> None:
    decoder = Decoder(tmp_path)
    parts: Space = (Part(0, 30, 0, 0), Part(32, 40, 1, 3))
    for number in range(12):
        space = decoder.space(parts)
        assert decoder.lengths(space) == expected(parts)
        ffi.release(space)
        parts = put(parts, Part(2 * number, 2 * number + 3, 2 + number % 3, number))
    assert decoder.made == 1


def test_where_code_is_gone_an_image_is_made_from_nothing(tmp_path: Path) -> None:
    decoder = Decoder(tmp_path)
    for parts in ((Part(0, 10, 0, 0), Part(10, 20, 1, 0)), (Part(0, 10, 0, 0),)):
        space = decoder.space(parts)
        assert decoder.lengths(space) == expected(parts)
        ffi.release(space)
    assert decoder.made == 2


def test_a_space_that_lives_keeps_its_image(tmp_path: Path) -> None:
    decoder = Decoder(tmp_path)
    before: Space = (Part(0, 10, 0, 0),)
    after = put(before, Part(3, 5, 1, 0))
    spaces = [(parts, decoder.space(parts)) for parts in (before, after)]
    for parts, space in [*spaces, *reversed(spaces)]:
        assert decoder.lengths(space) == expected(parts)
    assert decoder.made == 2


def test_a_space_may_outlive_the_images_and_leave_its_own(tmp_path: Path) -> None:
    decoder = Decoder(tmp_path)
    space = decoder.space((Part(0, 4, 2, 0),))
    assert decoder.lengths(space)[0] == 3
    ffi.release(decoder.images)
    assert decoder.lengths(space)[0] == 3
    ffi.release(space)
