# SPDX-License-Identifier: MIT
"""Runs a program under libtthread with a ControlServer as its supervisor, and nothing else."""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ptweave.data import Bundle, Clocks, Ledger, Manifest
from ptweave.data.handshake import TIMEOUT_SECONDS
from ptweave.decode.thunks import decode_thunks
from ptweave.merge import Run, merge_run
from ptweave.preload import library_path
from ptweave.wrapper.control import ControlServer

TIMEOUT = 120


class Threads:
    """Thread numbers as the supervisor gives them: dense, the same for a tid across exec."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[int, int], int] = {}

    def __call__(self, pid: int, tid: int, tsc: int) -> int:
        return self.numbers.setdefault((pid, tid), len(self.numbers))


@dataclass
class Traced:
    """A finished run. `status` as subprocess gives it."""

    bundle: Bundle
    server: ControlServer
    ledger: Ledger
    status: int
    out: bytes
    err: str

    def table(self) -> pa.Table:
        """Decoded thunks, in thread order."""
        decode_thunks(self.bundle)
        return pq.read_table(self.bundle.decoded / "thunks.parquet")

    def accesses(self) -> pa.Table:
        """The table `accesses`, as merged."""
        self.table()
        merge_run(self.bundle)
        with Run(self.bundle.path) as run:
            return run.sql("from accesses").arrow()

    def thunks(self) -> list[dict[str, object]]:
        """The same as rows, with call stacks instead of their numbers."""
        rows: list[dict[str, object]] = self.table().to_pylist()
        stacks = pq.read_table(self.bundle.decoded / "stacks.parquet")["stack"].to_pylist()
        for row in rows:
            row["stack"] = [] if row["stack"] is None else stacks[row["stack"]]  # type: ignore[index]
        return rows

    def operations(self) -> dict[str, int]:
        """How often each operation stands in the lists."""
        counts = self.table()["operation"].value_counts().to_pylist()
        return {one["values"]: one["counts"] for one in counts}


def new_bundle(folder: Path, name: str = "run.ptw") -> Bundle:
    """A bundle whose clock is the identity: a TSC tick is a nanosecond."""
    return Bundle.create(folder / name, Manifest(clocks=Clocks(0, 0, 1 << 40, 1 << 40)))


def serve(server: ControlServer, until: Callable[[], bool], seconds: float = TIMEOUT) -> None:
    """Let the server work until something is so."""
    deadline = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < deadline, "timed out"
        select.select(server.fds(), [], [], 0.02)
        server.service()


def start(server: ControlServer, argv: list[str | Path], **more: object) -> subprocess.Popen[bytes]:
    """Start a program in the server's environment."""
    extra = more.pop("env", None) or {}
    assert isinstance(extra, Mapping)
    return subprocess.Popen([str(word) for word in argv], env={**os.environ, **extra, **server.environment()},
                            **more)  # type: ignore[call-overload,no-any-return]


def impatient(folder: Path) -> Path:
    """The library as it is built, but that it waits for an answer for a second, not for half a minute: its constants,
    one in each function that waits, are replaced. Compiling all of it for that takes half a minute, too."""
    patience, text = (TIMEOUT_SECONDS * 10**9).to_bytes(8, "little"), library_path().read_bytes()
    assert text.count(patience) == 2
    library = folder / "libtthread.so"
    library.write_bytes(text.replace(patience, (10**9).to_bytes(8, "little")))
    return library


def run_traced(folder: Path, argv: list[str | Path], *, name: str = "run.ptw", env: dict[str, str] | None = None,
               cwd: Path | None = None) -> Traced:
    """Run a program to its end under a server; its output goes through files, so no pipe can block it."""
    bundle = new_bundle(folder, name)
    server = ControlServer(bundle, Threads())
    ledger = Ledger()
    out, err = folder / f"{name}.out", folder / f"{name}.err"
    try:
        with out.open("wb") as one, err.open("wb") as two:
            process = start(server, argv, stdin=subprocess.DEVNULL, stdout=one, stderr=two, env=env, cwd=cwd)
            try:
                serve(server, lambda: process.poll() is not None)
            finally:
                process.kill()  # if it is still there
                process.wait()
    finally:
        server.finish(ledger)
    bundle.save_ledger(ledger)
    return Traced(bundle, server, ledger, process.returncode, out.read_bytes(), err.read_text(errors="replace"))
