# SPDX-License-Identifier: MIT
"""Reads little-endian fields one after the other and never beyond the end."""

from __future__ import annotations

import struct

_U16, _U32, _I32, _U64 = struct.Struct("<H"), struct.Struct("<I"), struct.Struct("<i"), struct.Struct("<Q")


class Short(ValueError):
    """The bytes end before the field does."""


class Cursor:
    """A place in a buffer; `end` is never passed: a read beyond it raises Short."""

    __slots__ = ("at", "data", "end")

    def __init__(self, data: bytes | memoryview, at: int = 0, end: int | None = None) -> None:
        self.data = data
        self.at = at
        self.end = len(data) if end is None else min(end, len(data))

    @property
    def left(self) -> int:
        return self.end - self.at

    def _take(self, size: int) -> int:
        at = self.at
        if size < 0 or at + size > self.end:
            raise Short(f"{size} bytes wanted, {self.left} left")
        self.at = at + size
        return at

    def u8(self) -> int:
        return self.data[self._take(1)]

    def u16(self) -> int:
        return int(_U16.unpack_from(self.data, self._take(2))[0])

    def u32(self) -> int:
        return int(_U32.unpack_from(self.data, self._take(4))[0])

    def i32(self) -> int:
        return int(_I32.unpack_from(self.data, self._take(4))[0])

    def u64(self) -> int:
        return int(_U64.unpack_from(self.data, self._take(8))[0])

    def skip(self, size: int) -> None:
        self._take(size)

    def bytes(self, size: int) -> bytes:
        at = self._take(size)
        return bytes(self.data[at:at + size])

    def u64s(self, count: int) -> tuple[int, ...]:
        """`count` u64; the count is checked against what is left first."""
        at = self._take(8 * count)
        return struct.unpack_from(f"<{count}Q", self.data, at)

    def text(self, limit: int | None = None) -> str:
        """The NUL-terminated text from here to the end (or `limit` bytes); the cursor does not move.

        Bytes that are no UTF-8 become surrogates, so that a path can be turned back into them.
        """
        end = self.end if limit is None else min(self.end, self.at + limit)
        raw = bytes(self.data[self.at:end])
        return raw.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")

    def string(self) -> str:
        """A `perf_header_string`: u32 length, then so many bytes, padded with NULs."""
        return self.bytes(self.u32()).split(b"\0", 1)[0].decode("utf-8", "surrogateescape")
