# SPDX-License-Identifier: MIT
"""What is known of the code of one ELF file: its bytes, functions, lines, and what may be jumped to.

Addresses are the file's own (link-time). Built by whoever can read ELF files (`ptweave.cli.code`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
from iced_x86 import Decoder, FlowControl, Instruction

Addresses = npt.NDArray[np.uint64]
WORD, TABLE_MAX = 8, 4096


@dataclass(frozen=True)
class Stretch:
    """Bytes of the file at an address. `code`: instructions; else data that is loaded."""

    address: int
    data: memoryview
    code: bool

    @property
    def end(self) -> int:
        return self.address + len(self.data)


@dataclass
class Code:
    """`starts` and `ends` are functions in order; `name(i)` names one. `symbols` are all names and where they are.

    `pointers`: addresses in code that relocations of the file put somewhere. `fixed`: it is loaded where it is linked,
    so that pointers need no relocation. `low`, `high`: what it takes in memory; `identity`: its first bytes there.
    `landings`: where exceptions go on, in order. `exports`: functions that other files' calls go to.
    """

    path: Path
    stretches: Sequence[Stretch]
    starts: Addresses
    ends: Addresses
    name: Callable[[int], str]
    symbols: dict[str, list[int]]
    pointers: Addresses
    fixed: bool
    low: int
    high: int
    identity: bytes
    address_of: Callable[[int], int | None]
    lines: Callable[[str, int], list[int]] = field(default=lambda file, line: [])
    landings: Addresses = field(default_factory=lambda: np.zeros(0, np.uint64))
    exports: frozenset[str] = frozenset()

    def function(self, address: int) -> int:
        """Index of the innermost function an address is in; −1 none."""
        at = int(np.searchsorted(self.starts, np.uint64(address), side="right")) - 1
        while at >= 0 and address - int(self.starts[at]) < 1 << 24:
            if address < int(self.ends[at]):
                return at
            at -= 1
        return -1

    def bytes(self, address: int, size: int) -> bytes:
        """Fewer than `size` where the stretch ends."""
        for stretch in self.stretches:
            if stretch.address <= address < stretch.end:
                return bytes(stretch.data[address - stretch.address:address - stretch.address + size])
        return b""

    def sweep(self) -> Iterator[Instruction]:
        """All instructions, in order of address; decoding begins anew with each function."""
        for stretch in self.stretches:
            if not stretch.code:
                continue
            inside = self.starts[(self.starts > stretch.address) & (self.starts < stretch.end)]
            cuts = [stretch.address, *(int(start) for start in inside), stretch.end]
            for begin, end in pairwise(cuts):
                yield from Decoder(64, bytes(stretch.data[begin - stretch.address:end - stretch.address]), ip=begin)

    def instructions(self, begin: int, end: int) -> Iterator[Instruction]:
        yield from Decoder(64, self.bytes(begin, end - begin), ip=begin)

    @cached_property
    def targets(self) -> Addresses:
        """What is jumped to, sorted: targets of direct branches, pointers into code, and where exceptions go on."""
        direct = {instruction.near_branch_target for instruction in self.sweep()
                  if instruction.flow_control in _DIRECT}
        found = [np.fromiter(direct, np.uint64, len(direct)), self.pointers, self.landings]
        if self.fixed:
            found += [self._words(stretch) for stretch in self.stretches if not stretch.code]
        return np.unique(np.concatenate(found))

    def _words(self, stretch: Stretch) -> Addresses:
        at = -stretch.address % WORD
        words = np.frombuffer(stretch.data[at:at + (len(stretch.data) - at) // WORD * WORD], "<u8")
        inside = np.zeros(len(words), np.bool_)
        for code in self.stretches:
            if code.code:
                inside |= (words >= code.address) & (words < code.end)
        return np.asarray(words[inside], np.uint64)

    def jumped_to(self, begin: int, end: int) -> int | None:
        """An address in [begin, end) that something jumps to."""
        at = int(np.searchsorted(self.targets, np.uint64(begin)))
        return int(self.targets[at]) if at < len(self.targets) and int(self.targets[at]) < end else None


_DIRECT = {FlowControl.UNCONDITIONAL_BRANCH, FlowControl.CONDITIONAL_BRANCH, FlowControl.CALL,
           FlowControl.XBEGIN_XABORT_XEND}


def table_targets(code: Code, table: int, begin: int, end: int) -> list[int]:
    """Targets in a function [begin, end) out of a jump table of offsets from itself (what compilers make for switch in
    code that may be anywhere); empty: it is none."""
    raw = code.bytes(table, 4 * TABLE_MAX)
    found: list[int] = []
    for offset in np.frombuffer(raw[:len(raw) // 4 * 4], "<i4").tolist():
        if not begin <= table + offset < end:
            break
        found.append(table + offset)
    return found
