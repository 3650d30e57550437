# SPDX-License-Identifier: MIT
"""LLVM's OpenMP orders what its threads do as GCC's does: in what clang compiled, and in what GCC did."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ptweave.data.notices import NoticeKind
from ptweave.merge import Run
from support.command import ptweave
from support.engine import PROGRAMS
from support.known import ENGINE_RUNS, EXACT, NATIVE_RUNS, Known, natively, wrapped
from support.modes import NATIVE, TRACED, UNDER_LIBTTHREAD, Mode, process_mode, run

ATOMIC, PLANTED = 23, 26  # of enum which in known_openmp.c
USED_BY_TWO = (0, 4, 5, 6, 7, 8, 9, 10, 15, 22)
"""Pages that one thread writes and another uses then, in every run."""

REGIONS = {"team": 24, "team_begin": 62, "team_end": 62, "team_join": 24, "task": 34, "task_begin": 34, "task_end": 34,
           "barrier_arrive": 132, "barrier_wait": 132}
COUNTS = {"clang": REGIONS | {"sem_post": 24, "sem_wait": 24}, "gcc": REGIONS | {"sem_post": 12, "sem_wait": 10}}
"""Operations of known_openmp that do not depend on who comes first; GCC's reductions call nothing."""


@pytest.fixture(autouse=True)
def cancellation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_CANCELLATION", "true")


@pytest.fixture(scope="module", params=list(COUNTS))
def compiler(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def program(compiler: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("openmp") / "known_openmp"
    subprocess.run([compiler, "-std=gnu11", "-g", "-O1", "-Wall", "-Werror", "-fopenmp", "-DLLVM", "-c", "-o",
                    made.with_suffix(".o"), PROGRAMS / "known_openmp.c"], check=True)
    subprocess.run(["clang", "-fopenmp", "-o", made, made.with_suffix(".o")], check=True)
    return made


def check_order(known: Known, atomic: str) -> None:
    found = known.races()
    assert set(found) == {ATOMIC, PLANTED}
    assert found[ATOMIC] == {atomic} and "address" in found[PLANTED]
    for number in USED_BY_TWO:
        rows = known.run.sql("select 1 from edges where kind = 'data' and page = ? and from_thread != to_thread",
                             known.page(number))
        assert rows.rows(), f"control: page {number} was written by one thread and then used by another"


def check_counts(opened: Run, compiler: str) -> None:
    found = dict(opened.sql("select operation, count(*) from thunks group by 1").rows())
    assert {name: found.get(name) for name in COUNTS[compiler]} == COUNTS[compiler]
    assert found["mutex_trylock"] >= 6 and found["mutex_lock"] + found["mutex_trylock"] >= 54


def test_its_constructs_order_what_threads_as_processes_do(program: Path, compiler: str, tmp_path: Path) -> None:
    expected = run(NATIVE, tmp_path, [program], name="native").out.splitlines()[-1]
    for _ in range(NATIVE_RUNS):
        with natively(program, tmp_path, EXACT, "") as known:
            assert known.said.encode().splitlines()[-1] == expected
            check_order(known, "address")
            check_counts(known.run, compiler)


def test_under_the_engine_they_do_and_every_operation_has_its_exact_place(program: Path, compiler: str,
                                                                          tmp_path: Path) -> None:
    for _ in range(ENGINE_RUNS):
        with wrapped(program, tmp_path) as known:
            check_order(known, "atomic")
            check_counts(known.run, compiler)
            assert known.run.sql("select count(*) from thunks where placed != 'exact'").rows() == [(0,)]
        shutil.rmtree(tmp_path / "run.ptw")


def test_where_the_runtime_tells_nothing_only_what_gcc_compiled_is_ordered(program: Path, compiler: str, tmp_path: Path,
                                                                           monkeypatch: pytest.MonkeyPatch) -> None:
    """By the functions that it calls. Of the others this is the control: their pages race."""
    monkeypatch.setenv("OMP_TOOL", "disabled")
    with natively(program, tmp_path, EXACT, "") as known:
        if compiler == "gcc":
            check_order(known, "address")
        else:
            assert len(known.races()) > 10
            assert known.run.sql("select count(*) from thunks where operation = 'barrier_wait'").rows() == [(0,)]


def test_as_threads_the_same_operations_are_logged(program: Path, compiler: str, tmp_path: Path) -> None:
    with natively(program, tmp_path, TRACED, "") as known:
        check_counts(known.run, compiler)


def test_in_the_private_view_it_keeps_its_threads_and_that_is_told(program: Path, tmp_path: Path) -> None:
    ran = run(process_mode("exact", "private"), tmp_path, [program])
    assert ran.status == 0 and ran.traced
    told = ran.traced.server.notices.all
    assert [one.kind for one in told] == [NoticeKind.FALLBACK] and "LLVM's OpenMP" in told[0].text


def test_a_program_of_the_readers_own_is_wrapped_without_a_notice(program: Path, tmp_path: Path) -> None:
    done = ptweave("wrap", "-o", tmp_path / "run.ptw", "--", program, cwd=tmp_path)
    assert (done.status, done.lines) == (0, [f"ptweave: {tmp_path / 'run.ptw'}: nothing lost"])


def test_who_makes_a_team_while_it_waits_at_a_barrier_leaves_both(tmp_path: Path, compiler: str) -> None:
    """In a task that it does meanwhile."""
    source, made = tmp_path / "nested.c", tmp_path / "nested"
    source.write_text("""
#include <omp.h>
#include <unistd.h>
int main(void)
{
	omp_set_max_active_levels(2);
#pragma omp parallel num_threads(2)
	{
		if (omp_get_thread_num() == 0)
#pragma omp task
		{
#pragma omp parallel num_threads(2)
			{
#pragma omp barrier
			}
		}
		if (omp_get_thread_num() == 0)
			usleep(200000);
#pragma omp barrier
	}
	return 0;
}
""")
    subprocess.run([compiler, "-g", "-O1", "-fopenmp", "-c", "-o", tmp_path / "nested.o", source], check=True)
    subprocess.run(["clang", "-fopenmp", "-o", made, tmp_path / "nested.o"], check=True)
    with natively(made, tmp_path, TRACED, "") as known:
        found = dict(known.run.sql("select operation, count(*) from thunks group by 1").rows())
        wanted = {"team": 2, "team_begin": 4, "barrier_arrive": 4, "barrier_wait": 4, "team_join": 2}
        assert {name: found[name] for name in wanted} == wanted
        nested = known.run.sql("select thread, max(t) filter (operation = 'barrier_wait') - "
                               "min(t) filter (operation = 'task_begin') from thunks group by 1 "
                               "having count(*) filter (operation = 'task_begin') > 0").rows()
        assert len(nested) == 1 and nested[0][1] > 0, "control: it was done in the barrier"


TOOL = """
#include <stdio.h>
struct tool { int (*initialize)(void *, int, void *); void (*finalize)(void *); long own; };
static int initialize(void *look, int device, void *own) { fputs("mine\\n", stdout); return 0; }
static void finalize(void *own) { }
struct tool *ompt_start_tool(unsigned version, const char *name)
{
	static struct tool tool = { initialize, finalize, 0 };
	return &tool;
}
"""


@pytest.mark.parametrize("how", ["OMP_TOOL_LIBRARIES", "LD_PRELOAD"])
def test_a_tool_of_the_programs_own_is_the_one_that_is_told(program: Path, tmp_path: Path, how: str,
                                                            monkeypatch: pytest.MonkeyPatch) -> None:
    source, tool = tmp_path / "tool.c", tmp_path / "tool.so"
    source.write_text(TOOL)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", tool, source], check=True)
    monkeypatch.setenv(how, str(tool))
    ran = run(TRACED, tmp_path, [program])
    assert ran.status == 0 and ran.traced and ran.out.count(b"mine\n") == 1
    told = ran.traced.server.notices.all
    assert [one.kind for one in told] == [NoticeKind.LIMIT] and "tool of its own" in told[0].text


@pytest.mark.parametrize("mode", UNDER_LIBTTHREAD, ids=str)
@pytest.mark.parametrize("own", [[], ["-fopenmp"]], ids=["its library's alone", "GCC's as well"])
def test_a_library_that_only_its_loader_sees_has_the_openmp_it_was_linked_with(tmp_path: Path, mode: Mode,
                                                                               own: list[str]) -> None:
    """A program's own OpenMP is GCC's, then, and each library's what its compiler linked it with."""
    for compiler in ("clang", "gcc"):
        subprocess.run([compiler, "-O1", "-g", "-fPIC", "-shared", "-fopenmp", "-o", tmp_path / f"{compiler}.so",
                        PROGRAMS / "late_openmp.c"], check=True)
    (tmp_path / "loader.c").write_text(
        "#include <dlfcn.h>\n#include <pthread.h>\n#include <stdio.h>\nstatic void *nothing(void *a) { return a; }\n"
        "int main(int n, char **v)\n{\n\tpthread_t t;\n\tint c = 0;\n\tpthread_create(&t, 0, nothing, 0);\n"
        "\tpthread_join(t, 0);\n"
        "\t_Pragma(\"omp parallel num_threads(3)\")\n\t_Pragma(\"omp critical\")\n\tc++;\n\tprintf(\"%d\\n\", c);\n"
        '\tfflush(stdout);\n\tfor (int i = 1; i < n; i++)\n'
        '\t\t((int (*)(int))dlsym(dlopen(v[i], RTLD_NOW), "work"))(10);\n\treturn 0;\n}\n')
    subprocess.run(["gcc", "-O1", "-pthread", *own, "-o", tmp_path / "loader", tmp_path / "loader.c"], check=True)
    argv = [tmp_path / "loader", tmp_path / "clang.so", tmp_path / "gcc.so"]
    native = run(NATIVE, tmp_path, argv, name="native")
    assert native.out == (b"3\n" if own else b"1\n") + 2 * b"4995000 30 200\n"
    if mode.view == "private":
        return  # not carried there, and told
    ran = run(mode, tmp_path, argv)
    assert (ran.status, ran.out, ran.err) == (0, native.out, "")
