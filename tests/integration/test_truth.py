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
import pyarrow.parquet as pq
import pytest

from ptweave.data import Bundle
from ptweave.merge import Run
from support.command import ptweave
from support.control import Traced
from support.evl_accesses import read_accesses
from support.modes import MODES, TRACED, Mode, run
from support.truth import PAGE, VARIABLE, Truth, compile_instrumented, read_truth
from support.truth_check import (
    Accesses,
    Placed,
    accesses_of,
    covered,
    covering,
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
                     threads: int = 4) -> tuple[Truth, Placed, Traced]:
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
    return truth, placed, ran.traced


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


SMALL = {"kmeans": 60, "pca": 16, "word_count": 6_000}
"""Workloads for the soft engine, so small that every access can be instrumented twice."""


@pytest.mark.parametrize("mode", RECORDING, ids=str)
@pytest.mark.parametrize("name", SMALL)
def test_under_the_engine_no_true_access_is_missing(folder: Path, name: str, mode: Mode, tmp_path: Path) -> None:
    """From `wrap` to the merged table."""
    workload = next(one for one in WORKLOADS if one.name == name)
    plain = _bench(folder).argv(workload, 2, SMALL[name])
    native = subprocess.run(plain, check=True, capture_output=True).stdout
    file, path = tmp_path / "truth", tmp_path / "run.ptw"
    done = ptweave("wrap", *mode.options(), "-o", path, "--", compile_instrumented(workload.source, folder), *plain[1:],
                   env={VARIABLE: str(file)})
    assert (done.status, done.out, done.lines[-1]) == (0, native, f"ptweave: {path}: nothing lost")
    # the truth is written by system calls of its own, and libtthread says that it saw the instruction
    assert all("a system call by an instruction of the program's own" in line for line in done.lines[:-1]), done.lines
    bundle = Bundle.open(path)
    placed = place(read_truth(file), thread_numbers(bundle.dependence),
                   pq.read_table(bundle.decoded / "thunks.parquet"))
    with Run(path) as run:
        accesses = accesses_of(run.sql("from accesses").arrow())
        assert run.sql("select distinct placed from accesses").rows() == [("exact",)]
    true = dependences(placed)
    assert lacking(placed, missing_pages(placed, accesses)) == [] and len(placed) > 20
    assert missing_dependences(placed, true, accesses) == [] and len(true) >= 2
    for row, indexes in told(placed, accesses, 3):
        assert 0 < len(indexes) < 4 and row in missing_pages(placed, accesses.without(indexes))
    if mode.view == "private":
        assert missing_bytes(placed, accesses) == []


def told(placed: Placed, accesses: Accesses, wanted: int) -> list[tuple[int, list[int]]]:
    """(true row, the accesses that tell of it) of some true rows: of those that fewest tell of, most often one."""
    choose = np.random.default_rng(5).permutation(np.flatnonzero(~placed.own))[:1000]
    found = [(int(row), covering(placed, int(row), accesses, write=bool(placed.write[row].any()))) for row in choose]
    return sorted(found, key=lambda one: len(one[1]))[:wanted]


@pytest.mark.parametrize("mode", RECORDING, ids=str)
def test_no_true_access_is_missing(folder: Path, workload: Workload, mode: Mode, tmp_path: Path) -> None:
    """Of the table `accesses`: pages read and written in every access mode, bytes written in the private view, and
    every true dependence. The lists, read by another reader, say the same."""
    for threads in (2, 4):
        (tmp_path / str(threads)).mkdir()
        _, placed, traced = run_instrumented(
            folder, _bench(folder), workload, mode, tmp_path / str(threads), threads)
        accesses, logged = accesses_of(traced.accesses()), read_accesses(traced.bundle.dependence)
        true = dependences(placed)
        assert lacking(placed, missing_pages(placed, accesses)) == []
        assert missing_dependences(placed, true, accesses) == [] and len(true) >= threads
        for writes in (False, True):
            assert (covered(placed, accesses, writes=writes) == covered(placed, logged, writes=writes)).all()
        for one in {(int(placed.thread[row]), int(placed.page[row])) for dependence in true[-5:]
                    for row in (dependence.writer, dependence.reader) if not placed.own[row]}:  # the control
            assert missing_pages(placed, less(accesses, *one))
            assert missing_dependences(placed, true, less(accesses, *one))
        for row, indexes in told(placed, accesses, 5):  # the control of the table
            assert 0 < len(indexes) < 4 and row in missing_pages(placed, accesses.without(indexes))
        if mode.view == "private":
            assert missing_bytes(placed, accesses) == []
        if mode.access == "exact":
            assert (accesses.thunk == accesses.until).all()
