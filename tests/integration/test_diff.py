# SPDX-License-Identifier: MIT
"""Real runs beside each other: of one build, of builds whose code moved, of a build with a wrong branch, of SQLite."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ptweave.merge import Run
from ptweave.merge.diff_records import MEMORY
from support import sqlite
from support.command import compile_c, ptweave
from support.engine import PROGRAMS

ROUNDS = 1000
WRONG = ROUNDS // 100  # rounds in which the wrong branch goes another way
THREADS = ("process", "native")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A run of `compared`, built with some definitions; made once."""
    folder = tmp_path_factory.mktemp("compared")
    (folder / "short").write_bytes(b"abc")
    (folder / "long").write_bytes(b"abcdef")
    known: dict[tuple[object, ...], Path] = {}

    def record(*definitions: str, threads: str = "process", file: str = "short", turn: int = 0) -> Path:
        key = (*definitions, threads, file, turn)
        if key not in known:
            inside = folder / f"build{'-'.join(['', *definitions])}"
            inside.mkdir(exist_ok=True)
            program = compile_c(PROGRAMS / "compared.c", inside / "compared", "-g",
                                *(f"-D{name}" for name in definitions))
            known[key] = folder / f"run{len(known)}.ptw"
            done = ptweave("wrap", "-q", "--threads", threads, "-o", known[key], "--", program, ROUNDS, folder / file)
            assert done.status == 0, done.err
        return known[key]

    return record


def rows(a: Path, b: Path) -> list[dict[str, Any]]:
    with Run(a) as one, Run(b) as other:
        found = one.diff(other)
        assert found.notes == []
        listed: list[dict[str, Any]] = found.differences.arrow().to_pylist()
    return listed


def own(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those in the program's own functions, and its records; not in libraries and the loader, nor what an allocator
    does."""
    return [row for row in found if (row["file"] or "").endswith("compared.c") or (
        row["kind"] != "flow" and row["what"].partition(":")[0] not in MEMORY)]


def branch_line() -> int:
    text = (PROGRAMS / "compared.c").read_text().splitlines()
    return next(number for number, line in enumerate(text, 1) if "/* the branch */" in line)


@pytest.mark.parametrize("threads", THREADS)
def test_two_runs_of_one_build_do_not_differ_in_the_program(recorded: Callable[..., Path], threads: str) -> None:
    a, b = recorded(threads=threads), recorded(threads=threads, turn=1)
    assert own(rows(a, b)) == []
    with Run(a) as one, Run(b) as other:
        timing = one.diff(other).timing.arrow().to_pylist()
    assert {"wait", "running"} <= {row["kind"] for row in timing}


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("moved", [(), ("MOVED",)])
def test_a_wrong_branch_is_first_and_nothing_else_is_wrong(recorded: Callable[..., Path], threads: str,
                                                           moved: tuple[str, ...]) -> None:
    found = rows(recorded(threads=threads), recorded("BUG", *moved, threads=threads))
    first = next(row for row in found if row["function"] == "step")
    assert first["rank"] == min(row["rank"] for row in found if row["function"] != "halve")
    assert (first["line"], first["times"], first["other_calls"], first["calls"]) == (
        branch_line(), WRONG, ["checked"], [])
    assert [frame.split()[0] for frame in first["stack"]][:2] == ["step", "count"]
    assert [frame.split()[0] for frame in first["other_stack"]][:2] == ["step", "count"]
    with Run(recorded(threads=threads)) as run:
        (name,), = run.sql("select start_function from threads where thread = ?", first["thread"]).rows()
    assert name == "count"
    others = {(row["kind"], row["what"]) for row in own(found) if row["function"] not in ("step", "halve")}
    assert others <= {("system call", "write: another result"), ("system call", "write: another data")}


def test_code_that_moved_is_the_same_code(recorded: Callable[..., Path]) -> None:
    """Only the function that calls more differs."""
    found = own(rows(recorded(), recorded("MOVED")))
    assert {row["function"] for row in found} <= {"halve"}


def test_a_file_with_other_bytes_is_told_by_the_call_that_read_it(recorded: Callable[..., Path]) -> None:
    found = own(rows(recorded(), recorded(file="long")))
    by_what = {row["what"]: row for row in found if row["kind"] == "system call"}
    assert by_what["read: another result"]["value"].endswith("= 3")
    assert by_what["read: another result"]["other_value"].endswith("= 6")
    assert "openat: another paths" in by_what and not any(row["function"] == "step" for row in found)


def test_runs_of_two_programs_are_refused(recorded: Callable[..., Path], tmp_path: Path) -> None:
    path = tmp_path / "true.ptw"
    assert ptweave("wrap", "-q", "-o", path, "--", "/bin/true").status == 0
    done = ptweave("diff", recorded(), path)
    assert (done.status, done.out, len(done.lines)) == (2, b"", 1) and "is a run of true" in done.err


def test_the_changed_line_of_sqlite_is_first(tmp_path: Path) -> None:
    try:
        made = sqlite.builds()
    except sqlite.Unreachable as error:
        pytest.skip(f"the source of SQLite cannot be had: {error}")
    for name, program in (("good", made.good), ("bad", made.bad)):
        done = ptweave("wrap", "-q", "-o", tmp_path / f"{name}.ptw", "--", program, ":memory:", sqlite.statements(1500))
        assert done.status == 0, done.err
    found = rows(tmp_path / "good.ptw", tmp_path / "bad.ptw")
    assert (found[0]["rank"], found[0]["function"], found[0]["line"]) == (1, made.function, made.line)
    assert [frame.split()[0] for frame in found[0]["stack"]][-3:] == ["__libc_start_call_main", "__libc_start_main",
                                                                      "_start"]
    # control: runs of one build do not differ there
    assert all(row["function"] != made.function for row in rows(tmp_path / "good.ptw", tmp_path / "good.ptw"))


# --- bugs of one line, and what compilers make of them ----------------------------------------------------------------

ONE_LINE = PROGRAMS / "one_line.c"


@pytest.fixture(scope="module")
def one_line(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int, str], Path]:
    """A run of `one_line` with a bug (0: none), built so; made once."""
    folder = tmp_path_factory.mktemp("one_line")
    known: dict[tuple[int, str], Path] = {}

    def record(bug: int, optimised: str) -> Path:
        if (bug, optimised) not in known:
            inside = folder / f"{bug}{optimised}"
            inside.mkdir()
            program = compile_c(ONE_LINE, inside / "one_line", "-g", optimised, f"-DBUG={bug}")
            path = known[bug, optimised] = folder / f"{bug}{optimised}.ptw"
            done = ptweave("wrap", "-q", "-o", path, "--", program)
            assert done.status == 0, done.err
        return known[bug, optimised]

    return record


def bug_line(bug: int) -> int:
    text = ONE_LINE.read_text().splitlines()
    return next(number for number, line in enumerate(text, 1) if f"/* bug {bug} */" in line)


@pytest.mark.parametrize("optimised", ["-O0", "-O1", "-O2"])
def test_two_runs_of_one_build_differ_nowhere_in_it(one_line: Callable[[int, str], Path], optimised: str) -> None:
    assert [row for row in rows(one_line(0, optimised), one_line(0, optimised)) if row["kind"] == "flow"] == []


@pytest.mark.parametrize(("bug", "optimised"), [
    (2, "-O0"), (2, "-O1"), (4, "-O0"), (4, "-O1"), (5, "-O0"), (5, "-O1"), (5, "-O2"), (6, "-O0")])
def test_a_wrong_branch_is_first_however_the_program_was_compiled(one_line: Callable[[int, str], Path], bug: int,
                                                                  optimised: str) -> None:
    first = rows(one_line(0, optimised), one_line(bug, optimised))[0]
    assert (first["rank"], first["kind"], Path(first["file"]).name, first["line"]) == (
        1, "flow", "one_line.c", bug_line(bug)), first


@pytest.mark.parametrize(("bug", "optimised", "text", "other_text"), [
    (6, "-O1", "setg al", "setge al"), (6, "-O2", "setg al", "setge al"), (1, "-O0", None, None),
    (7, "-O0", None, None), (7, "-O1", None, None), (7, "-O2", None, None)])
def test_a_line_that_computes_another_value_is_told_before_what_follows_from_it(
        one_line: Callable[[int, str], Path], bug: int, optimised: str, text: str | None,
        other_text: str | None) -> None:
    first = rows(one_line(0, optimised), one_line(bug, optimised))[0]
    assert (first["kind"], first["line"], first["times"]) == ("code", bug_line(bug), 1), first
    assert text is None or (first["value"], first["other_value"]) == (text, other_text)


def test_a_bug_in_a_library_of_the_programs_own_is_first_as_well(tmp_path: Path) -> None:
    (tmp_path / "main.c").write_text("int run(int, char **);\nint main(int n, char **args) { return run(n, args); }\n")
    for name, bug in (("good", 0), ("bad", 5)):
        (tmp_path / name).mkdir()
        library = compile_c(ONE_LINE, tmp_path / name / "libone.so", "-g", "-fPIC", "-shared", "-Dmain=run",
                            f"-DBUG={bug}")
        program = compile_c(tmp_path / "main.c", tmp_path / name / "main", library, "-Wl,-rpath,$ORIGIN")
        done = ptweave("wrap", "-q", "-o", tmp_path / f"{name}.ptw", "--", program)
        assert done.status == 0, done.err
    first = rows(tmp_path / "good.ptw", tmp_path / "bad.ptw")[0]
    assert (first["kind"], first["function"], first["line"]) == ("flow", "classify", bug_line(5)), first
