# SPDX-License-Identifier: MIT
"""Output identical to the native run: the twelve workloads and six real programs, in every mode, with 2, 4 and 8
threads, as they are and under the soft engine.

Short by default. With PTWEAVE_LONG=1 (`make threads-right`) every run is repeated 20 times (5 under the engine with
exact accesses), natively with 20 MB and the sizes of the benchmarks; on two processors that takes hours.
In parts: `-k "engine and pigz"`, `-k "not engine and held"`. A table at the end says how many runs gave the native
output.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.command import ptweave
from support.inputs import text_file
from support.modes import NATIVE, UNDER_LIBTTHREAD, Mode, TimedOut, run
from support.threaded import PROGRAMS
from support.workloads import WORKLOADS, Bench

LONG = bool(os.environ.get("PTWEAVE_LONG"))
THREADS = (2, 4, 8)
RUNS = 20 if LONG else 1
ENGINE_RUNS = {"held": RUNS, "exact": 5 if LONG else 1}
ENGINE_THREADS = THREADS if LONG else (4,)
SHARED = tuple(mode for mode in UNDER_LIBTTHREAD if mode.view == "shared")
MODES = SHARED if LONG else UNDER_LIBTTHREAD
CASES = [pytest.param(threads, mode, id=f"{threads}-{mode}")
         for mode in MODES for threads in ((4,) if mode.view == "private" else THREADS)]
FILE_BYTES = 20_000_000 if LONG else 1_500_000
ENGINE_BYTES = 100_000
ENGINE_SHARE = 4  # of a workload's small size
DENSE = {"pca": 4, "annealing": 4, "reverse_index": 4}
"""Workloads that touch most pages in most thunks: by what their size is divided where every thunk logs its own."""
TIMEOUT = 600 if LONG else 120
SIDE_BY_SIDE = len(os.sched_getaffinity(0))
NAMES = [one.name for one in (*WORKLOADS, *PROGRAMS)]


@dataclass(frozen=True)
class Inputs:
    """Where programs and their files lie."""

    folder: Path
    bench: Bench

    def argv(self, name: str, threads: int, *, engine: bool, access: str = "") -> list[str]:
        for workload in WORKLOADS:
            if workload.name == name:
                size = workload.size if LONG and not engine else workload.small
                share = ENGINE_SHARE if engine else DENSE.get(name, 1) if access == "exact" else 1
                return self.bench.argv(workload, threads, size // share)
        size = ENGINE_BYTES if engine else FILE_BYTES
        file = self.folder / f"text.{size}"
        if not file.exists():
            text_file(file, size)
        program, = (program for program in PROGRAMS if program.name == name)
        return program.argv(threads, file)


def digest(data: bytes) -> str:
    return f"{len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()}"


def native(argv: list[str]) -> str:
    """The oracle."""
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=TIMEOUT)
    assert done.stdout and not done.stderr
    return digest(done.stdout)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inputs]:
    folder = tmp_path_factory.mktemp("right")
    yield Inputs(folder, Bench(folder / "workloads"))
    shutil.rmtree(folder)


@pytest.mark.parametrize("name", NAMES)
def test_native_output_is_deterministic(inputs: Inputs, name: str) -> None:
    """Else there would be nothing to compare with: it depends on neither the run nor the number of threads."""
    assert len({native(inputs.argv(name, threads, engine=True)) for threads in THREADS for _ in range(3)}) == 1


FLIPPING = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
ssize_t write(int fd, const void *data, size_t size)
{
	static ssize_t (*real)(int, const void *, size_t);
	char bytes[size + 1];
	if (!real)
		real = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
	__builtin_memcpy(bytes, data, size);
	bytes[size / 2] ^= fd == 1;
	return real(fd, bytes, size);
}
"""


def test_one_wrong_bit_is_noticed(inputs: Inputs, tmp_path: Path) -> None:
    """The control: a preloaded library that changes one bit of what is written."""
    (tmp_path / "flip.c").write_text(FLIPPING)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", tmp_path / "flip.so", tmp_path / "flip.c"], check=True)
    argv = inputs.argv("pigz", 2, engine=True)
    wrong = run(NATIVE, tmp_path, argv, env={"LD_PRELOAD": f"{tmp_path}/flip.so"})
    assert wrong.status == 0 and wrong.out and digest(wrong.out) != native(argv)


@dataclass(frozen=True)
class Case:
    """A program in a mode, with a number of threads; `once` runs it and says what is wrong, or nothing."""

    name: str
    threads: int
    mode: str
    once: Callable[[int], str]
    runs: int = RUNS

    def check(self, table: list[tuple[str, ...]]) -> None:
        """Run it as often as is asked for, several at a time, and note the outcome."""
        with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            wrong = [problem for problem in pool.map(self.once, range(self.runs)) if problem]
        table.append((self.name, str(self.threads), self.mode, str(self.runs), str(self.runs - len(wrong))))
        assert wrong == []


def differs(expected: tuple[object, ...], seen: tuple[object, ...], err: str) -> str:
    return "" if seen == expected else f"{seen} instead of {expected}: {err[-2000:]}"


@pytest.mark.timeout(TIMEOUT * RUNS)
@pytest.mark.parametrize(("threads", "mode"), CASES)
@pytest.mark.parametrize("name", NAMES)
def test_output_is_the_native_one(inputs: Inputs, name: str, threads: int, mode: Mode, tmp_path: Path,
                                  right_table: list[tuple[str, ...]]) -> None:
    argv = inputs.argv(name, threads, engine=False, access=mode.access)
    expected = native(argv)

    def once(number: int) -> str:
        folder = tmp_path / str(number)
        folder.mkdir()
        try:
            ran = run(mode, folder, argv, timeout=TIMEOUT)
        except TimedOut as late:
            return str(late)
        shutil.rmtree(folder)
        return differs((0, expected, ""), (ran.status, digest(ran.out), ran.err), ran.err)

    Case(name, threads, str(mode), once).check(right_table)


@pytest.mark.timeout(TIMEOUT * RUNS)
@pytest.mark.parametrize("mode", SHARED, ids=str)
@pytest.mark.parametrize("threads", ENGINE_THREADS)
@pytest.mark.parametrize("name", NAMES)
def test_output_under_the_soft_engine_is_the_native_one(
        inputs: Inputs, name: str, threads: int, mode: Mode, tmp_path: Path,
        right_table: list[tuple[str, ...]]) -> None:
    argv = inputs.argv(name, threads, engine=True)
    expected = native(argv)

    def once(number: int) -> str:
        bundle = tmp_path / f"{number}.ptw"
        done = ptweave("record", "-q", "--engine", "soft", *mode.options(), "-o", bundle, "--", *argv)
        shutil.rmtree(bundle)
        own = [line for line in done.err.splitlines() if not line.startswith("ptweave: ")]
        return differs((0, expected, []), (done.status, digest(done.out), own), done.err)

    Case(name, threads, f"engine, {mode}", once, ENGINE_RUNS[mode.access]).check(right_table)
