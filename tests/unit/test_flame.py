# SPDX-License-Identifier: MIT
"""The tree of a flame graph against stacks put together one by one."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest

from ptweave.data.errors import BadInput
from ptweave.merge.flame import flame

Stack = tuple[int, int | None, int, str | None]  # number, parent, depth, function
Spent = tuple[int, int, int, int, int]  # thread, stack, instructions, time, calls


def asked(stacks: list[Stack], profile: list[Spent], **options: object) -> list[dict[str, object]]:
    import duckdb

    connection = duckdb.connect(config={"python_enable_replacements": False})
    connection.register("stacks", pa.table({
        "stack": pa.array([row[0] for row in stacks], pa.int32()),
        "parent": pa.array([row[1] for row in stacks], pa.int32()),
        "depth": pa.array([row[2] for row in stacks], pa.int32()),
        "function": pa.array([row[3] for row in stacks], pa.string())}))
    connection.register("profile", pa.table({
        "thread": pa.array([row[0] for row in profile], pa.int32()),
        "stack": pa.array([row[1] for row in profile], pa.int32()),
        **{name: pa.array([row[2 + i] for row in profile], pa.int64())
           for i, name in enumerate(("instructions", "time", "calls"))}}))
    table = flame(lambda sql: connection.sql(sql).to_arrow_table(), **options)  # type: ignore[arg-type]
    found: list[dict[str, object]] = table.to_pylist()
    return found


def random_run(seed: int) -> tuple[list[Stack], list[Spent]]:
    draw = random.Random(seed)
    stacks: list[Stack] = []
    for number in range(60):
        parent = draw.choice([None, *range(number)])
        stacks.append((number, parent, 1 if parent is None else stacks[parent][2] + 1,
                       draw.choice(["a", "b", "c", None])))
    profile = [(thread, number, draw.randrange(1000), draw.randrange(1000), draw.randrange(5))
               for number in range(60) for thread in draw.sample(range(3), draw.randrange(4))]
    return stacks, profile


def paths(stacks: list[Stack], profile: list[Spent], measure: int, by_thread: bool) -> Counter[tuple[object, ...]]:
    """The oracle: inclusive sums by names from the outermost frame on."""
    sums: Counter[tuple[object, ...]] = Counter()
    for row in profile:
        names: list[object] = []
        at: int | None = row[1]
        while at is not None:
            names.append(stacks[at][3])
            at = stacks[at][1]
        whole: tuple[object, ...] = (*((row[0],) if by_thread else ()), *reversed(names))
        for length in range(len(whole) + 1):
            sums[whole[:length]] += row[measure]
    return sums


def tree_paths(rows: list[dict[str, object]], column: str) -> Counter[tuple[object, ...]]:
    names: dict[object, tuple[object, ...]] = {}
    for row in rows:
        own = row["function"] if row["thread"] is None else row["thread"]
        names[row["node"]] = () if row["parent"] is None else (*names[row["parent"]], own)
    assert len(set(names.values())) == len(names), "callers of one name are one node"
    return Counter({names[row["node"]]: int(str(row[column])) for row in rows})


@pytest.mark.parametrize("by_thread", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_nodes_have_what_all_stacks_through_them_spent(seed: int, by_thread: bool) -> None:
    stacks, profile = random_run(seed)
    rows = asked(stacks, profile, by_thread=by_thread, share=0)
    for measure, column in ((2, "instructions"), (3, "time"), (4, "calls")):
        assert tree_paths(rows, column) == paths(stacks, profile, measure, by_thread), column
    assert tree_paths(rows, "instructions") != paths(stacks, profile[1:], 2, by_thread), "control"
    for column in ("instructions", "time"):
        own = sum(int(str(row[f"own_{column}"])) for row in rows)
        assert own == int(str(rows[0][column])) == sum(row[2 if column == "instructions" else 3] for row in profile)


@pytest.mark.parametrize("seed", range(5))
def test_what_is_small_is_left_out_and_its_callers_are_not(seed: int) -> None:
    stacks, profile = random_run(seed)
    whole = asked(stacks, profile, share=0)
    for options in ({"share": 0.1}, {"share": 0, "budget": 9}):
        rows = asked(stacks, profile, **options)
        kept = tree_paths(rows, "instructions")
        assert kept.items() <= tree_paths(whole, "instructions").items()
        assert all(name[:-1] in kept for name in kept if name)
    assert len(rows) == 9
    total = {column: int(str(whole[0][column])) for column in ("instructions", "time")}
    large = {row["node"] for row in asked(stacks, profile, share=0.1)}
    assert len(large) == sum(any(int(str(row[column])) >= 0.1 * total[column] for column in total)
                             or row["parent"] is None for row in whole)


def test_a_run_without_stacks_is_a_root() -> None:
    assert [(row["node"], row["instructions"]) for row in asked([], [])] == [(0, 0)]
    assert [(row["node"], row["instructions"]) for row in asked([], [(0, 5, 7, 7, 7)])] == [(0, 7)]


def test_stacks_that_contradict_themselves_are_refused() -> None:
    for stacks in ([(0, None, 1, "a"), (1, 0, 3, "b")], [(0, 1, 2, "a"), (1, 0, 2, "b")], [(0, 7, 2, "a")]):
        with pytest.raises(BadInput, match="one frame shorter"):
            asked(stacks, [(0, 0, 1, 1, 1)])
