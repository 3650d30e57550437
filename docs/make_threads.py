# SPDX-License-Identifier: MIT
"""Put the figures of `make bench-threads` into docs/threads.md: `python docs/make_threads.py` after it was run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PAGE = Path(__file__).with_name("threads.md")
FIGURES = Path(__file__).resolve().parents[1] / "build" / "bench" / "threads.json"
BEGIN, END = "<!-- figures: begin -->\n", "<!-- figures: end -->\n"
NATIVE = "native"


def _cell(figure: dict[str, Any] | None) -> str:
    if figure is None:
        return ""
    if figure["ratio"] is None or figure["unit"] in ("us", "ns"):  # single operations
        return f"{figure['value']:.4g} {figure['unit']}"
    return f"{figure['ratio']:.2f}"


def _wanted(figure: dict[str, Any]) -> str:
    if figure["wanted"] is None:
        return ""
    if figure["unit"] in ("us", "ns"):
        return f"≤ {figure['wanted'] * figure['value'] / figure['ratio']:.0f} {figure['unit']}"
    return f"≤ {figure['wanted']:.3g}"


def table(figures: list[dict[str, Any]]) -> str:
    """A row for each thing measured, a column for each mode; ratios to the native run, and what was asked for."""
    rows: dict[str, dict[str, dict[str, Any]]] = {}
    modes: list[str] = []
    for figure in figures:
        what, _, mode = figure["metric"].rpartition(": ")
        rows.setdefault(what, {})[mode] = figure
        modes += [] if mode in modes else [mode]
    modes.sort(key=lambda mode: mode != NATIVE)
    lines = ["| | " + " | ".join(modes) + " | published | wanted, held shared |", "|---" * (len(modes) + 3) + "|"]
    for what, found in rows.items():
        published = next((one["published"] for one in found.values() if one["published"] is not None), None)
        wanted = next((_wanted(one) for mode, one in found.items() if "held shared" in mode), "")
        cells = [what, *(_cell(found.get(mode)) for mode in modes), f"{published:.2f}" if published is not None else "",
                 wanted]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def page(text: str, figures: list[dict[str, Any]]) -> str:
    """The page with these figures in their place."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return before + BEGIN + table(figures) + END + after


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(), json.loads(FIGURES.read_text())))
