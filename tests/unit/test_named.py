# SPDX-License-Identifier: MIT
"""Queries of tables that were never made: which they read, and that they are told what makes them."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path

import duckdb
import pytest

from ptweave.cli import main
from ptweave.data.bundle import Bundle
from ptweave.data.errors import BadInput
from ptweave.data.manifest import Manifest, State
from ptweave.data.schemas import TABLES
from ptweave.merge import NotMadeWarning, Run, Runs, merge_run
from ptweave.merge.named import USES, tables_of
from ptweave.merge.views import NAMES
from support.bundle_writer import BundleWriter

ASKED = {"flow_range": "from flow_range(0, 0, 9)", "executions": "from executions('main')",
         "block_counts": "from block_counts()", "block_counts_in": "from block_counts_in(0, 0, 9)",
         "edge_counts": "from edge_counts()", "frames": "from frames(1)", "functions_of": "select functions_of(1)",
         "read_set": "from read_set(0, 1)", "write_set": "from write_set(0, 1)"}
MERGE, DECODE = "merge the run: ptweave merge RUN", "decode the run: ptweave decode RUN"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that is merged, one that is decoded only, and one that is recorded only."""
    place = tmp_path_factory.mktemp("runs")
    for name in ("merged", "decoded"):
        writer = BundleWriter(place / f"{name}.ptw")
        writer.task(0)
        writer.run(0, [writer.block("main", "jump")] * 9)
        writer.thunk(0, t=5)
        writer.access(0, 0, 0x7000, write=True)
        bundle = writer.write()
        if name == "merged":
            merge_run(bundle)
    Bundle.create(place / "recorded.ptw", Manifest(state=State.COMPLETE))
    return place


@pytest.mark.parametrize("name", sorted(NAMES - {"path_blocks"}))
def test_views_and_macros_use_the_tables_without_which_they_fail(folder: Path, tmp_path: Path, name: str) -> None:
    query, failed = ASKED.get(name, f"from {name}"), set()
    for table in TABLES:
        broken = tmp_path / f"{table}.ptw"
        shutil.copytree(folder / "merged.ptw", broken)
        (broken / "tables" / table).mkdir(exist_ok=True)
        (broken / "tables" / table / "0.parquet").write_bytes(b"PAR1 no")
        with Run(broken) as run:
            try:
                run.ask(query).rows()
            except BadInput:
                failed.add(table)
    assert failed == set(USES[name]) == set(tables_of(duckdb.connect(), query))


@pytest.mark.parametrize(("query", "tables"), [
    ("select * from THREADS join flow using (thread)", ["threads", "flow"]),
    ("select (select count(*) from paths) from range(3)", ["paths"]),
    ("with own as (from gaps) from own", ["gaps"]), ("with gaps as (select 1) from gaps", []),
    ("with gaps as (from gaps) from gaps", ["gaps"]), ("pivot gaps on kind using count(*)", ["gaps"]),
    ("select 'threads', threads from (values (1)) as one(threads)", []), ("not sql at all", []), ("select 1", [])])
def test_the_tables_that_a_query_reads_are_known(query: str, tables: list[str]) -> None:
    assert tables_of(duckdb.connect(), query) == tables


def told(capfd: pytest.CaptureFixture[str], status: int, *words: str | Path) -> tuple[str, list[str]]:
    assert main(["query", "--format", "csv", *map(str, words)]) == status
    out, err = capfd.readouterr()
    return out.splitlines()[-1], [line.removeprefix("ptweave: ") for line in err.splitlines()]


@pytest.mark.parametrize(("name", "query", "tables", "remedy"), [
    ("decoded", "select count(*) from threads", ["threads"], MERGE),
    ("decoded", "select count(*) from thunks", ["thunks"], MERGE),
    ("decoded", "select count(*) from flow join threads using (thread)", ["threads"], MERGE),
    ("recorded", "select count(*) from flow", ["flow"], DECODE),
    ("recorded", "select count(*) from flow_blocks", ["paths", "flow"], DECODE)])
def test_the_command_says_which_tables_were_not_made_and_what_makes_them(
        folder: Path, capfd: pytest.CaptureFixture[str], name: str, query: str, tables: list[str],
        remedy: str) -> None:
    run = folder / f"{name}.ptw"
    assert told(capfd, 1, run, query) == (
        "0", [f"{run}: without {table}, which was not made: {remedy}" for table in tables])
    out, err = told(capfd, 1, run, folder / "merged.ptw", query)
    assert int(out) > 0 and err == [
        f"{table}: lacking in 1 of 2 runs: {name} (was not made: {remedy})" for table in tables]


@pytest.mark.parametrize(("name", "query"), [
    ("decoded", "select count(*) from flow"), ("merged", "select count(*) from threads join thunks using (thread)"),
    ("recorded", "select 1")])
def test_control_a_query_of_tables_that_were_made_is_answered_without_a_word(
        folder: Path, capfd: pytest.CaptureFixture[str], name: str, query: str) -> None:
    out, err = told(capfd, 0, folder / f"{name}.ptw", query)
    assert int(out) > 0 and err == []


def test_python_is_warned_where_it_asks(folder: Path) -> None:
    with Run(folder / "decoded.ptw") as run, Runs(sorted(folder.glob("*.ptw"))) as runs:
        with pytest.warns(NotMadeWarning, match=f"^without threads, which was not made: {MERGE}") as caught:
            run.sql("from threads")
        assert [one.filename for one in caught] == [__file__]
        with pytest.warns(NotMadeWarning, match="^threads: lacking in 2 of 3 runs: ") as caught:
            runs.sql("from threads")
        assert [one.filename for one in caught] == [__file__]
        with pytest.warns(NotMadeWarning, match="^without threads"):
            assert run.threads.rows() == []
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            run.sql("from flow")
            run.ask("from threads")
