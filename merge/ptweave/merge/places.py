# SPDX-License-Identifier: MIT
"""Which code of one run is which of another: the same places in images that are the same, and in those that were built
anew the same places in functions of one name.

A function whose blocks that both runs executed look alike is taken to be unchanged, and its places are told by their
offsets in it. In the others, the executed blocks are put beside each other in the order of their addresses: by what
they end with, how many instructions they have, and how far their lines are from the function's first one.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import PurePath
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ptweave.data.bundle import Bundle
from ptweave.data.errors import BadInput
from ptweave.data.schemas import BLOCKS, IMAGES, PROCESSES
from ptweave.merge._merge import ffi, lib
from ptweave.merge.program import IMAGE_SHIFT, Program
from ptweave.merge.tables import I64, Bools, numbers, read_table

PLACES_DTYPE = np.dtype([("first", "<u4"), ("last", "<u4"), ("room", "<u4")])
assert ffi.sizeof("struct ptm_places") == PLACES_DTYPE.itemsize

ALIKE = 0.3
"""Of the functions that two programs' executables ran, the share that must have the same names."""

_ANY = {"_start", "_init", "_fini", "main", "frame_dummy", "register_tm_clones", "deregister_tm_clones",
        "__do_global_dtors_aux"}

_LONGEST = 6000  # blocks of a function that are put beside each other one by one
_ID_BITS = 20
_SYSTEM = ("libc.so", "libpthread.so", "ld-linux", "ld.so")


@dataclass(frozen=True)
class Image:
    """A file whose code ran."""

    number: int
    name: str
    path: str
    generated: bool

    @property
    def stem(self) -> str:
        """Its name without directory and version."""
        base = PurePath(self.path).name
        return base.split(".so")[0] + ".so" if ".so" in base else base

    @property
    def room(self) -> int:
        if self.stem.startswith("libtthread"):
            return int(lib.PTM_LIBTTHREAD)
        return int(lib.PTM_SYSTEM if self.stem.startswith(_SYSTEM) else lib.PTM_PROGRAM)


class Code:
    """The distinct code of a run: its program for the C part, and each block's image, function, place and line."""

    def __init__(self, bundle: Bundle) -> None:
        self.path = bundle.path
        self.program = Program(bundle)
        self.program.compile()
        table = read_table(bundle, BLOCKS, ["block", "function", "function_offset", "file", "line"],
                           ["function", "file"])
        order = np.argsort(numbers(table, "block"), kind="stable")
        self.table = table.take(pa.array(order)) if len(order) else table
        self.images = [Image(row["image"], row["name"] or "", row["path"] or "", row["kind"] == "raw")
                       for row in read_table(bundle, IMAGES, ["image", "name", "path", "kind"]).to_pylist()]
        blocks = self.program.blocks
        self.image = (blocks["addr"] >> np.uint64(IMAGE_SHIFT)).astype(np.int64) - 1
        self.offset = (blocks["addr"] & np.uint64((1 << IMAGE_SHIFT) - 1)).astype(np.int64)
        self.line = numbers(self.table, "line", 0).astype(np.int64)
        names = self.table.column("function").combine_chunks()
        names = names.chunk(0) if isinstance(names, pa.ChunkedArray) and names.num_chunks else names
        self.names: list[str] = names.dictionary.to_pylist() if len(self.table) else []
        self.name: I64 = (names.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
                          if len(self.table) else np.empty(0, np.int64))
        self.within = np.where(self.name >= 0, numbers(self.table, "function_offset", 0), self.offset).astype(np.int64)
        self.main = _main_image(bundle, self)
        self.file_names = self.table.column("file")

    def close(self) -> None:
        self.program.close()

    def functions(self, image: int) -> set[str]:
        """Names of the functions of an image that ran."""
        return {self.names[int(name)] for name in np.unique(self.name[(self.image == image) & (self.name >= 0)])}

    def where(self, block: int) -> tuple[str | None, str | None, int | None]:
        """Function, file and line of a block; None unknown."""
        if not 0 <= block < len(self.table):
            return None, None, None
        line = int(self.line[block])
        return self.program.function_of(block), self.file_names[block].as_py(), line or None


def _main_image(bundle: Bundle, code: Code) -> int:
    """The image of the executable: of the last process image that ran code; -1 unknown."""
    ran = {path: number for number, path in ((image.number, image.path) for image in code.images)}
    paths = [row["exe"] for row in read_table(bundle, PROCESSES, ["exe", "space"]).sort_by("space").to_pylist()]
    for path in paths:
        if path in ran:
            return ran[path]
    libraries = (".so", "[")
    return next((image.number for image in code.images if not any(one in image.path for one in libraries)), -1)


@dataclass
class Places:
    """What of both runs' blocks is the same. `changed`: functions of whose code that ran some is not, by name."""

    a: npt.NDArray[np.void]
    b: npt.NDArray[np.void]
    changed: set[str]


def match_places(a: Code, b: Code) -> Places:
    """Number the places of both runs' blocks alike. Raises BadInput for runs of different programs."""
    pairs = _pair_images(a, b)
    _check_alike(a, b, pairs)
    ids = _Ids()
    keys = [_keys(code, side, pairs, ids) for side, code in enumerate((a, b))]
    changed: set[str] = set()
    for image_a, image_b in pairs:
        if not _same(a, image_a, b, image_b):
            changed |= _match_functions(a, b, (image_a, image_b), keys)
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
    return Places(result[0], result[1], changed)


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


@dataclass
class _Keys:
    """Of each block: the number of its function (or image), and where it begins and its last instruction is."""

    unit: I64
    first: npt.NDArray[np.uint64]
    last: npt.NDArray[np.uint64]


def _keys(code: Code, side: int, pairs: list[tuple[int, int]], ids: _Ids) -> _Keys:
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
    return _Keys(unit, _packed(unit, place), _packed(unit, last))


def _packed(unit: I64, place: I64) -> npt.NDArray[np.uint64]:
    return unit.astype(np.uint64) << np.uint64(64 - _ID_BITS) | place.astype(np.uint64)


def _match_functions(a: Code, b: Code, pair: tuple[int, int], keys: list[_Keys]) -> set[str]:
    """Give the places of functions that changed the numbers of those they correspond to; returns these functions."""
    here = [np.flatnonzero((code.image == image) & (code.program.blocks["cls"] != lib.PTM_OTHER) & (code.name >= 0))
            for code, image in zip((a, b), pair, strict=True)]
    firsts = [keys[side].first[here[side]] for side in range(2)]
    _, at_a, at_b = np.intersect1d(firsts[0], firsts[1], return_indices=True)
    one, two = a.program.blocks[here[0][at_a]], b.program.blocks[here[1][at_b]]
    alike: Bools = ((one["cls"] == two["cls"]) & (one["instructions"] == two["instructions"])
                    & (one["size"] == two["size"]))
    most = max([int(side.unit.max(initial=0)) for side in keys]) + 1
    unit = keys[0].unit[here[0][at_a]]
    common = np.bincount(unit, minlength=most)
    good = np.bincount(unit[alike], minlength=most)
    fewest = np.minimum(*(np.bincount(keys[side].unit[here[side]], minlength=most) for side in range(2)))
    different = np.flatnonzero((fewest > 0) & ((good < common) | (2 * common < fewest)))
    names = set()
    for number in different.tolist():
        rows = [here[side][keys[side].unit[here[side]] == number] for side in range(2)]
        rows = [row[np.argsort(code.within[row], kind="stable")] for row, code in zip(rows, (a, b), strict=True)]
        names.add(a.names[int(a.name[rows[0][0]])])
        _match_blocks(a, b, rows, keys, number)
    return names


def _match_blocks(a: Code, b: Code, rows: list[I64], keys: list[_Keys], number: int) -> None:
    """Put one function's blocks beside each other; those of `a` get the places of `b`'s, or ones of their own."""
    unmatched = np.uint64(1 << 43)
    found = _beside(a, b, rows[0], rows[1])
    moved_first: dict[int, int] = {}
    moved_last: dict[int, int] = {}
    for one, two in found:
        moved_first.setdefault(int(keys[0].first[one]), int(keys[1].first[two]))
        moved_last.setdefault(int(keys[0].last[one]), int(keys[1].last[two]))
    every = np.flatnonzero(keys[0].unit == number)
    for places, moved in ((keys[0].first, moved_first), (keys[0].last, moved_last)):
        places[every] = [moved.get(int(place), int(place) | int(unmatched)) for place in places[every]]


def _beside(a: Code, b: Code, left: I64, right: I64) -> list[tuple[int, int]]:
    """Pairs of blocks that correspond, both in the order of their addresses: by everything, then by less."""
    if len(left) > _LONGEST or len(right) > _LONGEST:
        return []

    def shapes(code: Code, rows: I64, *, lines: bool) -> list[tuple[int, ...]]:
        blocks = code.program.blocks[rows]
        line = code.line[rows] - code.line[rows[0]] if lines else np.zeros(len(rows), np.int64)
        return list(zip(blocks["cls"].tolist(), blocks["instructions"].tolist(), line.tolist(), strict=True))

    pairs: list[tuple[int, int]] = []
    open_: list[tuple[int, int, int, int]] = [(0, len(left), 0, len(right))]
    for lines in (True, False):
        one, two = shapes(a, left, lines=lines), shapes(b, right, lines=lines)
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
