# SPDX-License-Identifier: MIT
"""`perf-PID.map`: where a just-in-time compiler put its functions (Linux, tools/perf/Documentation/jit-interface.txt).

A line is `START SIZE NAME`, both numbers in hexadecimal; the name is the rest of the line. The target wrote it: what
is not such a line is counted, a number that is none of an address too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ptweave.decode.functions import ADDRESS_MAX, Candidates, Functions, Names

MAX_BYTES = 64 << 20
MAX_LINES = 1 << 22
"""Lines beyond which the rest is not read."""

LINE = re.compile(rb"^(?:0[xX])?([0-9a-fA-F]{1,16})[ \t]+(?:0[xX])?([0-9a-fA-F]{1,16})[ \t]+([^\n\0]+)$", re.M)


@dataclass(frozen=True)
class PerfMap:
    """Functions by the addresses they had when they ran. `malformed` counts lines that say nothing."""

    functions: Functions
    lines: int
    malformed: int


def read_perf_map(path: Path) -> PerfMap | None:
    """The map at `path`, a file of the bundle's; None when there is none. Of several lines at an address the last
    one counts: the code there was replaced."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES)
    except OSError:
        return None
    return parse_perf_map(data)


def parse_perf_map(data: bytes) -> PerfMap:
    """Parse the text of a map."""
    starts, sizes, places, texts = [], [], [], []
    matched = place = 0
    for match in LINE.finditer(data):
        start, size = int(match[1], 16), int(match[2], 16)
        if size and start + size <= int(ADDRESS_MAX):
            starts.append(start)
            sizes.append(size)
            places.append(place)
            texts.append(match[3])
            place += len(match[3]) + 1
            matched += 1
            if matched == MAX_LINES:
                break
    lines = data.count(b"\n") + bool(data and not data.endswith(b"\n"))
    count = len(starts)
    strings = b"\0".join(texts) + b"\0"
    # the last line of an address has the best rank
    functions = Functions([Candidates(
        np.array(starts, np.uint64), np.array(sizes, np.uint64), np.array(starts, np.uint64),
        -np.arange(count, dtype=np.int64), np.zeros(count, np.bool_), np.array(places, np.int64), Names(strings))])
    return PerfMap(functions, lines, lines - matched)
