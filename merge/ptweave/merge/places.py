# SPDX-License-Identifier: MIT
"""Which code of one run is which of another: the same places in images that are the same, and in those that were built
anew the same places in functions of one name (`changed_functions` has what was changed in them)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import numpy as np
import numpy.typing as npt

from ptweave.data.errors import BadInput
from ptweave.merge._merge import ffi, lib
from ptweave.merge.changed_functions import Keys, Unlike, both_code, match_functions
from ptweave.merge.run_code import Code
from ptweave.merge.tables import I64

PLACES_DTYPE = np.dtype([("first", "<u4"), ("last", "<u4"), ("room", "<u4")])
assert ffi.sizeof("struct ptm_places") == PLACES_DTYPE.itemsize

ALIKE = 0.3
"""Of the functions that two programs' executables ran, the share that must have the same names."""

_ANY = {"_start", "_init", "_fini", "main", "frame_dummy", "register_tm_clones", "deregister_tm_clones",
        "__do_global_dtors_aux"}

_ID_BITS = 20


@dataclass
class Places:
    """What of both runs' blocks is the same. `own`: images of `a` that are the program's: its executable, and what was
    built anew, but for the C library. `changed`: names of functions of whose code that ran some is not the same.
    `unlike`: blocks with a counterpart that has other instructions, by number in `a`."""

    a: npt.NDArray[np.void]
    b: npt.NDArray[np.void]
    own: set[int]
    changed: set[str]
    unlike: dict[int, Unlike]


def match_places(a: Code, b: Code) -> Places:
    """Number the places of both runs' blocks alike. Raises BadInput for runs of different programs."""
    pairs = _pair_images(a, b)
    _check_alike(a, b, pairs)
    ids = _Ids()
    keys = [_keys(code, side, pairs, ids) for side, code in enumerate((a, b))]
    system = {image.number for image in a.images if image.room != lib.PTM_PROGRAM}
    own = {a.main} | {pair[0] for pair in pairs if not _same(a, pair[0], b, pair[1])} - system
    changed: set[str] = set()
    unlike: dict[int, Unlike] = {}
    for pair in pairs:
        if not _same(a, pair[0], b, pair[1]):
            with both_code(a, b, pair) as both:
                names, blocks = match_functions(both, pair, keys)
            changed |= names
            unlike |= {one.block: one for one in blocks}
    count = [len(a.image), len(b.image)]
    _, dense = np.unique(np.concatenate([keys[0].first, keys[0].last, keys[1].first, keys[1].last]),
                         return_inverse=True)
    dense = dense.reshape(-1)
    result, at = [], 0
    for code, n in zip((a, b), count, strict=True):
        places = np.zeros(n, PLACES_DTYPE)
        places["first"], places["last"] = dense[at:at + n], dense[at + n:at + 2 * n]
        rooms = np.zeros(max([image.number for image in code.images], default=-1) + 2, np.uint32)
        for image in code.images:
            rooms[image.number] = image.room
        places["room"] = rooms[np.clip(code.image, -1, len(rooms) - 2)]
        result.append(places)
        at += 2 * n
    return Places(result[0], result[1], own, changed, unlike)


def _pair_images(a: Code, b: Code) -> list[tuple[int, int]]:
    """Images that are the same, then those of one name, in the order of their numbers; the executables."""
    pairs: list[tuple[int, int]] = []
    free_a, free_b = list(a.images), list(b.images)

    def pair(same: Any) -> None:
        for one in list(free_a):
            other = next((image for image in free_b if same(one, image)), None)
            if other is not None:
                pairs.append((one.number, other.number))
                free_a.remove(one)
                free_b.remove(other)

    pair(lambda one, other: one.name == other.name and bool(one.name))
    pair(lambda one, other: one.number == a.main and other.number == b.main)
    pair(lambda one, other: one.stem == other.stem)
    return pairs


def _same(a: Code, image_a: int, b: Code, image_b: int) -> bool:
    names = [next(image.name for image in code.images if image.number == number)
             for code, number in ((a, image_a), (b, image_b))]
    return names[0] == names[1] and names[0] != ""


def _check_alike(a: Code, b: Code, pairs: list[tuple[int, int]]) -> None:
    if (a.main, b.main) not in pairs:
        if a.main >= 0 and b.main >= 0:
            raise _different(a, b)
        return
    if _same(a, a.main, b, b.main):
        return
    ours, theirs = (_telling(code.functions(code.main)) for code in (a, b))
    names = [next(image.stem for image in code.images if image.number == code.main) for code in (a, b)]
    if not ours and not theirs:
        alike = names[0] == names[1]  # without symbols there is nothing else to go by
    else:
        alike = len(ours & theirs) >= ALIKE * max(min(len(ours), len(theirs)), 1)
    if not alike:
        raise _different(a, b)


def _telling(functions: set[str]) -> set[str]:
    """Without those that any program has: stubs, what has no symbol, and what the C compiler adds."""
    return {name for name in functions if not name.endswith("@plt") and not name.startswith("sub_")} - _ANY


def _different(a: Code, b: Code) -> BadInput:
    names = [next((PurePath(image.path).name for image in code.images if image.number == code.main), "?")
             for code in (a, b)]
    return BadInput(f"is a run of {names[1]}, the other one of {names[0]}, whose functions are others",
                    where=str(b.path), remedy="compare two runs of one program")


class _Ids:
    """Numbers for images and functions that both runs know by the same key."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], int] = {}

    def of(self, *key: object) -> int:
        number = self._known.setdefault(key, len(self._known) + 1)
        if number >= 1 << _ID_BITS:
            raise BadInput("runs more functions than can be compared (a million)", where="diff")
        return number


def _keys(code: Code, side: int, pairs: list[tuple[int, int]], ids: _Ids) -> Keys:
    unit = np.zeros(len(code.image), np.int64)
    place = code.offset.copy()
    paired = {pair[side]: pair for pair in pairs}
    for image in code.images:
        here = np.flatnonzero(code.image == image.number)
        pair = paired.get(image.number)
        if pair is None:
            unit[here] = ids.of("image", side, image.number)
            continue
        unit[here] = ids.of("image", pair)
        named = here[code.name[here] >= 0]
        entry = code.offset[named] - code.within[named]
        functions, back = np.unique(np.stack([code.name[named], entry]), axis=1, return_inverse=True)
        seen: dict[int, int] = {}
        number = np.zeros(functions.shape[1], np.int64)
        for column, name in enumerate(functions[0].tolist()):
            seen[name] = seen.get(name, -1) + 1  # functions of one name: in the order of their addresses
            number[column] = ids.of(pair, code.names[name], seen[name])
        if len(named):
            unit[named] = number[back.reshape(-1)]
            place[named] = code.within[named]
    last = place + code.program.blocks["last"].astype(np.int64)
    return Keys(unit, _packed(unit, place), _packed(unit, last))


def _packed(unit: I64, place: I64) -> npt.NDArray[np.uint64]:
    return unit.astype(np.uint64) << np.uint64(64 - _ID_BITS) | place.astype(np.uint64)
