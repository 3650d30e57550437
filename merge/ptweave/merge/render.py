# SPDX-License-Identifier: MIT
"""Rows as text and as HTML. Every value may come from a hostile program: control characters and markup are escaped."""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ptweave.data.errors import BadInput

_MAX_CELL = 120
_TEXT = pa.large_string()
_GAP = "  "
_UNSAFE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def values(column: pa.Array) -> list[Any]:
    """A column's values; whole numbers of 128 bits, which sums are, as int; times to the nanosecond, which Python's
    have not, as text."""
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        return [None if one is None else str(one) for one in column.cast(pa.string()).to_pylist()]
    try:
        found: list[Any] = column.to_pylist()
    except ValueError as error:
        raise BadInput("has times to the nanosecond in a list or structure", where="query",
                       remedy="cast them to timestamp or varchar") from error
    if pa.types.is_decimal(column.type) and column.type.scale == 0:
        return [None if value is None else int(value) for value in found]
    return found


def tuples(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """A batch's rows; columns may share a name."""
    return zip(*(values(column) for column in batch.columns), strict=True)


def texts(column: pa.Array, shown: Callable[[Any], str]) -> pa.Array:
    """A column's values as text: whole numbers as they are, of others what `shown` makes of each, which is asked once
    where texts are the same. A value that is missing is None to it."""
    if pa.types.is_integer(column.type):
        return column.cast(_TEXT).fill_null(shown(None))
    if pa.types.is_dictionary(column.type) and len(column.dictionary) > len(column):
        column = column.dictionary_decode()  # most of them are others' texts
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = column.dictionary_encode()
    if not pa.types.is_dictionary(column.type):
        return pa.array([shown(value) for value in values(column)], _TEXT)
    distinct = pa.array([shown(value) for value in values(column.dictionary)], _TEXT)
    return distinct.take(column.indices).fill_null(shown(None))


def safe(text: str) -> str:
    """Text that cannot steer a terminal: control and formatting characters are shown as escapes."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if unicodedata.category(char) not in _UNSAFE else char.encode("unicode_escape").decode()
                   for char in text)


def cell(value: object) -> str:
    """A value as one line of text; None is empty."""
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return "[" + ", ".join("NULL" if item is None else cell(item) for item in value) + "]"
    if isinstance(value, bytes):
        return value.hex()
    return safe(str(value))


def width_of(text: str) -> int:
    """Columns a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
               for char in text)


def _fit(text: str, width: int | None) -> str:
    if width is None or width_of(text) <= width:
        return text
    kept = ""
    for char in text:
        if width_of(kept + char) > width - 1:
            break
        kept += char
    return kept + "…"


def address(value: object) -> str:
    """An address as one line of text; None is empty."""
    return f"{value:#x}" if isinstance(value, int) else cell(value)


class TextTable:
    """Aligned columns: widths follow the first rows given; numbers to the right, `addresses` among them hexadecimal.

    `limit` is the width of the terminal: columns too wide for it are cut. Without it nothing is cut.
    """

    def __init__(self, names: Sequence[str], numeric: Sequence[bool], sample: Sequence[Sequence[object]],
                 limit: int | None = None, addresses: Sequence[bool] | None = None) -> None:
        self._names = [safe(name) for name in names]
        self._numeric = list(numeric)
        self._hexadecimal = list(addresses or [False] * len(names))
        self._cell = [address if here else cell for here in self._hexadecimal]
        cells = [self._names, *(self._cells(row) for row in sample)]
        self._widths = [max((width_of(row[i]) for row in cells), default=0) for i in range(len(names))]
        self._cut = limit is not None
        if limit is not None:
            self._shrink(limit)

    def _shrink(self, limit: int) -> None:
        """Take from the widest columns until a line fits, as long as that leaves something to read."""
        room = limit - 2 * max(len(self._widths) - 1, 0)
        self._widths = [min(width, _MAX_CELL) for width in self._widths]
        while sum(self._widths) > room:
            widest = max(range(len(self._widths)), key=self._widths.__getitem__)
            if self._widths[widest] <= 8:
                break
            self._widths[widest] -= 1

    def _cells(self, row: Sequence[object]) -> list[str]:
        return [shown(value) for shown, value in zip(self._cell, row, strict=True)]

    def _padded(self, text: str, column: int) -> str:
        width = self._widths[column]
        shown = _fit(text, width if self._cut else None)
        pad = " " * (width - width_of(shown))
        return pad + shown if self._numeric[column] else shown + pad

    def _line(self, cells: Sequence[str]) -> str:
        return _GAP.join(self._padded(text, column) for column, text in enumerate(cells)).rstrip()

    def header(self) -> list[str]:
        """The names, and a rule below them."""
        return [self._line(self._names), _GAP.join("─" * width for width in self._widths)]

    def lines(self, rows: Iterable[Sequence[object]]) -> Iterable[str]:
        """Rows, a line each."""
        return (self._line(self._cells(row)) for row in rows)

    def text(self, batch: pa.RecordBatch) -> str:
        """The rows of a batch, which has columns, a line each: the same as `lines`, many at a time."""
        columns = [self._column(column, number) for number, column in enumerate(batch.columns)]
        lines = pc.utf8_rtrim_whitespace(pc.binary_join_element_wise(*columns, pa.scalar(_GAP, _TEXT)))
        return "".join(f"{line}\n" for line in lines.to_pylist())

    def _column(self, column: pa.Array, number: int) -> pa.Array:
        if self._hexadecimal[number]:
            column = column.dictionary_encode()
        if not pa.types.is_integer(column.type):
            return texts(column, lambda value: self._padded(self._cell[number](value), number))
        shown, width = texts(column, cell), self._widths[number]
        if self._cut and (pc.max(pc.binary_length(shown)).as_py() or 0) > width:
            return pa.array([self._padded(text, number) for text in shown.to_pylist()], _TEXT)
        return (pc.utf8_lpad if self._numeric[number] else pc.utf8_rpad)(shown, width)


def html_table(names: Sequence[str], numeric: Sequence[bool], rows: Iterable[Sequence[object]],
               addresses: Sequence[bool] | None = None) -> str:
    """An HTML table; nothing in it is markup but ours."""
    shown = [address if here else cell for here in addresses or [False] * len(names)]

    def style(right: bool) -> str:
        return ' style="text-align:right"' if right else ' style="text-align:left"'

    head = "".join(f"<th{style(right)}>{html.escape(safe(name))}</th>"
                   for name, right in zip(names, numeric, strict=True))
    body = "".join("<tr>" + "".join(f"<td{style(right)}>{html.escape(_fit(as_text(value), _MAX_CELL))}</td>"
                                    for value, right, as_text in zip(row, numeric, shown, strict=True)) + "</tr>"
                   for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
