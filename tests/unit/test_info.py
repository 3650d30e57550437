# SPDX-License-Identifier: MIT
"""What a run says of itself: how it was made, how it ended, what is lost."""

from __future__ import annotations

import csv
import io
import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ptweave.cli import main
from ptweave.data.ledger import Ledger
from ptweave.data.manifest import Clocks, Manifest, State
from ptweave.data.notices import Notice, NoticeKind
from ptweave.data.schemas import THREADS
from ptweave.merge import Run, merge_run
from ptweave.merge.facts import Threads, facts_of
from support.bundle_writer import BundleWriter, put

CLOCKS = Clocks(tsc0=0, t0_ns=10, tsc1=9, t1_ns=2_500_000_010, realtime_ns=1_700_000_000 * 10**9)
MANIFEST = Manifest(state=State.COMPLETE, command=["./a b", ""], engine="soft", engine_version="1", status=0,
                    clocks=CLOCKS, host="box")


def facts(threads: Threads | None = None, **changes: Any) -> dict[str, str]:
    return dict(facts_of(replace(MANIFEST, **changes), Ledger(), threads, {}))


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")


def test_the_command_can_be_given_to_a_shell_again_and_dates_are_dates(zone: None) -> None:
    assert facts() == {"command": "'./a b' ''", "recorded": "2023-11-14 22:13:20+00:00 on box", "ended": "status 0",
                       "engine": "soft 1", "time": "2.500 s"}


@pytest.mark.parametrize(("status", "text"), [
    (0, "status 0"), (3 << 8, "status 3"), (signal.SIGSEGV, "by SIGSEGV"), (signal.SIGSEGV | 128, "by SIGSEGV"),
    (signal.SIGRTMIN + 5, f"by signal {signal.SIGRTMIN + 5}"), (None, None), (0x137f, None), (-1, None)])
def test_how_it_ended_is_what_the_wait_status_says(status: int | None, text: str | None) -> None:
    assert facts(status=status).get("ended") == text


@pytest.mark.parametrize("moment", [0, 1 << 90, -(1 << 90)])
def test_times_that_no_calendar_has_are_left_out(moment: int) -> None:
    assert "recorded" not in facts(clocks=replace(CLOCKS, realtime_ns=moment))


@pytest.mark.parametrize(("mode", "view", "text"), [("native", "", "3"), ("process", "", "3, as processes"),
                                                    ("process", "private", "3, as processes (private view)")])
def test_what_was_made_of_threads_is_told(mode: str, view: str, text: str) -> None:
    assert facts(Threads(3, processes=mode == "process"), threads_mode=mode, view=view)["threads"] == text


def ran(path: Path, *programs: tuple[int, int]) -> str:
    """What is told of programs with so many threads, and so many of libtthread's own."""
    writer = BundleWriter(path)
    writer.manifest.threads_mode, writer.manifest.view = "process", "shared"
    bundle = writer.write()
    threads = [(100 + pid, number < own) for pid, (count, own) in enumerate(programs) for number in range(count)]
    put(bundle, THREADS, [{"thread": thread, "pid": pid, "tid": 200 + thread, "own": own}
                          for thread, (pid, own) in enumerate(threads)])
    with Run(bundle.path) as run:
        return dict(run.facts())["threads"]


@pytest.mark.parametrize(("programs", "text"), [
    ([(1, 0)], "1"), ([(1, 0), (1, 0)], "2"), ([(3, 0)], "3, as threads"), ([(1, 0), (3, 0)], "4, as threads"),
    ([(4, 2)], "4, as processes (shared view)"), ([(1, 0), (4, 2)], "5, as processes (shared view)"),
    ([(3, 0), (4, 2)], "7, as processes (shared view), those of some programs as threads")])
def test_threads_were_processes_only_where_libtthread_had_some_of_its_own(
        tmp_path: Path, programs: list[tuple[int, int]], text: str) -> None:
    assert ran(tmp_path / "run.ptw", *programs) == text


def test_of_threads_that_cannot_be_read_their_number_is_told(tmp_path: Path) -> None:
    path = tmp_path / "run.ptw"
    assert ran(path, (4, 2)).startswith("4, as processes")
    file = path / "tables" / "threads" / "0.parquet"
    data = bytearray(file.read_bytes())
    last = pq.read_metadata(file).row_group(0).column(6).data_page_offset
    data[4:last] = bytes(last - 4)
    file.write_bytes(data)
    with Run(path) as run:
        assert dict(run.facts())["threads"] == "4"


def test_what_is_not_as_it_should_be_is_told() -> None:
    ledger = Ledger()
    ledger.add("trace/0", "bytes", stored=5, lost={"overflow": 7})
    manifest = replace(MANIFEST, state=State.RECORDING, lacks=["no calls"],
                       notices=[Notice(NoticeKind.LIMIT, "too many", where="main", remedy="use fewer")])
    found = facts_of(manifest, ledger, None, {"edges": "is damaged", "calls": "was not made"})
    assert found[-4:] == [("lost", "7 bytes of trace/0: overflow"), ("lacks", "no calls"),
                          ("notice", "too many at main: use fewer"), ("missing", "edges: is damaged")]
    assert dict(found)["state"].startswith("recording: ")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    writer = BundleWriter(tmp_path / "a.ptw")
    writer.task(0)
    writer.run(0, [writer.block("main", "jump")] * 5)
    merge_run(writer.write())
    return writer.path


def answer(capfd: pytest.CaptureFixture[str], *words: str | Path) -> str:
    assert main([str(word) for word in ("info", *words)]) == 0
    return capfd.readouterr().out


def test_the_command_tells_the_facts_in_every_format(run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str],
                                                     zone: None) -> None:
    with Run(run) as opened:
        known = opened.facts()
    assert [name for name, _ in known][:5] == ["command", "ended", "engine", "time", "threads"]
    header, _, *lines = answer(capfd, run).splitlines()
    assert [header.split(), *(line.split(maxsplit=1) for line in lines)] == [["fact", "value"], *map(list, known)]
    rows = csv.DictReader(io.StringIO(answer(capfd, "--format=csv", run)))
    assert [(row["fact"], row["value"]) for row in rows] == known
    objects = [json.loads(line) for line in answer(capfd, "--format=json", run).splitlines()]
    assert [(one["fact"], one["value"]) for one in objects] == known
    answer(capfd, "--format=parquet", "-o", tmp_path / "facts.parquet", run)
    assert [tuple(row.values()) for row in pq.read_table(tmp_path / "facts.parquet").to_pylist()] == known


def test_what_is_no_run_is_one_line(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(run.parent)]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(f"ptweave: {run.parent}: ")
