# SPDX-License-Identifier: MIT
"""`ptweave merge` of a run that is not decoded yet: decoded first, in the same process."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ptweave.data.bundle import Bundle
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


def test_damage_that_decoding_finds_is_the_status_of_the_merge(run: Path) -> None:
    (run / "trace/0.pt").write_bytes(b"\xff" * 4096)
    done = ptweave("merge", run)
    assert done.status == 1
    assert "incomplete" in done.lines[-1]
