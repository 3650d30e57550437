# SPDX-License-Identifier: MIT
"""What merging needs is loaded while a run is decoded, when the decoder's processes are there."""

from __future__ import annotations

import argparse
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ptweave.cli import session
from ptweave.data import Bundle
from ptweave.decode.task import Decoder
from support.bundle_writer import BundleWriter


class Loads:
    """Threads in which it was loaded, once they have ended."""

    def __init__(self) -> None:
        self._before = set(threading.enumerate())
        self._found: list[int] = []

    def load(self) -> None:
        self._found.append(threading.get_ident())

    def all(self) -> list[int]:
        for thread in set(threading.enumerate()) - self._before:
            thread.join()
        return self._found


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> Loads:
    found = Loads()
    monkeypatch.setattr(session, "_load_merge", found.load)
    return found


def test_it_is_loaded_once_in_a_thread_of_its_own_when_progress_is_first_told(loads: Loads) -> None:
    told: list[tuple[int, int]] = []
    advance = session._loading_merge(lambda done, total: told.append((done, total)))
    assert loads.all() == []
    for done in (1, 2):
        advance(done, 2)
    (thread,) = loads.all()
    assert thread != threading.get_ident()
    assert told == [(1, 2), (2, 2)]


@pytest.mark.parametrize(("jobs", "merges", "times"), [(2, True, 1), (1, True, 0), (2, False, 0)])
def test_it_is_loaded_where_there_are_processors_for_it_and_merging_comes_next(
        monkeypatch: pytest.MonkeyPatch, tmp_path: Path, loads: Loads, jobs: int, merges: bool, times: int) -> None:
    def decode_flow(bundle: Bundle, progress: Callable[[int, int], None], **options: Any) -> Any:
        progress(1, 1)
        raise KeyError("decoded")

    monkeypatch.setattr("ptweave.decode.flow.decode_flow", decode_flow)
    bundle = BundleWriter(tmp_path / "run.ptw").write()
    args = argparse.Namespace(jobs=jobs, quiet=True, times="full", decoder=Decoder.AUTO.value, verbose=False)
    with pytest.raises(KeyError, match="decoded"):
        session.decode(bundle, args, None, merges=merges)
    assert len(loads.all()) == times
