# SPDX-License-Identifier: MIT
"""Pages that are made from figures; examples of what has an order; what is said of installing."""

from __future__ import annotations

import json
import random
import re
import tomllib
from collections.abc import Iterator
from importlib import import_module
from keyword import iskeyword
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ptweave.cli import COMMANDS
from ptweave.data import schemas
from ptweave.data.errors import NotInstalled
from ptweave.merge import Run, merge_run
from support.bundle_writer import BundleWriter, put

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


# --- examples of what was executed, in order ---


def texts() -> Iterator[str]:
    """What users read: pages, cells of notebooks, the help of commands."""
    for path in [DOCS.parent / "README.md", *DOCS.glob("*.md")]:
        yield path.read_text()
    for path in (DOCS.parent / "data" / "notebooks").glob("*.ipynb"):
        yield from ("".join(cell["source"]) for cell in json.loads(path.read_text())["cells"])
    for command in COMMANDS:
        name = command.replace("-", "_")
        yield import_module(f"ptweave.cli.{name}_" if iskeyword(name) else f"ptweave.cli.{name}").EXAMPLES


def joined_flows() -> list[str]:
    """Queries that join a part of a flow with something."""
    return [query for text in texts() for query in re.findall(r'from flow_range\(\d[^;"]*', text) if " join " in
            query.replace("\n", " ")]


def test_control_queries_that_join_a_flow_are_found() -> None:
    assert len(joined_flows()) == 2


@pytest.mark.parametrize("query", joined_flows())
def test_what_was_executed_is_shown_in_its_order(query: str, tmp_path: Path) -> None:
    writer = BundleWriter(tmp_path / "run.ptw", cut=7)
    blocks = [writer.block(f"f{number}", "jump") for number in range(50)]
    for thread in range(4):
        writer.task(thread, tid=100 + thread)
        writer.run(thread, random.Random(thread).choices(blocks, k=1200))
    bundle = writer.write()
    merge_run(bundle)
    put(bundle, schemas.ACCESSES, [{"thread": 3, "seq": 700, "thunk": 0, "until_thunk": 0, "page": 0, "write": True}])
    with Run(bundle.path) as run:
        result = run.sql(query)
        seqs = [row[result.columns.index("seq")] for row in result.rows()]
    assert len(seqs) in (5, 100) and seqs == sorted(seqs) and query.strip().endswith("order by seq")


# --- installing ---


def installed(text: str) -> list[str]:
    """What pip is told to install."""
    return re.findall(r"pip install (.*?)(?:\s{2,}#|\.?$)", text, re.MULTILINE)


def test_what_pip_is_told_to_install_is_an_extra_of_the_checkout() -> None:
    extras = tomllib.loads((DOCS.parent / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    told = [words for text in [*texts(), NotInstalled("x", "cluster").line()] for words in installed(text)]
    assert set(told) == {"-e '.[cluster]'", "-e '.[notebook]'"} and {"cluster", "notebook"} <= extras.keys()


def test_control_a_package_of_an_index_is_told_from_it() -> None:
    assert installed("    $ pip install 'ptweave[notebook]'\n") == ["'ptweave[notebook]'"]
