# SPDX-License-Identifier: MIT
"""Lists of watchpoints and probes in a bundle are what the target left of them: no length, number, link or pipe in
them ends the decoder, and what the recorder wrote is read."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ptweave.data import Bundle, Clocks, Ledger, Manifest
from ptweave.decode import probes, watches
from ptweave.decode.recorded_json import load_json
from ptweave.decode.tasks_of_events import ThreadsByTask
from ptweave.wrapper.supervisor import _keep_counts

LIMIT = 1 << 16
NAME = Path("watches/watches.json")
GOOD: dict[str, Any] = {"watch": 0, "spec": "x", "mode": "w", "path": "/bin/x", "address": 16, "length": 8,
                        "type": "long"}


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    made = Bundle.create(tmp_path / "run.ptw", Manifest(clocks=Clocks(0, 0, 1 << 40, 1 << 40)))
    (made.path / "watches").mkdir()
    made.decoded.mkdir(exist_ok=True)
    return made


def write(bundle: Bundle, rows: object, counts: object = None) -> None:
    (bundle.path / watches.LIST).write_text(json.dumps(rows))
    (bundle.path / watches.COUNTS).write_text(json.dumps(counts))


def sites(bundle: Bundle) -> int:
    """Rows of watch_sites that a decoder makes of it."""
    ledger = Ledger()
    watches.Watches(bundle, ThreadsByTask.of([])).write(ledger)
    return sum(1 for _ in (bundle.tables / "watch_sites").glob("*.parquet"))


def test_what_the_recorder_wrote_is_read(bundle: Bundle) -> None:
    write(bundle, [GOOD], {"hits": 3})
    assert load_json(bundle.path, NAME, LIMIT) == [GOOD]
    assert sites(bundle) == 1
    assert watches._counted(bundle) == 3


@pytest.mark.parametrize("change", [
    {"address": True}, {"address": -1}, {"address": 1 << 64}, {"address": 1.5}, {"length": 0}, {"length": 1 << 31},
    {"length": "8"}, {"spec": "\ud800"}, {"path": None}, {"type": ["long"]}, {"mode": 3}])
def test_a_row_that_cannot_be_makes_no_table(bundle: Bundle, change: dict[str, Any]) -> None:
    write(bundle, [GOOD, GOOD | change])
    assert sites(bundle) == 0


@pytest.mark.parametrize("hits", [True, -1, 1 << 63, 2.0, "3", None, [3]])
def test_a_count_that_cannot_be_is_none(bundle: Bundle, hits: object) -> None:
    write(bundle, [GOOD], {"hits": hits})
    assert watches._counted(bundle) is None
    assert sites(bundle) == 1


def _link(path: Path) -> None:
    path.with_name("elsewhere").write_text(json.dumps([GOOD]))
    path.symlink_to("elsewhere")


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


def _folder_link(path: Path) -> None:
    _link(path)
    path.unlink()
    path.with_name("elsewhere").rename(path)
    path.parent.rename(path.parent.with_name("moved"))
    path.parent.symlink_to("moved")


LEFT: dict[str, Callable[[Path], object]] = {
    "link": _link, "link to itself": _loop, "folder that is a link": _folder_link, "pipe": os.mkfifo,
    "folder": Path.mkdir, "device": lambda path: path.symlink_to("/dev/zero"),
    "empty": lambda path: path.write_bytes(b""), "no UTF-8": lambda path: path.write_bytes(b'["\xff\xfe"]'),
    "deep": lambda path: path.write_text("[" * 60_000), "digits": lambda path: path.write_text("9" * 20_000),
    "long": lambda path: path.write_text("[" + " " * LIMIT + "]"), "cut": lambda path: path.write_text('[{"spec": "'),
}


@pytest.mark.parametrize("what", LEFT)
def test_whatever_lies_there_instead_is_nothing_and_nobody_waits(bundle: Bundle, what: str) -> None:
    LEFT[what](bundle.path / NAME)
    assert load_json(bundle.path, NAME, LIMIT) is None


def test_a_probes_list_with_text_that_is_none_makes_no_table(bundle: Bundle) -> None:
    (bundle.path / "probes").mkdir()
    row = {"hit": 0, "spec": "f", "handler": "log", "path": "/x", "address": 1, "function": "f", "reason": ""}
    for rows, wanted in (([row], 1), ([row | {"function": "\udc80"}], 0), ([row | {"hit": True}], 0)):
        (bundle.path / probes.LIST).write_text(json.dumps(rows))
        assert len(probes._listed(bundle)) == wanted


def test_counts_are_not_written_through_a_link_that_the_target_made(bundle: Bundle, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (bundle.path / watches.COUNTS).symlink_to(victim)
    _keep_counts(bundle, 7)
    assert victim.read_text() == "precious"
    assert "cannot be made" in bundle.manifest.lacks[0]
    (bundle.path / watches.COUNTS).unlink()
    _keep_counts(bundle, 7)
    assert watches._counted(bundle) == 7
