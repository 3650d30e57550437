# SPDX-License-Identifier: MIT
"""The notebooks in data/notebooks, executed as a user would: each finds what is planted in its program. And JupyterLab
on the notebook of a run."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from ptweave.merge import merge_run
from support.bundle_writer import BundleWriter
from support.command import words

NOTEBOOKS = Path(__file__).resolve().parents[2] / "data" / "notebooks"
TIMEOUT = 300  # seconds a cell may take: a recording on a busy machine


def executed(name: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> tuple[str, set[str]]:
    """All text that a notebook's cells gave, and the kinds of their output."""
    monkeypatch.setenv("IPYTHONDIR", str(folder / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(folder / "runtime"))
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    NotebookClient(notebook, timeout=TIMEOUT, kernel_name="python3",
                   resources={"metadata": {"path": str(NOTEBOOKS)}}).execute()
    text, kinds = [], set()
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            kinds |= set(data)
            text.append(output.get("text") or data.get("text/plain", ""))
    return "\n".join(text), kinds


def test_the_lock_that_holds_all_up_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text, kinds = executed("lock_bottleneck", monkeypatch, tmp_path)
    found = re.search(r"mutex_lock of 0x[0-9a-f]+, taken in (\w+), "
                      r"holds the others up while it executes (\w+): (\d+) %", text)
    assert found and found.groups()[:2] == ("write_log", "format_line"), text[-2000:]
    assert int(found[3]) > 0
    assert "application/vnd.plotly.v1+json" in kinds and "text/html" in kinds


def test_the_input_that_made_an_output_wrong_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text, _ = executed("wrong_output", monkeypatch, tmp_path)
    assert "the line came from 12 bytes of south.txt" in text
    assert "south.txt, line 2: '1O0' is no number" in text
    assert re.search(r"read\(\d+<[^>]*south\.txt>, .*\) = 12", text), "the call that read them"


def test_the_line_where_a_good_and_a_bad_run_part_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text, _ = executed("good_and_bad", monkeypatch, tmp_path)
    source = (NOTEBOOKS / "totals.c").read_text().splitlines()
    wanted = next(number for number, line in enumerate(source, 1) if "**at >= '0'" in line)
    assert f"number, line {wanted}: a branch went another way" in text
    assert "([('south.txt', 12)], [('south.txt', 12)])" in text


def test_notebooks_are_kept_without_output() -> None:
    for path in NOTEBOOKS.glob("*.ipynb"):
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        assert all(not cell.get("outputs") and not cell.get("execution_count") for cell in notebook.cells), path.name


def fetched(address: str) -> str:
    """What is there: a server says its address before it listens."""
    end = time.monotonic() + TIMEOUT
    while True:
        try:
            with urllib.request.urlopen(address, timeout=TIMEOUT) as answer:
                return answer.read().decode()
        except urllib.error.URLError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def test_jupyterlab_says_the_address_of_the_runs_notebook_and_has_it_there(tmp_path: Path) -> None:
    writer = BundleWriter(tmp_path / "a run.ptw")
    writer.task(0)
    writer.run(0, [writer.block("main", "jump")] * 5)
    merge_run(writer.write())
    folders = {name: str(tmp_path / name) for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "HOME")}
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = words("notebook", writer.path, "--", "--no-browser", f"--port={port}")
    with subprocess.Popen(command, cwd=tmp_path, env={**os.environ, **folders}, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT) as lab:
        try:
            assert lab.stdout is not None
            found = next(filter(None, (re.search(r"http://localhost:\S+", line) for line in lab.stdout)))[0]
            assert "/lab/tree/a%20run.ipynb?token=" in found
            assert "What a program did" in fetched(found.replace("/lab/tree/", "/api/contents/"))
        finally:
            lab.kill()
