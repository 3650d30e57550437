# SPDX-License-Identifier: MIT
"""The merge's C part under AddressSanitizer and UBSan: random and hostile flows and graphs."""

from __future__ import annotations

import functools
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from support.programs import SCARCE_MEMORY

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [ROOT / "merge" / "src" / name
           for name in ("program.c", "timeline.c", "tree.c", "tape.c", "frames.c", "visits.c", "memo.c", "replay.c",
                        "walk.c", "part.c", "clocks.c", "graph.c", "graph_flow.c", "graph_bytes.c", "graph_races.c",
                        "sync.c", "side.c", "scouts.c", "compare.c", "correspond.c", "callers.c", "distinct.c",
                        "timeline_rows.c")]
FLAGS = ["-std=c11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined",
         "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]


@pytest.fixture(scope="module")
def merge(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The C part as one object file, compiled once with the same flags."""

    @functools.cache
    def compile_(*more: str) -> Path:
        out = tmp_path_factory.mktemp("merge") / "merge.o"
        subprocess.run(["gcc", *FLAGS, *more, "-r", "-nostdlib", "-o", out, *SOURCES], check=True)
        return out

    return compile_


@pytest.mark.parametrize(("name", "said", "more"), [
    ("merge_walk", "400 flows", []), ("merge_walk", "400 flows", ["-DMEMO_BITS=4"]),  # full all the time
    ("merge_walk", "400 flows", ["-DMEMO_COUNTED=2"]),  # counts that are added up before the thread ends
    ("merge_walk", "400 flows", ["-DTREE_MORE=16"]),  # more folded functions than there was room for at first
    ("merge_graph", "400 graphs", []), ("merge_compare", "400 comparisons", []),
    ("merge_timeline", "400 timelines", [])])
def test_random_and_hostile_inputs_are_taken_without_a_fault(merge: Callable[..., Path], name: str, said: str,
                                                             more: list[str], tmp_path: Path) -> None:
    out = tmp_path / name
    subprocess.run(["gcc", *FLAGS, *more, "-I", ROOT / "merge" / "src", "-o", out,
                    ROOT / "tests" / "programs" / f"{name}.c", merge(*more)], check=True)
    done = subprocess.run([out, "400"], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", f"{said}\n")


@pytest.mark.parametrize("more", [[], ["-DMEMO_BITS=4"], ["-DMEMO_COUNTED=2"], ["-DTREE_SHALLOW=3", "-DTREE_MORE=16"]],
                         ids=" ".join)
def test_walking_in_parts_finds_what_walking_the_whole_does(merge: Callable[..., Path], more: list[str],
                                                            tmp_path: Path) -> None:
    """Every way in which a part may turn out is there; the control joins parts that do not fit."""
    out = tmp_path / "parts"
    subprocess.run(["gcc", *FLAGS, *more, "-I", ROOT / "merge" / "src", "-o", out,
                    ROOT / "tests" / "programs" / "merge_parts.c", merge(*more)], check=True)
    done = subprocess.run([out, "400"], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    counts = re.fullmatch(r"400 flows: (\d+) parts joined, (\d+) to a full tree, (\d+) given up, (\d+) unfit, "
                          r"(\d+) too large\n", done.stdout)
    assert counts
    assert all(int(count) >= least for count, least in zip(counts.groups(), (500, 50, 200, 200, 20), strict=True))
    blind = subprocess.run([out, "400", "blind"], capture_output=True, text=True, timeout=300, check=False)
    assert blind.returncode and "Assertion" in blind.stderr


def test_the_extension_is_built_from_all_sources() -> None:
    assert {path.name for path in SOURCES} == {path.name for path in (ROOT / "merge" / "src").glob("*.c")}


def test_each_allocation_may_fail(merge: Callable[..., Path], tmp_path: Path) -> None:
    """The n-th, for each n, or all from the n-th on: it is told each time, nothing that is not there is used, and
    nothing leaks."""
    out = tmp_path / "scarce"
    subprocess.run(["gcc", *FLAGS, SCARCE_MEMORY, "-I", ROOT / "merge" / "src", "-o", out,
                    ROOT / "tests/programs/merge_scarce.c", merge()], check=True)
    done = subprocess.run([out], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    told = [re.fullmatch(r"(walk|parts|callers): (\d+) failed, (\d+) told", line) for line in done.stdout.splitlines()]
    assert [found and found[1] for found in told] == ["walk"] * 2 + ["parts"] * 2 + ["callers"] * 2
    assert all(found and int(found[2]) >= 3 and found[2] == found[3] for found in told), done.stdout
