# SPDX-License-Identifier: MIT
"""What a table is: columns with type, unit and meaning."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa


@dataclass(frozen=True)
class Column:
    name: str
    type: pa.DataType
    unit: str
    doc: str
    delta: bool = False  # a (nearly) sorted integer column
    dictionary: bool = False
    required: bool = False  # never null: written without definition levels
    bounds: bool = False  # row groups tell its least and greatest value, although it is in no order
    split: bool = False  # numbers of few distinct high bytes in no order: byte streams compress best and fastest


@dataclass(frozen=True)
class Table:
    name: str
    doc: str
    columns: tuple[Column, ...]
    sort: tuple[str, ...] = field(default=())

    @property
    def bounded(self) -> list[str]:
        """Columns of which row groups tell the least and the greatest value: where rows have an order, those of others
        would rule nothing out."""
        return [c.name for c in self.columns if not pa.types.is_nested(c.type)
                and (c.delta or c.bounds or c.name in self.sort or not self.sort)]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(c.name, c.type, nullable=not c.required) for c in self.columns],
                         metadata={b"ptweave.table": b"1"})
