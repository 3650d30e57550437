# SPDX-License-Identifier: MIT
"""The walk against a reference that follows a random program's own calls and returns, not its blocks."""

from __future__ import annotations

import random
import tempfile
from collections import defaultdict
from fractions import Fraction
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from ptweave.data.bundle import Bundle
from ptweave.data.schemas import CALLS, PROFILE, STACKS
from ptweave.merge import merge_run
from support.bundle_writer import BundleWriter, rows_of
from support.random_calls import Program, Reference, execute


def stacks(bundle: Bundle) -> dict[int, tuple[tuple[str, int | None], ...]]:
    found: dict[int, tuple[tuple[str, int | None], ...]] = {}
    for row in sorted(rows_of(bundle, STACKS), key=lambda row: row["depth"]):
        found[row["stack"]] = (*found.get(row["parent"], ()), (row["function"], row["block"]))
    return found


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 32), cut=st.integers(1, 9), depth=st.integers(0, 5))
def test_profile_and_calls_are_those_of_the_call_tree(seed: int, cut: int, depth: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        writer = BundleWriter(Path(folder) / "run.ptw", cut=cut)
        program, reference = Program(writer), Reference()
        execute(program, reference, random.Random(seed), 0, (("fn0", None),), depth)
        writer.run(0, reference.blocks)
        bundle = writer.write()
        merge_run(bundle, calls=True)

        names = stacks(bundle)
        rows = {names[row["stack"]]: row for row in rows_of(bundle, PROFILE)}
        assert {stack: row["blocks"] for stack, row in rows.items()} == dict(reference.ran)
        assert {stack: row["calls"] for stack, row in rows.items()} == dict(reference.calls)
        assert sum(row["instructions"] for row in rows.values()) == sum(
            writer.blocks[block].instructions for block in reference.blocks)
        assert sorted((row["function"], row["seq"], row["seq_end"]) for row in rows_of(bundle, CALLS)) == sorted(
            reference.spans)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 32), cut=st.integers(1, 30), rounds=st.integers(1, 12), calls=st.booleans(),
       moments=st.lists(st.tuples(st.integers(0, 90), st.integers(0, 1 << 40)), min_size=2, max_size=9))
def test_every_stack_has_its_time_to_a_nanosecond(
        seed: int, cut: int, rounds: int, moments: list[tuple[int, int]], *, calls: bool) -> None:
    """Functions run again and again, so that paths are repeated unless calls are asked for."""
    with tempfile.TemporaryDirectory() as folder:
        writer = BundleWriter(Path(folder) / "run.ptw", cut=cut)
        program, reference = Program(writer), Reference()
        for _ in range(rounds):
            execute(program, reference, random.Random(seed), 0, (("fn0", None),), 4)
        writer.run(0, reference.blocks)
        seqs = sorted(min(seq, len(reference.blocks)) for seq, _ in moments)
        known = list(zip(seqs, sorted(t for _, t in moments), strict=True))
        for seq, t in known:
            writer.moment(0, seq, t)
        bundle = writer.write()
        merge_run(bundle, calls=calls)

        names, expected = stacks(bundle), reference.times(known)
        found = {names[row["stack"]]: row["time"] for row in rows_of(bundle, PROFILE)}
        assert {stack for stack, time in expected.items() if time >= 1} <= set(found)
        for stack, time in found.items():
            assert abs(time - expected[stack]) <= Fraction(1001, 1000)  # sums are rounded: see ptm_times


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1 << 32), cut=st.integers(1, 9), gaps=st.lists(st.integers(1, 80), max_size=3),
       moments=st.lists(st.tuples(st.integers(0, 90), st.integers(0, 5000)), max_size=8))
def test_nothing_is_lost_or_counted_twice_across_gaps(seed: int, cut: int, gaps: list[int],
                                                      moments: list[tuple[int, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        writer = BundleWriter(Path(folder) / "run.ptw", cut=cut)
        program, reference = Program(writer), Reference()
        execute(program, reference, random.Random(seed), 0, (("fn0", None),), 4)
        writer.run(0, reference.blocks, cuts=gaps)
        for gap in gaps:
            writer.gap(0, gap)
        known = list(zip(sorted(seq for seq, _ in moments), sorted(t for _, t in moments), strict=True))
        for seq, t in known:
            writer.moment(0, seq, t)
        bundle = writer.write()
        merge_run(bundle)

        rows, names = rows_of(bundle, PROFILE), stacks(bundle)
        executed: dict[str | None, int] = defaultdict(int)
        for block in reference.blocks:
            executed[writer.blocks[block].function] += 1
        counted: dict[str | None, int] = defaultdict(int)
        for row in rows:
            counted[names[row["stack"]][-1][0]] += row["blocks"]
        assert {name: count for name, count in counted.items() if count} == dict(executed)
        assert all(row["time"] >= 0 for row in rows)
        if known and not gaps:
            inside = [t for seq, t in known if seq <= len(reference.blocks)]
            first = max([t for seq, t in known if seq == 0], default=known[0][1])
            if len(inside) == len(known):
                assert sum(row["time"] for row in rows) == known[-1][1] - first
