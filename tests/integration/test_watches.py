# SPDX-License-Identifier: MIT
"""Watchpoints by the processor's debug registers and by the soft engine: both writers of a planted race are there, with
their stacks and each value, and the program is as it is without."""

from __future__ import annotations

import re
import signal
import subprocess
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ptweave.merge import Run
from support.command import native, ptweave
from support.programs import ROOT, compile_program
from support.watched import run_watched

COUNTER = "shared.part[1].counter"
TIMES = 200
MODES = {"native": {"PTWEAVE_THREADS": "native"}, "process": {"PTWEAVE_THREADS": "process"},
         "process exact": {"PTWEAVE_THREADS": "process", "PTWEAVE_ACCESS": "exact"},
         "process private": {"PTWEAVE_THREADS": "process", "PTWEAVE_VIEW": "private"}}
EACH_MODE = pytest.mark.parametrize("mode", MODES)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(tmp_path_factory.mktemp("watched"), "watched")


@cache
def functions(program: Path) -> dict[int, str]:
    """Functions by the offset of each of their bytes in its page, as binutils say: the program has one page of code."""
    listing = subprocess.run(["nm", "-S", program], check=True, capture_output=True, text=True).stdout
    found = re.findall(r"^([0-9a-f]+) ([0-9a-f]+) [tT] (\w+)$", listing, re.MULTILINE)
    return {(int(start, 16) + one) % 4096: name for start, size, name in found for one in range(int(size, 16))}


def who(program: Path, row: dict[str, Any]) -> list[str]:
    """What functions of the program the frames of a stack could be in."""
    known = functions(program)
    return [known[(address - 1) % 4096] for address in row["stack"] if (address - 1) % 4096 in known]


def tids(out: bytes) -> dict[str, int]:
    return {name.decode(): int(tid) for name, tid in re.findall(rb"^(left|right) (\d+)$", out, re.MULTILINE)}


@EACH_MODE
def test_both_writers_of_a_race_are_there_with_stacks_and_every_value(program: Path, tmp_path: Path, mode: str) -> None:
    done = run_watched(tmp_path, [COUNTER], [program, "race", str(TIMES)], env=MODES[mode])
    rows = done.rows()
    assert (done.traced.status, done.traced.err) == (0, "")
    assert Counter(row["access"] for row in rows) == {"write": 2 * TIMES}  # neighbours were written as often
    assert done.hits == sum(row["hits"] + row["own"] for row in list_sites(done.traced.bundle.path)) + sum(
        done.lost().values())
    by_thread = {thread: [row for row in rows if row["thread"] == thread] for thread in {one["thread"] for one in rows}}
    assert sorted(len(part) for part in by_thread.values()) == [TIMES, TIMES]
    seen = set()
    for part in by_thread.values():
        names = {next(name for name in who(program, row) if name in ("left", "right")) for row in part}
        assert len(names) == 1
        name = names.pop()
        assert all(f"run_{name}" in who(program, row) for row in part)
        assert not any(row["late"] for row in part)
        seen.add(name)
    assert seen == {"left", "right"}
    assert len(tids(done.traced.out)) == 2


@EACH_MODE
def test_values_before_and_after_are_those_the_program_wrote(program: Path, tmp_path: Path, mode: str) -> None:
    done = run_watched(tmp_path, [f"{COUNTER}:rw", "shared.number"], [program, "steps"], env=MODES[mode])
    rows = [row for row in done.rows() if row["site"] == 0]
    steps = [(row["old"], row["new"]) for row in rows if row["access"] == "write"]
    assert steps == [(0, 1), (1, 4), (4, 9), (9, 16), (16, 25)]
    assert [(row["access"], row["new"]) for row in rows[5:]] == [("touch", 25)] * 4  # no change, three reads
    assert [(row["old"], row["new"], row["new_bytes"]) for row in done.rows() if row["site"] == 1] == [
        (0, 7, b"\7\0\0\0")]
    assert done.traced.out == native([program, "steps"]).out


def test_reads_leave_writes_out_and_count_them(program: Path, tmp_path: Path) -> None:
    done = run_watched(tmp_path, [f"{COUNTER}:r"], [program, "steps"])
    assert [row["access"] for row in done.rows()] == ["touch"] * 4
    sites = list_sites(done.traced.bundle.path)
    assert [(row["mode"], row["hits"], row["skipped"]) for row in sites] == [("r", 4, 5)]


def list_sites(bundle: Path) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq

    return [row for path in sorted((bundle / "tables/watch_sites").glob("*.parquet"))
            for row in pq.read_table(path).to_pylist()]


def test_a_range_is_split_over_debug_registers(program: Path, tmp_path: Path) -> None:
    at = next(line.split()[0] for line in subprocess.run(
        ["nm", program], check=True, capture_output=True, text=True).stdout.splitlines() if line.endswith(" odd"))
    spec = f"{program}+{int(at, 16) + 5:#x}:6"
    done = run_watched(tmp_path, [spec], [program, "steps"])
    assert done.plan.slots == 4  # 5, 6-7, 8-9, 10
    assert [row["new_bytes"] for row in done.rows()] == [b"abcdef"[:n] + bytes(6 - n) for n in range(1, 7)]


@EACH_MODE
def test_a_thread_that_blocks_all_signals_is_watched_all_the_same(program: Path, tmp_path: Path, mode: str) -> None:
    done = run_watched(tmp_path, [COUNTER], [program, "masked"], env=MODES[mode])
    assert [(row["new"], row["late"]) for row in done.rows()] == [(n, False) for n in range(1, 6)]


def test_hits_while_the_kernel_blocks_sigtrap_are_counted(program: Path, tmp_path: Path) -> None:
    done = run_watched(tmp_path, [COUNTER], [program, "blocked"], env=MODES["native"])
    rows = done.rows()
    assert [(row["new"], row["late"]) for row in rows] == [(5, True), (6, False)]
    assert (done.hits, sum(done.lost().values())) == (6, 4)


@EACH_MODE
def test_the_programs_own_sigtraps_stay_its_own(program: Path, tmp_path: Path, mode: str) -> None:
    alone = native([program, "trap"])
    done = run_watched(tmp_path, [COUNTER], [program, "trap"], env=MODES[mode])
    assert (alone.status, alone.out) == (-signal.SIGTRAP, b"1 1 2\n")
    assert (done.traced.status, done.traced.out) == (alone.status, alone.out)
    assert [row["new"] for row in done.rows()] == [1, 2]


@EACH_MODE
def test_a_hit_whose_reason_was_lost_is_that_of_what_changed_and_the_program_goes_on(program: Path, tmp_path: Path,
                                                                                    mode: str) -> None:
    """The thread sends itself the SIGTRAP that the kernel raises when DR6 is 0: what is not told of a stray one."""
    argv: list[str | Path] = [program, "reasonless"]
    one = run_watched(tmp_path, [COUNTER], argv, env=MODES[mode], name="one.ptw")
    two = run_watched(tmp_path, [COUNTER, "shared.number"], argv, env=MODES[mode], name="two.ptw")
    for done in (one, two):
        assert (done.traced.status, done.traced.err) == (0, "")
        assert done.traced.out.startswith(b"goes on\n")
    own = [sum(row["own"] for row in list_sites(done.traced.bundle.path)) for done in (one, two)]
    assert two.lost()["of an unknown watchpoint"] == 1
    if mode in ("native", "process private"):
        assert [(row["old"], row["new"]) for row in one.rows()] == [(0, 5), (5, 6), (6, 6)], "only one is there"
        assert [(row["site"], row["old"], row["new"]) for row in two.rows()] == [(0, 0, 5), (0, 5, 6)]
        assert own == [0, 0]
        assert [who(program, row)[0] for row in one.rows()] == ["send_trap", "reasonless", "send_trap"]
    else:  # the view is shared: libtthread makes the call that sends it
        assert [(row["old"], row["new"]) for row in one.rows() + two.rows()] == [(5, 6), (5, 6)]
        assert own == [2, 1]


@EACH_MODE
def test_a_trap_of_the_program_that_only_looks_alike_is_its_own(program: Path, tmp_path: Path, mode: str) -> None:
    done = run_watched(tmp_path, [COUNTER], [program, "reasonless", "own"], env=MODES[mode])
    assert (done.traced.status, done.traced.out) == (-signal.SIGTRAP, b"goes on\n")


@EACH_MODE
def test_fork_children_are_watched_and_executed_programs_anew(program: Path, tmp_path: Path, mode: str) -> None:
    done = run_watched(tmp_path, [COUNTER], [program, "fork"], env=MODES[mode])
    values = Counter((row["old"], row["new"]) for row in done.rows())
    assert values == Counter([(0, 1), (1, 2), (0, 10), (0, 1), (1, 4), (4, 9), (9, 16), (16, 25), (25, 25)])


@pytest.mark.parametrize("threads", ["native", "process"])
def test_the_soft_engine_names_instruction_access_and_function(program: Path, tmp_path: Path, threads: str) -> None:
    out = tmp_path / "run.ptw"
    done = ptweave("wrap", "--engine", "soft", "--threads", threads, "-o", out, "--watch", f"{COUNTER}:rw", "--",
                   program, "race", str(TIMES))
    assert done.status == 0, done.err
    with Run(out) as run:
        rows = run.sql("select thread, access, ip, next, functions, placed, seq, old, new from watches "
                       "order by thread, hit").arrow().to_pylist()
        assert run.watch_sites.arrow().to_pylist()[0]["hits"] == len(rows)
        assert run.sql("select count(*) from gaps").arrow().to_pylist()[0]["count_star()"] == 0
    counts = Counter((row["functions"][0], row["access"]) for row in rows)
    assert counts == {("left", "read"): TIMES, ("left", "write"): TIMES, ("right", "write"): TIMES}
    listing = subprocess.run(["objdump", "-d", "--no-show-raw-insn", program], check=True, capture_output=True,
                             text=True).stdout
    bases = {row["ip"] & -4096 for row in rows}
    assert len(bases) == 1
    at = dict(re.findall(r"^ +([0-9a-f]+):\t(.*)$", listing, re.MULTILINE))
    for row in rows:
        text = next(text for address, text in at.items() if (int(address, 16) - row["ip"]) % 4096 == 0)
        assert "(%rip)" in text
        assert (text.rstrip().find("(%rip),") < 0) == (row["access"] == "write"), text
    assert {row["functions"][1] for row in rows if row["functions"][0] == "left"} == {"run_left"}
    assert {row["functions"][1] for row in rows if row["functions"][0] == "right"} == {"run_right"}
    assert {row["placed"] for row in rows} == {"time"}


def test_under_the_engine_registers_and_values_are_right_behind_each_instruction(program: Path, tmp_path: Path) -> None:
    out = tmp_path / "run.ptw"
    done = ptweave("wrap", "--engine", "soft", "-q", "--threads", "native", "-o", out, "--watch", f"{COUNTER}:rw", "--",
                   program, "steps")
    assert (done.status, done.out) == (0, native([program, "steps"]).out), done.err
    with Run(out) as run:
        rows = run.sql("from watches order by hit").arrow().to_pylist()
    assert [(row["access"], row["old"], row["new"]) for row in rows] == [
        ("write", 0, 1), ("write", 1, 4), ("write", 4, 9), ("write", 9, 16), ("write", 16, 25), ("write", 25, 25),
        *[("read", 25, 25)] * 3]
    reads = [row["registers"] for row in rows if row["access"] == "read"]
    assert all(25 in one for one in reads)  # what was read is in a register then
    assert all(row["registers"][16] == row["next"] for row in rows)


def test_without_a_watch_there_are_no_tables(program: Path, tmp_path: Path) -> None:
    out = tmp_path / "run.ptw"
    assert ptweave("wrap", "-q", "-o", out, "--", program, "steps").status == 0
    assert not (out / "tables/watches").exists()
    assert not (out / "watches").exists()


@pytest.mark.parametrize(("spec", "says"), [
    ("nothing_such", "no such variable in watched, libc.so.6"),
    ("shared.part[1].none", "has no member none"),
    ("shared.part[3].counter", "[3] is not in"),
    ("shared.part[0].flag", "bit-field"),
    ("shared.before.x", "has no member x"),
    ("neighbour[0]", "is no array"),
    ("own", "thread-local"),
    ("shared", "debug registers"),
    ("0x1003:20", "take more than the processor's 4 debug registers"),
    ("0x1000:0", "no bytes"),
    ("libz.so:x", "the program has no libz.so"),
    ("what is this", "nothing that can be watched"),
])
def test_what_cannot_be_watched_is_one_line_and_nothing_runs(program: Path, tmp_path: Path, spec: str,
                                                             says: str) -> None:
    out = tmp_path / "run.ptw"
    done = ptweave("record", "-o", out, "--watch", spec, "--", program, "steps")
    assert done.status == 2
    assert says in done.err
    assert len(done.err.splitlines()) == 1
    assert not out.exists()
    assert done.out == b""


def test_a_fifth_debug_register_is_refused(program: Path, tmp_path: Path) -> None:
    given = [word for name in (COUNTER, "neighbour", "hidden", "shared.number", "shared.before")
             for word in ("--watch", name)]
    done = ptweave("record", "-o", tmp_path / "run.ptw", *given, "--", program, "steps")
    assert (done.status, len(done.err.splitlines())) == (2, 1)
    assert "'shared.before': is one too many" in done.err


@pytest.fixture(scope="module")
def later(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A program, and the library it loads."""
    folder = tmp_path_factory.mktemp("later")
    library = folder / "libwatch_later.so"
    subprocess.run(["gcc", "-O1", "-g", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o", library,
                    ROOT / "tests/programs/watch_later_library.c"], check=True)
    return compile_program(folder, "watch_later"), library


WRITTEN = [(7, 1), (1, 20), (20, 10), (10, 30)]
AGAIN = {"native": [(7, 1), (1, 40)], "process": [(30, 40)]}  # there libraries stay


@EACH_MODE
def test_a_library_that_comes_later_is_watched_from_its_constructor_on_in_every_thread(
        later: tuple[Path, Path], tmp_path: Path, mode: str) -> None:
    program, library = later
    done = run_watched(tmp_path, [f"{library}:stored"], [program, library], env=MODES[mode])
    assert (done.traced.status, done.traced.out, done.traced.err) == (0, b"done\n", "")
    assert [(row["old"], row["new"]) for row in done.rows()] == WRITTEN + AGAIN[mode.split()[0]]
    assert len({row["thread"] for row in done.rows()}) == 3
    assert done.hits == len(done.rows()) + sum(row["own"] for row in list_sites(done.traced.bundle.path))
    assert sum(done.lost().values()) == 0


@pytest.mark.parametrize("threads", ["native", "process"])
def test_the_soft_engine_watches_a_library_that_comes_later(later: tuple[Path, Path], tmp_path: Path,
                                                           threads: str) -> None:
    program, library = later
    out = tmp_path / "run.ptw"
    done = ptweave("wrap", "--engine", "soft", "--threads", threads, "-o", out, "--watch", f"{library}:stored", "--",
                   program, library)
    assert (done.status, done.out) == (0, b"done\n"), done.err
    with Run(out) as run:
        rows = run.sql("select old, new, functions[1] function, thread from watches order by t").arrow().to_pylist()
    assert [(row["old"], row["new"]) for row in rows] == WRITTEN + AGAIN[threads]
    assert {row["function"] for row in rows} == {"begin", "store"}
    assert len({row["thread"] for row in rows}) == 3


def test_a_fork_child_that_loads_the_library_by_itself_is_said_not_to_be_watched(later: tuple[Path, Path],
                                                                                 tmp_path: Path) -> None:
    program, library = later
    done = run_watched(tmp_path, [f"{library}:stored"], [program, library, "fork"], env=MODES["native"])
    assert (done.traced.status, done.rows()) == (0, [])
    assert "a fork child has loaded a library by itself" in str(done.traced.server.notices.all)
