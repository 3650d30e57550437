# SPDX-License-Identifier: MIT
"""All rows of a timeline, merged from threads: they are those of the query that sorts them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ptweave.data.bundle import Bundle
from ptweave.data.errors import BadInput
from ptweave.data.schemas import GAPS, SYSCALLS, THREADS, THUNKS, Table
from ptweave.merge import Run, merge_run, timeline_rows
from support.bundle_writer import BundleWriter, put, rows_of
from support.hand_over import write_hand_over

Row = dict[str, Any]
PARTS = [("thunks", "syscalls", "gaps"), ("gaps", "thunks"), ("thunks",)]
LATE = (1 << 63) - 9


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    writer = BundleWriter(tmp_path / "run.ptw")
    block = writer.block("main", "jump")
    for thread in (0, 1):
        writer.task(thread, tid=100 + thread, begin=0, end=1000, creator=100 * thread)
        writer.run(thread, [block] * 20)
        writer.moment(thread, 0, 0)
    write_hand_over(writer, 0x5000)
    written = writer.write()
    merge_run(written)
    return written


def empty_row(table: Table) -> Row:
    return dict.fromkeys(table.schema.names)


def fill(bundle: Bundle, seed: int) -> list[Row]:
    """Many threads' thunks, most of which take no time, system calls and gaps; returns the thunks."""
    draw = random.Random(seed)
    pattern = rows_of(bundle, THUNKS)[0]
    threads = [{**rows_of(bundle, THREADS)[0], "thread": thread, "t_end": draw.choice((None, 90, 10_000))}
               for thread in range(draw.randrange(1, 9))]
    thunks, syscalls, gaps = [], [], []
    for row in threads:
        thread, t = row["thread"], draw.randrange(40)
        for thunk in range(draw.randrange(60)):
            wait = draw.choice((0, 0, 1, None, 7))
            thunks.append({**pattern, "thread": thread, "thunk": thunk, "t": t, "wait": wait,
                           "operation": draw.choice(("mutex_lock", "λ", "")) if draw.random() < 0.9 else None,
                           "object": draw.choice((None, 0, (1 << 64) - 1)),
                           "variable": draw.choice((None, "lock", "all+0x8")),
                           "caller": draw.choice((None, "f", "run"))})
            t += (wait or 0) + draw.choice((0, 0, 2))
        if row["t_end"] is not None:
            row["t_end"] += t
        begun = sorted(draw.sample(range(200), draw.randrange(12)))
        syscalls += [{**empty_row(SYSCALLS), "thread": thread, "seq": at, "t_enter": at, "number": 0, "name": "read",
                      "t_exit": draw.choice((None, at, at + 3))} for at in begun]
        gaps += [{**empty_row(GAPS), "thread": thread, "seq": at, "kind": "overflow",
                  "t": draw.choice((None, at))} for at in begun[:3]]
    for table, rows in ((THREADS, threads), (THUNKS, thunks), (SYSCALLS, syscalls), (GAPS, gaps)):
        put(bundle, table, rows)
    return thunks


def told(rows: pa.Table) -> list[Row]:
    """Rows, which must be in order: those of one thread that begin together the longest first."""
    every: list[Row] = rows.to_pylist()
    places = [(row["t_begin"], row["thread"], -row["t_end"]) for row in every if row["t_begin"] is not None]
    assert places == sorted(places) and all(row["t_begin"] is None for row in every[len(places):])
    return every


def merged(run: Run, parts: tuple[str, ...] = PARTS[0]) -> pa.Table | None:
    """What is made without sorting all; None: nothing is."""
    batches = run._whole_timeline(parts, 7)
    return None if batches is None else pa.Table.from_batches(batches, timeline_rows.SCHEMA)


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("seed", range(30))
def test_rows_merged_from_threads_are_those_of_the_query_that_sorts_all(
        bundle: Bundle, seed: int, parts: tuple[str, ...]) -> None:
    fill(bundle, seed)
    with Run(bundle.path) as run:
        found, sorted_rows = merged(run, parts), run.timeline(parts=parts).relation().to_arrow_table()
        assert found is not None and found.schema == sorted_rows.schema
        assert told(found) == told(sorted_rows)
        assert run.timeline(parts=parts).arrow().num_rows == sorted_rows.num_rows


def test_answers_and_their_parts_are_the_same_however_they_are_asked(bundle: Bundle) -> None:
    fill(bundle, 3)
    with Run(bundle.path) as run:
        result = run.timeline()
        assert result.columns == result.relation().columns
        assert result.types == [str(kind) for kind in result.relation().types]
        every = result.rows()
        assert len(every) == result.arrow().num_rows == sum(len(batch) for batch in result.stream(5)[1])
        assert every == result.rows()
        assert told(result.where("thread = 0").arrow()) == told(
            pa.Table.from_pylist([row for row in result.arrow().to_pylist() if row["thread"] == 0],
                                 schema=timeline_rows.SCHEMA))
        assert len(result.limit(2).rows()) == 2 and len(result.pandas()) == len(every)
        assert "t_begin" in repr(result) and ">t_begin</th>" in result._repr_html_()


def test_a_row_that_differs_is_noticed(bundle: Bundle) -> None:
    fill(bundle, 4)
    with Run(bundle.path) as run:
        found, sorted_rows = merged(run), run.timeline().relation().to_arrow_table()
    assert found is not None
    row = {**found.to_pylist()[3], "object": 77}
    changed = pa.concat_tables([found.slice(0, 3), pa.Table.from_pylist([row], schema=found.schema), found.slice(4)])
    assert told(changed) != told(sorted_rows)
    with pytest.raises(AssertionError):
        told(pa.concat_tables([found.slice(5), found.slice(0, 5)]))


@pytest.mark.parametrize(("first", "second"), [
    ((5, 0), (4, 0)), ((5, 2), (4, 0)), ((None, 0), (6, 0)), ((5, 0), (LATE, 0))])
def test_threads_whose_times_go_back_or_are_no_times_are_sorted(
        bundle: Bundle, first: tuple[int | None, int], second: tuple[int, int]) -> None:
    """Two thunks: when their operation was called, and how long it took."""
    pattern = rows_of(bundle, THUNKS)[0]
    put(bundle, THUNKS, [{**pattern, "thread": 0, "thunk": thunk, "t": t, "wait": wait}
                         for thunk, (t, wait) in enumerate((first, second))])
    with Run(bundle.path) as run:
        assert merged(run) is None
        assert told(run.timeline().arrow()) == told(run.timeline().relation().to_arrow_table())


@pytest.mark.parametrize("end", [None, 3, 60])
@pytest.mark.parametrize("parts", [{}, {"begin": 0}, {"resolution": 1}])
def test_time_is_told_once_where_one_call_began_two_thunks(bundle: Bundle, end: int | None, parts: Row) -> None:
    """A wait at a barrier, 5 to 40: the thunks that it begins are both said to have been called at 5."""
    pattern = rows_of(bundle, THUNKS)[0]
    put(bundle, THREADS, [{**rows_of(bundle, THREADS)[0], "thread": 0, "t_end": end}])
    put(bundle, THUNKS, [{**pattern, "thread": 0, "thunk": thunk, "operation": operation, "t": t, "wait": wait}
                         for thunk, (operation, t, wait) in enumerate((
                             ("start", 1, -1), ("barrier_arrive", 5, 9), ("barrier_wait", 5, 35), ("exit", 50, 2)))])
    with Run(bundle.path) as run:
        rows = run.timeline(**parts, parts=("thunks",)).arrow().to_pylist()
        assert merged(run, ("thunks",)) is not None
    doing = {t: [row["detail"] or "run" for row in rows if row["t_begin"] <= t < row["t_end"]] for t in range(60)}
    expected = [[]] + [["run"]] * 4 + [["barrier_wait"]] * 35 + [["run"]] * 10 + [["exit"]] * 2 + [
        ["run"] if end == 60 else []] * 8
    assert doing == dict(enumerate(expected))
    assert all(row["ns"] == row["t_end"] - row["t_begin"] >= 0 for row in rows) and len(rows) == 8


@pytest.mark.parametrize("asked", [{}, {"begin": 0}, {"resolution": 1}, {"resolution": 2}])
def test_an_operation_has_its_object_s_variable_and_what_ran_behind_it_none(bundle: Bundle, asked: Row) -> None:
    thunks = {(row["thread"], row["thunk"]): row["variable"] if row["object"] is not None else None
              for row in fill(bundle, 7)}
    with Run(bundle.path) as run:
        rows = run.timeline(**asked).arrow().to_pylist()
    operations = [row for row in rows if row["what"] in ("begin", "operation") and row["thunk"] is not None]
    for row in operations:
        if row["object"] is not None:
            assert row["variable"] == thunks[row["thread"], row["thunk"]]
    assert {row["variable"] for row in operations} == {None, "lock", "all+0x8"}
    assert not any(row["variable"] for row in rows if row["what"] not in ("begin", "operation"))


def test_more_thunks_than_are_held_in_memory_are_sorted(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    thunks = fill(bundle, 6)
    monkeypatch.setattr(timeline_rows, "MOST", len(thunks) - 1)
    with Run(bundle.path) as run:
        assert merged(run) is None
        assert run.timeline().arrow().num_rows >= 2 * len(thunks)


def test_a_run_without_thunks_has_an_empty_timeline(bundle: Bundle) -> None:
    for table in (THUNKS, SYSCALLS, GAPS):
        put(bundle, table, [])
    with Run(bundle.path) as run:
        assert run.timeline().rows() == [] and run.timeline().arrow().schema == timeline_rows.SCHEMA


@pytest.mark.parametrize("table", [THUNKS, SYSCALLS])
def test_a_table_that_breaks_while_the_run_is_open_is_a_clear_error(bundle: Bundle, table: Table) -> None:
    fill(bundle, 7)
    with Run(bundle.path) as run:
        (bundle.tables / table.name / "0.parquet").write_bytes(b"PAR1 is not this")
        with pytest.raises(BadInput):
            run.timeline().rows()
