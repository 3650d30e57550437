# SPDX-License-Identifier: MIT
"""The tests' own workers: one that dies costs the test it died in, and nothing else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.file_scheduling import FileScheduling

SUPPORT = Path(__file__).parents[1]
CONFTEST = """
from support.file_scheduling import FileScheduling

def pytest_xdist_make_scheduler(config, log):
    return FileScheduling(config, log)
"""
RUN = """
import os, signal
from pathlib import Path

def ran(name):
    with Path({log!r}).open("a") as log:
        print(name, file=log)
"""


def write_files(folder: Path, files: dict[str, list[str]], log: Path) -> None:
    """A file of tests each, the tests in order; one whose name ends with "dies" kills its worker."""
    for name, tests in files.items():
        lines = [RUN.format(log=str(log))]
        for test in tests:
            lines += [f"def test_{test}():", f"    ran({f'{name}.{test}'!r})"]
            lines += ["    os.kill(os.getpid(), signal.SIGKILL)"] if test.endswith("dies") else []
        (folder / f"test_{name}.py").write_text("\n".join(lines) + "\n")


def run_tests(folder: Path, workers: int, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "pytest", "-q", "-n", str(workers), "--dist", "loadfile", "-p", "xdist",
            "-p", "no:cacheprovider", "--rootdir", str(folder), str(folder)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=timeout, check=False,
                          env={**os.environ, "PYTHONPATH": str(SUPPORT), "PYTEST_ADDOPTS": "",
                               "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})


FILES = {
    "only": {"a": ["1", "dies"], "b": ["1"], "c": ["1"]},
    "many": {"a": ["1", "2", "3", "4"], "b": ["1", "2", "dies", "4"], "c": ["1", "2"], "d": ["1"], "e": ["1"]},
    "first": {"a": ["dies", "2"], "b": ["1"]},
    "two": {"a": ["1", "dies", "3"], "b": ["1", "dies", "3"], "c": ["1"], "d": ["1"]},
    "all but one": {**{f"a{n}": ["1", "2"] for n in range(6)}, "z": ["dies"]},
}


@pytest.mark.parametrize(("files", "workers"), [*((name, 2) for name in FILES), ("two", 1)])
def test_every_test_runs_once_and_the_run_ends_though_workers_die(tmp_path: Path, files: str,
                                                                  workers: int) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    tests_of = FILES[files]
    write_files(tmp_path, tests_of, tmp_path / "log")
    done = run_tests(tmp_path, workers)
    wanted = sorted(f"{name}.{test}" for name, tests in tests_of.items() for test in tests)
    assert sorted((tmp_path / "log").read_text().split()) == wanted
    dying = {(name, test) for name, tests in tests_of.items() for test in tests if test.endswith("dies")}
    assert set(re.findall(r"^FAILED \S*\btest_(\w+)\.py::test_(\w+)", done.stdout, re.MULTILINE)) == dying
    assert f"{len(dying)} failed, {len(wanted) - len(dying)} passed" in done.stdout
    assert done.returncode == 1


def test_control_xdists_own_scheduler_repeats_what_killed_a_worker_or_never_ends(tmp_path: Path) -> None:
    write_files(tmp_path, FILES["only"], tmp_path / "log")
    try:
        run_tests(tmp_path, 2, timeout=5)
    except subprocess.TimeoutExpired:
        return
    assert (tmp_path / "log").read_text().split().count("a.dies") > 1


class Worker:
    """One that notes what it is given; when it is dead, that cannot be sent."""

    shutting_down = dead = False
    gateway = SimpleNamespace(id="worker")

    def __init__(self) -> None:
        self.given: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        if self.dead:
            raise OSError("cannot send (already closed?)")
        self.given += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def scheduled(tests: list[str], *workers: Worker) -> Any:
    """Tests that were given to two workers."""
    config = SimpleNamespace(getvalue={"tx": ["2*popen"]}.__getitem__, option=SimpleNamespace(loadscopereorder=False))
    scheduling: Any = FileScheduling(config)  # type: ignore[arg-type]
    for worker in workers:
        scheduling.add_node(worker)
        scheduling.add_node_collection(worker, tests)
    scheduling.schedule()
    return scheduling


def test_a_worker_that_has_just_begun_when_another_dies_is_given_work_when_it_knows_the_tests() -> None:
    tests = ["test_a.py::a1", "test_a.py::dies", "test_a.py::a3", "test_b.py::b1", "test_b.py::dies", "test_b.py::b3"]
    first, second, new, newer = Worker(), Worker(), Worker(), Worker()
    scheduling = scheduled(tests, first, second)
    assert (first.given, second.given) == ([0, 1, 2], [3, 4, 5])
    scheduling.mark_test_complete(first, 0)
    scheduling.mark_test_complete(second, 3)
    assert scheduling.remove_node(first) == "test_a.py::dies"
    scheduling.add_node(new)
    scheduling.add_node(newer)
    assert scheduling.remove_node(second) == "test_b.py::dies"
    assert not new.given
    scheduling.add_node_collection(new, tests)
    scheduling.schedule()  # the other new one does not know them yet
    assert sorted(new.given) == [2, 5] and not newer.given


def test_what_a_worker_could_not_be_given_as_it_had_died_others_run() -> None:
    tests = ["test_a.py::a1", "test_a.py::a2", "test_a.py::a3", "test_b.py::b1", "test_b.py::dies", "test_b.py::b3",
             "test_c.py::c1", "test_c.py::c2"]
    first, second = Worker(), Worker()
    scheduling = scheduled(tests, first, second)
    second.dead = True  # which nobody knows yet, as what it said before is heard
    scheduling.mark_test_complete(second, 3)
    assert second.given == [3, 4, 5] and not scheduling.workqueue, "it was to run c, too"
    assert scheduling.remove_node(second) == "test_b.py::dies"
    for done in (0, 1, 2):
        scheduling.mark_test_complete(first, done)
    assert sorted(first.given) == [0, 1, 2, 5, 6, 7]
