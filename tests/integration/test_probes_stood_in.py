# SPDX-License-Identifier: MIT
"""Probes on functions of the C library that libtthread stands in for: a name alone has every call the program makes, in
its threads however these run, and once each."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from ptweave.cli.code import load_code
from ptweave.cli.probing import plan_for
from ptweave.data import BadInput
from ptweave.merge import Run
from ptweave.preload import library_path
from ptweave.wrapper.probes.plan import linked_files
from ptweave.wrapper.target import examine
from support.command import ptweave
from support.modes import UNDER_LIBTTHREAD, Mode
from support.probed import Probed, run_probed

ROOT = Path(__file__).resolve().parents[2]
COUNT, THREADS, SIZE = 20, 3, 70001
CALLS = COUNT * (THREADS + 1)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("stood_in_for") / "stood_in_for"
    subprocess.run(["gcc", "-O1", "-fno-builtin", "-Wall", "-Wextra", "-Werror", "-o", out,
                    ROOT / "tests/programs/stood_in_for.c", "-pthread"], check=True)
    return out


def probed(program: Path, folder: Path, handler: str, mode: Mode, *specs: str) -> tuple[Probed, list[int]]:
    """The run, and the addresses it said: of the lock, and of what malloc gave."""
    given = [("--handler", handler), *(("--probe", spec) for spec in specs)]
    ran = run_probed(folder, given, [program, str(COUNT), str(THREADS)], env={"PTWEAVE_THREADS": "native",
                                                                            **mode.environment()})
    assert (ran.traced.status, ran.traced.err) == (0, "")
    assert not ran.traced.ledger.losses and not ran.traced.server.notices.all
    said = [int(line, 16) for line in ran.traced.out.split()]
    assert len(said) == 1 + CALLS
    return ran, said


def calls_with(ran: Probed, lock: int) -> Counter[str]:
    """Calls that only the program makes so, by function."""
    names = {hit.hit: hit.function for hit in ran.plan.hits}
    own = {"malloc": (0, SIZE), "calloc": (1, SIZE), "pthread_mutex_lock": (0, lock)}
    return Counter(name for row in ran.rows() for name in [names[row["hit"]]]
                   if row["args"][own[name][0]] == own[name][1])


@pytest.mark.parametrize("handler", ["args", "stack", "log"])
@pytest.mark.parametrize("mode", UNDER_LIBTTHREAD, ids=str)
def test_a_name_alone_has_each_call_once(program: Path, tmp_path: Path, mode: Mode, handler: str) -> None:
    specs = ("malloc", "calloc", "pthread_mutex_lock")
    ran, said = probed(program, tmp_path, handler, mode, *specs)
    if handler == "args":
        assert calls_with(ran, said[0]) == dict.fromkeys(specs, CALLS)
    else:
        assert ran.counts()["pthread_mutex_lock"] == CALLS


@pytest.mark.parametrize("handler", ["return", "time"])
@pytest.mark.parametrize("mode", UNDER_LIBTTHREAD, ids=str)
def test_what_a_function_returned_is_known_in_every_thread(program: Path, tmp_path: Path, mode: Mode,
                                                          handler: str) -> None:
    ran, said = probed(program, tmp_path, handler, mode, "malloc")
    results = Counter(row["result"] for row in ran.rows())
    assert Counter(said[1:]) <= results


def test_control_the_c_librarys_own_function_is_not_called_where_threads_are_processes(program: Path,
                                                                                      tmp_path: Path) -> None:
    native, process = (mode for mode in UNDER_LIBTTHREAD if mode.name in ("libtthread native", "process held shared"))
    for mode, calls in ((native, CALLS), (process, 0)):
        (tmp_path / mode.name).mkdir()
        ran, said = probed(program, tmp_path / mode.name, "args", mode, "libc.so.6:malloc")
        assert calls_with(ran, said[0])["malloc"] == calls


def test_the_soft_engine_and_the_tables_have_them(program: Path, tmp_path: Path) -> None:
    """In the default mode, as the help's leading example has it."""
    done = ptweave("wrap", "-o", tmp_path / "run.ptw", "--probe", "malloc", "--handler", "args", "--probe", "calloc",
                   "--", program, str(COUNT), str(THREADS))
    assert (done.status, done.lines) == (0, [f"ptweave: {tmp_path}/run.ptw: nothing lost"])
    with Run(tmp_path / "run.ptw") as run:
        rows = run.sql(f"select function, count(*) from probes where {SIZE} in (args[1], args[2]) group by 1").rows()
        sites = run.sql("select function, hits, path from probe_sites").rows()
    assert rows == [("calloc", CALLS)]
    assert {Path(path).name for _, _, path in sites} == {library_path().name}
    assert all(hits >= CALLS for _, hits, _ in sites)


def test_a_watched_return_hides_nobody_who_called(program: Path, tmp_path: Path) -> None:
    """libtthread looks where its functions return to: it is the probe's code while a probe waits for that."""
    done = ptweave("wrap", "-o", tmp_path / "run.ptw", "--handler", "time", "--probe", "pthread_mutex_lock", "--",
                   program, str(COUNT), str(THREADS))
    assert (done.status, done.lines) == (0, [f"ptweave: {tmp_path}/run.ptw: nothing lost"])
    with Run(tmp_path / "run.ptw") as run:
        callers = run.sql("select caller, count(*) from thunks where operation = 'mutex_lock' group by 1").rows()
        assert run.sql("select hits from probe_sites").rows() == [(CALLS,)]
    assert callers == [("work", CALLS)]


@pytest.mark.parametrize("mode", UNDER_LIBTTHREAD, ids=str)
def test_all_stand_ins_at_once_can_be_probed_and_the_program_goes_on_as_before(program: Path, tmp_path: Path,
                                                                             mode: Mode) -> None:
    """Pages with libtthread's own code are patched by libtthread."""
    libc = next(path for path in linked_files(program) if path.name == "libc.so.6")
    names = load_code(library_path()).exports & load_code(libc).exports
    assert len(names) > 400
    (tmp_path / "list").write_text("\n".join(sorted(names)))
    ran, _ = probed(program, tmp_path, "args", mode, f"@{tmp_path}/list")
    assert not ran.plan.refused
    assert {Path(hit.path) for hit in ran.plan.hits} == {library_path()}
    assert ran.counts()["pthread_mutex_lock"] == CALLS and ran.counts()["pthread_create"] == THREADS


def test_what_patches_lies_in_no_page_with_what_may_be_patched() -> None:
    """Its page could not be executed meanwhile."""
    listed = subprocess.run(["readelf", "-SW", library_path()], capture_output=True, text=True, check=True).stdout
    ((begin, size),) = re.findall(r" ptw_patching +PROGBITS +(\w+) +\w+ +(\w+)", listed)
    code = load_code(library_path())
    pages = {int(begin, 16) // 4096 + i for i in range(int(size, 16) // 4096 + 1)}
    assert code.symbols["patch"] == [int(begin, 16)]
    assert not pages & {code.symbols[name][0] // 4096 for name in code.exports if name in code.symbols}


def files(given: list[str], program: Path) -> list[str]:
    plan = plan_for([("--probe", spec) for spec in given], examine([str(program)]))
    return [Path(hit.path).name for hit in plan.hits]


def test_a_file_that_is_named_and_a_place_within_a_function_stay_the_c_librarys(program: Path) -> None:
    assert files(["malloc", "libc.so.6:malloc", "qsort"], program) == [library_path().name, "libc.so.6", "libc.so.6"]
    assert files(["malloc+0x4"], program) == ["libc.so.6"]
    assert files(["pthread_mutex_*lock"], program) == [library_path().name] * 5
    assert files(["time"], program) == [library_path().name]  # the C library's only chooses another


def test_a_function_of_the_programs_own_with_such_a_name_is_ambiguous_as_before(tmp_path: Path) -> None:
    own = tmp_path / "own"
    subprocess.run(["gcc", "-x", "c", "-o", own, "-"], check=True,
                   input=b"int access(const char *p, int m) { return p == 0 || m; }\nint main(void) { return 0; }\n")
    with pytest.raises(BadInput, match="ambiguous"):
        files(["access"], own)
    assert files([f"{own}:access"], own) == ["own"]
