# SPDX-License-Identifier: MIT
"""Golden cases: annotated assembly in tests/golden/*.ptasm decodes to exactly what is written there."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import golden
from support.golden import PacketLister


@pytest.fixture(scope="module")
def lister(tmp_path_factory: pytest.TempPathFactory) -> PacketLister:
    return PacketLister(tmp_path_factory.mktemp("packets"))


@pytest.mark.parametrize("name", golden.texts())
def test_decodes_as_written(name: str, tmp_path: Path) -> None:
    case = golden.load(name)
    decoded = golden.bundle(case, tmp_path / "run.ptw").decode()
    found = golden.differences(case, decoded)
    assert not found, f"{case.file}: {name}: {case.about}\n  " + "\n  ".join(found)
    decoded.check()


@pytest.mark.parametrize("name", golden.texts())
def test_packets_are_as_written(name: str, lister: PacketLister) -> None:
    case = golden.load(name)
    assert lister.packets(case.trace, case.cpu) == case.packets
