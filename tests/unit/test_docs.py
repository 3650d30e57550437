# SPDX-License-Identifier: MIT
"""Pages that are made from figures."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

DOCS = Path(__file__).resolve().parents[2] / "docs"


def maker() -> Any:
    space: dict[str, object] = {"__file__": str(DOCS / "make_threads.py"), "__name__": "make_threads"}
    exec((DOCS / "make_threads.py").read_text(), space)
    return SimpleNamespace(**space)


def figure(metric: str, value: float, unit: str, ratio: float | None = None, published: float | None = None,
           wanted: float | None = None) -> dict[str, object]:
    return {"metric": metric, "value": value, "unit": unit, "peer": "native" if ratio else "", "ratio": ratio,
            "published": published, "wanted": wanted}


FIGURES = [figure("pca: native", 39.0, "ms"), figure("pca: process held shared", 78, "ms", 2.0, 1.28),
           figure("pca: process exact shared", 390, "ms", 10.0, 1.28),
           figure("sort: native", 100, "ms"), figure("sort: process held shared", 400, "ms", 4.0, None, 5.0)]


def test_the_table_has_a_row_a_metric_and_a_column_a_mode() -> None:
    lines = maker().table(FIGURES).splitlines()
    assert lines[0] == "| | native | process held shared | process exact shared | published | wanted, held shared |"
    assert lines[1].count("---") == lines[0].count("|") - 1
    assert lines[2:] == ["| pca | 39 ms | 2.00 | 10.00 | 1.28 |  |", "| sort | 100 ms | 4.00 |  |  | ≤ 5 |"]


def test_the_page_keeps_its_words_and_takes_new_figures() -> None:
    made, text = maker(), (DOCS / "threads.md").read_text()
    once = made.page(text, FIGURES)
    assert "| pca | 39 ms" in once and once.startswith(text.split(made.BEGIN)[0])
    assert once.endswith(text.split(made.END)[1]) and made.page(once, FIGURES) == once
    assert "| pca" not in made.page(once, FIGURES[3:])
