# SPDX-License-Identifier: MIT
"""OpenMP's constructs order what its threads do, as processes and as threads, from the start and loaded later."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from ptweave.data import Bundle
from ptweave.data.evl import EVL_HEADER_SIZE, EVL_MAGIC, Operation
from ptweave.data.notices import NoticeKind
from ptweave.decode.thunks import decode_thunks
from ptweave.merge import Run, merge_run
from support.command import ptweave
from support.engine import PROGRAMS
from support.known import ENGINE_RUNS, EXACT, NATIVE_RUNS, Known, natively, wrapped
from support.modes import NATIVE, TRACED, UNDER_LIBTTHREAD, Mode, process_mode, run

ATOMIC, LEFT, PLANTED = 23, 25, 26  # of enum which in known_openmp.c
SHARED_BY_ALL = {"BARRIER": 0, "COPIED": 4, "CRITICAL": 5, "NAMED": 6, "ORDERED": 7, "LOCK": 8, "TRIED": 9,
                 "NESTED_LOCK": 10, "DOACROSS": 15, "FEWER": 22}
VERSION = 40  # where in a record

COUNTS = {"team": 26, "team_begin": 68, "team_end": 68, "team_join": 26, "task": 30, "task_begin": 34, "task_end": 34,
          "mutex_unlock": 54, "sem_post": 12}
"""Operations of known_openmp that do not depend on who comes first."""


@pytest.fixture(autouse=True)
def cancellation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_CANCELLATION", "true")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("openmp") / "known_openmp"
    subprocess.run(["gcc", "-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-fopenmp", "-Wl,-z,now",
                    "-o", made, PROGRAMS / "known_openmp.c"], check=True)
    return made


def check_order(known: Known, atomic: str) -> None:
    """What one construct or another orders is no race; what nothing orders is one, and what is atomic is told apart
    where the code is known."""
    found = known.races()
    assert set(found) == {ATOMIC, PLANTED}
    assert found[ATOMIC] == {atomic} and "address" in found[PLANTED]
    for name, number in SHARED_BY_ALL.items():
        rows = known.run.sql("select distinct from_thread, to_thread from edges where kind = 'data' and page = ? "
                             "and from_thread != to_thread", known.page(number))
        assert rows.rows(), f"control: {name} was written by one thread and then used by another"


def check_counts(opened: Run) -> None:
    found = dict(opened.sql("select operation, count(*) from thunks group by 1").rows())
    assert {name: found.get(name) for name in COUNTS} == COUNTS
    assert {one.name.lower() for one in Operation if one >= Operation.TEAM} <= set(found)
    assert found["barrier_arrive"] == found["barrier_wait"] and found["mutex_lock"] + found["mutex_trylock"] >= 54


def test_openmps_constructs_order_what_threads_as_processes_do(program: Path, tmp_path: Path) -> None:
    expected = run(NATIVE, tmp_path, [program], name="native").out.splitlines()[-1]
    for _ in range(NATIVE_RUNS):
        with natively(program, tmp_path, EXACT, "") as known:
            assert known.said.encode().splitlines()[-1] == expected
            check_order(known, "address")
            check_counts(known.run)


def test_under_the_engine_they_do_and_every_operation_has_its_exact_place(program: Path, tmp_path: Path) -> None:
    for _ in range(ENGINE_RUNS):
        with wrapped(program, tmp_path) as known:
            check_order(known, "atomic")
            check_counts(known.run)
            assert known.run.sql("select count(*) from thunks where placed != 'exact'").rows() == [(0,)]
            assert known.run.sql("select count(*) from races where overlap = 'address' and "
                                 "function like 'GOMP_%'").rows() == [(0,)], "the library orders its own accesses"
        shutil.rmtree(tmp_path / "run.ptw")


def without_versions(bundle: Bundle, first: Operation, last: Operation) -> None:
    """As if operations from `first` to `last` had neither acquired nor released."""
    for path in (bundle.path / "dependence").glob("*.evl"):
        data, at = bytearray(path.read_bytes()), 0
        while at < len(data):
            if data[at:at + 8] == EVL_MAGIC:
                at += EVL_HEADER_SIZE
                continue
            size, operation = struct.unpack_from("<IH", data, at)
            if first <= operation <= last:
                struct.pack_into("<Q", data, at + VERSION, 0)
            at += size & ~1
        path.write_bytes(data)


@pytest.mark.parametrize(("first", "last", "raced"), [
    (Operation.TASK, Operation.TASK_WAIT, {11, LEFT}), (Operation.BARRIER_WAIT, Operation.BARRIER_WAIT, {0}),
    (Operation.SEM_WAIT, Operation.SEM_POST, {15}), (Operation.MUTEX_LOCK, Operation.MUTEX_LOCK, {5, 6, 7, 8})],
    ids=str)
def test_control_without_what_was_logged_they_race(program: Path, tmp_path: Path, first: Operation, last: Operation,
                                                   raced: set[int]) -> None:
    """Some of the pages at least: who comes when may order the others."""
    ran = run(EXACT, tmp_path, [program])
    assert ran.traced
    bundle = ran.traced.bundle
    without_versions(bundle, first, last)
    decode_thunks(bundle)
    merge_run(bundle)
    with Run(bundle.path) as opened:
        assert raced & set(Known(opened, ran.out.decode(), []).races())


def test_as_threads_the_same_operations_are_logged(program: Path, tmp_path: Path) -> None:
    with natively(program, tmp_path, TRACED, "") as known:
        check_counts(known.run)


def test_an_operation_of_openmps_waits_no_longer_than_it_did(tmp_path: Path) -> None:
    """The maker of a team waits for it from when its own part is done."""
    source = tmp_path / "late.c"
    source.write_text("#include <omp.h>\n#include <unistd.h>\nint main(void)\n{\n#pragma omp parallel num_threads(2)\n"
                      "\tusleep(omp_get_thread_num() ? 300000 : 200000);\n}\n")
    subprocess.run(["gcc", "-O1", "-g", "-fopenmp", "-o", tmp_path / "late", source], check=True)
    with natively(tmp_path / "late", tmp_path, TRACED, "") as known:
        (wait,), = known.run.sql("select wait from thunks where operation = 'team_join'").rows()
        (whole,), = known.run.sql("select max(t) filter (operation = 'team_end') - "
                                  "min(t) filter (operation = 'team_begin') from thunks").rows()
    assert 0.1 < wait / whole < 0.6


@pytest.mark.parametrize("mode", UNDER_LIBTTHREAD, ids=str)
def test_every_library_has_the_openmp_it_was_linked_with(tmp_path: Path, mode: Mode) -> None:
    """Two libraries that only their loader sees, each linked with a copy of its own, as packages of Python's are."""
    system = Path(subprocess.run(["gcc", "-print-file-name=libgomp.so.1"], check=True, capture_output=True,
                                 text=True).stdout.strip())
    libraries = []
    for number in (1, 2):
        copy = tmp_path / f"libgomp-{number}.so"
        copy.write_bytes(system.read_bytes().replace(b"libgomp.so.1\0", copy.name.encode() + b"\0"))
        libraries.append(tmp_path / f"work{number}.so")
        # the compiler would link with the system's
        subprocess.run(["gcc", "-O1", "-g", "-fPIC", "-fopenmp", "-c", "-o", tmp_path / "work.o",
                        PROGRAMS / "late_openmp.c"], check=True)
        subprocess.run(["gcc", "-shared", "-o", libraries[-1], tmp_path / "work.o", copy, f"-Wl,-rpath,{tmp_path}"],
                       check=True)
    source = tmp_path / "loader.c"
    source.write_text(
        "#include <dlfcn.h>\n#include <pthread.h>\nstatic void *nothing(void *a) { return a; }\n"
        "int main(int n, char **v)\n{\n\tpthread_t t;\n\tpthread_create(&t, 0, nothing, 0);\n\tpthread_join(t, 0);\n"
        "\tfor (int i = 1; i <= n; i++)\n"
        '\t\t((int (*)(int))dlsym(dlopen(v[i % 2 + 1], RTLD_NOW), "work"))(10);\n\treturn 0;\n}\n')
    subprocess.run(["gcc", "-O1", "-pthread", "-o", tmp_path / "loader", source], check=True)
    argv = [tmp_path / "loader", *libraries]
    native = run(NATIVE, tmp_path, argv, name="native")
    assert native.out == 3 * b"4995000 30 200\n"
    if mode.view == "private":
        return  # not carried there, and told: test_notices.py
    ran = run(mode, tmp_path, argv)
    assert (ran.status, ran.out, ran.err) == (0, native.out, "")


DEPTH = 40
"""Of loops in one another: what an iteration waits for is told by as many numbers."""


@pytest.mark.parametrize("mode", UNDER_LIBTTHREAD, ids=str)
def test_iterations_of_deeply_nested_loops_wait_for_each_other(tmp_path: Path, mode: Mode) -> None:
    names = [f"i{number}" for number in range(1, DEPTH)]
    source = tmp_path / "deep.c"
    source.write_text(
        "#include <stdio.h>\nenum { N = 60 };\nstatic int a[N];\nint main(void)\n{\n"
        f"\tint i, {', '.join(names)};\n#pragma omp parallel for ordered({DEPTH}) schedule(static, 1) num_threads(3)\n"
        "\tfor (i = 1; i < N; i++)\n" + "".join(f"\tfor ({name} = 4; {name} < 5; {name}++)\n" for name in names) +
        f"\t{{\n#pragma omp ordered depend(sink : i - 1, {', '.join(names)})\n\t\ta[i] = a[i - 1] + 1;\n"
        '#pragma omp ordered depend(source)\n\t}\n\tprintf("%d\\n", a[N - 1]);\n\treturn 0;\n}\n')
    subprocess.run(["gcc", "-O1", "-fopenmp", "-o", tmp_path / "deep", source], check=True)
    ran = run(mode, tmp_path, [tmp_path / "deep"])
    assert (ran.status, ran.out) == (0, b"59\n")


def test_in_the_private_view_an_openmp_program_keeps_its_threads_and_is_told(program: Path, tmp_path: Path) -> None:
    ran = run(process_mode("exact", "private"), tmp_path, [program])
    assert ran.status == 0 and ran.traced
    told = ran.traced.server.notices.all
    assert [one.kind for one in told] == [NoticeKind.FALLBACK] and "OpenMP" in told[0].text


def test_a_program_of_the_readers_own_is_wrapped_without_a_notice(program: Path, tmp_path: Path) -> None:
    done = ptweave("wrap", "-o", tmp_path / "run.ptw", "--", program, cwd=tmp_path)
    assert (done.status, done.lines) == (0, [f"ptweave: {tmp_path / 'run.ptw'}: nothing lost"])
