# SPDX-License-Identifier: MIT
"""Tables by name, and going on from them: lazily, with errors that say what is wrong."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ptweave.data.errors import BadInput
from ptweave.data.schemas import TABLES
from ptweave.merge import Run, merge_run
from ptweave.merge.relations import Relations
from ptweave.merge.result import Result
from support.bundle_writer import BundleWriter


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    writer = BundleWriter(tmp_path_factory.mktemp("relations") / "run.ptw")
    blocks = [writer.block(name, "jump") for name in ("main", "work")]
    for thread in (0, 1):
        writer.task(thread, tid=100 + thread)
        writer.run(thread, blocks * 30)
        writer.thunk(thread, t=10 * thread, wait=7)
        writer.thunk(thread, t=100 + thread, wait=9, operation="mutex_unlock")
    merge_run(writer.write())
    with Run(writer.path) as opened:
        yield opened


def test_every_table_has_an_accessor_or_a_question_of_its_name() -> None:
    named = {name for name, value in vars(Relations).items() if isinstance(value, property)}
    assert named <= set(TABLES)
    assert all(callable(getattr(Run, name)) for name in set(TABLES) - named) and set(TABLES) - named == {
        "flow", "races", "calls"}


@pytest.mark.filterwarnings("ignore::ptweave.merge.NotMadeWarning")
def test_an_accessor_gives_its_table_in_every_form(run: Run) -> None:
    for name in (table for table in TABLES if table not in ("flow", "races", "calls")):
        result: Result = getattr(run, name)
        assert result.columns == [column.name for column in TABLES[name].columns], name
    expected = run.sql("from thunks order by thread, thunk").rows()
    assert len(expected) == 4
    assert run.thunks.rows() == expected and run.table("thunks").rows() == expected
    assert run.thunks.arrow().num_rows == len(run.thunks.pandas()) == len(run.thunks.polars()) == 4
    assert run.thunks.relation().aggregate("max(wait)").fetchall() == [(9,)]


def test_results_are_narrowed_before_anything_is_read(run: Run) -> None:
    found = run.thunks.where("wait = 9").order("thread desc").select("thread, operation").limit(1)
    assert found.rows() == [(1, "mutex_unlock")] and found.columns == ["thread", "operation"]
    for wrong in (lambda: run.thunks.where("nothing = 1"), lambda: run.thunks.select("1 +"),
                  lambda: run.thunks.order("nowhere")):
        with pytest.raises(BadInput, match="correct the query"):
            wrong().rows()


def test_a_table_that_is_none_is_refused(run: Run) -> None:
    with pytest.raises(BadInput, match="is no table"):
        run.table('thunks" where false --')


def test_flow_is_the_part_that_is_asked_for(run: Run) -> None:
    whole = run.sql("select thread, seq, block, path from flow_blocks order by thread, seq").rows()
    assert sorted(run.flow().rows()) == whole and len(whole) == 120
    for since, until in ((0, 5), (3, 44), (None, 9), (50, None), (None, None)):
        assert run.flow(thread=1, since=since, until=until).rows() == [
            row for row in whole if row[0] == 1 and (since or 0) <= row[1] < (1000 if until is None else until)]
    assert run.flow(part=run.part(0, 2, 4)).rows() == whole[2:4]
    with pytest.raises(BadInput, match="need a thread"):
        run.flow(since=3)
