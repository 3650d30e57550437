# SPDX-License-Identifier: MIT
"""`ptweave notebook`: a valid notebook of cells for what the run has, never over one that is there."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import nbformat
import pytest

from ptweave.cli import main
from ptweave.merge import Run, merge_run
from support.bundle_writer import BundleWriter


@pytest.fixture
def path(tmp_path: Path) -> Path:
    writer = BundleWriter(tmp_path / "it's a run.ptw")
    writer.manifest.command = ["./prog", "```", "<script>"]
    writer.task(0)
    writer.run(0, [writer.block("main", "jump")] * 5)
    writer.thunk(0, t=5)
    merge_run(writer.write())
    return writer.path


def test_the_notebook_has_cells_for_what_the_run_has_and_they_run(path: Path, tmp_path: Path) -> None:
    made = tmp_path / "made.ipynb"
    assert main(["notebook", str(path), "--no-open", "-o", str(made)]) == 0
    notebook = nbformat.read(made, as_version=4)
    nbformat.validate(notebook)
    cells = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    space: dict[str, object] = {"display": lambda figure: figure}
    for source in cells:
        exec(source, space)
    run = space["run"]
    assert isinstance(run, Run) and run.path == path
    assert any("plot.contention" in source for source in cells)
    assert not any("plot.pages" in source for source in cells), "no accesses were recorded"
    run.close()
    assert notebook.cells[0].source.splitlines()[2] == "`" * 6, "the command's own backticks end no fence"


def test_a_notebook_that_is_there_is_left_alone(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "it's a run.ipynb").write_text("mine")
    assert main(["notebook", str(path), "--no-open"]) == 0
    assert (tmp_path / "it's a run.ipynb").read_text() == "mine"
    assert "left as it is" in capfd.readouterr().err
    assert main(["notebook", str(path), "--no-open", "-o", str(tmp_path / "none" / "x.ipynb")]) == 3
    assert main(["notebook", str(tmp_path / "none.ptw"), "--no-open"]) == 2


def test_how_to_open_a_notebook_that_was_made_is_told_unless_it_is_to_be_quiet(
        path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    for words in ([], ["-o", "an other.ipynb"]):
        assert main(["notebook", str(path), "--no-open", *words]) == 0
        said = capfd.readouterr().err.rstrip()
        assert said.startswith(f"ptweave: {words[1] if words else path.stem + '.ipynb'}: made; open it with: ")
        assert shlex.split(said.rpartition("with: ")[2]) == ["ptweave", "notebook", str(path), *words]
    assert main(["notebook", str(path), "--no-open", "-o", "third.ipynb", "-q"]) == 0
    assert capfd.readouterr().err == "" and Path("third.ipynb").exists()


def test_jupyterlab_is_given_the_notebook_and_the_words_behind_the_dashes(path: Path, tmp_path: Path,
                                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    began: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda program, words: began.append([program, *words]))
    output = tmp_path / "x.ipynb"
    main(["notebook", str(path), "-o", str(output), "--", "--no-browser"])
    assert began[0][:4] == [sys.executable, sys.executable, "-m", "jupyterlab"]
    assert began[0][-3:] == ["--no-browser", "--", str(output)] and output.exists()


def test_without_jupyterlab_it_is_said(path: Path, monkeypatch: pytest.MonkeyPatch,
                                       capfd: pytest.CaptureFixture[str]) -> None:
    import ptweave.cli.notebook as command

    monkeypatch.setattr(command, "find_spec", lambda name: None)
    assert main(["notebook", str(path)]) == 3
    assert ".venv/bin/pip install -e '.[notebook]'" in capfd.readouterr().err
