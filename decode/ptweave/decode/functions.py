# SPDX-License-Identifier: MIT
"""Functions of one file as columns: which one an address is in, and what it is called.

Tables of symbols are merged as whole columns; a name is made only when it is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ptweave.data.nested import Nested
from ptweave.decode.elf import Addresses, Mask, text_at

ADDRESS_MAX = np.uint64((1 << 64) - 1)

Numbers = npt.NDArray[np.int64]


class Names:
    """Texts in a string table, with something appended to each."""

    def __init__(self, strings: bytes | memoryview, suffix: str = "") -> None:
        self._strings = strings
        self._suffix = suffix

    def __call__(self, offset: int) -> str:
        return text_at(self._strings, offset) + self._suffix


class NamedByAddress(Names):
    """Functions nobody named: `sub_1a2b`, the offset is the address."""

    def __init__(self) -> None:
        super().__init__(b"")

    def __call__(self, offset: int) -> str:
        return f"sub_{offset & 0xFFFF_FFFF_FFFF_FFFF:x}"


@dataclass(frozen=True)
class Candidates:
    """Names for addresses from one source: parallel columns.

    `sizes` 0: unknown, the function goes on to the next one or to `limits`. `ranks`: 0 is the best. `labels`: not
    functions, they name nothing inside one. `offsets`: of the names, in `names`.
    """

    starts: Addresses
    sizes: Addresses
    limits: Addresses
    ranks: Numbers
    labels: Mask
    offsets: Numbers
    names: Names

    def __len__(self) -> int:
        return len(self.starts)


class Functions:
    """Functions sorted by start, no two at the same one; `ends` are exclusive."""

    def __init__(self, sources: Sequence[Candidates]) -> None:
        """At one address the best rank wins, then the largest size, then the earlier source and place in it."""
        starts, sizes = _column(sources, "starts", np.uint64), _column(sources, "sizes", np.uint64)
        limits, ranks = _column(sources, "limits", np.uint64), _column(sources, "ranks", np.int64)
        labels, offsets = _column(sources, "labels", np.bool_), _column(sources, "offsets", np.int64)
        which = np.repeat(np.arange(len(sources)), [len(source) for source in sources])
        order = np.lexsort((~sizes, ranks, starts))  # stable: sources and their rows stay in order
        first = _first_of_each(starts[order])
        sizes = _known_sizes(sizes, order, first)
        order = order[first]
        order = order[~_inside_a_function(starts[order], sizes[order], labels[order])]
        self.starts: Addresses = starts[order]
        self.sized: Mask = sizes[order] != 0
        self.ends: Addresses = _ends(self.starts, sizes[order], limits[order])
        self._names = [source.names for source in sources]
        self._which = which[order]
        self._offsets = offsets[order]
        self._nested = Nested(self.starts, self.ends)

    def __len__(self) -> int:
        return len(self.starts)

    def find(self, addresses: Addresses) -> Numbers:
        """Index of the innermost function each address is in, −1 none."""
        return self._nested.find(addresses)

    def name(self, index: int) -> str:
        """The symbol's name as it is in the file (not demangled)."""
        names: Names = self._names[int(self._which[index])]
        return names(int(self._offsets[index]))


def _column(sources: Sequence[Candidates], name: str, kind: type[np.generic]) -> Any:
    columns = [getattr(source, name) for source in sources]
    return np.concatenate([np.zeros(0, kind), *columns]).astype(kind, copy=False)


def _first_of_each(starts: Addresses) -> Mask:
    """The first row of each value in a sorted column."""
    first: Mask = np.ones(len(starts), np.bool_)
    first[1:] = starts[1:] != starts[:-1]
    return first


def _known_sizes(sizes: Addresses, order: Numbers, first: Mask) -> Addresses:
    """A name without a size gets the largest of the others at its address: another source may know it."""
    if not len(order):
        return sizes
    best = order[first]
    largest = np.maximum.reduceat(sizes[order], np.flatnonzero(first))
    completed = sizes.copy()
    completed[best] = np.where(sizes[best] != 0, sizes[best], largest)
    return completed


def _ends(starts: Addresses, sizes: Addresses, limits: Addresses) -> Addresses:
    following = np.full(len(starts), ADDRESS_MAX)
    following[:-1] = starts[1:]
    known = starts + np.minimum(sizes, ADDRESS_MAX - starts)
    return np.where(sizes != 0, known, np.minimum(following, np.maximum(limits, starts)))


def _inside_a_function(starts: Addresses, sizes: Addresses, labels: Mask) -> Mask:
    """Which rows are labels that lie inside a function whose size is known."""
    ends = np.where(labels, starts, starts + np.minimum(sizes, ADDRESS_MAX - starts))
    farthest = np.maximum.accumulate(ends) if len(ends) else ends
    return labels & (starts < farthest)
