# SPDX-License-Identifier: MIT
"""Records programs with the eBPF recorder alone, as a supervisor does."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ptweave.data.bundle import Bundle
from ptweave.data.ledger import Ledger
from ptweave.data.manifest import Manifest
from ptweave.data.syscall_arguments import Part, When
from ptweave.data.syscall_table import name_of, nargs_of
from ptweave.wrapper.bpf_checks import probe
from ptweave.wrapper.syscalls import Options, SyscallRecorder

_NEEDED = ("eBPF recorder", "BTF", "bpf system call", "kernel lockdown")
_LACKS = [f"{check.name}: {check.detail}" for check in probe() if check.name in _NEEDED and not check.ok]

needs_bpf = pytest.mark.skipif(bool(_LACKS), reason="eBPF does not work here: " + "; ".join(_LACKS))


@dataclass
class Row:
    """A row of the recording, with its name and as many arguments as the call has."""

    pid: int
    tid: int
    name: str
    args: list[int]
    paths: list[bytes | None]
    result: int | None
    t_enter: int
    t_exit: int | None
    ip: int
    files: list[str | None]
    captures: list[dict[str, Any]]

    def captured(self, argument: int, part: int = Part.ITSELF, when: When | None = None) -> bytes | None:
        """What was kept of an argument's memory; None for nothing."""
        found = [one["data"] for one in self.captures if one["argument"] == argument and one["part"] == part
                 and (when is None or one["when"] == when)]
        return found[0] if found else None


@dataclass
class Recorded:
    pid: int
    status: int
    rows: list[Row]
    ledger: Ledger
    bundle: Bundle

    def of(self, name: str) -> list[Row]:
        return [row for row in self.rows if row.name == name]

    def after_exec(self) -> list[Row]:
        """Rows of the target proper: from the exec that began it."""
        first = next(i for i, row in enumerate(self.rows)
                     if row.name == "execve" and row.pid == self.pid and row.result == 0)
        return self.rows[first:]


def read_rows(path: Path) -> list[Row]:
    with pa.OSFile(str(path), "rb") as source:
        table = pa.ipc.open_stream(source).read_all()
    names: dict[int, str | None] = {0: None, **{
        one["id"]: one["path"].decode(errors="backslashreplace") for one in read_files(path.with_name("files.arrow"))}}
    return [Row(one["pid"], one["tid"], name_of(one["number"]), one["args"][:nargs_of(one["number"])], one["paths"],
                one["result"], one["t_enter"], one["t_exit"], one["ip"], [names[file] for file in one["files"]],
                one["captures"]) for one in table.to_pylist()]


def read_files(path: Path) -> list[dict[str, Any]]:
    """The definitions of files of a recording."""
    with pa.OSFile(str(path), "rb") as source:
        rows: list[dict[str, Any]] = pa.ipc.open_stream(source).read_all().to_pylist()
    return rows


def fork_waiting(argv: Sequence[str | Path], env: Mapping[str, str] | None = None,
                 cwd: Path | None = None, stdout: Path | None = None) -> tuple[int, int]:
    """Fork a child that runs the program once a byte comes; returns (pid, descriptor to write the byte to)."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(write_end)
            os.read(read_end, 1)
            os.close(read_end)
            if cwd is not None:
                os.chdir(cwd)
            if stdout is not None:
                os.dup2(os.open(stdout, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 1)
            words = [str(word) for word in argv]
            os.execvpe(words[0], words, dict(env) if env is not None else dict(os.environ))
        finally:
            os._exit(127)
    os.close(read_end)
    return pid, write_end


def wait_serving(pid: int, recorder: SyscallRecorder, every: float = 0.02, timeout: float = 120) -> int:
    """Wait for a child as a supervisor does, servicing the recorder; returns its wait status."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status
        time.sleep(every)
        recorder.service()
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    raise AssertionError(f"the target did not end in {timeout} s")


def record(argv: Sequence[str | Path], folder: Path, options: Options | None = None, name: str = "run",
           env: Mapping[str, str] | None = None, cwd: Path | None = None, stdout: Path | None = None,
           during: Callable[[int], None] | None = None, every: float = 0.02, rows: bool = True) -> Recorded:
    """Record a program from before its exec to its end. `during` gets its pid once it runs."""
    bundle = Bundle.create(folder / f"{name}.ptw", Manifest(command=[str(word) for word in argv]))
    recorder = SyscallRecorder(bundle, options)
    recorder.start()
    try:
        pid, go = fork_waiting(argv, env, cwd, stdout or Path("/dev/null"))
        recorder.follow(pid)
        os.write(go, b"x")
        os.close(go)
        if during is not None:
            during(pid)
        status = wait_serving(pid, recorder, every)
        ledger = Ledger()
        recorder.finish(ledger)
    finally:
        recorder.close()
    found = read_rows(bundle.events / "syscalls.arrow") if rows else []
    return Recorded(pid, status, found, ledger, bundle)


def kernel_stream(recorded: Recorded) -> Any:
    return recorded.ledger["syscalls/kernel"]
