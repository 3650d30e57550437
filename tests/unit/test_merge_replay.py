# SPDX-License-Identifier: MIT
"""Paths that are executed again from memory count what they count when they are walked block by block.

A merge that stores every call walks every path: it is the oracle for one that does not.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ptweave.data.bundle import Bundle
from ptweave.data.schemas import PROFILE, STACKS
from ptweave.merge import merge_run
from support.bundle_writer import BundleWriter, rows_of
from unit.test_merge_profile_property import Program, Reference, execute


def summed_up(bundle: Bundle) -> tuple[list[dict[str, Any]], list[dict[str, Any]], int, int]:
    stream = bundle.ledger()["profile"]
    return rows_of(bundle, PROFILE), rows_of(bundle, STACKS), stream.stored, stream.total_lost


def repeated(folder: Path, seed: int, *, cut: int, rounds: int, depth: int = 4) -> BundleWriter:
    """A loop around calls of three kinds, in random order, with moments and gaps here and there."""
    draw = random.Random(seed)
    writer = BundleWriter(folder / "run.ptw", cut=cut)
    program, main = Program(writer), writer.block("main", "cond_jump")
    call, behind = writer.block("main", "call"), writer.block("main", "jump")
    bodies = []
    for _ in range(3):
        body = Reference()
        function = draw.randrange(5)
        execute(program, body, draw, function, (("main", None), (f"fn{function}", call)), depth)
        bodies.append([call, *body.blocks, behind])
    flow = [main]
    for _ in range(rounds):
        flow += draw.choice(bodies)
    gaps = sorted(draw.sample(range(1, len(flow)), min(3, len(flow) - 1)))
    writer.run(0, flow, cuts=gaps)
    for gap in gaps:
        writer.gap(0, gap)
    seqs = sorted(draw.sample(range(len(flow)), min(len(flow), 9)))
    for seq, t in zip(seqs, sorted(draw.randrange(1 << 20) for _ in seqs), strict=True):
        writer.moment(0, seq, t)
    return writer


@settings(max_examples=40, deadline=None)
@example(seed=2814372824, cut=4, depth=3)  # a sum of times that is a half
@given(seed=st.integers(0, 1 << 32), cut=st.integers(4, 60), depth=st.integers(0, 6))
def test_profile_is_the_same_whether_paths_are_repeated_or_walked(seed: int, cut: int, depth: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        bundle = repeated(Path(folder), seed, cut=cut, rounds=40, depth=depth).write()
        merge_run(bundle, calls=True)
        walked = summed_up(bundle)
        merge_run(bundle)
        assert summed_up(bundle) == walked


@pytest.mark.parametrize("seed", range(3))
def test_a_path_counted_once_too_often_would_be_seen(tmp_path: Path, seed: int) -> None:
    """The control: the comparison above tells flows apart that differ in one round."""
    found = []
    for rounds in (40, 41):
        (tmp_path / str(rounds)).mkdir()
        bundle = repeated(tmp_path / str(rounds), seed, cut=9, rounds=rounds).write()
        merge_run(bundle)
        found.append(summed_up(bundle))
    assert found[0] != found[1]
