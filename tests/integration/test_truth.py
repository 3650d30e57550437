# SPDX-License-Identifier: MIT
"""Recorded accesses against the truth: the workloads with every access instrumented at compile time.

First the truth itself is tested, on a program that knows what it accesses and by recordings made from the truth.
"""

from __future__ import annotations

import functools
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from support.evl_accesses import read_accesses
from support.modes import MODES, TRACED, Mode, run
from support.truth import PAGE, VARIABLE, Truth, compile_instrumented, read_truth
from support.truth_check import (
    Accesses,
    Placed,
    dependences,
    missing_bytes,
    missing_dependences,
    missing_pages,
    place,
    thread_numbers,
)
from support.truth_writer import held, perfect
from support.workloads import WORKLOADS, Bench, Workload

PROGRAMS = Path(__file__).resolve().parents[1] / "programs"
RECORDING = [mode for mode in MODES if mode.access]
"""Modes that record accesses; those that do not exist yet are named in support.modes.NOT_BUILT."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("truth")


@pytest.fixture(params=WORKLOADS, ids=lambda workload: workload.name)
def workload(request: pytest.FixtureRequest) -> Workload:
    one: Workload = request.param
    return one


# --- the truth itself ---

def test_the_truth_of_a_program_that_knows_what_it_accesses(folder: Path) -> None:
    program = compile_instrumented(PROGRAMS / "truth_known.c", folder)
    file = folder / "known.truth"
    done = subprocess.run([program], check=True, capture_output=True, text=True,
                          env={**os.environ, VARIABLE: str(file)})
    truth = read_truth(file)
    bits = {(int(row["thread"]), int(row["epoch"]), int(row["page"])): row for row in truth.rows}
    said: dict[tuple[int, int, int, str], np.ndarray[tuple[int, ...], np.dtype[np.bool_]]] = {}
    for line in done.stdout.splitlines():
        thread, epoch, kind, address, size = line.split()
        for byte in range(int(address, 16), int(address, 16) + int(size)):
            for name in {"r": ("read",), "w": ("write", "changed"), "s": ("write",)}[kind]:
                key = int(thread), int(epoch), byte // PAGE * PAGE, name
                said.setdefault(key, np.zeros(PAGE, bool))[byte % PAGE] = True
    assert len(said) > 20
    for (thread_, epoch_, page, name), flags in said.items():
        found = np.unpackbits(bits[thread_, epoch_, page][name], bitorder="little").astype(bool)
        assert (found & flags).sum() == flags.sum(), (thread_, epoch_, hex(page), name)
        if name == "changed":
            assert found.sum() == flags.sum(), (thread_, epoch_, hex(page), "more than was changed")


def test_without_the_variable_an_instrumented_program_writes_nothing(folder: Path) -> None:
    program = compile_instrumented(PROGRAMS / "truth_known.c", folder)
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    assert subprocess.run([program], check=True, capture_output=True, env=environment).stdout


def run_instrumented(folder: Path, bench: Bench, workload: Workload, mode: Mode, scratch: Path,
                     threads: int = 4) -> tuple[Truth, Placed, Path]:
    """Run a workload with its truth beside the recording; its output must be the plain program's."""
    plain = bench.argv(workload, threads, workload.small)
    native = subprocess.run(plain, check=True, capture_output=True).stdout
    program = compile_instrumented(workload.source, folder)
    file = scratch / "truth"
    ran = run(mode, scratch, [program, *plain[1:]], env={VARIABLE: str(file)})
    assert (ran.status, ran.out, ran.err) == (0, native, "") and ran.traced is not None
    truth = read_truth(file)
    table = ran.traced.table()
    placed = place(truth, thread_numbers(ran.traced.bundle.dependence), table)
    file.unlink()
    return truth, placed, ran.traced.bundle.dependence


@functools.cache
def _bench(folder: Path) -> Bench:
    return Bench(folder / "plain")


def test_true_accesses_lie_in_one_thunk_each_and_follow_the_schedule(
        folder: Path, workload: Workload, tmp_path: Path) -> None:
    """Recordings made from the truth: complete ones pass, one with a row dropped does not, for every row tried."""
    truth, placed, _ = run_instrumented(folder, _bench(folder), workload, TRACED, tmp_path)
    assert len(placed) > 10 and len(truth.threads) >= 5
    assert (placed.first == placed.last).all()
    assert len(np.unique(np.stack([placed.thread, placed.first]), axis=1).T) == len(
        np.unique(np.stack([truth.tracked()["thread"], truth.tracked()["epoch"]]), axis=1).T)
    placed = replace(placed, own=np.zeros(len(placed), bool))  # a perfect recorder sees a thread's own stack too
    whole = perfect(placed)
    true = dependences(placed)
    assert missing_pages(placed, whole) == [] and missing_bytes(placed, whole) == []
    assert missing_dependences(placed, true, whole) == [] and missing_dependences(placed, true, held(placed)) == []
    assert len({(placed.thread[one.writer], placed.thread[one.reader]) for one in true}) >= 4
    for index in np.random.default_rng(3).choice(np.flatnonzero(whole.write), 10):
        assert missing_pages(placed, whole.without(int(index)))
    one = true[len(true) // 2]
    forgotten = np.flatnonzero((whole.thread == placed.thread[one.writer]) & (whole.thunk == placed.first[one.writer])
                               & (whole.page == placed.page[one.writer]) & whole.write)
    assert one in missing_dependences(placed, true, whole.without(int(forgotten[0])))


# --- what was recorded ---

def less(accesses: Accesses, thread: int, page: int) -> Accesses:
    """A recording that lost all that one thread did to one page."""
    keep = (accesses.thread != thread) | (accesses.page != page)
    return Accesses(*(None if one is None else one[keep] for one in (  # type: ignore[arg-type]
        accesses.thread, accesses.thunk, accesses.until, accesses.page, accesses.write, accesses.bytes)))


def lacking(placed: Placed, rows: list[int]) -> list[str]:
    return [placed.describe(row) for row in rows[:20]]


@pytest.mark.parametrize("mode", RECORDING, ids=str)
def test_no_true_access_is_missing(folder: Path, workload: Workload, mode: Mode, tmp_path: Path) -> None:
    """Pages read and written in every access mode, bytes written in the private view, and every true dependence."""
    for threads in (2, 4):
        (tmp_path / str(threads)).mkdir()
        _, placed, lists = run_instrumented(
            folder, _bench(folder), workload, mode, tmp_path / str(threads), threads)
        accesses = read_accesses(lists)
        true = dependences(placed)
        assert lacking(placed, missing_pages(placed, accesses)) == []
        assert missing_dependences(placed, true, accesses) == [] and len(true) >= threads
        for one in {(int(placed.thread[row]), int(placed.page[row])) for dependence in true[-5:]
                    for row in (dependence.writer, dependence.reader) if not placed.own[row]}:  # the control
            assert missing_pages(placed, less(accesses, *one))
            assert missing_dependences(placed, true, less(accesses, *one))
        if mode.view == "private":
            assert missing_bytes(placed, accesses) == []
