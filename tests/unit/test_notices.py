# SPDX-License-Identifier: MIT
"""What becomes of notices: said once, by symbol, with what to do, and never in the target's own way."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from ptweave.data import Manifest
from ptweave.data.lists import NOTICE_DTYPE, NOTICE_TOLD
from ptweave.data.notices import Notice, NoticeKind
from ptweave.wrapper.notices import REMEDIES, SHOWN, Notices, symbol_at

FUTEX = list(NoticeKind).index(NoticeKind.FUTEX) + 1


def entry(kind: int = FUTEX, *, address: int = 0, path: Path | bytes = b"", offset: int = 0,
          text: bytes = b"a futex call") -> np.void:
    """A notice as libtthread writes it."""
    one = np.zeros(1, NOTICE_DTYPE)
    one["state"], one["kind"], one["text"] = NOTICE_TOLD, kind, text
    one["code"]["address"], one["code"]["offset"] = address, offset
    one["code"]["known"], one["code"]["path"] = bool(path), os.fsencode(path)
    return one[0]  # type: ignore[no-any-return]


@pytest.fixture
def library(tmp_path: Path) -> Path:
    source = tmp_path / "known.c"
    source.write_text("int counter[8]; int wait_here(int x) { return x * 3 + counter[0]; }\n")
    out = tmp_path / "libknown.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", out, source], check=True)
    return out


def address_of(name: str, library: Path) -> int:
    """As nm says it."""
    lines = subprocess.run(["nm", library], check=True, capture_output=True, text=True).stdout.splitlines()
    return next(int(line.split()[0], 16) for line in lines if line.endswith(f" {name}"))


def test_a_place_is_named_by_its_symbol(library: Path) -> None:
    assert symbol_at(library, address_of("wait_here", library)) == "wait_here"
    assert symbol_at(library, address_of("counter", library) + 9) == "counter+0x9"
    assert symbol_at(library, 1 << 40) is None


def test_a_notice_is_said_once_and_kept_with_its_count(library: Path) -> None:
    said: list[str] = []
    notices = Notices(said.append)
    offset = address_of("wait_here", library)
    for _ in range(3):
        notices.take(os.getpid(), [entry(path=library, offset=offset, address=77)])
    notice, = notices.all
    assert (notice.kind, notice.where, notice.times) == (NoticeKind.FUTEX, "wait_here (libknown.so)", 3)
    assert said == [f"a futex call at wait_here (libknown.so): {REMEDIES[NoticeKind.FUTEX]}"]


def test_without_a_symbol_the_address_says_it(library: Path) -> None:
    notices = Notices(lambda line: None)
    notices.take(1, [entry(path=library, offset=3), entry(address=0x1234), entry(path=b"/nowhere/x.so", offset=16)])
    assert [one.where for one in notices.all] == ["libknown.so+0x3", "0x1234", "x.so+0x10"]


def test_a_fifo_in_the_place_of_a_library_blocks_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert symbol_at(tmp_path / "fifo", 0) is None


def test_a_file_that_is_no_library_is_an_address(tmp_path: Path, library: Path) -> None:
    (tmp_path / "short").write_bytes(library.read_bytes()[:300])
    damaged = bytearray(library.read_bytes())
    damaged[40:48] = b"\xff" * 8  # e_shoff
    (tmp_path / "damaged").write_bytes(damaged)
    assert symbol_at(tmp_path / "short", 5) is symbol_at(tmp_path / "damaged", 5) is None


def test_the_targets_words_cannot_steer_the_terminal() -> None:
    said: list[str] = []
    notices = Notices(said.append)
    notices.take(1, [entry(text=b"\x1b[2Jgone\n\xff", path=b"/tmp/\x1b]0;x\x07.so", offset=1)])
    assert said[0].isprintable()


def test_an_unknown_kind_is_no_notice() -> None:
    notices = Notices(lambda line: None)
    notices.take(1, [entry(0), entry(len(NoticeKind) + 1), entry(0xFFFFFFFF)])
    assert notices.all == []


def test_the_terminal_gets_a_few_of_a_kind_and_the_manifest_all() -> None:
    said: list[str] = []
    notices = Notices(said.append)
    notices.take(1, [entry(address=at) for at in range(1, 30)])
    assert len(said) == SHOWN + 1 and "run.json" in said[-1] and len(notices.all) == 29


def test_every_kind_has_a_remedy() -> None:
    assert set(REMEDIES) == set(NoticeKind) and all(REMEDIES.values())


def test_the_manifest_keeps_notices(tmp_path: Path) -> None:
    notice = Notice(NoticeKind.ATOMIC, "text", "where", "about", "remedy", 7, 2)
    Manifest(notices=[notice]).save(tmp_path / "run.json")
    assert Manifest.load(tmp_path / "run.json").notices == [notice]
