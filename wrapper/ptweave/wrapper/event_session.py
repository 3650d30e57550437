# SPDX-License-Identifier: MIT
"""A recording of events from its begin to its end: of a command, of processes that run already, or of the machine."""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ptweave.data import BadInput, Bundle, Clocks, Ledger, MachineLacks, Manifest, State
from ptweave.data.errors import PtweaveError
from ptweave.wrapper import filters, host
from ptweave.wrapper.event_recorder import EventRecorder
from ptweave.wrapper.fallback_recorder import FallbackRecorder, Means, open_recorder
from ptweave.wrapper.kernel_events import Options
from ptweave.wrapper.signals import ENDING, SignalRelay
from ptweave.wrapper.supervisor import children
from ptweave.wrapper.target import Spawn
from ptweave.wrapper.version import ptweave_version

TICK_SECONDS = 0.02
RELOAD_SECONDS = 0.2
FOLLOW_ROUNDS = 1000


@dataclass
class Session:
    """What is recorded. Of `words`, `pids` and `options.everybody` exactly one says whose events."""

    options: Options
    words: Sequence[str] = ()
    child: Spawn | None = None
    """For the command, held at its gate since before privileges were given up: its exec must not look like a gain of
    privileges to the kernel. None: it is forked when recording begins."""
    pids: Sequence[int] = ()
    output: Path | None = None
    """The bundle to make; None: nothing is stored."""
    output_made: bool = False
    """Its folder is there already, and empty."""
    means: Means = Means.AUTO
    """What system calls are recorded with."""
    rules_file: Path | None = None
    """Filter rules are read from it again whenever it changes."""
    show: Callable[[str], None] | None = None
    """Takes a line for each event."""
    notice: Callable[[str], None] = lambda line: None
    """Takes lines for the user."""


@dataclass
class Recorded:
    """What came of it: the target's wait status (None: there was no command), and the accounts."""

    status: int | None
    ledger: Ledger
    bundle: Bundle | None
    lacks: list[str] = field(default_factory=list)


def record(session: Session, relay: SignalRelay) -> Recorded:
    """Record until the command has ended, or the processes have, or a signal asks to end.

    `relay` is entered, and was before any library made a thread: a signal is handed to any thread that does not hold
    it back. Raises BadInput or MachineLacks before anything ran; the bundle is then not left behind.
    """
    try:
        return _record(session, relay)
    except BaseException:
        if session.child is not None:
            session.child.cancel()
        raise


def _record(session: Session, relay: SignalRelay) -> Recorded:
    first = host.moment()
    manifest = Manifest(
        command=list(session.words), cwd=host.working_folder(), environment=host.kept_environment(),
        host=host.host_name(), kernel=host.kernel(), ptweave=ptweave_version(), cpu=host.cpu(), events="ebpf",
        clocks=Clocks(first.tsc, first.ns, 0, 0, host.realtime_ns()))
    bundle = None
    if session.output is not None:
        bundle = Bundle.create(session.output, manifest, made=session.output_made)
    try:
        recorder, means = open_recorder(session.means, session.options, bundle, session.show)
    except BaseException:
        _remove(bundle)
        raise
    run = _Run(session, recorder, relay)
    manifest.events = means.value
    if isinstance(recorder, FallbackRecorder):
        manifest.lacks = [*recorder.lacks]
    try:
        run.begin()
    except BaseException:
        recorder.close()
        _remove(bundle)
        raise
    run.until_the_end()
    return _conclude(run, bundle, first)


def _remove(bundle: Bundle | None) -> None:
    """Take back a bundle in which nothing is."""
    if bundle is None:
        return
    for path in sorted(bundle.path.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    with contextlib.suppress(PermissionError):  # a folder that only root could make, who we are no more
        bundle.path.rmdir()


def _conclude(run: _Run, bundle: Bundle | None, first: host.Moment) -> Recorded:
    ledger = Ledger()
    run.guard(lambda: run.recorder.finish(ledger))
    if bundle is not None:
        last, manifest = host.moment(), bundle.manifest
        manifest.clocks.tsc1, manifest.clocks.t1_ns = last.tsc, last.ns
        manifest.status, manifest.pid, manifest.lacks = run.status, run.pid, manifest.lacks + run.lacks
        if run.status is not None:
            manifest.steps["target"] = round(run.target_seconds, 6)
        manifest.state = State.PARTIAL if run.lacks else State.COMPLETE
        bundle.save_ledger(ledger)
        bundle.save_manifest()
    return Recorded(run.status, ledger, bundle, run.lacks)


class _Run:
    """A session under way."""

    def __init__(self, session: Session, recorder: EventRecorder | FallbackRecorder, relay: SignalRelay) -> None:
        self.session, self.recorder, self._relay = session, recorder, relay
        self.status: int | None = None
        self.pid = 0
        self.lacks: list[str] = []
        self.target_seconds = 0.0
        """From the command's exec to its end."""
        self._began = 0.0
        self._followed: dict[int, int] = {}  # pid → pidfd, of processes that ran already
        self._rules: _RulesFile | None = None
        if session.rules_file:
            self._rules = _RulesFile(session.rules_file, session.notice, session.options.rules)

    def begin(self) -> None:
        """Begin to follow. Raises BadInput or MachineLacks when there is nothing to follow."""
        if self.session.words:
            child = self.session.child or Spawn(self._relay.held, traceable=True)
            self.session.child = child  # whoever gives up cancels it
            self.recorder.follow(child.pid)
            self.session.child = None
            child.release(self.session.words, os.environ)
            self._began = time.monotonic()
            self.pid = child.pid
        for pid in self.session.pids:
            self._followed[pid] = follow_process(self.recorder, pid)

    def guard(self, step: Callable[[], None]) -> None:
        """Do something; what breaks is kept as something the recording lacks."""
        try:
            step()
        except (OSError, PtweaveError) as error:
            self.lacks.append(error.line() if isinstance(error, PtweaveError) else str(error))

    def until_the_end(self) -> None:
        while True:
            came = self._relay.relay(self.pid if self.pid and self.status is None else None)
            self.guard(self.recorder.service)
            if self._rules is not None:
                self._rules.look(self.recorder)
            if self._ended(asked=bool(set(came) & ENDING) or bool(self._relay.ending)):
                return
            try:
                select.select([*self.recorder.fds(), *self._followed.values()], [], [], TICK_SECONDS)
            except (OSError, ValueError):
                time.sleep(TICK_SECONDS)

    def _ended(self, *, asked: bool) -> bool:
        if self.pid:
            return self._command_ended(asked=asked)
        for pid, fd in list(self._followed.items()):
            if select.select([fd], [], [], 0)[0]:
                os.close(fd)
                del self._followed[pid]
        return asked or (bool(self.session.pids) and not self._followed)

    def _command_ended(self, *, asked: bool) -> bool:
        """The command is over, with all it left behind, or its user has waited long enough for that."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if not pid:
                break
            if pid == self.pid:
                self.status = status
                self.target_seconds = time.monotonic() - self._began
        return self.status is not None and (asked or not children(os.getpid()))


class _RulesFile:
    """Filter rules that are read again whenever their file changes. One that is wrong is told, and changes nothing."""

    def __init__(self, path: Path, notice: Callable[[str], None], held: filters.Rules) -> None:
        self._path, self._notice, self._held = path, notice, held
        self._stamp: tuple[int, int, int] | None = None  # it may have changed since it was read
        self._next = 0.0

    def _now(self) -> tuple[int, int, int]:
        try:
            found = self._path.stat()
        except OSError:
            return 0, 0, 0
        return found.st_ino, found.st_mtime_ns, found.st_size

    def look(self, recorder: EventRecorder | FallbackRecorder) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + RELOAD_SECONDS
        stamp = self._now()
        if stamp == self._stamp:
            return
        first, self._stamp = self._stamp is None, stamp
        try:
            rules = filters.load(self._path)
            if first and rules == self._held:
                return
            recorder.filter(rules)
            self._notice(f"{self._path}: its filter rules hold from now on")
        except PtweaveError as error:
            self._notice(f"{error.line()}; the rules before go on")


def follow_process(recorder: EventRecorder | FallbackRecorder, pid: int) -> int:
    """Follow a process that runs already, with all its threads; returns a pidfd of it.

    Tasks it makes meanwhile are found by looking until there is none that is not followed: those of tasks that are
    followed are followed by themselves. So are the descendants it has.
    """
    try:
        fd = os.pidfd_open(pid)
    except OSError as error:
        raise BadInput(f"no process can be followed ({error.strerror})", where=f"--pid {pid}",
                       remedy="give the number of a process that runs") from error
    for _ in range(FOLLOW_ROUNDS):
        fresh = 0
        for one in (pid, *children(pid)):
            for tid in _threads(one):
                try:
                    fresh += recorder.follow(tid)
                except MachineLacks:
                    continue  # it ended in between
        if not fresh:
            if isinstance(recorder, FallbackRecorder):
                recorder.settle()
            return fd
    os.close(fd)
    raise MachineLacks("makes threads faster than they can be followed", where=f"--pid {pid}",
                       remedy="record it from its start: ptweave events -- COMMAND")


def _threads(pid: int) -> list[int]:
    try:
        return [int(entry.name) for entry in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return []


__all__ = ["Recorded", "Session", "follow_process", "record"]
