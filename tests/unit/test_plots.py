# SPDX-License-Identifier: MIT
"""Pictures for notebooks: their figures hold what the tables hold, and show names as they are."""

from __future__ import annotations

import builtins
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ptweave.data.errors import BadInput, MachineLacks
from ptweave.merge import Run, merge_run
from support.bundle_writer import BundleWriter

LOCK = 0x5000
NAMES = ("std::map<int, <b>x</b>>", "<a href='http://nowhere'>work</a>", "a & b\u202e")


def written(folder: Path) -> Path:
    writer = BundleWriter(folder / "run.ptw")
    blocks = [writer.block(name, last) for name, last in zip(NAMES, ("call", "return", "jump"), strict=True)]
    for thread, end in ((0, 1000), (1, 900)):
        writer.task(thread, tid=100 + thread, begin=0, end=end, creator=100 * thread)
        writer.run(thread, blocks * 40)
        writer.moment(thread, 0, 0)
        writer.syscall(thread, None, enter=20 + thread, leave=30, number=1)
    for thread, operation, t, wait, clock, acquire, release, at in (
            (0, "start", 10, 0, [1], False, False, 0), (0, "mutex_lock", 100, 5, [2], True, False, LOCK),
            (0, "create", 150, 10, [3], False, True, 0x9000), (0, "mutex_unlock", 400, 5, [4], False, True, LOCK),
            (0, "join", 450, 460, [5, 3], True, False, 0x9000), (1, "start", 170, 0, [2, 1], True, False, 0x9000),
            (1, "mutex_lock", 200, 215, [3, 2], True, False, LOCK), (1, "exit", 880, 0, [3, 3], False, True, 0x9000)):
        writer.thunk(thread, t=t, wait=wait, operation=operation, clock=clock, acquire=acquire, release=release,
                     object_=at)
    writer.access(0, 1, 0x7000, write=True, t=110)
    writer.access(1, 1, 0x7000, write=False, t=420)
    writer.access(1, 1, 0x8000, write=True, t=430)
    merge_run(writer.write())
    return writer.path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with Run(written(tmp_path_factory.mktemp("plots"))) as opened:
        yield opened


def traces(figure: Any) -> dict[str, Any]:
    return {trace.name: trace for trace in figure.data}


def test_the_timeline_has_each_span_once_with_its_kind(run: Run) -> None:
    found = traces(run.plot.timeline())
    columns = run.timeline().columns
    rows = [dict(zip(columns, row, strict=True)) for row in run.timeline()]
    drawn = Counter((round(base * 1e6), round(length * 1e6)) for trace in found.values()
                    for base, length in zip(trace.base, trace.x, strict=True))
    start = run.sql("select min(t_start) from threads").rows()[0][0]
    assert drawn == Counter((row["t_begin"] - start, row["ns"]) for row in rows)
    waits = found["waited for another thread"]
    assert 215 in [round(length * 1e6) for length in waits.x] and waits.marker.pattern.shape == "/"
    assert len(waits.x) == len(run.contention(each=True).rows())
    assert "held by thread 0" in " ".join(waits.hovertext)


def test_a_timeline_too_long_says_so_and_one_can_look_closer(run: Run) -> None:
    assert "the longest 3 of" in run.plot.timeline(most=3).layout.title.text
    assert len(run.plot.timeline(thread=1).data[0].y) < len(run.plot.timeline().data[0].y)
    assert set(run.plot.timeline(thread=1).data[0].y) == {next(iter(run.plot.timeline(thread=1).data[0].y))}


def test_contention_is_that_of_the_question(run: Run) -> None:
    (bars,) = run.plot.contention().data
    waited = [row for row in run.contention().arrow().to_pylist() if row["contended"]]
    assert [round(value * 1e6) for value in bars.x] == [row["wait_ns"] for row in waited]
    assert "mutex_lock 0x5000" in bars.y


def test_the_graph_around_a_thunk_has_its_edges(run: Run) -> None:
    found = traces(run.plot.graph("1.1"))
    assert {"sync", "data", "control", "thunk"} <= set(found)
    names = set(found["thunk"].text)
    assert {"1.1", "0.2", "1.0", "1.2"} <= names
    assert any("data: " in (text or "") and "1 pages" in text for text in found["data"].hovertext)
    assert set(traces(run.plot.graph("1.1", hops=0))["thunk"].text) == {"1.1"}, "control: nothing but itself"
    for wrong in ("9.9", "x"):
        with pytest.raises(BadInput, match="thunk"):
            run.plot.graph(wrong)


def test_the_heat_map_counts_accesses_of_pages(run: Run) -> None:
    (heat,) = run.plot.pages(bins=10).data
    counts = {label.split()[0]: Counter(value for value in row if value)
              for label, row in zip(heat.y, heat.z, strict=True)}
    assert counts == {"0x7000": Counter({1: 2}), "0x8000": Counter({1: 1})}
    assert [label.split()[0] for label in run.plot.pages(write=False).data[0].y] == ["0x7000"]


def test_the_flame_graph_adds_up_to_the_profile(run: Run) -> None:
    (tree,) = run.plot.flame().data
    total = run.sql("select sum(instructions)::bigint from profile").rows()[0][0]
    assert tree.values[0] == total and tree.branchvalues == "total"
    below: Counter[str] = Counter()
    for parent, value in zip(tree.parents, tree.values, strict=True):
        below[parent] += value
    sizes = dict(zip(tree.ids, tree.values, strict=True))
    assert all(value <= sizes[parent] for parent, value in below.items() if parent)
    with pytest.raises(BadInput, match="neither"):
        run.plot.flame(by="weight")


def test_names_are_shown_as_they_are(run: Run) -> None:
    labels = " ".join(run.plot.flame().data[0].labels)
    assert "std::map&lt;int, &lt;b&gt;x&lt;/b&gt;&gt;" in labels and "<b>" not in labels and "<a" not in labels
    assert "a &amp; b\\u202e" in labels


def test_without_plotly_or_a_table_it_is_said(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    whole = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "ptweave.merge.plots":
            raise ImportError(name)
        return whole(name, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(builtins, "__import__", without)
        with pytest.raises(MachineLacks, match=r"-e '\.\[notebook\]'"):
            _ = run.plot
    writer = BundleWriter(tmp_path / "run.ptw")
    writer.task(0)
    writer.run(0, [writer.block("main", "jump")] * 5)
    merge_run(writer.write())
    with Run(writer.path) as bare:
        for draw in (bare.plot.pages, bare.plot.contention, lambda: bare.plot.graph("0.0")):
            with pytest.raises(BadInput, match="was not made"):
                draw()
