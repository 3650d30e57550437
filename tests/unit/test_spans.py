# SPDX-License-Identifier: MIT
"""Spans small enough to draw: the longest are kept, and how full each moment was is what adding up each span gives."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from ptweave.merge.spans import KINDS, Spans, collect

Row = dict[str, object]


def rows_of(seed: int, count: int, end: int = 1000) -> list[Row]:
    draw = random.Random(seed)
    found: list[Row] = []
    for _ in range(count):
        begin = draw.randrange(end)
        what = draw.choice(["begin", *KINDS])
        length = 0 if what == "gap" else draw.choice([0, 1, 5, 300])
        found.append({"t_begin": begin, "t_end": min(begin + length, end), "ns": min(length, end - begin),
                      "thread": draw.choice([1, 4]), "what": what, "detail": "d", "thunk": None, "object": None,
                      "variable": None, "function": None})
    return found


SCHEMA = pa.schema([("t_begin", pa.int64()), ("t_end", pa.int64()), ("ns", pa.int64()), ("thread", pa.int32()),
                    ("what", pa.string()), ("detail", pa.string()), ("thunk", pa.int32()), ("object", pa.uint64()),
                    ("variable", pa.string()), ("function", pa.string())])


def collected(rows: list[Row], threads: list[int], budget: int, bins: int, batch: int = 7) -> Spans:
    batches = [pa.RecordBatch.from_pylist(rows[at:at + batch], SCHEMA) for at in range(0, len(rows), batch)]
    return collect(batches, threads, 0, 1000, budget=budget, bins=bins)


def added_up(rows: list[Row], threads: list[int], bins: int) -> np.ndarray:
    """The oracle: every nanosecond of every span, one by one."""
    full = np.zeros((len(threads), len(KINDS), bins))
    for row in rows:
        if row["thread"] in threads:
            kind = KINDS.index(str(row["what"])) if row["what"] in KINDS else 1
            for t in range(int(str(row["t_begin"])), int(str(row["t_end"]))):
                full[threads.index(int(str(row["thread"]))), kind, t * bins // 1000] += bins / 1000
    return np.clip(full, 0, 1)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("bins", [1, 10, 250])
def test_moments_are_as_full_as_their_spans_make_them(seed: int, bins: int) -> None:
    rows = rows_of(seed, 60)
    assert np.allclose(collected(rows, [1, 4], 1000, bins).filled, added_up(rows, [1, 4], bins))
    assert np.allclose(collected(rows, [4], 5, bins).filled, added_up(rows, [4], bins))
    assert not np.allclose(collected(rows[1:], [1, 4], 5, bins).filled, added_up([*rows, *rows[:9]], [1, 4], bins)), \
        "control: other spans fill otherwise"


@pytest.mark.parametrize("seed", range(4))
def test_the_longest_spans_are_kept_and_gaps_before_all(seed: int) -> None:
    rows = rows_of(seed, 400)
    gaps = sum(row["what"] == "gap" for row in rows)
    found = collected(rows, [1, 4], budget=gaps + 20, bins=10)
    kept = found.table.to_pylist()
    assert found.total == 400 and not found.complete and len(kept) == gaps + 20
    assert sum(row["what"] == "gap" for row in kept) == gaps
    lengths = sorted((int(str(row["ns"])) for row in rows if row["what"] != "gap"), reverse=True)
    assert sorted((row["ns"] for row in kept if row["what"] != "gap"), reverse=True) == lengths[:20]


def test_everything_is_kept_where_there_is_room_in_order_of_threads_and_time() -> None:
    rows = rows_of(9, 100)
    found = collected(rows, [1, 4], budget=100, bins=10)
    order = [(row["thread"], row["t_begin"]) for row in found.table.to_pylist()]
    assert found.complete and order == sorted(order) and len(order) == 100


def test_what_has_no_time_or_no_known_thread_is_left_out() -> None:
    rows = rows_of(2, 20)
    timeless = {**rows[0], "t_begin": None, "t_end": None, "ns": None}
    assert collected([*rows, timeless], [1, 4], 100, 10).total == 20
    assert collected(rows, [], 100, 10).total == 0
    assert collect([], [1], 0, 10).complete
