# SPDX-License-Identifier: MIT
"""A program in which a worker is stuck on a lock, and a run of it in which none is: the stuck thunk's counterpart."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ptweave.merge import Run
from support.command import compile_c, ptweave
from support.engine import PROGRAMS

CASES = 10
ORDERS = 3  # in which the good run creates its workers
WANTED = 9  # of the cases, at least


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c(PROGRAMS / "stuck.c", tmp_path_factory.mktemp("stuck") / "stuck", "-g", "-D_GNU_SOURCE")


@pytest.fixture(scope="module")
def good(program: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("good")
    return [wrapped(folder / f"good{order}.ptw", program, str(order), "good") for order in range(ORDERS)]


def wrapped(path: Path, *words: str | Path) -> Path:
    done = ptweave("wrap", "-q", "-o", path, "--", *words)
    assert done.status == 0, done.err
    return path


def truth(program: Path, case: int) -> tuple[str, str]:
    """The stuck worker's routine and the function it is stuck in, from the program's own tables."""
    text = (PROGRAMS / f"{program.name}.c").read_text()
    pairs = re.findall(r"\{ (\d), (\d) \}", text[text.index("cases[10]"):])
    worker, step = (int(number) for number in pairs[case])
    names = re.search(r"workers\[WORKERS\]\)\(void \*\) = \{ (.*?) \}", text)
    steps = re.findall(r"\t\{ (\w+(?:, \w+){4}) \}", text)
    assert names and len(steps) == 4 and len(pairs) == CASES
    return names[1].split(", ")[worker], steps[worker].split(", ")[step]




def node_in(run: Run, routine: str, function: str) -> tuple[int, int]:
    """The thunk that a worker's first lock in a function begins: each worker calls each function once."""
    (row,) = run.sql("select thread, min(thunk) from thunks where operation = 'mutex_lock' and caller = ? and "
                     "list_contains(functions_of(stack), ?) group by thread", function, routine).rows()
    return row[0], row[1]



def test_the_stuck_thunks_counterpart_in_a_normal_run_is_first(program: Path, good: list[Path], tmp_path: Path,
                                                               similar_table: list[tuple[str, ...]]) -> None:
    right = 0
    for case in range(CASES):
        routine, function = truth(program, case)
        with Run(wrapped(tmp_path / f"bad{case}.ptw", program, str(case), "bad")) as bad, \
                Run(good[case % ORDERS]) as normal:
            thread, thunk = node_in(bad, routine, function)
            expected = node_in(normal, routine, function)
            first = bad.similar(f"{thread}.{thunk}", normal).arrow().to_pylist()[0]
            right += (first["thread"], first["thunk"]) == expected
            assert first["node_wait_ns"] > 100_000_000 > first["wait_ns"]
            similar_table.append((str(case), f"{routine} in {function}", f"{thread}.{thunk}",
                          f"{first['thread']}.{first['thunk']}", "{}.{}".format(*expected),
                          f"{first['similarity']:.3f}"))
            # control: another node of that thread has another counterpart
            other = bad.similar(f"{thread}.{thunk + 1}", normal).arrow().to_pylist()[0]
            assert (other["thread"], other["thunk"]) != expected
    assert right >= WANTED
