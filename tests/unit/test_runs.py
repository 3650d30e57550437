# SPDX-License-Identifier: MIT
"""Many runs asked at once: the union of what each answers alone, and who lacks what."""

from __future__ import annotations

import gc
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ptweave.cli import main
from ptweave.data.errors import BadInput
from ptweave.data.schemas import TABLES
from ptweave.merge import Result, Run, Runs, merge_run
from support.bundle_writer import BundleWriter

NAMES = ("a", "it's [b]*?", "c")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs of different code, whose blocks and paths have the same numbers; c has no thunks."""
    place = tmp_path_factory.mktemp("runs")
    draw = random.Random(5)
    for count, name in enumerate(NAMES, 3):
        writer = BundleWriter(place / f"{name}.ptw", cut=5)
        blocks = [writer.block(function, "syscall") for function in draw.sample(("main", "f", "g", "h"), 3)]
        for thread in (0, 1):
            writer.task(thread, tid=100 + thread)
            writer.run(thread, draw.choices(blocks, k=40 + 10 * count))
            if name != "c":
                writer.thunk(thread, t=5, operation="start", clock=[1] * (thread + 1))
                writer.access(thread, 0, 0x7000, write=bool(thread))
        merge_run(writer.write())
    return place


def bundles(folder: Path) -> list[Path]:
    return [folder / f"{name}.ptw" for name in NAMES]


@pytest.fixture
def runs(folder: Path) -> Runs:
    return Runs(bundles(folder))


@pytest.mark.parametrize("table", [*TABLES, "flow_blocks", "page_sets", "executions('main')", "executions('g')",
                                   "block_counts()"])
def test_every_table_is_the_union_of_the_runs(folder: Path, runs: Runs, table: str) -> None:
    expected = []
    for name, bundle in zip(NAMES, bundles(folder), strict=True):
        with Run(bundle) as run:
            expected += [(name, *row) for row in run.ask(f"from {table}")]
    result = runs.ask(f"from {table}")
    assert result.columns[0] == "run" and sorted(result.rows(), key=repr) == sorted(expected, key=repr)


def test_a_condition_on_the_run_reads_no_other_runs_files(folder: Path, tmp_path: Path) -> None:
    for name in NAMES:
        shutil.copytree(folder / f"{name}.ptw", tmp_path / f"{name}.ptw")
    with Runs([tmp_path / f"{name}.ptw" for name in NAMES]) as opened:
        (tmp_path / "c.ptw" / "tables" / "flow" / "0.parquet").write_bytes(b"PAR1 no")
        assert opened.sql("select distinct run from flow where run = 'a'").rows() == [("a",)]
        with pytest.raises(BadInput):
            opened.sql("select distinct run from flow").rows()


def test_runs_of_one_name_are_told_apart_by_their_paths(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "a.ptw"
    shutil.copytree(folder / "a.ptw", other)
    with Runs([folder / "a.ptw", other, folder / "c.ptw"]) as opened:
        assert set(opened.sql("select distinct run from flow").rows()) == {
            (str(folder / "a.ptw"),), (str(other),), ("c",)}


def test_what_a_run_lacks_is_told_for_the_tables_that_are_asked(runs: Runs) -> None:
    assert runs.lacking("select count(*) from flow") == []
    (told,) = runs.lacking("select * from thunks join flow using (run, thread)")
    assert told.startswith("thunks: lacking in 1 of 3 runs: c (was not made")
    assert [line.partition(":")[0] for line in runs.lacking("from page_sets")] == ["thunks", "accesses"]
    assert len(runs.lacking("from calls")) == 1 and "in 3 of 3" in runs.lacking("from calls")[0]
    assert runs.lacking("not sql at all") == []


def test_a_table_that_is_corrupt_in_one_run_is_left_out_of_the_others_answer(folder: Path, tmp_path: Path) -> None:
    for name in ("a", "c"):
        shutil.copytree(folder / f"{name}.ptw", tmp_path / f"{name}.ptw")
    (tmp_path / "c.ptw" / "tables" / "flow" / "0.parquet").write_bytes(b"PAR1 no")
    with Runs([tmp_path / "a.ptw", tmp_path / "c.ptw"]) as opened:
        assert opened.ask("select distinct run from flow").rows() == [("a",)]
        (told,) = opened.lacking("from flow")
        assert "is corrupt" in told


def test_the_command_takes_a_pattern_or_several_runs(folder: Path, tmp_path: Path,
                                                     capfd: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "c"):
        shutil.copytree(folder / f"{name}.ptw", tmp_path / f"{name}.ptw")
    (tmp_path / "none.ptw").mkdir()
    sql = "select run, count(*) as rows from flow group by run order by run"
    assert main(["query", str(tmp_path / "[ac].ptw"), sql, "--format", "csv"]) == 0
    out, err = capfd.readouterr()
    assert [line.split(",")[0] for line in out.splitlines()] == ['"run"', '"a"', '"c"'] and err == ""
    assert main(["query", str(tmp_path / "a.ptw"), str(tmp_path / "c.ptw"), sql, "--format", "csv"]) == 0
    assert capfd.readouterr().out == out
    assert main(["query", str(tmp_path / "*.ptw"), "select count(*) from thunks", "--format", "csv"]) == 1
    found = capfd.readouterr()
    assert found.out.splitlines()[1] == "2" and len(found.err.splitlines()) == 2
    assert "left out" in found.err and "thunks: lacking in 1 of 2 runs: c" in found.err
    assert main(["query", str(tmp_path / "a.ptw"), str(tmp_path / "c.ptw"), "--list"]) == 0
    assert "thunks  (2 rows)" in capfd.readouterr().out


def test_no_run_at_all_is_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.ptw").mkdir()
    for pattern in (str(tmp_path / "*.ptw"), str(tmp_path / "y*.ptw")):
        assert main(["query", pattern, "select 1"]) == 2
        out, err = capfd.readouterr()
        assert out == "" and err.startswith("ptweave: ") and len(err.splitlines()) == 1


def test_queries_see_no_other_file(runs: Runs, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a\n1\n")
    with pytest.raises(BadInput):
        runs.sql(f"from '{tmp_path}/x.csv'").rows()


# --- answers that outlive who gave them ---

ANSWERS: dict[str, Callable[[Result], Any]] = {
    "pandas": lambda result: len(result.pandas()), "arrow": lambda result: result.arrow().num_rows,
    "rows": lambda result: len(result.rows()), "iterated": lambda result: sum(1 for _ in result),
    "stream": lambda result: sum(batch.num_rows for batch in result.stream(3)[1]),
    "parts": lambda result: len(result.where("true").order("seq").select("seq").limit(1000).rows()),
    "relation": lambda result: len(result.relation().df()),
    "relation of a relation": lambda result: len(result.relation().filter("true").project("seq").df())}


def many(folder: Path) -> Runs:
    return Runs(bundles(folder))


def one(folder: Path) -> Run:
    return Run(bundles(folder)[0])


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders are made."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("how", ANSWERS)
@pytest.mark.parametrize("opened", [one, many])
def test_an_answer_can_be_had_when_who_was_asked_is_gone(folder: Path, temporary: Path, how: str,
                                                         opened: Callable[[Path], Run | Runs]) -> None:
    with opened(folder) as kept:
        ((expected,),) = kept.sql("select count(*) from flow").rows()
    answer = ANSWERS[how](opened(folder).sql("from flow"))  # an assert would keep who was asked
    assert answer == expected > 0


@pytest.mark.parametrize("opened", [one, many])
def test_what_an_answer_needs_goes_with_it(folder: Path, temporary: Path,
                                           opened: Callable[[Path], Run | Runs]) -> None:
    result = opened(folder).sql("from flow").order("seq")
    gc.collect()
    assert len(list(temporary.iterdir())) == 1, "control: it is there while there is an answer"
    del result
    gc.collect()
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("opened", [one, many])
def test_what_was_lent_to_a_relation_goes_when_the_runs_are_closed(folder: Path, temporary: Path,
                                                                   opened: Callable[[Path], Run | Runs]) -> None:
    with opened(folder) as kept:
        relation = kept.sql("from flow").relation().filter("true")
        assert relation.df().size and len(list(temporary.iterdir())) == 1
    assert list(temporary.iterdir()) == []
