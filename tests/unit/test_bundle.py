# SPDX-License-Identifier: MIT
"""Bundles are private, refuse to overwrite, and say clearly what is wrong with one."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from ptweave.data import BadInput, Bundle, Clocks, Manifest, State
from ptweave.data.sideband import SidebandKind, read_sideband, write_sideband


def test_a_new_bundle_is_private_and_says_it_is_being_recorded(tmp_path: Path) -> None:
    bundle = Bundle.create(tmp_path / "a.ptw", Manifest(command=["x"]))
    assert stat.S_IMODE(bundle.path.stat().st_mode) == 0o700
    assert json.loads((bundle.path / "run.json").read_text())["state"] == "recording"
    assert Bundle.open(bundle.path).manifest.command == ["x"]


def test_an_existing_path_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "a.ptw").write_text("mine")
    with pytest.raises(BadInput, match="exists already"):
        Bundle.create(tmp_path / "a.ptw", Manifest())
    assert (tmp_path / "a.ptw").read_text() == "mine"


def test_manifest_round_trip(tmp_path: Path) -> None:
    manifest = Manifest(command=["a", "b"], state=State.PARTIAL, clocks=Clocks(1, 2, 3, 4, 5), lacks=["x"], status=9)
    manifest.save(tmp_path / "run.json")
    assert Manifest.load(tmp_path / "run.json") == manifest


def test_unknown_manifest_fields_of_the_same_version_are_ignored(tmp_path: Path) -> None:
    Manifest().save(tmp_path / "run.json")
    raw = json.loads((tmp_path / "run.json").read_text())
    raw["later"] = 1
    (tmp_path / "run.json").write_text(json.dumps(raw))
    assert Manifest.load(tmp_path / "run.json") == Manifest()


def test_tsc_becomes_time_in_integers_beyond_float_precision() -> None:
    clocks = Clocks(tsc0=10**18, t0_ns=5, tsc1=10**18 + 3 * 10**12, t1_ns=5 + 10**12)
    assert clocks.to_ns(10**18 + 3) == 6
    assert clocks.to_ns(10**18 + 3 * 10**12) == 5 + 10**12
    assert clocks.to_ns(10**18 - 3) == 4


def test_a_clock_without_a_second_moment_stands_still() -> None:
    assert Clocks(tsc0=10, t0_ns=7).to_ns(99) == 7


def test_sideband_round_trip_keeps_order_and_nulls(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"kind": SidebandKind.MAP, "tsc": 9, "pid": 1, "space": 0, "addr": 2**64 - 4096, "size": 4096, "epoch": 0},
        {"kind": SidebandKind.SLICE, "tsc": 3, "pid": 1, "space": 0, "thread": 0, "offset": 0, "epoch": 0},
    ]
    write_sideband(tmp_path / "s.arrow", rows)
    table = read_sideband(tmp_path / "s.arrow")
    assert table["kind"].to_pylist() == ["map", "slice"]
    assert table["addr"].to_pylist() == [2**64 - 4096, None]


@pytest.mark.parametrize("content", [b"", b"ARROW1", b"x" * 100])
def test_a_malformed_sideband_is_one_clear_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "s.arrow").write_bytes(content)
    with pytest.raises(BadInput, match=r"s\.arrow"):
        read_sideband(tmp_path / "s.arrow")
