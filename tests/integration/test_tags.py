# SPDX-License-Identifier: MIT
"""Tags of C, C++ and Python programs in the table `tags`: all of them, from whom, when, from where."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ptweave.merge import Run
from ptweave.preload import include_path
from support.command import ptweave

ROOT = Path(__file__).resolve().parents[2]
MANY = 20

Recorded = tuple[Run, list[dict[str, Any]]]


def compile_tags(folder: Path, *flags: str, compiler: str = "gcc") -> Path:
    out = folder / "tags"
    source = ROOT / "tests/programs/tags.c"
    language = ["-x", "c++", "-fpermissive", "-w"] if compiler == "g++" else ["-std=gnu11", "-Wall", "-Wextra",
                                                                             "-Werror"]
    subprocess.run([compiler, *language, "-O1", "-g", *flags, f"-I{include_path()}", "-o", out, source, "-pthread"],
                   check=True)
    return out


def record(folder: Path, *words: str | Path, threads: str = "native") -> Recorded:
    bundle = folder / "run.ptw"
    done = ptweave("wrap", "--threads", threads, "-o", bundle, "--", *words)
    assert done.status == 0, done.err
    run = Run(bundle)
    return run, run.sql("select * from tags order by t").arrow().to_pylist()


@pytest.fixture(scope="module", params=["native", "process"])
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder = tmp_path_factory.mktemp("tags")
    return record(folder, compile_tags(folder), str(MANY), threads=request.param)


def test_every_tag_is_a_row_with_its_thread_time_and_stack(recorded: Recorded) -> None:
    run, rows = recorded
    said = Counter(row["text"][:10] for row in rows)
    assert said == {"begin": 1, "one": MANY, "two": MANY, "handler": 1, "child": 1, "LLLLLLLLLL": 1,
                    "café \\xff": 1, "end": 1}
    for who in ("one", "two"):
        mine = [row for row in rows if row["text"] == who]
        assert [dict(row["data"]) for row in mine] == [{"index": str(i)} for i in range(MANY)]
        assert [row["tag"] for row in mine] == list(range(MANY))
        assert len({row["thread"] for row in mine}) == 1
        assert all(row["functions"][:3] == ["inner", "outer", "run"] for row in mine)
    threads_of = {row["text"][:7]: row["thread"] for row in rows}
    assert len({threads_of[text] for text in ("begin", "end", "handler")}) == 1
    assert len({threads_of[text] for text in ("begin", "one", "two", "child")}) == 4
    assert next(row for row in rows if row["text"] == "handler")["functions"][0] == "handler"
    lived = {thread: times for thread, *times in run.sql("select thread, t_start, t_end from threads").rows()}
    for row in rows:
        begin, end = lived[row["thread"]]
        assert begin <= row["t"] <= end


def test_a_tag_that_is_too_long_is_cut_and_says_so(recorded: Recorded) -> None:
    cut = [row for row in recorded[1] if row["truncated"]]
    assert len(cut) == 1 and set(cut[0]["text"]) == {"L"} and 120_000 < len(cut[0]["text"]) < 131_072


def test_tags_are_placed_by_time(recorded: Recorded) -> None:
    run, rows = recorded
    ends = dict(run.sql("select thread, max(seq) from flow_blocks group by thread").rows())
    for row in rows:
        assert row["placed"] == "time" and 0 <= row["seq"] <= ends[row["thread"]]
    for thread in ends:
        mine = [row["seq"] for row in rows if row["thread"] == thread]
        assert mine == sorted(mine)


def test_nothing_is_lost(recorded: Recorded) -> None:
    run, rows = recorded
    assert run.ledger["events"].stored == run.ledger["events"].produced == len(rows) == run.ledger["tags"].stored


def test_executables_at_fixed_addresses_find_it(tmp_path: Path) -> None:
    _, rows = record(tmp_path, compile_tags(tmp_path, "-no-pie", "-fno-pie", "-Wl,-z,now"), "2")
    assert Counter(row["text"] for row in rows)["one"] == 2


def test_the_header_is_cplusplus_too(tmp_path: Path) -> None:
    _, rows = record(tmp_path, compile_tags(tmp_path, compiler="g++"), "2")
    assert Counter(row["text"] for row in rows)["two"] == 2


@pytest.mark.parametrize("flags", [(), ("-static",)])
def test_without_a_recording_it_does_nothing(tmp_path: Path, flags: tuple[str, ...]) -> None:
    done = subprocess.run([compile_tags(tmp_path, *flags), "3"], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_program_without_tags_has_no_file_of_events(tmp_path: Path) -> None:
    run, rows = record(tmp_path, "true")
    assert rows == [] and not list((run.path / "dependence").glob("*.ptv"))


def test_python_programs_tag(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import ptweave.tag\n\n\ndef work():\n    ptweave.tag('called', path='/x', number=5)\n\n\n"
                      "work()\nfrom ptweave.tag import tag\ntag('nul \\0 in it')\n")
    environment = {**os.environ, "PYTHONPATH": os.environ.get("PYTHONPATH", str(ROOT / "preload"))}
    alone = subprocess.run([sys.executable, script], env=environment, capture_output=True, check=False)
    assert (alone.returncode, alone.stderr) == (0, b"")
    _, rows = record(tmp_path, sys.executable, script)
    assert [row["text"] for row in rows] == ["called", "nul \\x00 in it"]
    data = dict(rows[0]["data"])
    assert data["path"] == "/x" and data["number"] == "5"
    assert data["python"].splitlines() == [f"work ({script}:5)", f"<module> ({script}:8)"]


@pytest.mark.parametrize(("count", "fits"), [(1000, True), (12000, False)])
@pytest.mark.parametrize("threads", ["native", "process"])
def test_a_ring_keeps_the_newest_tags_and_the_ledger_and_the_last_line_count_the_others(
        tmp_path: Path, threads: str, count: int, fits: bool) -> None:
    """Two threads tag `count` times 2 KB each, 48 MB where the ring has 16. The control: 4 MB fit."""
    program = tmp_path / "many_tags"
    subprocess.run(["gcc", "-O1", "-g", "-Wall", "-Wextra", "-Werror", f"-I{include_path()}", "-o", program,
                    ROOT / "tests/programs/many_tags.c", "-pthread"], check=True)
    done = ptweave("wrap", "--threads", threads, "--ring", "16M", "-o", tmp_path / "run.ptw", "--", program, str(count),
                   "2000")
    assert done.status == 0, done.err
    run = Run(tmp_path / "run.ptw")
    rows = run.sql("select * from tags order by t").arrow().to_pylist()
    assert sum(path.stat().st_size for path in (run.path / "dependence").glob("vector-*.ptv")) <= 16 << 20
    events = run.ledger["events"]
    overwritten = events.lost.get("overwritten", 0)
    assert events.produced == 2 * count == events.stored + overwritten and events.stored == len(rows)
    assert sum(events.lost.values()) == overwritten and (overwritten == 0) == fits
    kept = {who: [int(dict(row["data"])["index"]) for row in rows if row["text"][0] == who] for who in "ab"}
    for indices in kept.values():  # what is left of a thread are its last, without a hole
        assert indices == list(range(count - len(indices), count))
    assert len(rows) > (2 * count - 1 if fits else 2000)
    last = done.err.splitlines()[-1]
    said = f"{overwritten} events of events (overwritten)"
    assert (("incomplete: lacks" in last and said in last) if not fits else "overwritten" not in last), done.err
