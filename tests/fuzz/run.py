# SPDX-License-Identifier: MIT
"""Fuzz the decoders: `make fuzz`, or `python -m tests.fuzz.run [INPUTS] [FIRST]` (10,000 from 0)."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), *(str(ROOT / room) for room in ("data", "preload", "wrapper", "decode", "merge"))]

STEP = 500


def main(inputs: int, first: int) -> None:
    from support import fuzzing

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fuzzer, entries = fuzzing.build(folder, fuzzing.build_ours(folder)), fuzzing.corpus(folder)
        for at in range(first, first + inputs, STEP):
            said = fuzzing.run(fuzzer, at, min(STEP, first + inputs - at), entries, 1800)
            print(f"{at + STEP - first:6} of {inputs}: {said.strip()}", flush=True)


if __name__ == "__main__":
    main(*(int(word) for word in (*sys.argv[1:], *("10000", "0")[len(sys.argv) - 1:])))
