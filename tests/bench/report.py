# SPDX-License-Identifier: MIT
"""What every benchmark shares: medians, ratios to a peer in the same run, and `build/bench/NAME.json`."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUNS = 5


@dataclass(frozen=True)
class Figure:
    """One measured figure; `peer` names what it is divided by, `ratio` is null where there is no peer.

    `published` is the ratio that the literature gives for the same thing, `wanted` the one that is asked for.
    """

    metric: str
    value: float
    unit: str
    peer: str
    ratio: float | None
    published: float | None = None
    wanted: float | None = None

    def beside(self) -> str:
        """What it is to be compared with, for the eye."""
        words = [f"{self.ratio:7.2f} x {self.peer}"] if self.ratio is not None else []
        words += [f"(published {self.published:.2f})"] if self.published is not None else []
        words += [f"(wanted at most {self.wanted:.3g})"] if self.wanted is not None else []
        return " ".join(words)


def medians_of(measures: list[Callable[[], float]], runs: int = RUNS, *, slow: float = math.inf,
               few: int = RUNS) -> list[float]:
    """Medians of several measures taken in turns, so that a noisy moment hits all of them alike.

    One whose first value is beyond `slow` is taken `few` times only.
    """
    taken: list[list[float]] = [[] for _ in measures]
    for turn in range(runs):
        for values, measure in zip(taken, measures, strict=True):
            if turn < few or values[0] <= slow:
                values.append(measure())
    return [statistics.median(values) for values in taken]


def kept(name: str, figures: list[Figure]) -> list[Figure]:
    """The figures of an earlier `write`, with these in their places or at the end."""
    path = ROOT / "build" / "bench" / f"{name}.json"
    before = [Figure(**one) for one in json.loads(path.read_text())] if path.exists() else []
    new = {figure.metric: figure for figure in figures}
    return [new.pop(figure.metric, figure) for figure in before] + list(new.values())


def write(name: str, figures: list[Figure]) -> None:
    """Print the figures and keep them as JSON."""
    folder = ROOT / "build" / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps([asdict(figure) for figure in figures], indent=1) + "\n")
    width = max(len(figure.metric) for figure in figures)
    for figure in figures:
        print(f"{figure.metric:<{width}}  {figure.value:>12.3f} {figure.unit:<4} {figure.beside()}".rstrip())
