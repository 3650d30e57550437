# SPDX-License-Identifier: MIT
"""The ledger balances, survives a round trip, and refuses what it cannot read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ptweave.data import BadInput, Ledger


def test_produced_is_stored_plus_lost() -> None:
    ledger = Ledger()
    ledger.add("trace/0", "bytes", stored=100, lost={"disk full": 20})
    ledger.add("trace/0", "bytes", stored=5)
    stream = ledger["trace/0"]
    assert (stream.produced, stream.stored, stream.total_lost) == (125, 105, 20)
    assert ledger.check() == []


def test_a_stream_that_does_not_balance_is_named() -> None:
    ledger = Ledger()
    ledger.add("syscalls", "calls", stored=9, produced=10)
    assert ledger.check() == ["syscalls"]


def test_losses_of_zero_are_no_losses() -> None:
    ledger = Ledger()
    ledger.add("syscalls", "calls", stored=9, lost={"ring full": 0})
    assert ledger.losses == []


def test_round_trip_against_a_plain_json_reader(tmp_path: Path) -> None:
    ledger = Ledger()
    ledger.add("b", "rows", stored=1, lost={"x": 2})
    ledger.add("a", "bytes", stored=7)
    ledger.save(tmp_path / "ledger.json")
    raw = json.loads((tmp_path / "ledger.json").read_text())
    assert raw == {"version": 1, "streams": {
        "a": {"unit": "bytes", "produced": 7, "stored": 7, "lost": {}},
        "b": {"unit": "rows", "produced": 3, "stored": 1, "lost": {"x": 2}}}}
    assert Ledger.load(tmp_path / "ledger.json").to_json() == raw


def test_dropping_a_prefix_forgets_only_that() -> None:
    ledger = Ledger()
    for name in ("decode/0", "decode/1", "trace/0"):
        ledger.add(name, "bytes", stored=1)
    ledger.drop("decode/")
    assert [name for name, _ in ledger] == ["trace/0"]


def test_a_missing_ledger_is_empty(tmp_path: Path) -> None:
    assert list(Ledger.load(tmp_path / "none.json")) == []


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 1}', '{"version": 1, "streams": {"a": {}}}',
                                  '{"version": 1, "streams": []}', '{"version": "x", "streams": {}}'])
def test_a_malformed_ledger_is_one_clear_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "ledger.json"
    path.write_text(text)
    with pytest.raises(BadInput, match="not a ledger"):
        Ledger.load(path)


def test_a_newer_ledger_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    path.write_text('{"version": 2, "streams": {}}')
    with pytest.raises(BadInput, match="newer"):
        Ledger.load(path)
