# SPDX-License-Identifier: MIT
"""Answers of all types, for what writes them."""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Decimal

import pyarrow as pa

HOSTILE = ["", " ", "a ", "\u2003", "a\u00a0", "\x1b[31m", "\u202eb\n", "größe", "漢字漢字漢字", "e\u0301",
           "\U0001f600", "x" * 300, "NULL", '"\\']


def every_type(draw: random.Random, rows: int) -> pa.Table:
    """Columns of all types that answers have, with missing values, of few distinct values and of many."""
    def some(make: Callable[[], object]) -> list[object]:
        few = [make() for _ in range(3)]
        return [None if draw.random() < 0.1 else draw.choice([*few, make()]) for _ in range(rows)]

    text = some(lambda: draw.choice(HOSTILE))
    return pa.table({
        "i": pa.array(some(lambda: draw.randrange(-1 << 63, 1 << 63)), pa.int64()),
        "u": pa.array(some(lambda: draw.randrange(1 << 64)), pa.uint64()),
        "small": pa.array(some(lambda: draw.randrange(-9, 9)), pa.int8()),
        "text": pa.array(text, pa.string()), "large": pa.array(text, pa.large_string()),
        "chosen": pa.array(text, pa.string()).dictionary_encode(),
        "real": pa.array(some(lambda: draw.choice([0.1, -0.0, 1e300, float("inf"), float("nan")])), pa.float64()),
        "bool": pa.array(some(lambda: draw.random() < 0.5), pa.bool_()),
        "bytes": pa.array(some(lambda: draw.randbytes(draw.randrange(5))), pa.binary()),
        "sum": pa.array(some(lambda: Decimal(draw.randrange(10 ** 30))), pa.decimal128(38, 0)),
        "at": pa.array(some(lambda: draw.randrange(1 << 60)), pa.timestamp("ns")),
        "list": pa.array(some(lambda: [draw.choice([None, 1, 22])] * draw.randrange(3)), pa.list_(pa.int64())),
        "texts": pa.array(some(lambda: [draw.choice(HOSTILE)]), pa.list_(pa.string())),
        "none": pa.nulls(rows)})
