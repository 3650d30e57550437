# SPDX-License-Identifier: MIT
"""A program that generates code and says so in /tmp/perf-PID.map, from `ptweave wrap` to the names of its blocks."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ptweave.data.bundle import perf_map_name
from support.command import compile_c, ptweave

PROGRAMS = Path(__file__).resolve().parents[1] / "programs"


@pytest.mark.parametrize("damaged", [False, True])
def test_generated_functions_have_the_names_their_compiler_gave_them(tmp_path: Path, damaged: bool) -> None:
    program = compile_c(PROGRAMS / "jit_map.c", tmp_path / "jit_map")
    run = tmp_path / "run.ptw"
    done = ptweave("wrap", "-o", run, "--", program, *(["damaged"] if damaged else []))
    assert done.status == 0, done.err
    pid = int(done.out.split()[0])
    left = Path("/tmp") / perf_map_name(pid)
    try:
        assert (run / "images" / left.name).read_bytes() == left.read_bytes()
    finally:
        left.unlink()
    blocks = pq.read_table(run / "tables/blocks").to_pylist()
    images = {row["image"]: row for row in pq.read_table(run / "tables/images", partitioning=None).to_pylist()}
    generated = [row for row in blocks if images[row["image"]]["path"] is None]
    assert {row["function"] for row in generated} == {"LazyCompile:*add hundred app.js:3", "jit::double(int)", None}
    assert {row["function_offset"] for row in generated if row["function"]} == {0}
    assert {images[row["image"]]["debug"] for row in generated} == {left.name}
    problems = {images[row["image"]]["problem"] for row in generated}
    assert problems == ({f"{left.name}: 3 of 5 lines are malformed"} if damaged else {None})
    assert any("damaged symbol tables" in line for line in done.lines) == damaged
    # the fork's own code lies over the parent's and is named after the same map
    assert sum(row["function"] == "jit::double(int)" for row in generated) == 2
