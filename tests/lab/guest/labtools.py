# SPDX-License-Identifier: MIT
"""What the jobs in the guest share."""

from __future__ import annotations

import os
import shutil
import sys
import time
import traceback
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NoReturn

from ptweave.data import MachineLacks

ORACLE = Path("/proc/ptlab")
PARAMETERS = Path("/sys/module/ptlab/parameters")

SELDOM_MS, OFTEN_MS = 60, 20
"""How often a recorder looks, whatever wakes it. The emulated processor takes milliseconds for each look: were it as
often as anywhere else, a recorder that waits would take a third of its time."""
SEEN = 3 * OFTEN_MS / 1000
"""Seconds after which a recorder has looked, if it looks often."""


def look_often() -> None:
    """The recorders of this job look as often as anywhere else."""
    from ptweave.wrapper import supervisor

    supervisor.TICK_MS = OFTEN_MS


def _no_calls(*unused: object) -> NoReturn:
    raise MachineLacks("the job does not ask for them", where="system calls")


def warm() -> None:
    """Use the commands once, in this process. The parser of their words, which takes a tenth of a second to make here,
    is kept for those that are forked."""
    import ptweave.cli
    from ptweave.cli import main
    from ptweave.wrapper import supervisor

    ptweave.cli._parser = cache(ptweave.cli._parser)
    supervisor.TICK_MS = SELDOM_MS
    opened, supervisor.open_stream = supervisor.open_stream, _no_calls
    where = os.getcwd()
    os.chdir("/tmp")
    for command in (["record"], ["wrap", "-j", "1"]):
        status = main([*command, "--engine", "intel_pt", "-q", "-o", "warm.ptw", "--", "true"])
        if status:
            print(f"LAB: {command[0]}: status {status}", flush=True)
        shutil.rmtree("warm.ptw")
    os.chdir(where)
    supervisor.open_stream = opened


def ptweave_started(*words: str, without: Sequence[int] = (), calls: bool = False) -> int:
    """Start the command in a process of its own, without loading Python again, and without these descriptors; returns
    its pid. `calls`: with a recorder of system calls: to begin one takes the emulated processor seconds."""
    pid = os.fork()
    if pid == 0:
        status = 99
        for descriptor in without:
            os.close(descriptor)
        try:
            from ptweave.cli import main
            from ptweave.wrapper import supervisor

            if not calls:
                supervisor.open_stream = _no_calls
            status = main(list(words))
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 2
        except BaseException:  # noqa: BLE001
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    return pid


def ptweave(*words: str, calls: bool = False) -> int:
    """Run the command; returns its exit status (negative: the signal it ended by)."""
    _, raw = os.waitpid(ptweave_started(*words, calls=calls), 0)
    return os.waitstatus_to_exitcode(raw)


def record(*words: str, name: str = "run", calls: bool = False) -> int:
    """Record with the PMU into NAME.ptw."""
    return ptweave("record", "--engine", "intel_pt", "-q", "-o", f"{name}.ptw", *words, calls=calls)


def module(**parameters: object) -> None:
    """Turn the module's knobs."""
    for name, value in parameters.items():
        (PARAMETERS / name).write_text(str(value))


def counter(name: str) -> int:
    return int((PARAMETERS / name).read_text())


def note(name: str, value: object) -> None:
    """Leave a fact for the host."""
    Path(name).write_text(f"{value}\n")


class Gated:
    """A recording of the program `gated`, which computes each time it is told to, or of another that asks before it
    goes on."""

    def __init__(self, *words: str, program: str = "gated", rounds: int = 1600, name: str = "run") -> None:
        """`words`: options of `record`, which records into NAME.ptw."""
        given, self._ours = os.pipe()
        self._theirs, taken = os.pipe()
        os.set_inheritable(given, True)
        saved = os.dup(0), os.dup(1)
        os.dup2(given, 0)
        os.dup2(taken, 1)
        self.pid = ptweave_started(
            "record", "--engine", "intel_pt", "-q", "-o", f"{name}.ptw", "--threads=native", *words, "--", program,
            str(rounds), without=(self._ours, self._theirs))
        os.dup2(saved[0], 0)
        os.dup2(saved[1], 1)
        for descriptor in (given, taken, *saved):
            os.close(descriptor)
        self.trace = Path(f"{name}.ptw/trace/0.pt")

    @property
    def size(self) -> int:
        """Bytes of packets stored so far."""
        return self.trace.stat().st_size if self.trace.exists() else 0

    def done(self) -> None:
        """Wait until it has computed."""
        if not os.read(self._theirs, 1):
            raise RuntimeError("the program ended")

    def tell(self) -> None:
        """Have it compute."""
        os.write(self._ours, b"g")

    def again(self) -> None:
        """Have it compute, and wait until it has."""
        self.tell()
        self.done()

    def quiet(self) -> None:
        """Wait until it waits to be told."""
        while not self._reads():
            time.sleep(0.001)

    def _reads(self) -> bool:
        return Path(f"/proc/{self.traced}/syscall").read_text().startswith("0 0x0 ")

    @property
    def traced(self) -> int:
        """The program's pid."""
        return int(Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()[0])

    def end(self) -> int:
        """Let it end; returns the exit status of `record`."""
        os.close(self._ours)
        _, raw = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(raw)
