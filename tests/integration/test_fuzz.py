# SPDX-License-Identifier: MIT
"""A short run of the fuzzer (`make fuzz` is the long one), and that it sees what is wrong."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from support import fuzzing


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fuzzing.build_ours(tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory: pytest.TempPathFactory, ours: Path) -> Path:
    return fuzzing.build(tmp_path_factory.mktemp("fuzzer"), ours)


@pytest.fixture(scope="module")
def entries(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return fuzzing.corpus(tmp_path_factory.mktemp("corpus"), programs=3, references=False)


def test_damaged_traces(fuzzer: Path, entries: list[Path]) -> None:
    assert fuzzing.run(fuzzer, 0, 600, entries, 500).startswith("600 inputs")


@pytest.mark.parametrize("line", ["trace /dev/null/nothing", "code /dev/null/nothing 0 10 0x1000", "nothing here"])
def test_a_broken_rule_is_reported(fuzzer: Path, tmp_path: Path, line: str) -> None:
    """The control: what does not hold ends the fuzzer with an error that names it."""
    entry = tmp_path / "entry.txt"
    entry.write_text(line + "\n")
    done = subprocess.run([fuzzer, "0", "1", entry], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "broken: " in done.stderr


def test_a_decoder_that_differs_is_reported(ours: Path, tmp_path: Path, entries: list[Path]) -> None:
    """The control: a decoder that leaves one instruction out does not pass."""
    changed = (fuzzing.FUZZ / "decoders.c").read_text().replace(
        "        seq += paths.length[collected->flow[i]];\n",
        "        seq += paths.length[collected->flow[i]];\n        if (i == 1)\n            continue;\n")
    assert "i == 1" in changed
    fuzzer = fuzzing.build(tmp_path, ours, changed)
    done = subprocess.run([fuzzer, "0", "10", *entries], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "broken: the decoders agree" in done.stderr
