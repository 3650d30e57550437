# SPDX-License-Identifier: MIT
"""How a program can be run: as it is, or under libtthread with its threads in one of several ways.

A test that holds in every mode is parametrised over `MODES`. What cannot be run yet is not skipped test by test: it
stands in `NOT_BUILT`, with the reason, and nowhere else.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ptweave.data import Ledger
from ptweave.wrapper.control import ControlServer
from support.control import Threads, Traced, new_bundle, serve

TIMEOUT = 60


@dataclass(frozen=True)
class Mode:
    """One way to run a program. `traced`: under libtthread, with a ControlServer for its supervisor.

    `access` is held or exact where accesses of memory are recorded, `view` shared or private.
    """

    name: str
    traced: bool = True
    access: str = ""
    view: str = ""

    def __str__(self) -> str:
        return self.name

    def environment(self) -> dict[str, str]:
        """What libtthread is told by the environment, besides the server's own variables."""
        if not self.access:
            return {}
        return {"PTWEAVE_THREADS": "process", "PTWEAVE_VIEW": self.view, "PTWEAVE_ACCESS": self.access}

    def options(self) -> list[str]:
        """The same as options of `ptweave record`."""
        view = ["--view", self.view] if self.view != "shared" else []  # shared is the default
        return ["--access", self.access, *view] if self.access else ["--threads", "native"]


def process_mode(access: str, view: str) -> Mode:
    """Threads as processes; `access` held or exact, `view` shared or private."""
    return Mode(f"process {access} {view}", access=access, view=view)


NATIVE = Mode("native", traced=False)
TRACED = Mode("libtthread native")
MODES = (NATIVE, TRACED,
         *(process_mode(access, view) for view in ("shared", "private") for access in ("held", "exact")))
UNDER_LIBTTHREAD = tuple(mode for mode in MODES if mode.traced)

NOT_BUILT: dict[Mode, str] = {}
"""Modes that the tests do not run, and why."""


@dataclass(frozen=True)
class Ran:
    """A finished program; `status` as subprocess gives it. `traced` is what was recorded, if anything was."""

    status: int
    out: bytes
    err: str
    traced: Traced | None = None


class TimedOut(AssertionError):
    """The program did not end in time; it and all its processes were killed."""


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """The program and its pseudo-threads: it leads a process group of its own."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def run(mode: Mode, folder: Path, argv: Sequence[str | Path], *, timeout: float = TIMEOUT, stdin: Path | None = None,
        cwd: Path | None = None, env: Mapping[str, str] | None = None, name: str = "run.ptw") -> Ran:
    """Run a program to its end; output goes through files in `folder`, so no pipe can block it.

    Raises TimedOut.
    """
    words = [str(word) for word in argv]
    out, err = folder / f"{name}.out", folder / f"{name}.err"
    with (stdin or Path(os.devnull)).open("rb") as zero, out.open("wb") as one, err.open("wb") as two:
        if not mode.traced:
            process = subprocess.Popen(words, stdin=zero, stdout=one, stderr=two, cwd=cwd, process_group=0,
                                       env={**os.environ, **(env or {})})
            try:
                process.wait(timeout)
            except subprocess.TimeoutExpired:
                _end_group(process)
                raise TimedOut(f"{words} still runs after {timeout} s") from None
            return Ran(process.returncode, out.read_bytes(), err.read_text(errors="replace"))
        bundle, ledger = new_bundle(folder, name), Ledger()
        server = ControlServer(bundle, Threads())
        try:
            process = subprocess.Popen(words, stdin=zero, stdout=one, stderr=two, cwd=cwd, process_group=0, env={
                **os.environ, **(env or {}), **mode.environment(), **server.environment()})
            try:
                serve(server, lambda: process.poll() is not None, timeout)
            except AssertionError:
                _end_group(process)
                raise TimedOut(f"{words} still runs after {timeout} s under {mode}") from None
        finally:
            server.finish(ledger)
    bundle.save_ledger(ledger)
    traced = Traced(bundle, server, ledger, process.returncode, out.read_bytes(), err.read_text(errors="replace"))
    return Ran(traced.status, traced.out, traced.err, traced)
