# SPDX-License-Identifier: MIT
"""Runs programs under the soft engine into bundles, and says what ran, by libipt and by the engine's own log."""

from __future__ import annotations

import os
import subprocess
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ptweave.data import Bundle, Manifest
from ptweave.data.sideband import read_sideband
from ptweave.data.syslog import SYSLOG_DTYPE
from ptweave.wrapper.soft import SoftEngine, Spool
from ptweave.wrapper.spool_format import PAGE, ThreadState
from ptweave.wrapper.tasks import TaskRegistry

PROGRAMS = Path(__file__).resolve().parent.parent / "programs"


def compile_c(source: str, folder: Path, *flags: str, name: str = "") -> Path:
    """Compile a program of tests/programs into `folder`."""
    program = folder / (name or Path(source).stem)
    if not program.exists():
        subprocess.run(["gcc", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-o", program, PROGRAMS / source, *flags],
                       check=True)
    return program


def checker(folder: Path) -> Path:
    return compile_c("check_trace.c", folder, "-lipt")


@dataclass(frozen=True)
class Ran:
    """What a thread ran: instructions, and the hash of their addresses in order."""

    count: int
    hash: int


@dataclass
class Recording:
    """A finished run: the bundle, the target's status (as subprocess has it) and output, and the engine's own log
    of each stream (with log=True), as (pid, tid, what ran)."""

    bundle: Bundle
    status: int
    stdout: bytes
    stderr: bytes
    messages: str
    logs: list[tuple[int, int, Ran]]


class Recorder:
    """A target that runs under the engine now, with its spool polled as a supervisor does."""

    def __init__(self, argv: list[str], folder: Path, *, log: bool = False, name: str = "run",
                 options: tuple[str, ...] = (), env: dict[str, str] | None = None, stdin: bytes = b"",
                 poll: float = 0.02) -> None:
        self.bundle = Bundle.create(folder / f"{name}.ptw", Manifest(command=argv, engine="soft"))
        self.path = folder / f"{name}.spool"
        self.path.mkdir(mode=0o700)
        self.tasks = TaskRegistry()
        self.spool = Spool(self.bundle, self.path, self.tasks)
        command, extra = SoftEngine().command(argv, self.path, log=log, options=options)
        self.input = stdin
        self._poll = poll
        self._over = threading.Event()
        self.process = subprocess.Popen(command, env={**(env or os.environ), **extra}, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self._poller = threading.Thread(target=self._keep_polling)
        self._poller.start()

    def _keep_polling(self) -> None:
        while not self._over.wait(self._poll):
            self.spool.poll()

    def finish(self, timeout: float = 300) -> Recording:
        """Wait for the target and finish its bundle."""
        try:
            stdout, stderr = self.process.communicate(self.input, timeout)
        finally:
            self.process.kill()
            self._over.set()
            self._poller.join()
        status = self.process.returncode
        self.spool.exited(self.process.pid, -status if status < 0 else status << 8)
        self.spool.poll()
        messages, logs = self.spool.messages, self._logs()
        ledger = self.bundle.ledger()
        self.spool.finish(ledger)
        self.bundle.save_ledger(ledger)
        assert not self.path.exists()
        assert ledger.check() == []
        return Recording(self.bundle, status, stdout, stderr, messages, logs)

    def _logs(self) -> list[tuple[int, int, Ran]]:
        logs = []
        for file in sorted(self.path.glob("*.state")):
            pid = int(file.name.split(".")[0])
            data = file.read_bytes()
            for at in range(PAGE, len(data), PAGE):
                state = ThreadState.parse(data[at:at + PAGE])
                if state is not None:
                    logs.append((pid, state.tid, Ran(state.instructions, state.hash)))
        return logs


def record_all(argv: list[str], folder: Path, *, log: bool = False, name: str = "run",
               options: tuple[str, ...] = (), env: dict[str, str] | None = None, stdin: bytes = b"") -> Recording:
    """Run a program to its end under the engine."""
    return Recorder(argv, folder, log=log, name=name, options=options, env=env, stdin=stdin).finish()


def record(argv: list[str], folder: Path, log: bool = False, name: str = "run") -> Bundle:
    """Run a program under the engine, into a finished bundle `folder/NAME.ptw`."""
    return record_all(argv, folder, log=log, name=name).bundle


def write_plan(bundle: Bundle, thread: int, plan: Path) -> list[tuple[int, int]]:
    """Write what check_trace needs: the thread's slices, each with the code it ran in. Returns (begin, end) of each.

    The code of (space, epoch) is worked out here from what ptweave.data.sideband says, on its own.
    """
    rows = read_sideband(bundle.sideband).to_pylist()
    size = (bundle.trace / f"{thread}.pt").stat().st_size
    slices = sorted((row["offset"], row["space"], row["epoch"]) for row in rows
                    if row["kind"] == "slice" and row["thread"] == thread)
    ends = [begin for begin, _, _ in slices[1:]] + [size]
    last = None
    with plan.open("w") as out:
        for (begin, space, epoch), end in zip(slices, ends, strict=True):
            if space != last:
                out.write("image\n")
                last = space
            out.write(f"slice {begin:x} {end:x}\n")
            for addr, length, offset, image in code_of(rows, space, epoch):
                out.write(f"code {addr:x} {length:x} {offset:x} {bundle.images / image}\n")
    return [(begin, end) for (begin, _, _), end in zip(slices, ends, strict=True)]


def code_of(rows: list[dict[str, object]], space: int, epoch: int) -> list[tuple[int, int, int, str]]:
    """(addr, size, offset, image) of the code in an epoch of an address space; they do not overlap."""
    code: list[tuple[int, int, int, str]] = []
    for row in rows:
        if row["kind"] not in ("map", "code", "unmap") or row["space"] != space or _number(row["epoch"]) > epoch:
            continue
        start, end = _number(row["addr"]), _number(row["addr"]) + _number(row["size"])
        code = [part for one in code for part in _outside(one, start, end)]
        if row["kind"] != "unmap" and row["image"] is not None:
            code.append((start, end - start, _number(row["offset"]), str(row["image"])))
    return code


def _number(value: object) -> int:
    assert isinstance(value, int)
    return value


def _outside(code: tuple[int, int, int, str], start: int, end: int) -> list[tuple[int, int, int, str]]:
    """What is left of a piece of code without [start, end)."""
    addr, size, offset, image = code
    left = min(size, max(start - addr, 0))
    skip = min(size, max(end - addr, 0))
    parts = [(addr, left, offset, image), (addr + skip, size - skip, offset + skip, image)]
    return [part for part in parts if part[1] > 0] if start < addr + size and addr < end else [code]


@dataclass(frozen=True)
class Decoded:
    """What libipt made of a thread's packets while it ran one program image."""

    ran: Ran
    errors: int
    syscalls: int
    hits: int


def decode(bundle: Bundle, thread: int, scratch: Path, *, blocks: bool = False, dump: Path | None = None,
           ip: int | None = None) -> list[Decoded]:
    """Decode a thread's trace with libipt, independently of ptweave: one result for each image it ran.

    `blocks`: with the block decoder, whose hash is 0. `dump`: also write every address there. `ip`: an address whose
    executions are counted as `hits`.
    """
    plan = scratch / f"{bundle.path.name}.{thread}.plan"
    write_plan(bundle, thread, plan)
    words: list[str | Path] = [checker(scratch)]
    if blocks:
        words.append("-b")
    if dump is not None:
        words += ["-d", dump]
    if ip is not None:
        words += ["-x", f"{ip:x}"]
    done = subprocess.run([*words, bundle.trace / f"{thread}.pt", plan], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    results = []
    for line in done.stdout.splitlines():
        fields = line.split()
        values = dict(zip(fields[::2], fields[1::2], strict=True))
        results.append(Decoded(Ran(int(values["count"]), int(values["hash"], 16)), int(values["errors"]),
                               int(values["syscalls"]), int(values["ip"])))
    return results


def threads(bundle: Bundle) -> list[int]:
    return sorted(int(file.stem) for file in bundle.trace.glob("*.pt"))


def system_calls(bundle: Bundle, thread: int) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    """The engine's log of a thread's system calls."""
    return np.fromfile(bundle.trace / f"{thread}.sys", SYSLOG_DTYPE)


def check_exact(recording: Recording, scratch: Path) -> list[Decoded]:
    """Every thread of a logged recording decodes to exactly what the engine logged, without an error, by the
    instruction and by the block decoder, with as many system calls as were logged. Returns what was decoded."""
    everything = []
    logged = Counter(ran for _, _, ran in recording.logs)
    for thread in threads(recording.bundle):
        decoded = decode(recording.bundle, thread, scratch)
        blocks = decode(recording.bundle, thread, scratch, blocks=True)
        for one, other in zip(decoded, blocks, strict=True):
            assert one.errors == other.errors == 0
            assert one.ran.count == other.ran.count
            assert one.ran in logged, (thread, one, recording.logs)
            logged[one.ran] -= 1
        assert sum(one.syscalls for one in decoded) == len(system_calls(recording.bundle, thread))
        everything += decoded
    assert not +logged, "logged, but not decoded"
    return everything
