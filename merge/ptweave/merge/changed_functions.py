# SPDX-License-Identifier: MIT
"""Functions of two builds of a program: which of their blocks correspond, and which of the functions changed.

A function whose blocks that both runs executed lie and look alike has its places told by their offsets in it. In the
others, the executed blocks are put beside each other in the order of their addresses: by their instructions, by what
they end with, how many instructions they have, and how far their lines are from the function's first one. A function is
said to have changed where blocks that correspond are not the same instructions (`code_alike`), or have no counterpart.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from difflib import SequenceMatcher

import numpy as np
import numpy.typing as npt

from ptweave.merge._merge import lib
from ptweave.merge.code_alike import ImageCode, Telling
from ptweave.merge.run_code import Code
from ptweave.merge.tables import I64, Bools

_LONGEST = 6000  # blocks of a function that are put beside each other one by one


@dataclass
class Keys:
    """Of each block: the number of its function (or image), and where it begins and its last instruction is."""

    unit: I64
    first: npt.NDArray[np.uint64]
    last: npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Unlike:
    """Blocks that correspond and are not the same code, and their first instructions that differ. None: it has no more;
    `at`: so many of the block's are before it."""

    block: int
    other: int
    text: str | None
    other_text: str | None
    at: int


@dataclass
class BothCode:
    """Code of two images that are one program, built twice; None: it was not kept."""

    runs: tuple[Code, Code]
    images: tuple[ImageCode | None, ImageCode | None]
    _known: tuple[dict[int, Telling], dict[int, Telling]] = field(default_factory=lambda: ({}, {}))

    @property
    def kept(self) -> bool:
        return None not in self.images

    def alike(self, one: int, other: int) -> bool:
        """Whether these blocks, of one and of the other, are the same code; of what was not kept everything is."""
        if not self.kept or self._bytes(0, one) == self._bytes(1, other):
            return True
        return self.telling(0, one) == self.telling(1, other)

    def _place(self, side: int, block: int) -> tuple[int, int]:
        code = self.runs[side]
        return int(code.offset[block]), int(code.program.blocks["size"][block])

    def _bytes(self, side: int, block: int) -> bytes:
        image = self.images[side]
        return b"" if image is None else image.bytes_of(*self._place(side, block))

    def telling(self, side: int, block: int) -> Telling:
        image, known = self.images[side], self._known[side]
        if block not in known:
            bits = int(self.runs[side].mode[block])
            known[block] = () if image is None else image.telling(*self._place(side, block), bits or 64)
        return known[block]


    def unlike(self, one: int, other: int) -> Unlike:
        """What these blocks, which are not alike, differ in."""
        ours, theirs = self.telling(0, one), self.telling(1, other)
        at = next((at for at, (left, right) in enumerate(zip(ours, theirs, strict=False)) if left != right),
                  min(len(ours), len(theirs)))
        texts = [self._text(side, block, at) for side, block in enumerate((one, other))]
        return Unlike(one, other, texts[0], texts[1], at)

    def _text(self, side: int, block: int, at: int) -> str | None:
        image = self.images[side]
        if image is None or at >= len(self.telling(side, block)):
            return None
        return image.text(*self._place(side, block), int(self.runs[side].mode[block]) or 64, at)


@contextmanager
def both_code(a: Code, b: Code, pair: tuple[int, int]) -> Iterator[BothCode]:
    """The code of a pair of images; it is open within."""
    with ExitStack() as opened:
        def image(run: Code, number: int) -> ImageCode | None:
            found = run.image_code(number)
            return found if found is None else opened.enter_context(closing(found))

        yield BothCode((a, b), (image(a, pair[0]), image(b, pair[1])))


def match_functions(code: BothCode, pair: tuple[int, int], keys: list[Keys]) -> tuple[set[str], list[Unlike]]:
    """Give the places of functions that lie otherwise the numbers of those they correspond to. Returns the names of the
    functions that changed, and the blocks in them that are not the same code."""
    here = [np.flatnonzero((run.image == image) & (run.program.blocks["cls"] != lib.PTM_OTHER) & (run.name >= 0))
            for run, image in zip(code.runs, pair, strict=True)]
    names: set[str] = set()
    for number in _lying_otherwise(code, here, keys).tolist():
        rows = [here[side][keys[side].unit[here[side]] == number] for side in range(2)]
        rows = [row[np.argsort(run.within[row], kind="stable")] for row, run in zip(rows, code.runs, strict=True)]
        if _match_blocks(code, rows, keys, number) < min(len(row) for row in rows):
            names.add(_name(code, int(rows[0][0])))
    unlike = [code.unlike(one, other) for one, other in zip(*_common(here, keys), strict=True)
              if not code.alike(one, other)]
    return names | {_name(code, one.block) for one in unlike}, unlike


def _name(code: BothCode, block: int) -> str:
    return code.runs[0].names[int(code.runs[0].name[block])]


def _common(here: list[I64], keys: list[Keys]) -> tuple[list[int], list[int]]:
    """The blocks that correspond."""
    _, at_a, at_b = np.intersect1d(keys[0].first[here[0]], keys[1].first[here[1]], return_indices=True)
    return here[0][at_a].tolist(), here[1][at_b].tolist()


def _lying_otherwise(code: BothCode, here: list[I64], keys: list[Keys]) -> I64:
    """Numbers of functions whose blocks at the same places do not look alike, or of which there are few."""
    found = _common(here, keys)
    one, two = (run.program.blocks[blocks] for run, blocks in zip(code.runs, found, strict=True))
    alike: Bools = ((one["cls"] == two["cls"]) & (one["instructions"] == two["instructions"])
                    & (one["size"] == two["size"]))
    most = max([int(side.unit.max(initial=0)) for side in keys]) + 1
    unit = keys[0].unit[found[0]]
    common = np.bincount(unit, minlength=most)
    good = np.bincount(unit[alike], minlength=most)
    fewest = np.minimum(*(np.bincount(keys[side].unit[here[side]], minlength=most) for side in range(2)))
    return np.flatnonzero((fewest > 0) & ((good < common) | (2 * common < fewest)))


def _match_blocks(code: BothCode, rows: list[I64], keys: list[Keys], number: int) -> int:
    """Put one function's blocks beside each other; those of the one run get the places of the other's, or ones of their
    own. Returns how many have a counterpart."""
    unmatched = np.uint64(1 << 43)
    found = _beside(code, rows[0], rows[1])
    moved_first: dict[int, int] = {}
    moved_last: dict[int, int] = {}
    for one, two in found:
        moved_first.setdefault(int(keys[0].first[one]), int(keys[1].first[two]))
        moved_last.setdefault(int(keys[0].last[one]), int(keys[1].last[two]))
    every = np.flatnonzero(keys[0].unit == number)
    for places, moved in ((keys[0].first, moved_first), (keys[0].last, moved_last)):
        places[every] = [moved.get(int(place), int(place) | int(unmatched)) for place in places[every]]
    return len(found)


Shapes = list[tuple[object, ...]]


def _beside(code: BothCode, left: I64, right: I64) -> list[tuple[int, int]]:
    """Pairs of blocks that correspond, both in the order of their addresses: by everything, then by less."""
    if len(left) > _LONGEST or len(right) > _LONGEST:
        return []
    pairs: list[tuple[int, int]] = []
    open_ = [(0, len(left), 0, len(right))]
    if len(left) and len(right) and all(run.within[rows[0]] == 0 for run, rows in zip(code.runs, (left, right),
                                                                                      strict=True)):
        pairs, open_ = [(int(left[0]), int(right[0]))], [(1, len(left), 1, len(right))]  # a function's entry is its own
    shapes = [_shapes(code, side, rows) for side, rows in enumerate((left, right))]
    for one, two in zip(*shapes, strict=True):
        still: list[tuple[int, int, int, int]] = []
        for low, high, low_b, high_b in open_:
            matcher = SequenceMatcher(None, one[low:high], two[low_b:high_b], autojunk=False)
            at, at_b = low, low_b
            for block in matcher.get_matching_blocks():
                if low + block.a > at and low_b + block.b > at_b:
                    still.append((at, low + block.a, at_b, low_b + block.b))
                pairs += [(int(left[low + block.a + i]), int(right[low_b + block.b + i])) for i in range(block.size)]
                at, at_b = low + block.a + block.size, low_b + block.b + block.size
        open_ = still
    return pairs


def _shapes(code: BothCode, side: int, rows: I64) -> Iterator[Shapes]:
    """What blocks are put beside each other by, one after the other."""
    run = code.runs[side]
    blocks = run.program.blocks[rows]
    ends, counts = blocks["cls"].tolist(), blocks["instructions"].tolist()
    lines = (run.line[rows] - run.line[rows[0]]).tolist() if len(rows) else []
    if code.kept:
        telling = [code.telling(side, block) for block in rows.tolist()]
        yield list(zip(telling, lines, strict=True))
        yield [(one,) for one in telling]
    yield list(zip(ends, counts, lines, strict=True))
    yield list(zip(ends, lines, strict=True))
    yield list(zip(ends, counts, strict=True))
