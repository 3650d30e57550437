# SPDX-License-Identifier: MIT
"""A run's profile as collapsed stacks, one a line: `main;work;inner 1234`, as flamegraph.pl and others read them."""

from __future__ import annotations

from typing import IO

from ptweave.merge.exports.stacks import Stacks, Weight, weights
from ptweave.merge.render import safe
from ptweave.merge.run import Run


def frame(name: str) -> str:
    """A function's name as the format can hold it: `;` parts frames, a line's end parts stacks."""
    return safe(name).replace(";", "\\x3b") or " "


def export(run: Run, out: IO[bytes], weight: Weight = Weight.INSTRUCTIONS, *, thread: int | None = None) -> list[str]:
    """Write the stacks to `out`. Raises BadInput when there is no profile."""
    run.need("profile", "stacks")
    stacks = Stacks(run)
    names = [frame(name) for name in stacks.names]
    for frames, count in stacks.frames(weights(run, weight, thread)):
        out.write(f"{';'.join([names[index] for index in frames])} {count}\n".encode())
    return []
