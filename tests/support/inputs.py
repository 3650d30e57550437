# SPDX-License-Identifier: MIT
"""Input files that tests, demo and benchmarks make: the same bytes every time."""

from __future__ import annotations

import random
from pathlib import Path

WORDS = 4000
SEED = 20


def text_file(path: Path, size: int) -> Path:
    """A text of `size` bytes whose words are distributed as in language (Zipf), so that it compresses like one."""
    source = random.Random(SEED)
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    weights = [26 - i for i in range(26)]
    words = ["".join(source.choices(letters, weights, k=source.randint(2, 9))) for _ in range(WORDS)]
    frequency = [1 / (rank + 1) for rank in range(WORDS)]
    parts: list[str] = []
    length = 0
    while length < size:
        sentence = " ".join(source.choices(words, frequency, k=source.randint(5, 16))) + ".\n"
        parts.append(sentence)
        length += len(sentence)
    path.write_bytes("".join(parts).encode()[:size])
    return path
