# SPDX-License-Identifier: MIT
"""Nodes of made-up runs that are like each other: by their distinct events, whatever their numbers and times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ptweave.cli import main
from ptweave.data import schemas
from ptweave.data.errors import BadInput
from ptweave.merge import Run, merge_run
from ptweave.merge.similar import NEAR
from support.bundle_writer import BundleWriter, put

LOCKS = (0x7000, 0x8000)
CALLS = ("open", "read", "write", "close", "getuid", "stat")


def written(folder: Path, name: str, order: list[int], *, base: int = 0,
            wait: dict[tuple[int, int], int] | None = None, result: int = 0) -> Path:
    """Workers, each thunk of which makes calls of its own: worker w in step s makes call (w + s) % 6 as often as s + 1.

    Thread i + 1 is worker order[i]. `base` moves all objects; `wait` makes (worker, step) wait.
    """
    writer = BundleWriter(folder / f"{name}.ptw")
    block = writer.block("main", "jump")
    rows: list[dict[str, Any]] = []
    syscalls: list[dict[str, Any]] = []
    stacks: list[dict[str, Any]] = []
    t = 1000
    for thread in range(len(order) + 1):
        writer.task(thread, tid=100 + thread, begin=10 * thread, end=1_000_000_000, creator=100 * (thread > 0))
        writer.run(thread, [block] * 3)
    for index, worker in enumerate(order):
        thread = index + 1
        for step in range(4):
            took = (wait or {}).get((worker, step), 10)
            rows.append({"thread": thread, "thunk": step, "operation": "mutex_lock" if step else "start",
                         "object": base + LOCKS[(worker + step) % 2] if step else None, "result": result, "t": t,
                         "wait": took, "acquire": True, "release": False, "clock": [0] * thread + [step + 1],
                         "caller": f"step{step}", "stack": 10 * worker + step, "placed": "none"})
            stacks.append({"stack": 10 * worker + step, "functions": [f"step{step}", f"worker{worker}"]})
            t += took + 100
            for _ in range(step + 1):
                syscalls.append({"thread": thread, "pid": 1, "tid": 100 + thread, "t_enter": t, "t_exit": t + 5,
                                 "number": 0, "name": CALLS[(worker + step) % 6], "result": base % 97,
                                 "placed": "none"})
                t += 10
    bundle = writer.write()
    merge_run(bundle)
    put(bundle, schemas.THUNKS, rows)
    put(bundle, schemas.CALL_STACKS, stacks)
    put(bundle, schemas.SYSCALLS, syscalls)
    put(bundle, schemas.EDGES, [])
    return bundle.path


def found(path: Path, node: str, other: Path | None = None, **options: Any) -> list[dict[str, Any]]:
    with Run(path) as run:
        if other is None:
            rows: list[dict[str, Any]] = run.similar(node, **options).arrow().to_pylist()
        else:
            with Run(other) as there:
                rows = run.similar(node, there, **options).arrow().to_pylist()
        return rows


def test_every_node_finds_its_own_in_a_run_of_other_numbers_addresses_and_times(tmp_path: Path) -> None:
    order, other_order = [0, 1, 2, 3], [2, 0, 3, 1]
    a = written(tmp_path, "a", order, wait={(worker, step): 7_000_000 for worker in range(4) for step in range(4)})
    b = written(tmp_path, "b", other_order, base=0x110000, result=3)
    for index, worker in enumerate(order):
        for step in range(4):
            first = found(a, f"{index + 1}.{step}", b)[0]
            assert (first["thread"], first["thunk"]) == (other_order.index(worker) + 1, step), (worker, step)
            assert (first["contains"], first["lacks"], first["more"]) == (True, [], []) and first["similarity"] == 1
            assert (first["node_wait_ns"], first["wait_ns"]) == (7_000_000, 10)
            assert any(line.endswith("= 3, not 0") for line in first["results"])


def test_repetition_is_left_out_and_what_is_missing_is_told(tmp_path: Path) -> None:
    a = written(tmp_path, "a", [0, 1])
    rows = found(a, "1.3")
    assert (1, 3) not in [(row["thread"], row["thunk"]) for row in rows]
    alike = next(row for row in rows if row["contains"] is False)
    assert alike["lacks"] and alike["rank"] >= 1
    assert [row["rank"] for row in rows] == list(range(1, len(rows) + 1))
    assert [row["similarity"] for row in rows] == sorted((row["similarity"] for row in rows), reverse=True)


def test_a_span_between_two_events_finds_the_span_between_the_same_events(tmp_path: Path) -> None:
    a, b = written(tmp_path, "a", [0, 1, 2]), written(tmp_path, "b", [2, 1, 0])
    with Run(a) as run:
        (begin, end), = run.sql("select min(t), max(t) from thunks where thread = 2 and thunk in (1, 2)").rows()
    with Run(b) as run:
        (expected,) = run.sql("select t from thunks where thread = 2 and thunk = 1").rows()
    first = found(a, f"2@{begin}-{end}", b)[0]
    assert (first["thread"], first["thunk"], first["t_begin"]) == (2, None, expected[0]) and first["contains"]


def test_control_a_run_without_the_worker_has_no_perfect_counterpart(tmp_path: Path) -> None:
    a, b = written(tmp_path, "a", [0, 1]), written(tmp_path, "b", [1])
    assert found(a, "1.2", b)[0]["similarity"] < 1
    first = found(a, "2.2", b)[0]
    assert (first["thread"], first["thunk"], first["operation"], first["function"]) == (1, 2, "mutex_lock", "step2")


def test_nodes_that_are_none_or_not_there_are_said_in_one_line(tmp_path: Path,
                                                               capfd: pytest.CaptureFixture[str]) -> None:
    a = written(tmp_path, "a", [0, 1])
    for node, why in (("9.9", "is no thunk of this run"), ("x", "is no thunk"), ("1@5", "is no node"),
                      ("1@5-6", "has not two events"), ("77@0-99999999", "has not two events")):
        with pytest.raises(BadInput, match=why):
            found(a, node)
        assert main(["similar", str(a), node]) == 2
        out, err = capfd.readouterr()
        assert out == "" and len(err.splitlines()) == 1
    assert main(["similar", str(a), "1.1", "--most", "0"]) == 2
    capfd.readouterr()
    (a / "tables" / "thunks" / "0.parquet").write_bytes(b"no")
    assert main(["similar", str(a), "1.1"]) == 2
    assert "is corrupt" in capfd.readouterr().err


def test_a_span_without_events_is_told_when_its_thread_has_some(tmp_path: Path) -> None:
    a = written(tmp_path, "a", [0, 1])
    with Run(a) as run:
        (begin, end), = run.sql("select min(t), max(t) from (select thread, t from thunks union all "
                                "select thread, t_enter from syscalls) where thread = 1").rows()
    with pytest.raises(BadInput, match=f"in it, which has them from {begin} to {end}:"):
        found(a, "1@5-6")
    assert found(a, f"1@{begin}-{end}", a) is not None, "control: those times are a node"
    with pytest.raises(BadInput, match="in it, which has none:"):
        found(a, "77@0-99999999")


def test_the_command_answers_as_the_method_does(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    a, b = written(tmp_path, "a", [0, 1]), written(tmp_path, "b", [1, 0])
    assert main(["similar", str(a), "1.2", str(b), "--most", "3"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) == 5 and lines[2].split()[1:3] == ["2", "2"]


def test_of_thunks_that_are_all_alike_the_nearest_are_found_each_time(tmp_path: Path) -> None:
    writer = BundleWriter(tmp_path / "alike.ptw")
    writer.run(0, [writer.block("main", "jump")] * 3)
    writer.task(0, tid=100, begin=0, end=1_000_000)
    bundle = writer.write()
    merge_run(bundle)
    count = 3 * NEAR
    put(bundle, schemas.THUNKS, [
        {"thread": 0, "thunk": thunk, "operation": "mutex_lock", "object": LOCKS[0], "result": 0,
         "t": 1000 + 10 * thunk, "wait": 1, "acquire": True, "release": False, "clock": [thunk + 1], "caller": "turn",
         "stack": 0, "placed": "none"} for thunk in range(count)])
    put(bundle, schemas.CALL_STACKS, [{"stack": 0, "functions": ["turn", "main"]}])
    for name in (schemas.SYSCALLS, schemas.EDGES):
        put(bundle, name, [])
    for node in (count // 2, 70):
        for _ in range(3):
            rows = found(bundle.path, f"0.{node}", most=4)
            assert [row["thunk"] for row in rows] == [node - 1, node + 1, node - 2, node + 2]
            assert {row["similarity"] for row in rows} == {1.0}
