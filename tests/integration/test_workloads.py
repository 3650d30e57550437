# SPDX-License-Identifier: MIT
"""The twelve workloads: what they print depends on neither the schedule, nor the number of threads, nor the mode."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from support.modes import MODES, NATIVE, Mode, run
from support.workloads import SOURCES, WORKLOADS, Bench, Input, Workload, make_input

THREADS = (2, 4, 8)
RUNS = 20


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("workloads"))


@pytest.fixture(params=WORKLOADS, ids=lambda workload: workload.name)
def workload(request: pytest.FixtureRequest) -> Workload:
    one: Workload = request.param
    return one


def test_every_source_is_a_workload() -> None:
    assert sorted(path.stem for path in SOURCES.glob("*.c")) == sorted(workload.name for workload in WORKLOADS)
    assert len(WORKLOADS) == 12


def test_native_output_is_the_same_in_every_run_and_with_any_number_of_threads(
        bench: Bench, workload: Workload) -> None:
    alone = subprocess.run(bench.argv(workload, 1, workload.small), check=True, capture_output=True).stdout
    assert alone
    for threads in THREADS:
        argv = bench.argv(workload, threads, workload.small)
        assert {subprocess.run(argv, check=True, capture_output=True).stdout for _ in range(RUNS)} == {alone}


def test_output_depends_on_the_size(bench: Bench, workload: Workload) -> None:
    """The control of the test above: what is printed comes from what was computed."""
    sizes = (workload.small, workload.small * 7 // 8)
    one, other = (subprocess.run(bench.argv(workload, 2, size), check=True, capture_output=True).stdout
                  for size in sizes)
    assert one != other


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode is not NATIVE], ids=str)
def test_output_in_every_mode_is_the_native_one(
        bench: Bench, workload: Workload, mode: Mode, tmp_path: Path) -> None:
    for threads in THREADS:
        argv = bench.argv(workload, threads, workload.small)
        ran = run(mode, tmp_path, argv, name=f"{threads}.ptw")
        assert (ran.status, ran.out, ran.err) == (0, run(NATIVE, tmp_path, argv, name="native").out, "")


def test_a_wrong_call_says_how_it_is_called(bench: Bench, workload: Workload) -> None:
    program = bench.argv(workload, 1, workload.small)[0]
    for words in ([], ["4"], ["0", "100"], ["4", "0"], ["65", "100"], ["4", "100", "nothing", "more"]):
        done = subprocess.run([program, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 2 and "THREADS SIZE" in done.stderr and not done.stdout


def test_an_input_is_the_same_every_time_and_a_short_one_begins_a_long_one(tmp_path: Path) -> None:
    for kind in (Input.PIXELS, Input.TEXT, Input.HTML):
        short, long = make_input(kind, tmp_path / "short", 1 << 20), make_input(kind, tmp_path / "long", 3 << 20)
        assert long.read_bytes().startswith(short.read_bytes()) and long.stat().st_size >= 3 << 20
        short.unlink()
        long.unlink()
