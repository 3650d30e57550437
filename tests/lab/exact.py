# SPDX-License-Identifier: MIT
"""Holds what a recording decodes to against what the module says was executed."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pyarrow.parquet as pq

from lab.machine import Job
from ptweave.data import Bundle
from ptweave.data.sideband import SidebandKind, read_sideband
from ptweave.decode.expand import Expansion
from ptweave.decode.flow import decode_flow


def decoded(job: Job, name: str = "run") -> Bundle:
    """The job's recording, decoded: once, for all tests that look at it."""
    path = job.folder / f"{name}.ptw"
    _decode(path)
    return Bundle.open(path)


@cache
def _decode(path: Path) -> None:
    decode_flow(Bundle.open(path))


def gaps(bundle: Bundle) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = pq.read_table(bundle.tables / "gaps").to_pylist()
    return rows


def threads(bundle: Bundle) -> dict[int, int]:
    """Thread number by tid."""
    rows = read_sideband(bundle.sideband).to_pylist()
    return {int(row["tid"]): int(row["thread"]) for row in rows if row["kind"] == SidebandKind.THREAD}


def executed(bundle: Bundle) -> dict[int, tuple[int, int]]:
    """By tid: how many instructions were decoded, and the hash of their addresses."""
    expansion = Expansion(bundle)
    return {tid: expansion.hash(thread) for tid, thread in threads(bundle).items()}


def check_exact(job: Job, name: str = "run") -> Bundle:
    """Every task decodes to what the module counted and hashed, nothing is missing, every account balances. Returns
    the decoded bundle."""
    bundle = decoded(job, name)
    found = gaps(bundle)
    assert not found, found
    ran = executed(bundle)
    wanted = {one.tid: (one.count, one.hash) for one in job.oracle}
    assert ran == wanted, (ran, wanted)
    assert bundle.ledger().check() == [], bundle.ledger().check()
    lost = [loss for loss in bundle.ledger().losses if loss[0] not in ("images",)]
    assert not lost, lost
    return bundle


def packets(bundle: Bundle) -> dict[str, Path]:
    return {path.stem: path for path in sorted(bundle.trace.glob("*.pt"))}
