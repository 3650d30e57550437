# SPDX-License-Identifier: MIT
"""The decoded files of accesses: what is held in memory is what DuckDB is asked for, row by row."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ptweave.data import layout
from ptweave.data.errors import BadInput
from ptweave.data.schemas import DECODED_ACCESSES, DECODED_PAGES
from ptweave.merge import in_order
from ptweave.merge.access_files import FILE, PAGES, AccessFiles, Held, Queried, have_mapped_files, open_access_files
from ptweave.merge.beside import Beside
from ptweave.merge.scratch import Scratch

PROGRAMS = pa.table({
    "thread": pa.array([0, 0, 0, 2, 2], pa.int32()), "since": pa.array([-(1 << 62), 500, 1500, -(1 << 62), 900]),
    "program": pa.array([4, 1, 7, 2, 3], pa.int32())})
"""Of thread 1 no program is known; 0 and 2 exec."""

Asked = Callable[[AccessFiles], Iterator[dict[str, Any]]]


def rows_of(found: pa.Table | Iterator[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    for batch in [found] if isinstance(found, pa.Table) else found:
        yield from batch.to_pylist()


QUESTIONS: dict[str, Asked] = {
    "stacks": lambda files: rows_of(files.stacks()),
    **{f"records of {thread}": lambda files, thread=thread: rows_of(files.records(thread))  # type: ignore[misc]
       for thread in (0, 1, 2, 9)},
    "allocations": lambda files: rows_of(files.allocations()),
    "pages": lambda files: rows_of(files.pages()),
    "spans": lambda files: rows_of(files.spans(PROGRAMS))}


def made(seed: int, *, mixed: bool, records: int = 60) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Records of three threads, and pages that they opened. `mixed`: the files are not in order."""
    chance = random.Random(seed)
    rows: list[dict[str, Any]] = []
    pages: list[dict[str, Any]] = []
    for thread in range(3):
        for record in range(chance.randrange(records)):
            stack = [chance.randrange(1, 1 << 40) for _ in range(chance.randrange(4))]
            rows.append({
                "thread": thread, "record": record, "thunk": record // 3, "t": 100 * record,
                "result": chance.randrange(3), "stack": stack,
                "operation": chance.choice(["read", "write", "commit", "allocation"]),
                "address": chance.randrange(1 << 44), "argument": chance.randrange(1 << 63),
                "bytes": chance.choice([None, [], [{"offset": 8, "length": chance.randrange(9)}]])})
            pages += [{"thread": thread, "record": record, "page": 4096 * chance.randrange(6), "thunk": record // 3,
                       "until_thunk": chance.choice([record // 3, (1 << 31) - 1]), "write": chance.random() < 0.5}
                      for _ in range(chance.randrange(3))]
    distinct = {tuple(page[key] for key in ("thread", "record", "page", "write")): page for page in pages}
    pages = list(distinct.values())  # of the same ones each order is as good
    if mixed:
        chance.shuffle(rows)
        chance.shuffle(pages)
    return rows, pages


def written(folder: Path, rows: list[dict[str, Any]], pages: list[dict[str, Any]]) -> None:
    pq.write_table(pa.Table.from_pylist(rows, DECODED_ACCESSES), folder / FILE, row_group_size=20)
    pq.write_table(pa.Table.from_pylist(pages, DECODED_PAGES), folder / PAGES, row_group_size=20)


@pytest.mark.parametrize("mixed", [False, True], ids=["in order", "mixed"])
@pytest.mark.parametrize("seed", range(12))
def test_what_is_held_is_what_duckdb_finds(tmp_path: Path, seed: int, mixed: bool) -> None:
    written(tmp_path, *made(seed, mixed=mixed))
    with Beside() as beside, Scratch(tmp_path, beside) as scratch:
        held, queried = open_access_files(scratch), Queried(scratch)
        assert isinstance(held, Held)
        for name, ask in QUESTIONS.items():
            ours, theirs = list(ask(held)), list(ask(queried))
            names = set(theirs[0]) if theirs else set()
            assert [{key: row[key] for key in names} for row in ours] == theirs, name


def test_control_a_page_that_is_another_s_is_found_to_be(tmp_path: Path) -> None:
    rows, pages = made(3, mixed=False)
    written(tmp_path, rows, pages)
    with Beside() as beside, Scratch(tmp_path, beside) as scratch:
        held = open_access_files(scratch)
        wrong = next(page for page in pages if page["record"] > 0)
        wrong["record"] -= 1
        written(tmp_path, rows, pages)
        for name in ("pages", "spans"):
            assert list(QUESTIONS[name](held)) != list(QUESTIONS[name](open_access_files(scratch)))


def test_pages_of_records_that_are_missing_are_left_out_and_those_of_strange_ones_are_not(tmp_path: Path) -> None:
    rows, pages = made(5, mixed=False)
    last = {thread: max(row["record"] for row in rows if row["thread"] == thread) for thread in (0, 1, 2)}
    strange = [*((thread, record + 1) for thread, record in last.items()),
               (7, 0), (0, -1), (-5, 9), (None, 0), (0, None)]
    pages += [{**pages[0], "thread": thread, "record": record} for thread, record in strange]
    rows += [{**rows[0], "thread": thread, "record": record} for thread, record in [(-5, 9), (None, 0)]]
    written(tmp_path, rows, pages)
    with Beside() as beside, Scratch(tmp_path, beside) as scratch:
        held, queried = (list(rows_of(files.pages())) for files in (open_access_files(scratch), Queried(scratch)))
        assert [row["record"] for row in held] == [row["record"] for row in queried]
        assert -5 in {row["thread"] for row in held}


@pytest.mark.parametrize("what", [FILE, PAGES])
def test_where_one_of_the_files_is_large_duckdb_is_asked(tmp_path: Path, what: str,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, *made(1, mixed=False))
    rows = pq.read_metadata(tmp_path / what).num_rows
    other = pq.read_metadata(tmp_path / (PAGES if what == FILE else FILE)).num_rows
    with Beside() as beside, Scratch(tmp_path, beside) as scratch:
        monkeypatch.setattr(in_order, "BATCH_ROWS", max(rows, other))
        assert isinstance(open_access_files(scratch), Held)
        monkeypatch.setattr(in_order, "BATCH_ROWS", max(rows, other) - 1)
        assert isinstance(open_access_files(scratch), Queried)


@pytest.mark.parametrize("what", [FILE, PAGES])
@pytest.mark.parametrize("at", [4, -200])
def test_a_corrupt_file_is_said_in_one_line(tmp_path: Path, what: str, at: int) -> None:
    written(tmp_path, *made(1, mixed=False))
    raw = bytearray((tmp_path / what).read_bytes())
    raw[at:at + 40] = bytes(40)
    (tmp_path / what).write_bytes(raw)
    with Beside() as beside, Scratch(tmp_path, beside) as scratch, pytest.raises(BadInput, match=f"{what}: is corrupt"):
        open_access_files(scratch)


@pytest.mark.parametrize(("page", "found"), [
    (layout.FILES - 4096, False), (layout.FILES, True), (layout.FILES_END - 4096, True), (layout.FILES_END, False)])
def test_mapped_files_are_known_by_where_they_are(tmp_path: Path, page: int, found: bool) -> None:
    rows, pages = made(2, mixed=False)
    written(tmp_path, rows, [*pages, {**pages[0], "page": page}])
    assert have_mapped_files(tmp_path) is found
