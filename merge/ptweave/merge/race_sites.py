# SPDX-License-Identifier: MIT
"""What instructions that raced are: those of libraries that order their own accesses unseen, and atomic ones."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

import numpy as np

from ptweave.data.bundle import Bundle
from ptweave.data.errors import BadInput
from ptweave.data.schemas import IMAGES
from ptweave.merge.program import IMAGE_SHIFT
from ptweave.merge.tables import U64, Bools, read_table

if TYPE_CHECKING:
    from ptweave.merge.code_alike import ImageCode

_LONGEST = 15  # bytes of an instruction
_UNSEEN = ("ld-linux", "ld.so", "ld-musl", "libgomp", "libomp.", "libiomp5.")
"""Files whose names begin so: the dynamic loader has a lock of its own, and OpenMP's libraries wait and wake by
instructions of their own."""


class RaceSites:
    """Instructions by their packed places. Use as a context manager."""

    def __init__(self, bundle: Bundle) -> None:
        rows = read_table(bundle, IMAGES, ["image", "name", "path", "kind"]).to_pylist()
        self._bundle = bundle
        self._kept = {row["image"]: row["name"] for row in rows if row["name"] and row["kind"] != "missing"}
        self._unseen = [row["image"] for row in rows if PurePath(row["path"] or "").name.startswith(_UNSEEN)]
        self._opened: dict[int, ImageCode | None] = {}
        self._atomic: dict[int, bool] = {}

    def __enter__(self) -> RaceSites:
        return self

    def __exit__(self, *unused: object) -> None:
        for code in self._opened.values():
            if code is not None:
                code.close()

    def are_ordered_unseen(self, places: U64) -> Bools:
        """Which lie in the dynamic loader, or in an OpenMP library."""
        found: Bools = np.isin((places >> np.uint64(IMAGE_SHIFT)).astype(np.int64) - 1, self._unseen)
        return found

    def are_atomic(self, places: U64) -> Bools:
        """Which read and write memory in one. Code that was not kept, or is not known, is none."""
        distinct, back = np.unique(places, return_inverse=True)
        found: Bools = np.array([self._is_atomic(place) for place in distinct.tolist()], np.bool_)[back.reshape(-1)]
        return found

    def _is_atomic(self, place: int) -> bool:
        if place not in self._atomic:
            code = self._code((place >> IMAGE_SHIFT) - 1)
            self._atomic[place] = code is not None and _is_atomic(
                code.bytes_of(place & (1 << IMAGE_SHIFT) - 1, _LONGEST))
        return self._atomic[place]

    def _code(self, image: int) -> ImageCode | None:
        from ptweave.merge.code_alike import ImageCode  # few runs have races: they do not wait for a disassembler

        if image not in self._opened:
            try:
                self._opened[image] = ImageCode.kept(self._bundle, self._kept.get(image), 0)
            except BadInput:  # its accesses are then like those of code that was not kept
                self._opened[image] = None
        return self._opened[image]


def _is_atomic(code: bytes) -> bool:
    """Whether the first instruction is: those with a LOCK prefix, and XCHG with memory, which is always (SDM volume 2,
    XCHG)."""
    from iced_x86 import Decoder, Mnemonic, OpKind

    one = next(iter(Decoder(64, code)), None)
    return one is not None and (one.has_lock_prefix or (
        one.mnemonic == Mnemonic.XCHG and OpKind.MEMORY in (one.op0_kind, one.op1_kind)))
