# SPDX-License-Identifier: MIT
"""Which thread of one run is which of another: by who created it, with what start routine, in which order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ptweave.merge.run_code import Image

Ask = Callable[..., list[tuple[Any, ...]]]
"""ask(sql, *params) gives rows."""

UNLIKE = 0.9
"""Threads of one start routine and rank that are less alike than this (cosine of the instructions by function of the
program's) are put beside others of that routine, if these are more alike."""

_MOST = 512  # siblings that are compared each with each

_THREADS = """select thread, parent, start_function from threads where not coalesce(own, false)
  order by coalesce(t_start, 0), thread"""
_IMAGES = "select image, coalesce(name, ''), coalesce(path, '') from images"
_SHAPES = """select thread, function, sum(instructions)::double from profile join stacks using (stack)
  where function is not null and list_contains(?, image) group by thread, function"""


@dataclass(frozen=True)
class Thread:
    """A thread of the program's, by whom it was created, and its start routine."""

    number: int
    parent: int | None
    start: str | None


@dataclass(frozen=True)
class Pairs:
    """Threads of both runs that correspond, and those without counterpart."""

    pairs: list[tuple[Thread, Thread]]
    only_a: list[Thread]
    only_b: list[Thread]


def match_threads(ask_a: Ask, ask_b: Ask, *, shapes: bool) -> Pairs:
    """Put the threads of two runs beside each other. `shapes`: both runs have a profile, and images."""
    threads = [[Thread(*row) for row in ask(_THREADS)] for ask in (ask_a, ask_b)]
    known = [_shapes(ask) if shapes else {} for ask in (ask_a, ask_b)]
    children = [_children(some) for some in threads]
    pairs: list[tuple[Thread, Thread]] = []
    todo = [(children[0].get(None, []), children[1].get(None, []))]
    while todo:
        for one, other in _siblings(*todo.pop(), known):
            pairs.append((one, other))
            todo.append((children[0].get(one.number, []), children[1].get(other.number, [])))
    taken = [{pair[side].number for pair in pairs} for side in range(2)]
    pairs.sort(key=lambda pair: pair[0].number)
    return Pairs(pairs, *([one for one in threads[side] if one.number not in taken[side]] for side in range(2)))


def _children(threads: list[Thread]) -> dict[int | None, list[Thread]]:
    numbers = {thread.number for thread in threads}
    found: dict[int | None, list[Thread]] = {}
    for thread in threads:
        known = thread.parent in numbers and thread.parent != thread.number
        found.setdefault(thread.parent if known else None, []).append(thread)
    return found


Shapes = dict[int, dict[str, float]]


def _shapes(ask: Ask) -> Shapes:
    """Of each thread its instructions by function, of length 1. Only of the program's code: in a small thread most is
    how it begins and ends in libtthread and the C library, and who is first there does more."""
    programs = [image for image, name, path in ask(_IMAGES) if Image(image, name, path, None).is_program]
    found: Shapes = {}
    for thread, function, count in ask(_SHAPES, programs):
        found.setdefault(thread, {})[function] = count
    for shape in found.values():
        length = sum(count * count for count in shape.values()) ** 0.5 or 1.0
        for function in shape:
            shape[function] /= length
    return found


def _siblings(ours: list[Thread], theirs: list[Thread], known: list[Shapes]) -> list[tuple[Thread, Thread]]:
    """Threads of one parent: those of one start routine in their order, unless others are more alike."""
    pairs: list[tuple[Thread, Thread]] = []
    for start in dict.fromkeys(thread.start for thread in ours):
        some = [thread for thread in ours if thread.start == start]
        others = [thread for thread in theirs if thread.start == start]
        order = _order(some, others, known)
        pairs += [(some[i], others[j]) for i, j in order]
    return pairs


def _order(some: list[Thread], others: list[Thread], known: list[Shapes]) -> list[tuple[int, int]]:
    in_order = list(zip(range(len(some)), range(len(others)), strict=False))
    if max(len(some), len(others)) > _MOST or not known[0] or not known[1]:
        return in_order
    alike = np.array([[_cosine(known[0].get(one.number, {}), known[1].get(other.number, {})) for other in others]
                      for one in some]).reshape(len(some), len(others))
    found = [(i, j) for i, j in in_order if alike[i, j] >= UNLIKE]
    left = [i for i in range(len(some)) if i not in {pair[0] for pair in found}]
    right = [j for j in range(len(others)) if j not in {pair[1] for pair in found}]
    return found + _best(alike, left, right)


def _best(alike: npt.NDArray[np.float64], left: list[int], right: list[int]) -> list[tuple[int, int]]:
    """The most alike first; of equals the first in their order."""
    found: list[tuple[int, int]] = []
    candidates = sorted((-round(float(alike[i, j]), 3), abs(i - j), i, j) for i in left for j in right)
    free_left, free_right = set(left), set(right)
    for _, _, i, j in candidates:
        if i in free_left and j in free_right:
            found.append((i, j))
            free_left.discard(i)
            free_right.discard(j)
    return found


def _cosine(one: dict[str, float], other: dict[str, float]) -> float:
    return sum(count * other.get(function, 0.0) for function, count in one.items())
