# SPDX-License-Identifier: MIT
"""Edges, lineage, races and contention of programs that know their own answer: exactly that, run after run.

Natively recorded the runs are many and short; under the soft engine they go all the way from `wrap`. With
PTWEAVE_LONG=1 there are 20 of each.
"""

from __future__ import annotations

import itertools
import re
import shutil
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from ptweave.data import BadInput, Bundle
from ptweave.decode.thunks import decode_thunks
from ptweave.merge import Run, merge_run
from support.command import compile_c, ptweave
from support.engine import PROGRAMS
from support.known import ENGINE_RUNS, EXACT, NATIVE_RUNS, Known, merged, natively, threads_of, wrapped
from support.modes import UNDER_LIBTTHREAD, Mode, process_mode, run
from support.programs import compile_program

THREADS, ITEMS, PAGE, APART = 4, 3, 4096, 16 * 4096
PRIVATE = process_mode("exact", "private")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # everything is bound at the start: the loader writes nowhere later
    return compile_c(PROGRAMS / "known_graph.c", tmp_path_factory.mktemp("known") / "known_graph", "-g", "-Wl,-z,now")


# --- what must be so ---


def check_pipeline(known: Known) -> None:
    """Stage k reads each item from stage k - 1; a stage writes over its own last item."""
    for k in range(1, THREADS):
        expected = {(k - 1, k): ITEMS, (k - 1, k - 1): ITEMS - 1}
        found = known.between(known.page(k))
        # what the next stage did with the page before is a read: it writes nothing
        assert found == Counter(expected), (k, found)
    assert known.between(known.page(0)) == Counter()
    assert known.between(known.page(THREADS)) == Counter({(THREADS - 1, THREADS - 1): ITEMS - 1})


def check_handoff(known: Known) -> None:
    base, size = re.findall(r"locks (0x[0-9a-f]+) (\d+)", known.said)[0]
    rows = known.run.contention(each=True).rows()
    waits = sorted((known.threads.index(thread), (obj - int(base, 16)) // int(size), known.threads.index(holder))
                   for obj, _, operation, thread, *_, holder, _, _, _ in rows if operation == "mutex_lock")
    assert waits == [(k, k - 1, k - 1) for k in range(1, THREADS)]
    locks = ", ".join(str(int(base, 16) + k * int(size)) for k in range(THREADS))
    sync = known.run.sql("select from_thread, to_thread, object from edges "
                         f"where kind = 'sync' and object in ({locks})")
    assert sorted((known.threads.index(a), known.threads.index(b), (obj - int(base, 16)) // int(size))
                  for a, b, obj in sync) == [(k - 1, k, k - 1) for k in range(1, THREADS)]


def check_race(known: Known, *, private: bool = False) -> None:
    """The same word: a race; words beside each other on a page: nothing more is known than the page, or in the private
    view that they are not the same; under a lock: none."""
    rows = known.run.races().rows()
    columns = known.run.races().columns
    found = {(row[columns.index("page")], row[columns.index("overlap")], row[columns.index("pairs")]) for row in rows}
    mine = {one for one in found if known.page(0) <= one[0] <= known.page(THREADS) + PAGE}
    if private:
        assert mine == {(known.page(0), "bytes", 1)}
    else:
        assert mine == {(known.page(0), "address", 1), (known.page(2), "page", 1)}


@pytest.mark.parametrize("which", ["pipeline", "handoff", "race"])
def test_natively_recorded_programs_give_exactly_what_they_know(program: Path, tmp_path: Path, which: str) -> None:
    for _ in range(NATIVE_RUNS):
        with natively(program, tmp_path, EXACT, which) as known:
            {"pipeline": check_pipeline, "handoff": check_handoff, "race": check_race}[which](known)


def test_in_the_private_view_a_race_is_known_to_the_byte(program: Path, tmp_path: Path) -> None:
    for _ in range(NATIVE_RUNS):
        with natively(program, tmp_path, PRIVATE, "race") as known:
            check_race(known, private=True)


@pytest.mark.parametrize("which", ["pipeline", "handoff", "race"])
def test_under_the_engine_programs_give_exactly_what_they_know(program: Path, tmp_path: Path, which: str) -> None:
    for _ in range(ENGINE_RUNS):
        with wrapped(program, tmp_path, which) as known:
            {"pipeline": check_pipeline, "handoff": check_handoff, "race": check_race}[which](known)
            if which == "race":
                functions = {row[0] for row in known.run.sql("select function from races where page = ?",
                                                             known.page(0))}
                assert functions == {"write_racy"}
            rows = known.run.critical_path().rows()
            assert rows and all(a[1] == b[0] for a, b in itertools.pairwise(rows)), "one segment after the other"
        shutil.rmtree(tmp_path / "run.ptw")


def test_the_loaders_writes_are_no_races_and_atomic_instructions_are_told_apart(tmp_path: Path) -> None:
    """Functions are bound when they are called first, while the other thread calls them, too."""
    lazy = compile_c(PROGRAMS / "known_atomics.c", tmp_path / "known_atomics", "-g", "-Wl,-z,lazy")
    with wrapped(lazy, tmp_path) as known:
        found = known.run.sql("select distinct page, overlap, pairs, function, other_function from races order by all")
        writes = known.run.sql("select count(*) from accesses where write and function like '_dl_%' and thread > 0")
        assert writes.rows()[0][0] > 0, "control: the loader did write"
        assert found.rows() == [(known.page(number), overlap, 1, "use", "use")
                                for number, overlap in enumerate(("atomic", "address", "atomic"))]


def wrap_bytes(program: Path, folder: Path) -> Path:
    """A run of `bytes` in a folder: each thread makes a page of `out` of its part of `in`."""
    (folder / "in").write_bytes(bytes(range(256)) * (THREADS * APART // 256))
    with wrapped(program, folder, "bytes", "in"):
        pass
    return folder / "run.ptw"


@pytest.fixture(scope="module")
def planted(program: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The run of `bytes`, and its folder."""
    folder = tmp_path_factory.mktemp("bytes")
    return wrap_bytes(program, folder), folder


def check_bytes(path: Path, folder: Path, *, memory: bool) -> None:
    assert (folder / "out").read_bytes()[:3] == bytes([0x20, 0x21, 0x22])
    with Run(path) as opened:
        threads = threads_of(opened)
        for k in range(THREADS):
            reached = opened.lineage(from_=f"file:in@{k * APART + 77}", memory=memory)
            rows = [dict(zip(reached.columns, row, strict=True)) for row in reached]
            assert [(row["path"], row["offset"], row["size"]) for row in rows if row["what"] == "output"] == [
                ("out", k * PAGE, PAGE)]
            assert {row["thread"] for row in rows if row["what"] == "thunks"} == {0, threads[k]}
            sources = opened.lineage(to=f"file:out@{k * PAGE}-{(k + 1) * PAGE}", memory=memory)
            rows = [dict(zip(sources.columns, row, strict=True)) for row in sources]
            found = [(row["offset"], row["size"]) for row in rows if row["what"] == "input" and row["path"] == "in"]
            assert found == [(k * APART, PAGE)]
        assert opened.lineage(from_=f"file:in@{APART - 1}").rows() == []


@pytest.mark.parametrize("memory", [False, True])
def test_a_wrong_input_byte_reaches_its_output_bytes_and_no_others(planted: tuple[Path, Path], memory: bool) -> None:
    check_bytes(*planted, memory=memory)


def test_it_reaches_them_in_run_after_run(program: Path, tmp_path: Path) -> None:
    for number in range(1, ENGINE_RUNS):  # the first is the one above
        folder = tmp_path / str(number)
        folder.mkdir()
        path = wrap_bytes(program, folder)
        for memory in (False, True):
            check_bytes(path, folder, memory=memory)
        shutil.rmtree(folder)


def test_control_two_threads_logs_swapped_are_noticed(program: Path, planted: tuple[Path, Path],
                                                      tmp_path: Path) -> None:
    """Everything that is logged of two threads under the other's number."""
    ran = run(EXACT, tmp_path, [program, "pipeline"])
    assert ran.traced
    bundle = ran.traced.bundle
    decode_thunks(bundle)
    merge_run(bundle)
    with merged(bundle.path, ran.out) as known:
        check_pipeline(known)
        threads = known.threads
    swap(bundle, threads[1], threads[2])
    merge_run(bundle)
    with Run(bundle.path) as opened, pytest.raises(AssertionError):
        check_pipeline(Known(opened, ran.out.decode(), threads))
    copy = Bundle.open(Path(shutil.copytree(planted[0], tmp_path / "bytes.ptw")))
    with Run(copy.path) as opened:
        first, second, *_ = threads_of(opened)
    swap(copy, first, second)
    assert ptweave("merge", copy.path).status in (0, 1)
    with pytest.raises(AssertionError):
        test_a_wrong_input_byte_reaches_its_output_bytes_and_no_others((copy.path, planted[1]), memory=True)


def swap(bundle: Bundle, a: int, b: int) -> None:
    for name in ("pages", "accesses"):
        table = pq.read_table(bundle.decoded / f"{name}.parquet")
        numbers = [{a: b, b: a}.get(thread, thread) for thread in table["thread"].to_pylist()]
        table = table.set_column(table.schema.get_field_index("thread"), "thread", pa.array(numbers, pa.int32()))
        pq.write_table(table.take(pc.sort_indices(table, [("thread", "ascending"), ("record", "ascending")])),
                       bundle.decoded / f"{name}.parquet")


def test_nodes_that_are_none_or_not_there_are_said(planted: tuple[Path, Path]) -> None:
    with Run(planted[0]) as opened:
        for node, why in (("elsewhere", "is no node"), ("thunk:9", "is no thunk"), ("thunk:99.1", "of this run"),
                          ("file:", "is no node"), ("fd:x", "is no node"), ("address:12", "is no node"),
                          ("file:nothing", "was not read"), ("address:0x10", "no access"),
                          ("file:in@1-x", "was not read")):
            with pytest.raises(BadInput, match=why):
                opened.lineage(from_=node)


@pytest.mark.parametrize("mode", [EXACT, PRIVATE], ids=str)
def test_what_is_set_up_once_does_not_race_and_goes_to_all_who_use_it(tmp_path: Path, mode: Mode) -> None:
    """The control is a page that one writes, and others read, with nothing that orders these."""
    once = compile_c(PROGRAMS / "known_once.c", tmp_path / "known_once", "-g", "-O1", "-Wl,-z,now")
    for _ in range(NATIVE_RUNS):
        with natively(once, tmp_path, mode, "") as known:
            races = {page for page, in known.run.sql("select page from races")}
            assert {known.page(number) for number in range(3)} & races == {known.page(2)}
            for page in (0, 1):
                edges = known.between(known.page(page))
                writer, = {one for one, _ in edges}
                assert {to for _, to in edges} | {writer} == {0, 1, 2}
            counts = dict(known.run.sql("select operation, count(*) from thunks where operation like 'once%' "
                                        "group by 1"))
            assert counts == {"once_done": 2, "once": 4}


@pytest.mark.parametrize("mode", UNDER_LIBTTHREAD, ids=str)
def test_a_static_variable_is_initialised_before_who_waits_for_it_or_sees_its_guard(tmp_path: Path, mode: Mode) -> None:
    """Each of the program's threads looks whether it is. Who sees the guard alone is not ordered, which is the control:
    in the private view it is known that bytes differ."""
    program = compile_program(tmp_path, "known_guard", flags=["-Wl,-z,now"])
    for _ in range(NATIVE_RUNS):
        with natively(program, tmp_path, mode, "") as known:
            objects = [row for row in known.run.sql(
                "select object, operation, count(*) from thunks where operation like 'once%' group by all").rows()
                if known.page(0) - 16 * APART < row[0] < known.page(1) + 16 * APART]
            assert sorted(count for _, operation, count in objects if operation == "once_done") == [1, 1]
            assert [count for _, operation, count in objects if operation == "once"] == [2]
            if mode.access == "exact":
                races = {page for page, in known.run.sql("select page from races")}
                assert {known.page(0), known.page(1)} & races == ({known.page(1)} if mode.view == "shared" else set())
                edges = known.between(known.page(0))
                assert {one for one, _ in edges} | {to for _, to in edges} == {0, 1, 2}
