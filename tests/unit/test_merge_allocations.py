# SPDX-License-Identifier: MIT
"""Which allocation a page belongs to: against a search through all of them."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from ptweave.data import layout
from ptweave.merge.accesses import regions
from ptweave.merge.allocations import Allocations

UNIT, PAGE = layout.UNIT, layout.PAGE


def searched(rows: list[tuple[int, int, int]], page: int, time: int) -> int:
    """The last row (t, address, size) at or before a time whose units hold the page; −1 none."""
    found, latest = -1, -1
    for number, (t, address, size) in enumerate(rows):
        end = address + (size + UNIT - 1) // UNIT * UNIT
        if address <= page < end and latest <= t <= time:
            found, latest = number, t
    return found


def allocations(rows: list[tuple[int, int, int]], large: int = 1 << 16) -> Allocations:
    return Allocations(pa.table({
        "t": pa.array([row[0] for row in rows], pa.int64()), "address": pa.array([row[1] for row in rows], pa.uint64()),
        "size": pa.array([row[2] for row in rows], pa.uint64())}), large=large)


@pytest.mark.parametrize("large", [1 << 16, 2])
@pytest.mark.parametrize("seed", range(20))
def test_the_last_allocation_before_the_access_is_found(seed: int, large: int) -> None:
    choose = random.Random(seed)
    times = choose.sample(range(1000), 60)
    rows = [(t, layout.HEAP + choose.randrange(30) * UNIT, choose.choice((1, UNIT, 3 * UNIT, 5 * UNIT + 7)))
            for t in times]
    table = allocations(rows, large)
    pages = [layout.HEAP + choose.randrange(40 * UNIT // PAGE) * PAGE for _ in range(500)]
    asked = [choose.randrange(-5, 1005) for _ in pages]
    found = table.of(np.array(pages, np.uint64), np.array(asked, np.int64))
    assert found.tolist() == [searched(rows, page, time) for page, time in zip(pages, asked, strict=True)]
    assert len(set(found.tolist())) > 10


def test_pages_elsewhere_and_runs_without_allocations_have_none() -> None:
    pages = np.array([0, layout.REGION, layout.REGION_END, layout.FILES, layout.HEAP], np.uint64)
    none = allocations([])
    assert none.of(pages, np.full(5, 7, np.int64)).tolist() == [-1] * 5
    some = allocations([(1, layout.HEAP, 10), (1, 4096, 10), (1, layout.REGION_END - UNIT, 1 << 62)])
    assert some.of(pages, np.full(5, 7, np.int64)).tolist() == [-1] * 4 + [0]


def test_regions_are_those_of_the_layout() -> None:
    pages = np.array([layout.REGION, layout.HEAP - PAGE, layout.HEAP, layout.REGION_END - PAGE, layout.REGION_END,
                      layout.FILES, layout.FILES_END - PAGE, layout.FILES_END, 0x400000], np.uint64)
    assert regions(pages).to_pylist() == ["stack", "stack", "heap", "heap", "data", "file", "file", "data", "data"]
