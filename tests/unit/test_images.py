# SPDX-License-Identifier: MIT
"""Image sets: mappings as they come, cover each other and go, against a page-by-page model."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest

from ptweave.decode.images import Change, Image, Space, coalesce

IMAGES = [Image(number, f"i{number}", f"/lib/{number}", None, None) for number in range(4)]


def image_set(space: Space, epoch: int) -> list[tuple[int, int, int, int]]:
    return [(m.start, m.end, m.offset, m.image.number) for m in space.at(epoch)]


def space_of(*changes: Change) -> Space:
    space = Space(0, 1)
    space.changes = list(changes)
    return space


def test_a_map_in_the_middle_splits_what_was_there() -> None:
    space = space_of(Change(0, 0, 100, 1000, IMAGES[0]), Change(0, 40, 60, 5, IMAGES[1]))
    assert image_set(space, 0) == [(0, 40, 1000, 0), (40, 60, 5, 1), (60, 100, 1060, 0)]


def test_an_unmap_takes_a_range_of_several() -> None:
    space = space_of(Change(0, 0, 50, 0, IMAGES[0]), Change(0, 50, 100, 0, IMAGES[1]), Change(1, 30, 70, 0, None))
    assert image_set(space, 1) == [(0, 30, 0, 0), (70, 100, 20, 1)]
    assert image_set(space, 0) == [(0, 50, 0, 0), (50, 100, 0, 1)]


def test_neighbours_of_one_file_are_joined_only_when_they_fit() -> None:
    space = space_of(Change(0, 0, 50, 0, IMAGES[0]), Change(0, 50, 100, 50, IMAGES[0]),
                     Change(0, 100, 150, 50, IMAGES[0]))
    assert image_set(space, 0) == [(0, 100, 0, 0), (100, 150, 50, 0)]


def test_history_has_every_mapping_with_its_epochs() -> None:
    space = space_of(Change(0, 0, 100, 0, IMAGES[0]), Change(2, 50, 100, 0, None), Change(3, 50, 80, 0, IMAGES[1]))
    assert sorted((m.start, m.end, m.image.number, m.since, until) for m, until in space.history()) == [
        (0, 50, 0, 0, None), (50, 80, 1, 3, None), (50, 100, 0, 0, 2)]


def test_what_was_replaced_in_its_own_epoch_was_never_there() -> None:
    space = space_of(Change(1, 0, 100, 0, IMAGES[0]), Change(1, 0, 100, 0, IMAGES[1]))
    assert [m.image.number for m, _ in space.history()] == [1]


@pytest.mark.parametrize("seed", range(30))
def test_agrees_with_a_model_of_single_bytes(seed: int) -> None:
    chance = random.Random(seed)
    changes, epoch = [], 0
    for _ in range(40):
        epoch += chance.random() < 0.4
        start = chance.randrange(200)
        image = chance.choice([*IMAGES, None])
        changes.append(Change(epoch, start, start + chance.randrange(1, 60), chance.randrange(1000), image))
    space = space_of(*changes)
    for wanted in [*range(epoch + 1), 0, epoch // 2]:  # backwards too
        model: dict[int, tuple[int, int]] = {}
        for change in changes:
            for at in range(change.start, change.end) if change.epoch <= wanted else ():
                if change.image is None:
                    model.pop(at, None)
                else:
                    model[at] = (change.image.number, change.offset + at - change.start)
        mappings = space.at(wanted)
        assert mappings == coalesce(mappings)
        assert all(a.end <= b.start for a, b in pairwise(mappings))
        assert {at: (m.image.number, m.offset + at - m.start) for m in mappings
                for at in range(m.start, m.end)} == model


def test_rows_out_of_order_are_replayed_in_row_order(tmp_path: Path) -> None:
    space = space_of(Change(1, 0, 10, 0, IMAGES[1]), Change(0, 0, 10, 0, IMAGES[0]))
    assert image_set(space, 0) == [(0, 10, 0, 0)]
    assert image_set(space, 1) == [(0, 10, 0, 0)]
    assert image_set(space, 0) == [(0, 10, 0, 0)]
