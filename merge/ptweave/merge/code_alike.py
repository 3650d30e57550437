# SPDX-License-Identifier: MIT
"""Whether blocks of two builds are the same code: their instructions, apart from where they lie and where what they
refer to lies. Bytes are not to be compared: code that moved calls, jumps and reads by other distances."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import PurePath

from iced_x86 import Decoder, Formatter, FormatterSyntax, Instruction, OpKind

from ptweave.data.bundle import Bundle
from ptweave.data.errors import BadInput

Telling = tuple[tuple[object, ...], ...]
"""Of a block: what of each of its instructions is compared."""

_BRANCHES = {OpKind.NEAR_BRANCH16, OpKind.NEAR_BRANCH32, OpKind.NEAR_BRANCH64, OpKind.FAR_BRANCH16,
             OpKind.FAR_BRANCH32}
_BSS = 64 << 20
"""Bytes behind an image's that belong to it as well, at most."""
_MOST = 1 << 16
"""Bytes of a block that are looked at."""


class ImageCode:
    """The code of one image of a run. Whoever makes one closes it."""

    def __init__(self, bundle: Bundle, name: str, base: int) -> None:
        """`name`: its file in images/; `base`: the lowest address it was at, less the offset there.

        Raises BadInput where it cannot be read.
        """
        self._file = _open(bundle, name)
        self._addresses = range(base, base + 2 * os.fstat(self._file).st_size + _BSS)

    @classmethod
    def kept(cls, bundle: Bundle, name: str | None, base: int) -> ImageCode | None:
        """The same; None where the bundle does not have the file."""
        return cls(bundle, name, base) if name and (bundle.images / name).exists() else None

    def close(self) -> None:
        os.close(self._file)

    def bytes_of(self, offset: int, size: int) -> bytes:
        """A block's; fewer where the file has no more."""
        return os.pread(self._file, min(size, _MOST), offset)

    def telling(self, offset: int, size: int, bits: int) -> Telling:
        """What a block's code does; `bits`: the processor's mode."""
        decoder = Decoder(bits, self.bytes_of(offset, size))
        return tuple(self._parts(instruction) for instruction in decoder)

    def text(self, offset: int, size: int, bits: int, number: int) -> str:
        """One of a block's instructions, as text; addresses are offsets in the image."""
        decoder = Decoder(bits, self.bytes_of(offset, size), ip=offset)
        text: str = Formatter(FormatterSyntax.INTEL).format(next(islice(decoder, number, None)))
        return text

    def _parts(self, one: Instruction) -> tuple[object, ...]:
        operands = [self._operand(one, number) for number in range(one.op_count)]
        return (one.mnemonic, one.has_lock_prefix, one.has_rep_prefix, one.has_repne_prefix, *operands)

    def _operand(self, one: Instruction, number: int) -> object:
        kind = one.op_kind(number)
        if kind == OpKind.REGISTER:
            return kind, one.op_register(number)
        if kind in _BRANCHES:
            return None
        if kind == OpKind.MEMORY:
            moves = one.is_ip_rel_memory_operand or one.memory_displacement in self._addresses
            return (one.memory_size, one.memory_segment, one.memory_index, one.memory_index_scale,
                    None if moves else (one.memory_base, one.memory_displacement))
        if OpKind.IMMEDIATE8 <= kind <= OpKind.IMMEDIATE32TO64:
            value = one.immediate(number)
            return None if value in self._addresses else value
        return kind


def _open(bundle: Bundle, name: str) -> int:
    path = bundle.images / name
    if not name or PurePath(name).name != name:
        raise BadInput(f"names an image {name!r}", where=str(bundle.path), remedy="decode the run again")
    try:
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise BadInput(f"cannot be read ({error.strerror})", where=str(path),
                       remedy="copy the whole bundle") from error
