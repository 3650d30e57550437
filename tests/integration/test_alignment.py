# SPDX-License-Identifier: MIT
"""Thunks, accesses and system calls of real programs on their flow: all exact, and across holes none wrong."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from ptweave.data import Bundle
from ptweave.merge import Run
from support.command import ptweave
from support.damage import KEYS, Hole, cut, cut_out, judge, last_psb, rows_of, shares_of
from support.inputs import text_file
from support.workloads import WORKLOADS, Bench

HOLES = 3
EXACT_SHARE = 0.99


@pytest.fixture(scope="module", params=["pigz", "word_count"])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recorded, decoded and merged run."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "pigz":
        options, argv = ["--access", "held"], ["pigz", "-p", "3", "-b", "128", "-c",
                                               str(text_file(folder / "input", 500_000))]
    else:
        workload = next(one for one in WORKLOADS if one.name == "word_count")
        options, argv = ["--access", "exact"], Bench(folder).argv(workload, 4, 150_000)
    done = ptweave("wrap", *options, "-o", folder / "run.ptw", "--", *argv)
    assert (done.status, done.lines) == (0, [f"ptweave: {folder / 'run.ptw'}: nothing lost"])
    return folder / "run.ptw"


def test_every_row_is_exact(whole: Path) -> None:
    for table in KEYS:
        rows = rows_of(whole, table)
        assert len(rows) > 15 and {placed for _, placed in rows.values()} == {"exact"}, table
    assert shares_of(whole) == dict.fromkeys(KEYS, 1.0)


def test_around_holes_rows_stay_exact_and_none_is_wrong(whole: Path, tmp_path: Path) -> None:
    outside = exact = 0
    for seed in range(HOLES):
        copy = tmp_path / f"{seed}.ptw"
        hole = cut_out(whole, copy, random.Random(seed))
        assert hole.blocks > 0
        for table in KEYS:
            verdict = judge(rows_of(whole, table), rows_of(copy, table), hole)
            assert verdict.wrong == 0, (seed, table, verdict)
            outside += verdict.outside
            exact += verdict.exact
        for table, share in shares_of(copy).items():
            # the ledger says so, too; of accesses it counts records, and of system calls also libtthread's own
            rows = rows_of(copy, table)
            placed = sum(how == "exact" for _, how in rows.values()) / len(rows)
            assert share == placed if table == "thunks" else placed == 1 or share < 1
        shutil.rmtree(copy)
    assert outside > 200 and exact >= EXACT_SHARE * outside


def own_calls(bundle: Path) -> int:
    return Bundle.open(bundle).ledger()["syscalls/libtthread_own"].stored


def test_calls_made_for_libtthread_are_known_where_a_hole_hides_its_beginning(whole: Path, tmp_path: Path) -> None:
    """Each call the loader and the C library make for it as the program begins is still none of the program's."""
    with Run(whole) as run:
        (begins,), = run.sql("select min(seq) from thunks where thread = 0 and operation = 'start'")
        (blocks,), = run.sql("select blocks from threads where thread = 0")
    begin, end = (whole / "trace/0.pt").stat().st_size // 50, last_psb(whole, 0)
    copy = tmp_path / "hole.ptw"
    hole = cut(whole, copy, 0, begin, (end - begin) & ~1)
    assert hole.at < begins < hole.at + hole.blocks < blocks, "the hole is where it is to be"
    verdict = judge(rows_of(whole, "syscalls"), rows_of(copy, "syscalls"), hole)
    assert verdict.wrong == 0 and own_calls(copy) == own_calls(whole) > 50


def test_control_a_row_one_block_off_is_called_wrong(whole: Path) -> None:
    rows = rows_of(whole, "thunks")
    nothing = Hole(-1, 0, 0)
    assert judge(rows, rows, nothing).wrong == 0
    key = next(iter(rows))
    seq, placed = rows[key]
    assert seq is not None
    assert judge(rows, {**rows, key: (seq + 1, placed)}, nothing).wrong == 1
    assert judge(rows, rows, replace(nothing, thread=key[0], at=0, blocks=1)).wrong > 0


def test_control_swapped_logs_of_two_threads_are_not_placed(whole: Path, tmp_path: Path) -> None:
    """Of threads that do different things, system calls and thunks fit the wrong flow nowhere, or nearly so."""
    copy = tmp_path / "swapped.ptw"
    shutil.copytree(whole, copy)
    for name in ("syscalls", "thunks"):
        file = copy / "decoded" / f"{name}.parquet"
        table = pq.read_table(file)
        numbers = [{0: 4, 4: 0}.get(thread, thread) for thread in table["thread"].to_pylist()]
        table = table.set_column(table.schema.get_field_index("thread"), "thread", pa.array(numbers, pa.int32()))
        key = "thunk" if name == "thunks" else "index"
        pq.write_table(table.take(pc.sort_indices(table, [("thread", "ascending"), (key, "ascending")])), file)
    assert ptweave("merge", copy).status == 1
    for name in ("syscalls", "thunks"):
        swapped = [placed for key, (_, placed) in rows_of(copy, name).items() if key[0] in (0, 4)]
        assert swapped.count("exact") < 0.2 * len(swapped), name
