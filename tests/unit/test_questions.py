# SPDX-License-Identifier: MIT
"""Questions to made-up runs: what ran most, who waited for whom, what the end had to wait for, what is missing."""

from __future__ import annotations

import io
import json
import random
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ptweave.cli import main
from ptweave.data.bundle import Bundle
from ptweave.data.errors import BadInput
from ptweave.data.schemas import SYSCALLS, THUNKS
from ptweave.merge import Run, merge_run
from ptweave.merge.critical_path import critical_path
from support.bundle_writer import BundleWriter, put, rows_of
from support.hand_over import write_hand_over

LOCK = 0x5000


def written(folder: Path) -> Bundle:
    """Two threads: thread 1 is made by thread 0, and waits for a lock that thread 0 holds; thread 0 joins it."""
    writer = BundleWriter(folder / "run.ptw")
    block = [writer.block(name, "jump", instructions=count) for name, count in (("main", 2), ("work", 5), ("work", 7))]
    draw = random.Random(3)
    for thread, end in ((0, 1000), (1, 900)):
        writer.task(thread, tid=100 + thread, begin=0, end=end, creator=100 * thread)
        writer.run(thread, [draw.choice(block) for _ in range(200 + thread)])
        writer.moment(thread, 0, 0)

    write_hand_over(writer, LOCK)
    bundle = writer.write()
    merge_run(bundle)
    return bundle


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return written(tmp_path)


@pytest.mark.parametrize("form", ["csv", "json", "table"])
@pytest.mark.parametrize("command", [["hot"], ["hot", "--by", "block"], ["timeline"], ["critical-path"]])
def test_the_first_rows_of_an_answer_are_its_first(bundle: Bundle, capsys: pytest.CaptureFixture[str], form: str,
                                                   command: list[str]) -> None:
    words = [command[0], str(bundle.path), *command[1:], "--format", form]
    heading = {"csv": 1, "json": 0, "table": 2}[form]
    assert main(words) == 0
    whole = capsys.readouterr().out.splitlines()
    assert len(whole) > heading + 1
    for count in (0, 1, 2, len(whole) + 5):
        assert main([*words, "-n", str(count)]) == 0
        some = capsys.readouterr().out.splitlines()
        assert len(some) == min(heading + count, len(whole))
        assert [line.split() for line in some[heading:]] == [line.split() for line in whole[heading:heading + count]]


@pytest.mark.parametrize(("words", "said"), [
    (["-n", "-1"], "is no number of rows"),
    (["--limit", "1e3"], "is no number of rows"),
    (["--most", "3"], "unrecognized arguments: --most 3"),
])
def test_a_wrong_option_is_one_line_that_says_where_the_right_ones_are(
        bundle: Bundle, capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["hot", str(bundle.path), *words])
    err = capsys.readouterr().err
    assert ended.value.code == 2 and said in err and err.count("\n") == 1
    assert err.startswith("ptweave: hot: ") and err.endswith(": see ptweave hot --help\n")


def test_a_lock_waited_for_is_told_with_its_holder(bundle: Bundle) -> None:
    with Run(bundle.path) as run:
        (lock,) = [row for row in run.contention().rows() if row[0] == LOCK]
        assert lock[:7] == (LOCK, None, "mutex_lock", 2, 1, 215, 215)
        (wait,) = run.contention(each=True).rows()
        names = run.contention(each=True).columns
        found = dict(zip(names, wait, strict=True))
        assert (found["thread"], found["thunk"], found["holder_thread"], found["holder_thunk"], found["released"]) == (
            1, 1, 0, 1, 400)


def test_an_address_is_another_lock_in_another_process(tmp_path: Path) -> None:
    writer = BundleWriter(tmp_path / "run.ptw")
    for thread, pid, wait in ((0, 100, 30), (1, 101, 700)):
        writer.task(thread, pid=pid, space=thread)
        writer.thunk(thread, t=0, operation="start", object_=0)
        writer.thunk(thread, t=10, wait=wait, object_=LOCK)
    bundle = writer.write()
    merge_run(bundle)
    with Run(bundle.path) as run:
        rows = run.contention().arrow().to_pylist()
    assert [(row["pid"], row["object"], row["operations"], row["threads"]) for row in rows] == [
        (100, LOCK, 1, 1), (101, LOCK, 1, 1)]


def test_the_critical_path_goes_from_thread_to_thread(bundle: Bundle) -> None:
    """Thread 0 up to its unlock, thread 1 up to its end, thread 0 again; every moment once."""
    with Run(bundle.path) as run:
        rows = [(row[0], row[1], row[3], row[5], row[6]) for row in run.critical_path()]
    assert rows == [
        (10, 100, 0, "run", "start"), (100, 105, 0, "operation", "mutex_lock"), (105, 150, 0, "run", "mutex_lock"),
        (150, 160, 0, "operation", "create"), (160, 400, 0, "run", "create"), (400, 415, 1, "woken", "mutex_lock"),
        (415, 880, 1, "run", "mutex_lock"), (880, 910, 0, "woken", "join"), (910, 1000, 0, "run", "join")]


def waited_for_a_condition(folder: Path, unlock: int) -> Bundle:
    """Thread 1 waits for a condition from 60 to 500 ns, which thread 0 signals at 200; the mutex it gives back at
    `unlock`."""
    writer = BundleWriter(folder / "run.ptw")
    for thread in (0, 1):
        writer.task(thread, tid=100 + thread, pid=100, begin=0, end=600 - 50 * (1 - thread))

    def thunk(thread: int, operation: str, t: int, wait: int, clock: list[int], at: int, *, acquire: bool = False,
              release: bool = False) -> None:
        writer.thunk(thread, t=t, wait=wait, operation=operation, clock=clock, acquire=acquire, release=release,
                     object_=at)

    condition = 0x6000
    thunk(0, "start", 0, 0, [1], 0)
    thunk(0, "mutex_lock", 100, 5, [2, 3], LOCK, acquire=True)
    thunk(0, "cond_signal", 200, 5, [3, 3], condition, release=True)
    thunk(0, "mutex_unlock", unlock, 5, [4, 3], LOCK, release=True)
    thunk(1, "start", 10, 0, [0, 1], 0)
    thunk(1, "mutex_lock", 50, 5, [0, 2], LOCK, acquire=True)
    thunk(1, "cond_wait_begin", 60, 5, [0, 3], LOCK, release=True)
    thunk(1, "cond_wait", 60, 440, [2, 4], condition, acquire=True)
    thunk(1, "cond_relock", 500, 0, [3, 5], LOCK, acquire=True)
    bundle = writer.write()
    merge_run(bundle)
    return bundle


def test_after_a_condition_wait_the_mutex_is_waited_for_while_it_is_held(tmp_path: Path) -> None:
    with Run(waited_for_a_condition(tmp_path, unlock=480).path) as run:
        path = [(row[0], row[1], row[3], row[5], row[6]) for row in run.critical_path()][-3:]
        waits = {row["operation"]: (row["t"], row["wait_ns"], row["holder_thread"], row["holder_thunk"])
                 for row in run.contention(each=True).arrow().to_pylist()}
    assert path == [(205, 480, 0, "run", "cond_signal"), (480, 500, 1, "woken", "cond_relock"),
                    (500, 600, 1, "run", "cond_relock")]
    assert waits == {"cond_wait": (60, 440, 0, None), "cond_relock": (200, 280, 0, 1)}


@pytest.mark.parametrize("again", [1, 2])
def test_a_lock_taken_twice_is_held_since_the_first_time(tmp_path: Path, again: int) -> None:
    writer = BundleWriter(tmp_path / "run.ptw")
    for thread in (0, 1):
        writer.task(thread, tid=100 + thread, pid=100, begin=0, end=600)
    inner = [(40, "mutex_lock"), (50, "mutex_unlock")] * again
    for number, (t, operation) in enumerate([(0, "start"), (10, "mutex_lock"), (20, "mutex_unlock"), (30, "mutex_lock"),
                                             *inner, (300, "mutex_unlock")], 1):
        writer.thunk(0, t=t, operation=operation, clock=[number], acquire="_lock" in operation,
                     release="unlock" in operation, object_=LOCK if "mutex" in operation else 0)
    writer.thunk(1, t=5, operation="start", clock=[0, 1], acquire=False, object_=0)
    writer.thunk(1, t=60, wait=250, operation="mutex_lock", clock=[4 + 2 * again, 2], object_=LOCK)
    bundle = writer.write()
    merge_run(bundle)
    with Run(bundle.path) as run:
        (wait,) = run.contention(each=True).arrow().to_pylist()
    assert (wait["thread"], wait["holder_thread"], wait["holder_thunk"], wait["released"]) == (1, 0, 3, 300)


def test_the_path_ends_where_a_thread_does_that_outlived_its_main_thread(tmp_path: Path) -> None:
    """A main thread that called pthread_exit stays until the others end, where threads are processes."""
    writer = BundleWriter(tmp_path / "run.ptw")
    for thread, end in ((0, 1000), (1, 900)):
        writer.task(thread, tid=100 + thread, pid=100, begin=0, end=end)
    writer.thunk(0, t=0, operation="start", clock=[1], acquire=False, object_=0)
    writer.thunk(0, t=50, operation="create", clock=[2], acquire=False, release=True, object_=0x9000)
    writer.thunk(0, t=100, operation="exit", clock=[3], acquire=False, release=True, object_=0x8000)
    writer.thunk(1, t=60, operation="start", clock=[1, 1], object_=0x9000)
    writer.thunk(1, t=880, operation="exit", clock=[1, 2], acquire=False, release=True, object_=0x9000)
    bundle = writer.write()
    merge_run(bundle)
    with Run(bundle.path) as run:
        path = [(row[0], row[1], row[3], row[5]) for row in run.critical_path()]
    assert path == [(0, 50, 0, "run"), (50, 60, 1, "woken"), (60, 880, 1, "run"), (880, 900, 1, "run")]


def test_control_without_the_wait_the_path_stays_in_its_thread(tmp_path: Path) -> None:
    bundle = written(tmp_path)
    with Run(bundle.path) as run:
        assert {row[3] for row in run.critical_path()} == {0, 1}
        from ptweave.merge import critical_path, timeline

        none = run.sql(critical_path.EDGES).arrow().slice(0, 0)
        thunks = critical_path.THUNKS.format(names=run.names_of(timeline.names(critical_path.TEXTS)))
        alone = critical_path.critical_path(run.sql(thunks).arrow(), none,
                                            run.sql(critical_path.ENDS).arrow())
    assert {row["thread"] for row in alone.to_pylist()} == {0}


def test_hot_counts_what_ran_of_all_of_a_thread_and_of_a_part(bundle: Bundle) -> None:
    with Run(bundle.path) as run:
        executed = run.sql("select thread, seq, function, instructions "
                           "from flow_blocks join blocks using (block)").rows()

        def expected(thread: int | None, begin: int = 0, end: int = 1 << 40) -> Counter[str]:
            count: Counter[str] = Counter()
            for one, seq, function, instructions in executed:
                if thread in (None, one) and begin <= seq < end:
                    count[function] += instructions
            return count

        def found(thread: int | None = None, begin: int = 0, end: int | None = None,
                  by: str = "function") -> Counter[str]:
            part = None if end is None or thread is None else run.part(thread, begin, end)
            result = run.hot(by, thread=thread, part=part)
            place, count = result.columns.index("function"), result.columns.index("instructions")
            total: Counter[str] = Counter()
            for row in result:
                total[row[place]] += row[count]
            return total

        for by in ("function", "line", "block"):
            assert found(by=by) == expected(None) and found(1, by=by) == expected(1)
            for begin, end in ((0, 1), (3, 5), (1, 200), (17, 118), (199, 201), (150, 150)):
                assert found(1, begin, end, by) == expected(1, begin, end), (by, begin, end)


def test_functions_of_one_name_are_told_apart_by_their_images_and_images_are_summed_up(tmp_path: Path) -> None:
    writer, draw = BundleWriter(tmp_path / "run.ptw"), random.Random(4)
    code = [("main", 0, 2), ("init", 0, 3), ("init", 1, 50), ("init", 1, 70), (None, 1, 9)]
    blocks = [writer.block(name, "jump", image=image, instructions=count) for name, image, count in code]
    writer.task(0, begin=0, end=1000)
    writer.run(0, [draw.choice(blocks) for _ in range(300)])
    writer.moment(0, 0, 0)
    bundle = writer.write()
    merge_run(bundle)
    with Run(bundle.path) as run:
        for part in (None, run.part(0, 0, 300)):
            functions: Counter[tuple[str | None, str | None]] = Counter()
            images: Counter[str | None] = Counter()
            for block in writer.executed[0]:
                name, image, count = code[blocks.index(block)]
                told = name or part  # of a whole run it is functions that tell images
                functions[name, f"image{image}" if told else None] += count
                images[f"/bin/image{image}" if told else None] += count
            by_function = run.hot(part=part)
            assert by_function.columns[:3] == ["function", "image", "instructions"]
            assert {row[:2]: row[2] for row in by_function} == functions
            assert {row[0]: row[1] for row in run.hot("image", part=part)} == images
        assert {row[1:3] for row in run.hot("block")} == set(functions)
        assert {(row[0], row[1]) for row in run.sql("select function, image from stacks")} == {
            ("main", 0), ("init", 0), ("init", 1), (None, None)}


def test_the_timeline_is_in_order_and_has_every_operation(bundle: Bundle) -> None:
    with Run(bundle.path) as run:
        result = run.timeline()
        rows = [dict(zip(result.columns, row, strict=True)) for row in result]
        assert [row["t_begin"] for row in rows] == sorted(row["t_begin"] for row in rows)
        assert Counter(row["detail"] for row in rows if row["what"] in ("operation", "begin")) == Counter(
            ["start", "mutex_lock", "create", "mutex_unlock", "join", "start", "mutex_lock", "exit"])
        assert {row["thread"] for row in map(dict, rows)} == {0, 1}
        assert all(row[3] == 1 for row in run.timeline(thread=1))
        assert all(row[1] >= 500 and row[0] <= 900 for row in run.timeline(begin=500, end=900))


@pytest.mark.parametrize("function", ["operator\"\" _x", "it's; drop table", "λ::f<'a>", "run", ""])
def test_functions_of_any_name_are_in_the_timeline_and_on_the_path_of_tables_that_changed(
        bundle: Bundle, function: str) -> None:
    """Texts are numbered on the way: by what the tables have when they are asked, not when they were opened."""
    with Run(bundle.path) as run:
        assert {row[-1] for row in run.timeline()} == {None}
        thunks = rows_of(bundle, THUNKS)
        for row in thunks:
            row["caller"] = function if row["thread"] == 1 else None
        put(bundle, THUNKS, thunks)
        assert {(row[3], row[-1]) for row in run.timeline()} == {(0, None), (1, function)}
        assert {(row[3], row[-2]) for row in run.timeline(resolution=1) if row[2]} == {(0, None), (1, function)}
        assert {(row[3], row[-1]) for row in run.critical_path()} == {(0, None), (1, function)}


def plain_path(thunks: list[dict[str, Any]], edges: list[dict[str, Any]], end: int) -> list[tuple[Any, ...]]:
    """The critical path segment by segment: the definition, without anything that makes it quick."""
    known = {(row["thread"], row["thunk"]): row for row in thunks}
    releases: dict[tuple[int, int], tuple[int, int, int]] = {}
    for edge in edges:
        to = (edge["to_thread"], edge["to_thunk"])
        found = (edge["released"], edge["from_thread"], edge["from_thunk"])
        releases[to] = max(releases.get(to, found), found)
    thread, thunk = max(known, key=lambda name: (known[name]["t"] + known[name]["wait"], name))
    at: tuple[int, int, int] | None = (thread, thunk, end)
    rows = []
    while at is not None:
        thread, thunk, until = at
        row = known[thread, thunk]
        finished = min(row["t"] + row["wait"], until)
        begin = min(row["t"], finished)
        rows.append((finished, until, thread, thunk, "run"))
        release = releases.get((thread, thunk))
        if release is not None and (thunk == 0 or release[0] > begin):
            released = min(release[0], finished)
            rows.append((released, finished, thread, thunk, "woken"))
            at = (release[1], release[2], released)
        else:
            rows.append((begin, finished, thread, thunk, "operation"))
            at = (thread, thunk - 1, begin) if thunk else None
    return [row for row in reversed(rows) if row[1] > row[0]]


@pytest.mark.parametrize("seed", range(40))
def test_the_critical_path_is_the_one_found_step_by_step(seed: int) -> None:
    draw = random.Random(seed)
    thunks, edges, last = [], [], {}
    for t in range(0, 600, 10):  # one thread after the other does something; an acquire is of an earlier release
        thread = draw.randrange(4)
        wait = draw.choice((0, 0, 3, 9))
        thunk = last.get(thread, -1) + 1
        released = [row for row in thunks if row["thread"] != thread and row["t"] < t + wait]
        if released and draw.random() < 0.5:
            by = draw.choice(released[-6:])
            edges.append({"to_thread": thread, "to_thunk": thunk, "from_thread": by["thread"], "from_thunk": max(
                by["thunk"] - 1, 0), "released": min(by["t"] + draw.randrange(9), t + wait)})
        thunks.append({"thread": thread, "thunk": thunk, "t": t, "wait": wait, "operation": "mutex_lock",
                       "object": 1, "variable": "lock", "function": "f"})
        last[thread] = thunk
    thunks.sort(key=lambda row: (row["thread"], row["thunk"]))
    end = max(row["t"] + row["wait"] for row in thunks)
    numbers = ("thread", "thunk", "t", "wait", "object")
    table = pa.table({**{name: pa.array([row[name] for row in thunks], pa.int64()) for name in numbers},
                      **{name: [row[name] for row in thunks] for name in ("operation", "variable", "function")}})
    arrows = pa.table({name: pa.array([row[name] for row in edges], pa.int64()) for name in (
        "to_thread", "to_thunk", "from_thread", "from_thunk", "released")})
    found = critical_path(table, arrows, pa.schema([("thread", pa.int64()), ("t_end", pa.int64())]).empty_table())
    assert [(row["t_begin"], row["t_end"], row["thread"], row["thunk"], row["what"]) for row in found.to_pylist()] == \
        plain_path(thunks, edges, end)


@pytest.mark.parametrize(("begin", "end"), [(0, 5), (100, 100), (120, 300), (160, 161), (401, 449), (880, 2000),
                                            (None, 300), (300, None), (5000, None), (None, 3)])
def test_part_of_a_timeline_is_that_part_of_all_of_it(bundle: Bundle, begin: int | None, end: int | None) -> None:
    with Run(bundle.path) as run:
        names = run.timeline().columns
        rows = [row for row in run.timeline().rows() if (begin is None or row[names.index("t_end")] >= begin)
                and (end is None or row[names.index("t_begin")] <= end)]
        assert run.timeline(begin=begin, end=end).rows() == rows
        assert run.timeline(thread=1, begin=begin, end=end).rows() == [
            row for row in rows if row[names.index("thread")] == 1]


@pytest.mark.parametrize("resolution", [1, 50, 100, 250, 1 << 40])
def test_a_folded_timeline_has_the_long_spans_and_the_sums_of_the_others(bundle: Bundle, resolution: int) -> None:
    with Run(bundle.path) as run:
        every = run.timeline().arrow().to_pylist()
        exact = [row for row in every if row["ns"] >= resolution or row["what"] == "gap"]
        short = [row for row in every if row not in exact]
        folded = run.timeline(resolution=resolution).arrow().to_pylist()
    assert [row["t_begin"] for row in folded] == sorted(row["t_begin"] for row in folded)
    for row in exact:
        folded.remove({**row, "spans": 1})
    assert sum(row["spans"] for row in folded) == len(short)
    assert sum(row["ns"] for row in folded) == sum(row["ns"] for row in short)
    keys = [(row["thread"], row["what"], row["t_begin"] // resolution) for row in folded]
    assert Counter(keys) == Counter({(row["thread"], row["what"], row["t_begin"] // resolution) for row in short})


@pytest.mark.parametrize("resolution", [1, 50, 100, 250, 1 << 40])
def test_a_folded_critical_path_has_the_long_segments_and_the_sums_of_the_others(bundle: Bundle,
                                                                                 resolution: int) -> None:
    with Run(bundle.path) as run:
        every = run.critical_path().arrow().to_pylist()
        folded = run.critical_path(resolution=resolution).arrow().to_pylist()
    assert [row["t_begin"] for row in folded] == sorted(row["t_begin"] for row in folded)
    expected: dict[tuple[object, ...], dict[str, object]] = {}
    for row in every:
        if row["ns"] >= resolution:
            expected[row["t_begin"], row["t_end"]] = {**row, "spans": 1}
            continue
        one = expected.setdefault((row["thread"], row["what"], row["t_begin"] // resolution), {
            **dict.fromkeys(row), "thread": row["thread"], "what": row["what"], "t_begin": row["t_begin"], "ns": 0,
            "spans": 0})
        one |= {"t_end": row["t_end"], "ns": one["ns"] + row["ns"], "spans": one["spans"] + 1}
    assert sorted(map(str, folded)) == sorted(map(str, expected.values()))
    assert sum(row["spans"] for row in folded) == len(every)
    assert resolution < 1 << 40 or len(folded) < len(every)


@pytest.mark.parametrize("what", ["clock", "thunk"])
def test_a_killed_thread_did_not_end_before_what_it_did_last(tmp_path: Path, what: str) -> None:
    """Its process's end is known by what the process wrote last."""
    writer = BundleWriter(tmp_path / "run.ptw")
    block = writer.block("main", "jump")
    writer.task(0, begin=0)
    writer.sideband.append({"kind": "process_exit", "tsc": 100, "pid": 100, "space": 0, "value": 9})
    writer.run(0, [block] * 50)
    writer.moment(0, 0, 0)
    writer.thunk(0, t=0, operation="start")
    if what == "clock":
        writer.moment(0, 50, 900)
    else:
        writer.thunk(0, t=400, wait=500)
    bundle = writer.write()
    merge_run(bundle)
    with Run(bundle.path) as run:
        assert run.sql("select t_end from threads union all select t_end from processes").rows() == [(900,), (900,)]
        assert all(row["ns"] >= 0 for row in run.timeline().arrow().to_pylist())
        assert run.critical_path().rows()[-1][1] == 900


def test_a_thread_that_says_when_it_ends_ended_then(tmp_path: Path) -> None:
    writer = BundleWriter(tmp_path / "run.ptw")
    block = writer.block("main", "jump")
    writer.task(0, begin=0, end=800)
    writer.run(0, [block] * 50)
    writer.moment(0, 50, 900)
    bundle = writer.write()
    merge_run(bundle)
    with Run(bundle.path) as run:
        assert run.sql("select t_end from threads").rows() == [(800,)]


def test_a_resolution_of_nothing_is_refused(bundle: Bundle) -> None:
    with Run(bundle.path) as run:
        for ask_for in (run.timeline, run.critical_path):
            with pytest.raises(BadInput, match="is no resolution"):
                ask_for(resolution=0)


def test_a_thunk_that_is_not_there_or_none_is_said(bundle: Bundle) -> None:
    with Run(bundle.path) as run:
        for name in ("7.0", "0.99", "x", "1", "-1.0", "1.", "99999999999.0"):
            with pytest.raises(BadInput, match="thunk"):
                run.thunk(name)
        with pytest.raises(BadInput, match="no known place"):
            run.thunk("0.1")


COMMANDS = {"hot": [], "contention": [], "races": [], "timeline": [], "critical-path": [],
            "lineage": ["--to", "thunk:0.4"], "calls": ["--thread", "0"]}


def ask(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(list(words))
    out, err = capfd.readouterr()
    return status, out, err


def test_every_question_is_a_command_in_every_format(bundle: Bundle, tmp_path: Path,
                                                     capfd: pytest.CaptureFixture[str]) -> None:
    put_races(bundle)
    merge_run(bundle, calls=True)
    put_races(bundle)
    for command, words in COMMANDS.items():
        status, text, err = ask(capfd, command, str(bundle.path), *words)
        assert (status, err) == (0, "") and len(text.splitlines()) >= 2, command
        names = text.splitlines()[0].split()
        status, lines, err = ask(capfd, command, str(bundle.path), *words, "--format", "json")
        rows = [json.loads(line) for line in lines.splitlines()]
        assert (status, err) == (0, "") and all(list(row) == names for row in rows), command
        status, _, err = ask(capfd, command, str(bundle.path), *words, "--format", "parquet", "-o",
                             str(tmp_path / command))
        assert (status, err) == (0, "") and (tmp_path / command).read_bytes()[:4] == b"PAR1"


def put_races(bundle: Bundle) -> None:
    from ptweave.data.schemas import RACES
    from ptweave.data.table_writer import write_table

    write_table(bundle.tables, RACES, RACES.schema.empty_table())


@pytest.mark.parametrize(("table", "command"), [("edges", "contention"), ("profile", "hot"), ("edges", "lineage"),
                                                ("thunks", "critical-path")])
def test_a_table_that_is_missing_or_corrupt_is_said_and_others_are_answered(
        bundle: Bundle, capfd: pytest.CaptureFixture[str], table: str, command: str) -> None:
    (bundle.tables / table / "0.parquet").write_bytes(b"PAR1 no")
    status, out, err = ask(capfd, command, str(bundle.path), *COMMANDS[command])
    assert (status, out) == (2, "") and "is corrupt" in err and len(err.splitlines()) == 1
    shutil.rmtree(bundle.tables / table)
    status, out, err = ask(capfd, command, str(bundle.path), *COMMANDS[command])
    assert (status, out) == (2, "") and "was not made" in err and len(err.splitlines()) == 1
    assert ask(capfd, "query", str(bundle.path), "select count(*) from flow")[0] == 0


def test_a_timeline_has_what_there_is_and_says_what_there_is_not(bundle: Bundle,
                                                                 capfd: pytest.CaptureFixture[str]) -> None:
    def told(*words: str) -> tuple[int, set[str], list[str]]:
        status, out, err = ask(capfd, "timeline", str(bundle.path), "--format", "json", *words)
        return status, {json.loads(line)["what"] for line in out.splitlines()}, err.splitlines()

    put(bundle, SYSCALLS, [{"thread": 0, "t_enter": 100, "t_exit": 200, "name": "read"}])
    status, whole, err = told()
    assert (status, err) == (0, []) and {"run", "system call"} <= whole
    (bundle.tables / "thunks" / "0.parquet").write_bytes(b"PAR1 no")
    status, found, err = told()
    assert status == 1 and found == whole - {"begin", "operation", "run"} and "system call" in found
    assert len(err) == 1 and "without thunks: " in err[0] and "is corrupt" in err[0]
    shutil.rmtree(bundle.tables / "thunks")
    status, found, err = told("--resolution", "1ms")
    assert status == 1 and "system call" in found and len(err) == 1
    assert "without thunks, which was not made: merge the run" in err[0]
    for part in ("syscalls", "gaps"):
        shutil.rmtree(bundle.tables / part, ignore_errors=True)
    status, found, err = told()
    assert status == 2 and not found and len(err) == 1 and "table thunks: was not made" in err[0]


@pytest.mark.parametrize("command", ["timeline", "critical-path"])
def test_a_resolution_has_units(bundle: Bundle, capfd: pytest.CaptureFixture[str], command: str) -> None:
    answers = [ask(capfd, command, str(bundle.path), "--resolution", text)
               for text in ("2000000", "2000000ns", "2000us", "2ms")]
    assert {status for status, _, _ in answers} == {0} and len({out for _, out, _ in answers}) == 1
    assert ask(capfd, command, str(bundle.path), "--resolution", "1ns")[1] != answers[0][1], "control"
    for text in ("1 ms", "-1", "1h", "ms", "1.5ms", "\u0661"):
        with pytest.raises(SystemExit, match="2"):
            ask(capfd, command, str(bundle.path), f"--resolution={text}")
        assert "is no time" in capfd.readouterr().err


START = 85_304_370_765_715


@pytest.fixture
def later(tmp_path: Path) -> Bundle:
    """A run that began long after the machine did: system calls 1, 2 and 3 ms after its start, its end after 4."""
    writer = BundleWriter(tmp_path / "later.ptw")
    writer.task(0, begin=START, end=START + 4_000_000)
    writer.run(0, [writer.block("main", "jump")] * 5)
    writer.moment(0, 0, START)
    for ms in (1, 2, 3):
        writer.syscall(0, None, enter=START + ms * 10**6, leave=START + ms * 10**6 + 500, number=0, result=ms)
    bundle = writer.write()
    merge_run(bundle)
    return bundle


def times_in(answer: str) -> list[int]:
    return [int(line.split(",")[0]) - START for line in answer.splitlines()[1:] if "system call" in line]


@pytest.mark.parametrize(("words", "wanted"), [
    ((), [1, 2, 3]),
    (("--from", "1500us"), [2, 3]), (("--from", "1.5ms"), [2, 3]), (("--to", "0.0025s"), [1, 2]),
    (("--from", "1500us", "--to", "2500000ns"), [2]),
    (("--from", str(START + 1_500_000)), [2, 3]), (("--from", f"t={START + 1_500_000}", "--to", "2.5ms"), [2])])
def test_times_are_ns_as_in_t_or_with_a_unit_since_the_run_s_start(later: Bundle, capfd: pytest.CaptureFixture[str],
                                                                   words: tuple[str, ...], wanted: list[int]) -> None:
    status, out, _ = ask(capfd, "timeline", str(later.path), "--format", "csv", *words)
    assert status == 1 and times_in(out) == [ms * 10**6 for ms in wanted]
    for form in ("chrome", "perfetto"):
        status, out, _ = ask(capfd, "export", form, str(later.path), "-o", str(later.path.parent / form), *words)
        assert status == 1
    events = json.loads((later.path.parent / "chrome").read_text())["traceEvents"]
    assert len([one for one in events if one["ph"] == "b"]) == len(wanted)


@pytest.mark.parametrize("command", [["timeline"], ["export", "chrome"], ["export", "perfetto"]])
def test_times_that_are_none_are_wrong_use(later: Bundle, capfd: pytest.CaptureFixture[str],
                                           command: list[str]) -> None:
    for text in ("1 s", "1h", "s", "1.5", "0.1234ns", "\u0661s"):
        with pytest.raises(SystemExit, match="2"):
            ask(capfd, *command, str(later.path), f"--from={text}")
        assert "is no time" in capfd.readouterr().err


@pytest.mark.parametrize("command", [["timeline"], ["export", "chrome"], ["export", "perfetto"]])
@pytest.mark.parametrize("words", [("--from", "4001us"), ("--to", str(START - 1)), ("--from", "1000", "--to", "2000")])
def test_times_outside_of_the_run_are_told_with_those_it_has(later: Bundle, capfd: pytest.CaptureFixture[str],
                                                             command: list[str], words: tuple[str, ...]) -> None:
    file = later.path.parent / "answer"
    status, out, err = ask(capfd, *command, str(later.path), "-o", str(file), *words)
    assert (status, out, len(err.splitlines())) == (2, "", 1) and not file.exists()
    assert err.endswith(f"there is nothing of the run: it has times from {START} to {START + 4_000_000} (0.004000 s)\n")
    for within in (("--from", "4ms"), ("--to", str(START))):  # the control: what touches it, though nothing is there
        assert ask(capfd, *command, str(later.path), "-o", str(file), *within)[0] in (0, 1) and file.exists()
        file.unlink()


def test_options_that_cannot_be_together_are_refused(bundle: Bundle, capfd: pytest.CaptureFixture[str]) -> None:
    for words in (["hot", "--thunk", "0.1", "--thread", "0"], ["hot", "--from", "3"], ["calls"],
                  ["lineage", "--to", "nowhere"], ["lineage", "--to", "fd:1@5-5"],
                  ["lineage", "--to", "address:0x20-0x10"], ["timeline", "--from", "9", "--to", "3"],
                  ["calls", "--thread", "0", "--from", "9", "--to", "3"]):
        status, out, err = ask(capfd, words[0], str(bundle.path), *words[1:])
        assert (status, out) == (2, "") and err.startswith("ptweave: ") and len(err.splitlines()) == 1


def test_a_bundle_without_thunks_still_answers_what_it_can(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    writer = BundleWriter(tmp_path / "run.ptw")
    writer.task(0)
    writer.run(0, [writer.block("main", "jump")] * 5)
    writer.syscall(0, None, enter=5, leave=7, number=0, result=4)
    bundle = writer.write()
    merge_run(bundle)
    status, out, err = ask(capfd, "hot", str(bundle.path))
    assert (status, err) == (0, "") and "main" in out
    status, out, err = ask(capfd, "contention", str(bundle.path))
    assert (status, out) == (2, "") and "thunks" in err


def test_answers_do_not_go_to_a_terminal_as_parquet(bundle: Bundle, monkeypatch: pytest.MonkeyPatch,
                                                    capfd: pytest.CaptureFixture[str]) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdout", Terminal())
    assert main(["hot", str(bundle.path), "--format", "parquet"]) == 2
    monkeypatch.undo()
    assert "not for a terminal" in capfd.readouterr().err


def test_a_thread_that_is_not_there_is_said(bundle: Bundle, capfd: pytest.CaptureFixture[str]) -> None:
    merge_run(bundle, calls=True)
    for thread in ("7", "-1", "9" * 50):
        for words in (["hot"], ["hot", "--from", "3"], ["timeline"], ["calls"], ["export", "chrome"]):
            status, out, err = ask(capfd, *words, str(bundle.path), f"--thread={thread}")
            assert (status, out) == (2, "") and "is no thread" in err and len(err.splitlines()) == 1


def test_from_python_what_cannot_be_asked_is_said_too(bundle: Bundle) -> None:
    with Run(bundle.path) as run:
        asked: list[tuple[str, Callable[[], object]]] = [
            *((f"thread {thread}: is no thread", lambda thread=thread, question=question: question(thread=thread))
              for thread in (7, -1, 1 << 70) for question in (run.hot, run.timeline, run.flow, run.part)),
            ("9 to 3: ends before", lambda: run.part(0, 9, 3)),
            ("9 to 3: ends before", lambda: run.timeline(begin=9, end=3)),
            ("9 to 3: ends before", lambda: run.flow(thread=0, since=9, until=3)),
            ("file: is nothing to sum up by", lambda: run.hot("file")),
            ("flow: is no part of a timeline", lambda: run.timeline(parts=["gaps", "flow"])),
            *((f"most {most}: is not between 1 and 64", lambda most=most: run.similar("1.1", most=most))
              for most in (-1, 0, 65))]
        for said, ask_for in asked:
            with pytest.raises(BadInput, match=said):
                ask_for()


def test_lines_and_blocks_are_not_counted_without_their_tables(bundle: Bundle,
                                                               capfd: pytest.CaptureFixture[str]) -> None:
    for table in ("paths", "blocks"):
        aside = bundle.tables / table
        aside.rename(bundle.path / table)
        status, out, err = ask(capfd, "hot", str(bundle.path), "--by", "line")
        assert (status, out) == (2, "") and f"table {table}: was not made" in err
        (bundle.path / table).rename(aside)
