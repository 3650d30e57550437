# SPDX-License-Identifier: MIT
"""Output identical to the native run: the twelve workloads and six real programs, in every mode, with 2, 4 and 8
threads, as they are and under the soft engine.

Short by default; with PTWEAVE_LONG=1 (`make threads-right`) every run is repeated 20 times and inputs are larger.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.command import ptweave
from support.inputs import text_file
from support.modes import NATIVE, UNDER_LIBTTHREAD, Mode, run
from support.threaded import PROGRAMS
from support.workloads import WORKLOADS, Bench

LONG = bool(os.environ.get("PTWEAVE_LONG"))
THREADS = (2, 4, 8)
RUNS = 20 if LONG else 1
ENGINE_RUNS = 20 if LONG else 1
ENGINE_THREADS = THREADS if LONG else (4,)
FILE_BYTES = 20_000_000 if LONG else 1_500_000
ENGINE_BYTES = 300_000 if LONG else 100_000
ENGINE_SHARE = 1 if LONG else 4  # of a workload's small size
TIMEOUT = 600 if LONG else 120
NAMES = [one.name for one in (*WORKLOADS, *PROGRAMS)]


@dataclass(frozen=True)
class Inputs:
    """Where programs and their files lie."""

    folder: Path
    bench: Bench

    def argv(self, name: str, threads: int, *, engine: bool) -> list[str]:
        for workload in WORKLOADS:
            if workload.name == name:
                size = workload.size if LONG and not engine else workload.small
                return self.bench.argv(workload, threads, size // (ENGINE_SHARE if engine else 1))
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


@pytest.mark.timeout(TIMEOUT * RUNS * len(THREADS))
@pytest.mark.parametrize("mode", UNDER_LIBTTHREAD, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_output_is_the_native_one(inputs: Inputs, name: str, mode: Mode, tmp_path: Path) -> None:
    for threads in THREADS:
        argv = inputs.argv(name, threads, engine=False)
        expected = native(argv)
        for number in range(RUNS):
            ran = run(mode, tmp_path, argv, timeout=TIMEOUT, name=f"{threads}.{number}.ptw")
            assert (ran.status, digest(ran.out), ran.err) == (0, expected, ""), (threads, number)
            assert ran.traced is not None
            shutil.rmtree(ran.traced.bundle.path)


@pytest.mark.timeout(TIMEOUT * ENGINE_RUNS * len(ENGINE_THREADS))
@pytest.mark.parametrize("mode", UNDER_LIBTTHREAD, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_output_under_the_soft_engine_is_the_native_one(
        inputs: Inputs, name: str, mode: Mode, tmp_path: Path) -> None:
    for threads in ENGINE_THREADS:
        argv = inputs.argv(name, threads, engine=True)
        expected = native(argv)
        for number in range(ENGINE_RUNS):
            bundle = tmp_path / f"{threads}.{number}.ptw"
            done = ptweave("record", "-q", "--engine", "soft", *mode.options(), "-o", bundle, "--", *argv)
            assert (done.status, digest(done.out)) == (0, expected), (threads, number, done.err)
            assert [line for line in done.err.splitlines() if not line.startswith("ptweave: ")] == []
            shutil.rmtree(bundle)
