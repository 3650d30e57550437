# SPDX-License-Identifier: MIT
"""Two made-up runs beside each other: what differs is told where it is, and nothing else."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptweave.cli import main
from ptweave.data.bundle import Bundle
from ptweave.data.errors import BadInput
from ptweave.data.schemas import FLOW, SYSCALLS
from ptweave.data.table_writer import write_table
from ptweave.merge import Run, compare, merge_run
from ptweave.merge.compare import Compared, Comparer, correspond
from ptweave.merge.events import merge_events
from ptweave.merge.places import match_places
from ptweave.merge.run_code import Code
from ptweave.merge.tables import ThreadRows, numbers
from support.bundle_writer import BundleWriter

ROUNDS = 40


class Program:
    """main calls `loop`, which calls `work` in each round; `work` branches to one of two ways, and leaves."""

    def __init__(self, folder: Path, name: str, *, image: int = 0, shift: int = 0, cut: int = 4) -> None:
        self.writer = BundleWriter(folder / f"{name}.ptw", cut=cut)
        make = self.writer.block
        if shift:
            make("earlier", "return", size=shift, image=image)
        self.main = [make("main", "call", instructions=2, image=image), make("main", "return", image=image)]
        self.head = make("loop", "cond_jump", instructions=2, image=image)
        self.call = make("loop", "call", image=image)
        self.again = make("loop", "jump", image=image)
        self.out = make("loop", "return", image=image)
        self.branch = make("work", "cond_jump", instructions=5, image=image)
        self.ways = [make("work", "jump", instructions=count, image=image) for count in (3, 9)]
        self.leave = make("work", "return", instructions=1, image=image)
        self.extra = [make("helper", "jump", image=image), make("helper", "return", image=image)]
        self.ask = make("loop", "syscall", image=image)

    def round(self, way: int = 0, extra: int = 0) -> list[int]:
        """A round of the loop; `extra` calls of helper from the call's place."""
        calls = [block for _ in range(extra) for block in (self.call, *self.extra, self.again)]
        return [self.head, *calls, self.call, self.branch, self.ways[way], self.leave, self.again]

    def run(self, rounds: list[list[int]], thread: int = 0) -> None:
        self.writer.run(thread, [self.main[0], *(block for one in rounds for block in one), self.head, self.out,
                                 self.main[1]])

    def merged(self, threads: int = 1) -> Path:
        for thread in range(threads):
            self.writer.task(thread, tid=100 + thread, begin=10 * thread, end=1000, creator=100 * (thread > 0))
        bundle: Bundle = self.writer.write()
        merge_run(bundle)
        return bundle.path


def rows(path: Path, other: Path, table: str = "differences") -> list[dict[str, Any]]:
    with Run(path) as a, Run(other) as b:
        found: list[dict[str, Any]] = getattr(a.diff(b), table).arrow().to_pylist()
        return found


def flows(path: Path, other: Path) -> list[dict[str, Any]]:
    return [row for row in rows(path, other) if row["kind"] in ("flow", "gap", "end")]


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Path]:
    count = iter(range(100))

    def made(rounds: Callable[[Program], list[list[int]]], **options: Any) -> Path:
        program = Program(tmp_path, f"run{next(count)}", **options)
        program.run(rounds(program))
        return program.merged()

    return made


def test_the_same_flow_cut_into_other_paths_does_not_differ(make: Callable[..., Path]) -> None:
    def all_alike(program: Program) -> list[list[int]]:
        return [program.round(number % 3 == 0) for number in range(ROUNDS)]

    a, b = make(all_alike), make(all_alike, cut=7)
    assert rows(a, b) == []
    (pair,) = rows(a, b, "threads")
    assert (pair["thread"], pair["other_thread"], pair["agreed_blocks"]) == (0, 0, 5 * ROUNDS + 4 + ROUNDS)


@pytest.mark.parametrize("options", [{}, {"cut": 7}, {"shift": 64}])
def test_one_branch_that_went_another_way_is_the_only_row(make: Callable[..., Path], options: dict[str, Any]) -> None:
    a = make(lambda program: [program.round() for _ in range(ROUNDS)])
    b = make(lambda program: [program.round(number in (17, 30)) for number in range(ROUNDS)], **options)
    (row,) = flows(a, b)
    assert (row["rank"], row["function"], row["times"], row["blocks"], row["other_blocks"]) == (1, "work", 2, 2, 2)
    assert row["seq"] == row["other_seq"] == 1 + 17 * 6 + 2
    assert [frame.split()[0] for frame in row["stack"]] == ["work", "loop", "main"] == [
        frame.split()[0] for frame in row["other_stack"]]


@pytest.mark.parametrize("freely", [0, 1 << 40])
def test_many_small_differences_are_found_where_scouts_look_close(
        make: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, freely: int) -> None:
    """Every fourth round goes another way: a place, however far one looks to find where they agree again."""
    monkeypatch.setattr(compare, "FREELY", freely)
    a = make(lambda program: [program.round() for _ in range(ROUNDS)])
    b = make(lambda program: [program.round(number % 4 == 1) for number in range(ROUNDS)])
    (row,) = flows(a, b)
    assert (row["function"], row["times"], row["blocks"], row["other_blocks"]) == ("work", ROUNDS / 4, 10, 10)
    assert row["seq"] == row["other_seq"] == 1 + 6 + 2
    (pair,) = rows(a, b, "threads")
    assert pair["agreed_blocks"] == 6 * ROUNDS + 4 - ROUNDS / 4


def test_a_call_that_only_one_made_is_named(make: Callable[..., Path]) -> None:
    a = make(lambda program: [program.round() for _ in range(ROUNDS)])
    b = make(lambda program: [program.round(extra=3 * (number == 9)) for number in range(ROUNDS)])
    (row,) = flows(a, b)
    assert (row["function"], row["calls"], row["other_calls"]) == ("loop", [], ["helper × 3"])
    (mirrored,) = flows(b, a)
    assert (mirrored["calls"], mirrored["other_calls"]) == (["helper × 3"], [])


def test_more_rounds_are_one_difference_at_the_loops_head(make: Callable[..., Path]) -> None:
    a = make(lambda program: [program.round() for _ in range(ROUNDS)])
    b = make(lambda program: [program.round() for _ in range(ROUNDS + 5)])
    (row,) = flows(a, b)
    assert (row["function"], row["times"], row["blocks"], row["other_blocks"]) == ("loop", 1, 0, 30)


def test_behind_a_hole_they_are_compared_again(tmp_path: Path) -> None:
    """b lacks six rounds, and goes another way ten rounds behind the hole."""
    a, b = Program(tmp_path, "a"), Program(tmp_path, "b")
    ways = [random.Random(5).getrandbits(ROUNDS) >> number & 1 for number in range(ROUNDS)]
    a.run([a.round(way) for way in ways])
    first = [b.main[0], *(block for number in range(10) for block in b.round(ways[number]))]
    hole = b.writer.run(0, first)
    rest = [b.round(ways[number] ^ (number == 26)) for number in range(16, ROUNDS)]
    b.writer.run(0, [*(block for one in rest for block in one), b.head, b.out, b.main[1]], cuts=[hole])
    b.writer.gap(0, hole)
    found = flows(a.merged(), b.merged())
    assert [(row["kind"], row["function"], row["times"]) for row in found] == [("gap", "loop", 1), ("flow", "work", 1)]
    assert found[1]["seq"] == 1 + 26 * 6 + 2 == found[1]["other_seq"] + 36


@pytest.mark.parametrize(("library", "crossed"), [("/opt/libtthread.so", False), ("/usr/lib/libc.so.6", False),
                                                  ("/opt/libuser.so", True)])
def test_threads_are_alike_by_what_the_program_does_and_not_by_how_they_begin(library: str, crossed: bool,
                                                                              tmp_path: Path) -> None:
    """Thread 1 of one run and 2 of the other are first to do what is done once: the most of what they do."""
    def run(name: str, first: int) -> Path:
        program = Program(tmp_path, name)
        program.writer.image_paths[1] = library
        once = [program.writer.block("begins", "jump", instructions=1000, image=1),
                program.writer.block("begins", "return", image=1)]
        program.run([])
        for thread in (1, 2):
            program.run([[program.call, *once, program.again] if thread == first else [], program.round(thread - 1)],
                        thread)
        return program.merged(3)

    a, b = run("a", 1), run("b", 2)
    pairs = {row["thread"]: row["other_thread"] for row in rows(a, b, "threads")}
    assert pairs == ({0: 0, 1: 2, 2: 1} if crossed else {0: 0, 1: 1, 2: 2})


def test_a_thread_that_ended_early_is_told(make: Callable[..., Path], tmp_path: Path) -> None:
    a = make(lambda program: [program.round() for _ in range(ROUNDS)])
    short = Program(tmp_path, "short")
    short.writer.run(0, [short.main[0], *(block for _ in range(7) for block in short.round())])
    (row,) = flows(a, short.merged())
    assert (row["kind"], row["function"], row["what"]) == ("end", "loop", "this run's thread went on")


def test_what_fork_returned_to_a_parent_is_no_difference_but_that_it_failed_is(tmp_path: Path) -> None:
    paths = []
    for name, result in (("one", 101), ("two", 202), ("failed", -11)):
        program = Program(tmp_path, name)
        program.run([program.round()])
        for t, operation in ((0, "start"), (5, "fork")):
            program.writer.thunk(0, t=t, operation=operation, acquire=False)
        assert program.writer.thunks
        program.writer.thunks[-1]["result"] = result
        paths.append(program.merged())
    assert rows(paths[0], paths[1]) == []
    assert [row["what"] for row in rows(paths[0], paths[2])] == ["fork: another result"]


def connected(path: Path, address: bytes) -> None:
    row = {column.name: None for column in SYSCALLS.columns}
    write_table(path / "tables", SYSCALLS, pa.Table.from_pylist([
        {**row, "thread": 0, "seq": 1, "t_enter": 1, "t_exit": 2, "number": 42, "name": "connect", "args": [3, 64, 110],
         "paths": [], "files": [], "data": [{"argument": 1, "size": len(address), "data": address}], "result": 0,
         "placed": "exact"}], SYSCALLS.schema))


@pytest.mark.parametrize(("one", "other", "differ"), [
    (b"\1\0/run/a\0abc", b"\1\0/run/a\0xyz", False),  # behind the end of the path
    (b"\1\0/run/a\0abc", b"\1\0/run/b\0abc", True),
    (b"\1\0\0abc", b"\1\0\0abd", True),                # an abstract name has no such end
    (b"\2\0\x1f\x90\x7f\0\0\1", b"\2\0\x1f\x91\x7f\0\0\1", True)])
def test_what_lies_behind_a_sockets_path_is_no_difference(tmp_path: Path, one: bytes, other: bytes,
                                                          differ: bool) -> None:
    paths = []
    for name, address in (("one", one), ("other", other)):
        program = Program(tmp_path, name)
        program.run([program.round()])
        paths.append(program.merged())
        connected(paths[-1], address)
    assert [row["what"] for row in rows(*paths)] == (["connect: another data"] if differ else [])


def ask(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(list(words))
    out, err = capfd.readouterr()
    return status, out, err


def test_the_command_gives_every_table_in_every_format(make: Callable[..., Path], tmp_path: Path,
                                                       capfd: pytest.CaptureFixture[str]) -> None:
    a = make(lambda program: [program.round() for _ in range(ROUNDS)])
    b = make(lambda program: [program.round(number == 5) for number in range(ROUNDS)])
    for option in ([], ["--timing"], ["--threads"]):
        status, text, err = ask(capfd, "diff", str(a), str(b), *option)
        assert (status, err) == (0, "") and len(text.splitlines()) >= 2
        names = text.splitlines()[0].split()
        status, lines, err = ask(capfd, "diff", str(a), str(b), *option, "--format", "json")
        assert (status, err) == (0, "") and all(list(json.loads(line)) == names for line in lines.splitlines())
        for form in ("csv", "parquet"):
            status, _, err = ask(capfd, "diff", str(a), str(b), *option, "--format", form, "-o", str(tmp_path / form))
            assert (status, err) == (0, "") and (tmp_path / form).stat().st_size > 0


def test_runs_of_different_programs_are_refused_in_one_line(make: Callable[..., Path], tmp_path: Path,
                                                            capfd: pytest.CaptureFixture[str]) -> None:
    a = make(lambda program: [program.round()])
    writer = BundleWriter(tmp_path / "other.ptw")
    writer.task(0)
    writer.run(0, [writer.block(name, "jump", image=3) for name in ("start", "cook", "wash", "dry")])
    bundle = writer.write()
    merge_run(bundle)
    status, out, err = ask(capfd, "diff", str(a), str(bundle.path))
    assert (status, out) == (2, "") and "is a run of image3, the other one of image0" in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("table", ["flow", "blocks", "paths"])
def test_without_a_table_the_rest_is_compared_and_that_is_said(
        make: Callable[..., Path], capfd: pytest.CaptureFixture[str], table: str) -> None:
    a = make(lambda program: [program.round()])
    b = make(lambda program: [program.round(1)])
    (b / "tables" / table / "0.parquet").write_bytes(b"PAR1 no")
    status, out, err = ask(capfd, "diff", str(a), str(b), "--threads")
    assert status == 1 and len(out.splitlines()) == 3
    assert err.startswith("ptweave: not compared: ") and "is corrupt" in err and len(err.splitlines()) == 1
    shutil.rmtree(b / "tables" / "threads")
    with Run(a) as one, Run(b) as other, pytest.raises(BadInput, match="table threads: was not made"):
        one.diff(other)


def test_sequences_of_nothing_in_common_are_gone_through_and_what_they_end_in_is_found() -> None:
    """Searching is bounded by all searches together: each for itself this would take minutes."""
    apart = np.arange(40_000, dtype=np.uint64)
    a = np.concatenate([apart, apart[:500] + np.uint64(1 << 40)])
    b = np.concatenate([apart + np.uint64(1 << 32), apart[:500] + np.uint64(1 << 40)])
    found = correspond(a, b)
    assert (found[:40_000] == -1).all()
    assert (found[40_000:] == np.arange(40_000, 40_500)).all()


# --- against a model: rounds correspond one to one, so what differs is known without aligning anything ---

ROUND = st.tuples(st.integers(0, 1), st.integers(0, 2))


def compared(program: Program, other: Program) -> Compared:
    """The flows of two programs' first threads, without merging."""
    bundles = [one.writer.write() for one in (program, other)]
    codes = [Code(bundle) for bundle in bundles]
    flows = []
    for bundle in bundles:
        rows = ThreadRows(bundle, FLOW, ["seq", "path"])
        flows.append((numbers(batch, "seq"), numbers(batch, "path")) for batch in rows.batches(0))
    try:
        with Comparer(codes[0], codes[1], match_places(codes[0], codes[1])) as comparer:
            return comparer.threads((flows[0], flows[1]), (merge_events([]), merge_events([])))
    finally:
        for code in codes:
            code.close()


@given(data=st.data())
def test_as_often_as_the_rounds_differ(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("rounds")
    ours = data.draw(st.lists(ROUND, min_size=8, max_size=60))
    changes = data.draw(st.lists(st.tuples(st.integers(0, len(ours) // 5 - 1 if len(ours) >= 5 else 0), ROUND),
                                 max_size=5))
    theirs = list(ours)
    for place, change in changes:
        theirs[5 * place] = change
    a = Program(folder, "a", cut=data.draw(st.integers(1, 9)))
    b = Program(folder, "b", cut=data.draw(st.integers(1, 9)), shift=data.draw(st.sampled_from([0, 48])))
    a.run([a.round(way, extra) for way, extra in ours])
    b.run([b.round(way, extra) for way, extra in theirs])
    found = compared(a, b)
    branches = sum(one[0] != other[0] for one, other in zip(ours, theirs, strict=True))
    extras = [other[1] - one[1] for one, other in zip(ours, theirs, strict=True)]
    names = [b.writer.blocks[difference.b.from_block or 0].function for difference in found.differences]
    times = {name: sum(one.times for one, own in zip(found.differences, names, strict=True) if own == name)
             for name in set(names)}
    assert sum(difference.b.blocks - difference.a.blocks for difference in found.differences) == 4 * sum(extras)
    if not any(extras):
        assert times == ({"work": branches} if branches else {})
    if ours == theirs:
        assert not found.differences and found.agreed == len(b.writer.executed[0])
