# SPDX-License-Identifier: MIT
"""`ptweave merge` of a run that is not decoded yet: decoded first, in the same process."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ptweave.data.bundle import Bundle
from ptweave.data.locks import STEP, alone
from support.command import ptweave
from support.recorded import files, pipeline


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pipeline(tmp_path_factory.mktemp("recorded"))


@pytest.fixture
def run(recorded: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(recorded, tmp_path / "run.ptw"))


def test_one_command_leaves_the_files_that_two_leave(recorded: Path, run: Path, tmp_path: Path) -> None:
    apart = Path(shutil.copytree(recorded, tmp_path / "apart.ptw"))
    for command in ("decode", "merge"):
        assert ptweave(command, apart).status == 0
    done = ptweave("merge", run)
    assert (done.status, done.lines[-1]) == (0, f"ptweave: {run}: nothing lost")
    assert files(run) == files(apart)
    assert len(files(run)) > 12
    assert Bundle.open(run).manifest.steps.keys() >= {"decode", "merge"}


def test_what_is_decoded_is_not_decoded_again(run: Path) -> None:
    assert ptweave("decode", run).status == 0
    flow = run / "tables/flow/0.parquet"
    before, steps = flow.stat(), Bundle.open(run).manifest.steps
    assert ptweave("merge", "--decoder", "libipt", run).status == 0
    assert (flow.stat().st_ino, flow.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert Bundle.open(run).manifest.steps["decode"] == steps["decode"]


@pytest.mark.parametrize(("words", "told"), [
    (("--decoder", "libipt", "-j", "1"), "decode: libipt, 1 process:"),
    (("--decoder", "paths", "-j", "2"), "decode: paths, 2 processes:")])
def test_it_is_decoded_as_the_options_say(run: Path, words: tuple[str, ...], told: str) -> None:
    assert told in ptweave("merge", "-v", *words, run).err


def test_a_folder_of_debug_files_that_is_not_there_leaves_the_run_as_it_was(run: Path) -> None:
    done = ptweave("merge", "--debug-dir", run / "none", run)
    assert done.status == 2
    assert len(done.lines) == 1 and "is not a folder" in done.err
    assert not (run / "tables/flow").exists()


def test_a_folder_of_debug_files_that_is_not_there_is_told_of_a_decoded_run_too(run: Path) -> None:
    assert ptweave("decode", run).status == 0
    for command in ("decode", "merge"):
        done = ptweave(command, "--debug-dir", run / "none", run)
        assert (done.status, len(done.lines)) == (2, 1) and "is not a folder" in done.err
    assert not (run / "tables/profile").exists()


def test_damage_that_decoding_finds_is_the_status_of_the_merge(run: Path) -> None:
    (run / "trace/0.pt").write_bytes(b"\xff" * 4096)
    done = ptweave("merge", run)
    assert done.status == 1
    assert "incomplete" in done.lines[-1]


@pytest.mark.parametrize("command", ["decode", "merge"])
def test_one_command_at_a_time_changes_a_run(run: Path, command: str) -> None:
    assert ptweave("merge", run).status == 0
    before = files(run)
    with alone(Bundle.open(run), STEP):
        done = ptweave(command, run)
        assert (done.status, len(done.lines)) == (2, 1)
        assert "is being decoded or merged at this moment" in done.err
        assert files(run) == before
    assert ptweave(command, run).status == 0  # the control


def test_of_merges_that_begin_together_each_is_done_or_refused(run: Path) -> None:
    assert ptweave("decode", run).status == 0
    by_itself = ptweave("merge", run)
    wanted = files(run)
    with ThreadPoolExecutor(6) as pool:
        done = list(pool.map(lambda _: ptweave("merge", run), range(6)))
    assert {one.status for one in done} <= {by_itself.status, 2} and by_itself.status in {one.status for one in done}
    assert files(run) == wanted
