# SPDX-License-Identifier: MIT
"""The kernel's changes of its own code (static keys, ftrace, kprobes): TEXT_POKE records become maps over its code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ptweave.data.perf.records import TextPoke
from ptweave.data.perf.tasks import Patch, Space
from ptweave.decode.importing import Images
from ptweave.decode.perfimport.kernel import SPLIT

ADDRESS_END = (1 << 64) - 1

WORK_MAX = 1 << 30
"""What setting up image sets may cost (`Patches.work`): some 5 s for each range of a trace. A recording with more
changes, as of function tracing being turned on, goes without."""


@dataclass(frozen=True)
class Piece:
    """Bytes of code at an address, from an epoch on; `offset`: in the file all of them are in."""

    address: int
    size: int
    offset: int
    epoch: int


class Patches:
    """All changes of a recording. `image`: the file with their bytes, old and new, None when there are none."""

    def __init__(self, patches: list[Patch], images: Images) -> None:
        self._patches = [[poke for poke in patch.pokes if _usable(poke)] for patch in patches]
        self._bytes = bytearray()
        self._original = [self._piece(poke.address, poke.old) for patch in reversed(self._patches)
                          for poke in reversed(patch) if poke.old]
        self._changed = [[self._piece(poke.address, poke.new) for poke in patch] for patch in self._patches]
        self.image = images.keep_bytes(bytes(self._bytes)).name if self._bytes else None

    def work(self, spaces: list[Space]) -> int:
        """What they cost: in each image set libipt holds every place against all others, and we replay the changes."""
        places = len({piece.address for patch in self._changed for piece in patch})
        changes = sum(len(patch) for patch in self._changed)
        return (places * places + changes) * sum(space.said + 1 for space in spaces)

    def of(self, space: Space) -> Iterator[Piece]:
        """What lies over the kernel's code in a space, in order. First what was there before all changes: the code we
        have may be from any time."""
        yield from self._original
        for number, patch in enumerate(self._changed):
            epoch = space.epoch_of(number)
            if epoch > space.said:
                break
            for piece in patch:
                yield Piece(piece.address, piece.size, piece.offset, epoch)

    def _piece(self, address: int, code: bytes) -> Piece:
        # each has bytes of its own: libipt counts the uses of a stretch of a file in 16 bits
        self._bytes += code
        return Piece(address, len(code), len(self._bytes) - len(code), 0)


def _usable(poke: TextPoke) -> bool:
    return SPLIT <= poke.address < ADDRESS_END - max(len(poke.old), len(poke.new))
