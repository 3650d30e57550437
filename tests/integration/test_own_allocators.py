# SPDX-License-Identifier: MIT
"""Programs whose allocator is their own (jemalloc, tcmalloc and others are linked into programs), called before main:
as processes their threads share what it hands out, though it was mapped before anybody could know of threads, locks in
it wake who waits for them, and what it hands out by functions that libtthread does not stand in front of comes back to
it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from ptweave.merge import Run
from support.command import Done, native, ptweave
from support.modes import UNDER_LIBTTHREAD, Mode, process_mode
from support.modes import run as run_natively

ROOT = Path(__file__).resolve().parents[2]
ALIGNED, BREAK, MANY = 0, 1, 2
LIBRARY = b"""
#include <stdlib.h>
static int *words;
__attribute__((constructor)) static void begin(void) { words = malloc(4096); words[0] = words[1] = 0; }
void *early(void) { return words; }
"""

RESERVES = b"""
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
static char *start;
__attribute__((constructor)) static void begin(void)
{
    start = mmap(PLACE, 64 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED || mprotect(start, 1 << 20, PROT_READ | PROT_WRITE))
        abort();
}
char *reserved(void) { return start; }
"""


def program(folder: Path, kind: int) -> Path:
    """libgcc_s is linked with: else libtthread loads it, and the loader's own data gets into the chunk."""
    library = folder / "libearly.so"
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", library, "-x", "c", "-"], input=LIBRARY, check=True)
    made = folder / f"own_allocator{kind}"
    subprocess.run(["gcc", "-O1", "-Wall", "-Wextra", "-Werror", f"-DKIND={kind}", "-o", made,
                    ROOT / "tests/programs/own_allocator.c", "-pthread", "-Wl,--no-as-needed", f"-L{folder}", "-learly",
                    "-lgcc_s", f"-Wl,-rpath,{folder}"], check=True)
    return made


def beside_other_allocator(folder: Path, source: str) -> Path:
    """A program that is linked with an allocator of its own."""
    flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-pthread"]
    subprocess.run(["gcc", *flags, "-shared", "-fPIC", "-o", folder / "libother.so",
                    ROOT / "tests/programs/other_allocator.c"], check=True)
    made = folder / Path(source).stem
    subprocess.run(["gcc", *flags, "-o", made, ROOT / "tests/programs" / source, "-Wl,--no-as-needed", f"-L{folder}",
                    "-lother", f"-Wl,-rpath,{folder}"], check=True)
    return made


def after_reserving(folder: Path, place: str) -> Path:
    """A program with a library that has reserved memory before main, asking for an address."""
    library, made = folder / "libreserves.so", folder / "early_reserve"
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", f"-DPLACE=((void *){place})", "-o", library, "-x", "c", "-"],
                   input=RESERVES, check=True)
    subprocess.run(["gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-o", made, ROOT / "tests/programs/early_reserve.c",
                    "-pthread", f"-L{folder}", "-lreserves", f"-Wl,-rpath,{folder}"], check=True)
    return made


def recorded(made: Path, bundle: Path, *more: str) -> Done:
    return ptweave("record", "-o", bundle, *more, "--", made)


@pytest.mark.parametrize("view", ["shared", "private"])
@pytest.mark.parametrize("kind", [ALIGNED, BREAK], ids=["aligned", "break"])
def test_threads_share_what_an_allocator_of_the_program_s_own_had_before_main(tmp_path: Path, kind: int,
                                                                             view: str) -> None:
    made = program(tmp_path, kind)
    assert native([made]).out == b"42\n"
    done = recorded(made, tmp_path / "run.ptw", "--threads=process", f"--view={view}")
    assert (done.status, done.out) == (0, b"42\n"), done.err
    assert json.loads((tmp_path / "run.ptw/run.json").read_text()).get("notices", []) == []


@pytest.mark.parametrize("view", ["shared", "private"])
@pytest.mark.parametrize("kind", [ALIGNED, BREAK, MANY], ids=["aligned", "break", "many"])
def test_they_share_it_where_no_engine_simulates_the_program(tmp_path: Path, kind: int, view: str) -> None:
    ran = run_natively(process_mode("held", view), tmp_path, [program(tmp_path, kind)])
    assert (ran.status, ran.out, ran.err) == (0, b"42\n", "")


@pytest.mark.parametrize("mode", UNDER_LIBTTHREAD, ids=str)
def test_what_another_allocator_hands_out_by_itself_goes_back_to_it(tmp_path: Path, mode: Mode) -> None:
    made = beside_other_allocator(tmp_path, "other_allocator_user.c")
    assert native([made]).out == b"0 wrong, 1200 returned\n"
    ran = run_natively(mode, tmp_path, [made])
    assert (ran.status, ran.out, ran.err) == (0, b"0 wrong, 1200 returned\n", "")


@pytest.mark.parametrize("mode", UNDER_LIBTTHREAD, ids=str)
def test_who_waits_for_a_lock_in_memory_mapped_before_main_is_woken(tmp_path: Path, mode: Mode) -> None:
    made = beside_other_allocator(tmp_path, "early_locks.c")
    expected = b"1200 turns, 6000 writes, 0 differed\n"
    assert native([made]).out == expected
    ran = run_natively(mode, tmp_path, [made])
    assert (ran.status, ran.out, ran.err) == (0, expected, "")


@pytest.mark.parametrize("place", ["0", "0x38bfc000000"], ids=["anywhere", "where_libtthread_has_its_own"])
@pytest.mark.parametrize("mode", UNDER_LIBTTHREAD, ids=str)
def test_what_was_reserved_before_main_is_everybody_s_when_it_is_committed(tmp_path: Path, mode: Mode,
                                                                         place: str) -> None:
    made = after_reserving(tmp_path, place)
    assert native([made]).out == b"0 wrong\n"
    ran = run_natively(mode, tmp_path, [made])
    assert (ran.status, ran.out, ran.err) == (0, b"0 wrong\n", "")


def test_it_is_so_under_the_engine(tmp_path: Path) -> None:
    done = recorded(after_reserving(tmp_path, "0"), tmp_path / "run.ptw", "--threads=process")
    assert (done.status, done.out) == (0, b"0 wrong\n"), done.err


@pytest.mark.parametrize("source", ["other_allocator_user.c", "early_locks.c"])
def test_both_hold_under_the_engine(tmp_path: Path, source: str) -> None:
    made = beside_other_allocator(tmp_path, source)
    done = recorded(made, tmp_path / "run.ptw", "--threads=process")
    assert (done.status, done.out) == (0, native([made]).out), done.err


def test_more_mappings_before_main_than_are_noted_is_told(tmp_path: Path) -> None:
    made = program(tmp_path, MANY)
    done = recorded(made, tmp_path / "run.ptw", "--threads=process")
    assert "more than 256 mappings before main: threads do not share all of them" in done.err
    done = recorded(made, tmp_path / "native.ptw", "--threads=native")
    assert (done.status, done.out) == (0, b"42\n")
    assert "more than 256" not in done.err


@pytest.mark.parametrize("mode", ["native", "process"])
def test_what_an_allocator_locks_for_a_thread_that_has_ended_is_no_missing_release(tmp_path: Path, mode: str) -> None:
    made = tmp_path / "locked_allocator"
    subprocess.run(["gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-o", made,
                    ROOT / "tests/programs/locked_allocator.c", "-pthread"], check=True)
    assert native([made]).status == 0
    done = ptweave("wrap", "-o", tmp_path / "run.ptw", f"--threads={mode}", "--", made)
    assert (done.status, done.lines) == (0, [f"ptweave: {tmp_path}/run.ptw: nothing lost"])
    with Run(tmp_path / "run.ptw") as run:
        ((ended, freed),) = run.sql("select count(*), (select count(*) from executions('free') where thread > 0) from "
                                    "thunks where thread > 0 and operation = 'exit'").rows()
    assert ended == 5 and freed >= 5, "the control: threads free when they have ended"
