# SPDX-License-Identifier: MIT
"""The supervisor: starts the target under an engine, keeps every recorder going, and closes the bundle.

    fork (held at a gate) → recorders learn the pid → gate opens → loop: signals, handshakes, drains, images
    → the target and all it left behind are gone → last drains → sideband, ledger, manifest

The target is a child in the supervisor's own process group, so the terminal treats both as one job. Processes the
target leaves behind become the supervisor's children (PR_SET_CHILD_SUBREAPER) and are waited for.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import resource
import select
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from ptweave.data import BadInput, Bundle, Clocks, Ledger, MachineLacks, Manifest, State
from ptweave.data.bundle import SPOOL
from ptweave.data.handshake import SOCKET_VARIABLE
from ptweave.data.sideband import write_sideband
from ptweave.wrapper import host, pt_spool
from ptweave.wrapper.call_stream import PerfStream, open_stream
from ptweave.wrapper.control import ControlServer
from ptweave.wrapper.engines import Engine, choose
from ptweave.wrapper.means import Means
from ptweave.wrapper.notices import explain_crash
from ptweave.wrapper.parts import Part, finish, service
from ptweave.wrapper.perf.pmu import INTEL_PT
from ptweave.wrapper.preloaded import account_programs
from ptweave.wrapper.probes.plan import FOLDER as PROBES
from ptweave.wrapper.probes.plan import Plan, probes_environment
from ptweave.wrapper.pt import PtOptions, PtRecorder, timing
from ptweave.wrapper.signals import SignalRelay
from ptweave.wrapper.soft import SoftEngine, Spool, salvage
from ptweave.wrapper.syscalls import SyscallRecorder
from ptweave.wrapper.target import Held, Linkage, Spawn, Target, examine
from ptweave.wrapper.tasks import TaskRegistry
from ptweave.wrapper.threads import Access, ThreadsMode, View, check_shared, threads_environment
from ptweave.wrapper.version import ptweave_version
from ptweave.wrapper.watches.plan import COUNTS_FILE, watches_environment
from ptweave.wrapper.watches.plan import FOLDER as WATCHES
from ptweave.wrapper.watches.plan import Plan as WatchPlan
from ptweave.wrapper.watches.processor import check as check_processor

TICK_MS = 20
SNAPSHOT = signal.SIGUSR2
"""Asks a flight recorder for a snapshot; it is not passed on then."""
PR_SET_CHILD_SUBREAPER = 36
GRACE_SECONDS = 2.0
"""Between asking processes that were left behind to end, and ending them."""
NOTICE_SECONDS = 2.0
LOCK = ".lock"
TRACE = "trace"
STOPPED = "recording stopped early"
RESERVES = {".reserve": 4 << 20, ".reserve-last": 256 << 10}
"""Room kept free while recording, so that a full disk still takes what closes the bundle: the first for the parts'
last bytes, the second for ledger and manifest."""


@dataclass
class Options:
    """What to record, and how."""

    argv: Sequence[str]
    output: Path
    engine: Engine = Engine.AUTO
    threads: ThreadsMode = ThreadsMode.PROCESS
    access: Access = Access.HELD
    view: View = View.SHARED
    shared: Sequence[str] = ()
    """Variables and addresses that are passed through to all threads."""
    ring: int = 0
    """Bytes of events (tags, probes) kept of each process, the newest; 0: all."""
    probes: Plan | None = None
    """Made by whoever can read the program's symbols (`ptweave.wrapper.probes`)."""
    watches: WatchPlan | None = None
    """The same, of watchpoints (`ptweave.wrapper.watches`)."""
    pt: PtOptions = field(default_factory=PtOptions)
    """Of the engine intel_pt."""
    calls_with: Means = Means.AUTO
    """What system calls are recorded with, beside the engine's own log of them."""
    target: Target | None = None
    """What `examine` found out of argv, before privileges were given up; None: it is asked."""
    output_made: bool = False
    """The output folder is there, ours and empty."""
    notice: Callable[[str], None] = lambda line: None
    """Takes lines for the user while the target runs (used sparingly: the terminal is the target's)."""


@dataclass
class Recording:
    """A finished recording. `status` is the target's wait status; `ended` the signals that asked ptweave to end."""

    bundle: Bundle
    status: int
    ended: set[signal.Signals] = field(default_factory=set)


def _subreaper() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise MachineLacks(f"prctl(PR_SET_CHILD_SUBREAPER): {os.strerror(ctypes.get_errno())}",
                           remedy="use Linux 3.4 or newer")


def lock(bundle: Bundle) -> int:
    """Take the bundle's lock; returns its descriptor. Raises BadInput while somebody else records or repairs it."""
    fd = os.open(bundle.path / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(fd)
        raise BadInput("is being recorded at this moment", where=str(bundle.path),
                       remedy="wait until the recording has ended") from error
    return fd


def _reserve(bundle: Bundle) -> None:
    for name, size in RESERVES.items():
        fd = os.open(bundle.path / name, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, size)
        except OSError as error:
            raise MachineLacks(f"not even {sum(RESERVES.values()) >> 20} MiB are free ({error.strerror})",
                               where=str(bundle.path), remedy="make room, or choose another place with -o") from error
        finally:
            os.close(fd)


def _release_reserve(bundle: Bundle, name: str) -> None:
    (bundle.path / name).unlink(missing_ok=True)


def _remember_folder(bundle: Bundle, environment: dict[str, str]) -> None:
    """Keep in the lock file which folder the socket is in: a repair removes it when this process could not."""
    (bundle.path / LOCK).write_text(str(Path(environment[SOCKET_VARIABLE]).parent))


def _remove_folder(bundle: Bundle) -> None:
    """Remove the socket's folder of a recorder that died, if it is one of ours and only that."""
    named = (bundle.path / LOCK).read_text()
    folder = Path(named)
    if not named or not folder.name.startswith("ptweave-") or folder.is_symlink() or not folder.is_dir():
        return
    if folder.stat().st_uid == os.geteuid() and all(entry.is_socket() for entry in folder.iterdir()):
        shutil.rmtree(folder, ignore_errors=True)


def children(pid: int) -> list[int]:
    """Living descendants of a process, nearest first (proc(5), task/children)."""
    found: list[int] = []
    queue = [pid]
    while queue:
        base = Path(f"/proc/{queue.pop(0)}/task")
        try:
            tasks = list(base.iterdir())
        except OSError:
            continue  # it ended meanwhile
        for task in tasks:
            try:
                more = [int(word) for word in (task / "children").read_text().split()]
            except OSError:
                continue
            found += more
            queue += more
    return found


class _Session:
    """One recording under way: the parts, the target's pid, its status."""

    def __init__(self, bundle: Bundle, options: Options) -> None:
        self.bundle = bundle
        self.options = options
        self.parts: list[Part] = []
        self.pt: PtRecorder | None = None
        self.spool: Spool | None = None
        self.control: ControlServer | None = None
        self.recorder: SyscallRecorder | PerfStream | None = None
        self.tasks = TaskRegistry()
        self.environment = dict(os.environ)
        self.status: int | None = None
        self.target_seconds = 0.0
        """From exec to the target's end."""
        self._pidfd = -1
        self._began = 0.0
        self._left_since = 0.0
        self._noticed = False
        self._kill_at = 0.0
        self._static = False  # the command is

    # --- building ---

    def add_engine(self) -> list[str]:
        folder = self.bundle.path / SPOOL
        folder.mkdir(mode=0o700)
        if self.bundle.manifest.engine == Engine.INTEL_PT:
            self.pt = PtRecorder(self.bundle, folder, self.tasks, self.options.pt)
            self.bundle.manifest.engine_version = f"perf (Linux {host.kernel()})"
            self.bundle.manifest.exact_time = True
            timing(self.bundle.manifest.cpu, self.pt.pmu, self.options.pt.settings)
            self.parts.append(Part(TRACE, self.pt.service, self.pt.finish, self.pt.fds))
            return list(self.options.argv)
        engine = SoftEngine()
        self.bundle.manifest.engine_version = engine.version()
        argv, extra = engine.command(list(self.options.argv), folder)
        self.spool = Spool(self.bundle, folder, self.tasks)
        self._spool_part = Part(TRACE, self.spool.poll, self.spool.finish)
        self.parts.append(self._spool_part)
        self.environment.update(extra)
        return argv

    def add_control(self, target: Target) -> None:
        self._static = target.linkage is Linkage.STATIC
        if self._static:
            self.lack("thunks: the program is static, so libtthread cannot be preloaded")

        def look() -> None:
            if self.pt is None:
                service(self._spool_part)

        def assign(pid: int, tid: int, tsc: int) -> int:
            return self.tasks.greeted(pid, tid, tsc, look)

        self.control = ControlServer(self.bundle, assign, self.options.notice,
                                     None if self.pt is None else self.pt.observe,
                                     threads_wait=self.pt is not None, ring=self.options.ring)
        self.parts.append(Part("thunks", self.control.service, self.control.finish, self.control.fds,
                               self.control.patience))
        self.environment.update(self.control.environment())
        self.environment.update(threads_environment(
            self.options.threads, self.options.access, self.options.view, self.options.shared))
        if self.options.probes is not None:
            if self.pt is not None:
                self.lack("the flow through probed places: changed code is kept with --engine soft only")
            folder = self.bundle.path / PROBES
            self.options.probes.write(folder)
            self.environment.update(probes_environment(folder))
        self._add_watches()
        _remember_folder(self.bundle, self.environment)

    def _add_watches(self) -> None:
        plan = self.options.watches
        if plan is None:
            return
        if self.pt is not None:
            check_processor(plan.slots)
        folder = self.bundle.path / WATCHES
        plan.write(folder)
        self.environment.update(watches_environment(folder))

    def add_events(self) -> None:
        try:
            recorder, means = open_stream(self.options.calls_with, self.bundle)
        except MachineLacks as error:
            if self.options.calls_with is not Means.AUTO:
                raise
            self.lack(f"system calls as the kernel sees them (paths, times): {error.line()}")
            self.bundle.manifest.events = "engine"
            return
        self.bundle.manifest.events = means.value
        if isinstance(recorder, PerfStream):
            self.lack(recorder.lacks)
        elif self.spool is not None:
            self.spool.ended_by = recorder.killed
        self.recorder = recorder
        self.parts.append(Part("system calls", recorder.service, recorder.finish, recorder.fds))

    def keep_clock(self, first: host.Moment) -> None:
        last, manifest = host.moment(), self.bundle.manifest
        manifest.clocks.tsc1, manifest.clocks.t1_ns = last.tsc, last.ns
        manifest.cpu.tsc_hz = (last.tsc - first.tsc) * 1_000_000_000 // max(1, last.ns - first.ns)

    def lack(self, line: str) -> None:
        self.bundle.manifest.lacks.append(line)

    # --- running ---

    def run(self, pid: int, relay: SignalRelay) -> None:
        """Until the target and everything it left behind has ended."""
        self._began = time.monotonic()
        self._pidfd = os.pidfd_open(pid)
        while True:
            alive = self._reap(pid)
            came = relay.relay(pid if self.status is None else None)
            self._came(came)
            self._service()
            if not alive:
                return
            if self.status is not None:
                self._left_behind(bool(set(came) & {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}))
            self._wait()

    def watch(self, pidfd: int, relay: SignalRelay) -> None:
        """Until a process that is not ours has ended, or a signal asks for the end."""
        ended = select.poll()
        ended.register(pidfd, select.POLLIN)
        while not ended.poll(0) and not relay.ending:
            self._came(relay.relay(None))
            self._service()
            self._wait()

    def _came(self, came: Sequence[signal.Signals]) -> None:
        if SNAPSHOT in came and self.pt is not None:
            self.pt.ask(SNAPSHOT.name)

    def _wait(self) -> None:
        fds = [fd for part in self.parts if not part.broken for fd in part.fds()]  # a broken one only gets ticks
        if self._pidfd >= 0:
            fds.append(self._pidfd)
        seconds = min([TICK_MS / 1000, *(part.patience() for part in self.parts if not part.broken)])
        try:
            select.select(fds, [], [], seconds)
        except (OSError, ValueError):
            time.sleep(TICK_MS / 1000)  # a descriptor was closed, or is beyond FD_SETSIZE: the tick is enough

    def _service(self) -> None:
        for part in self.parts:
            service(part)

    def _reap(self, pid: int) -> bool:
        """Collect ended children; False when none is left. Stops with the target when that was stopped."""
        while True:
            try:
                info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WSTOPPED | os.WNOHANG)
            except ChildProcessError:
                return False
            if info is None:
                return True
            if info.si_code == os.CLD_STOPPED:
                if info.si_pid == pid:
                    os.kill(os.getpid(), signal.SIGSTOP)
                    os.kill(pid, signal.SIGCONT)
                continue
            if info.si_code not in (os.CLD_EXITED, os.CLD_KILLED, os.CLD_DUMPED):
                continue
            status = info.si_status << 8 if info.si_code == os.CLD_EXITED else info.si_status
            for engine in (self.spool, self.pt):
                if engine is not None:
                    engine.exited(info.si_pid, status)
            if info.si_pid == pid:
                self.status = status
                self._left_since = time.monotonic()
                self.target_seconds = self._left_since - self._began
                os.close(self._pidfd)
                self._pidfd = -1

    def _left_behind(self, end: bool) -> None:
        now = time.monotonic()
        left = children(os.getpid())
        if not left:
            return
        if end and not self._kill_at:
            self._signal(left, signal.SIGTERM)
            self._kill_at = now + GRACE_SECONDS
        elif self._kill_at and now >= self._kill_at:
            self._signal(left, signal.SIGKILL)
        elif now - self._left_since > NOTICE_SECONDS and not self._noticed:
            self._noticed = True
            self.options.notice(f"the command has ended; waiting for {len(left)} process(es) it left behind "
                                f"(pid {', '.join(map(str, left[:5]))}): Ctrl-C ends them")

    @staticmethod
    def _signal(pids: list[int], number: signal.Signals) -> None:
        for pid in pids:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue

    # --- ending ---

    def close(self) -> Ledger:
        ledger = Ledger()
        first, last = RESERVES
        _release_reserve(self.bundle, first)
        for part in self.parts:
            finish(part, ledger)
        self._account_programs(ledger)
        for part in self.parts:
            if part.broken:
                self.lack(f"{part.name}: {STOPPED}: {part.broken}")
        _release_reserve(self.bundle, last)
        return ledger


    def _account_programs(self, ledger: Ledger) -> None:
        if self.spool is None or self.control is None or self.status is None:
            return
        programs = self.spool.programs
        if not programs and os.WIFEXITED(self.status):  # a signal may have ended it before there was anything to lose
            self.lack("everything: the engine ended before the program began")
        account_programs(programs, ((one.pid, one.tsc) for one in self.control.processes), ledger,
                         told=self._static)


def record(options: Options, held: Held | None = None) -> Recording:
    """Record one run into a new bundle; `held` is to become the target (None: a child is forked when all is ready).

    Raises BadInput or MachineLacks before the target ran anything; the bundle is then not left behind.
    """
    check_shared(options.shared)
    target = options.target or examine(options.argv)
    engine = choose(options.engine)
    if engine is Engine.SOFT:
        if options.pt.filters or options.pt.settings:
            raise BadInput("the soft engine has neither filters nor settings of Intel PT", where="--filter, --pt",
                           remedy="leave them out, or record with --engine intel_pt")
        if options.pt.snapshot:
            raise BadInput("the soft engine is no flight recorder: it keeps all packets", where="--snapshot",
                           remedy="leave it out, or record with --engine intel_pt")
        SoftEngine().version()
    first = host.moment()
    manifest = Manifest(
        command=list(options.argv), cwd=host.working_folder(), environment=host.kept_environment(),
        host=host.host_name(), kernel=host.kernel(), ptweave=ptweave_version(), cpu=host.cpu(), engine=engine.value,
        threads_mode=options.threads.value,
        view=options.view.value if options.threads is ThreadsMode.PROCESS else "",
        shared=list(options.shared) if options.threads is ThreadsMode.PROCESS else [],
        clocks=Clocks(first.tsc, first.ns, 0, 0, host.realtime_ns()))
    bundle = Bundle.create(options.output, manifest, made=options.output_made)
    holder = lock(bundle)
    try:
        with contextlib.ExitStack() as stack:
            relay = stack.enter_context(SignalRelay()) if held is None else held.relay
            relay.ours = _ours(options)
            return _record(bundle, options, target, first, relay, None if held is None else held.child)
    finally:
        os.close(holder)
        (bundle.path / LOCK).unlink(missing_ok=True)


def _ours(options: Options) -> frozenset[signal.Signals]:
    return frozenset({SNAPSHOT} if options.pt.snapshot else ())


def _record(bundle: Bundle, options: Options, target: Target, first: host.Moment, relay: SignalRelay,
            child: Spawn | None) -> Recording:
    session = _Session(bundle, options)
    began = time.monotonic()
    try:
        _subreaper()
        _reserve(bundle)
        argv = session.add_engine()
        session.add_control(target)
        session.add_events()
        session.keep_clock(first)  # a first rate, should the supervisor not live to measure a better one
        bundle.save_manifest()
        child = child or Spawn(relay.held)
        try:
            if session.pt is not None:
                session.pt.begin(child.pid, by_cpu=target.linkage is Linkage.STATIC)
            if session.recorder is not None:
                session.recorder.follow(child.pid)
        except BaseException:
            child.cancel()
            raise
        child.release(argv, session.environment)
    except BaseException:
        session.close()
        shutil.rmtree(bundle.path, ignore_errors=True)
        raise
    bundle.manifest.pid = child.pid
    session.run(child.pid, relay)
    ledger = session.close()
    return _conclude(session, ledger, first, began, relay)


def _keep_counts(bundle: Bundle, hits: int) -> None:
    """How often the processor's watchpoints were hit: into a file that is new, in a folder that is no link."""
    try:
        folder = os.open(bundle.path / WATCHES, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            opened = os.open(COUNTS_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
        finally:
            os.close(folder)
        with os.fdopen(opened, "w") as file:
            json.dump({"hits": hits}, file)
    except OSError as error:
        bundle.manifest.lacks.append(f"how often watchpoints were hit: {WATCHES}/{COUNTS_FILE} cannot be made "
                                     f"({error.strerror})")


def _conclude(session: _Session, ledger: Ledger, first: host.Moment, began: float,
              relay: SignalRelay) -> Recording:
    bundle, manifest = session.bundle, session.bundle.manifest
    session.keep_clock(first)
    manifest.status = session.status
    manifest.steps["target"] = round(session.target_seconds, 6)
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)  # all children are the target's
    manifest.steps["target_cpu"] = round(usage.ru_utime + usage.ru_stime, 6)
    manifest.steps["record"] = round(time.monotonic() - began, 6)
    if session.control is not None:
        explain_crash(session.control.notices, manifest.view, manifest.status or 0)
        manifest.notices = session.control.notices.all
        if session.control.watch_hits is not None:
            _keep_counts(bundle, session.control.watch_hits)
    broken = any(part.broken for part in session.parts)
    manifest.state = State.PARTIAL if broken else State.COMPLETE
    bundle.save_ledger(ledger)
    bundle.save_manifest()
    return Recording(bundle, session.status or 0, relay.ending)


def attach(options: Options, pid: int) -> Recording:
    """Record a process that runs already, with all its threads and what they fork, until it ends or a signal asks for
    the end; it goes on. With the engine intel_pt only; what libtthread logs is not there.

    Raises BadInput or MachineLacks; no bundle is left behind then.
    """
    try:
        words = [os.fsdecode(word) for word in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]]
        pidfd = os.pidfd_open(pid)
    except OSError as error:
        raise BadInput(f"there is no such process ({error.strerror})", where=f"--pid {pid}",
                       remedy="check the pid") from error
    _check_attaching(options.engine, f"--pid {pid}")
    first = host.moment()
    manifest = Manifest(
        command=words, environment=host.kept_environment(), host=host.host_name(), kernel=host.kernel(),
        ptweave=ptweave_version(), cpu=host.cpu(), engine=Engine.INTEL_PT.value, threads_mode=ThreadsMode.NATIVE.value,
        clocks=Clocks(first.tsc, first.ns, 0, 0, host.realtime_ns()), pid=pid)
    bundle = Bundle.create(options.output, manifest)
    holder = lock(bundle)
    try:
        with SignalRelay() as relay:
            relay.ours = _ours(options)
            return _attach(bundle, options, pid, pidfd, first, relay)
    finally:
        os.close(holder)
        os.close(pidfd)
        (bundle.path / LOCK).unlink(missing_ok=True)


def _check_attaching(engine: Engine, where: str) -> None:
    """Raises MachineLacks where no engine can attach to a process, BadInput where another one can."""
    if not INTEL_PT.exists():
        raise MachineLacks("this machine has no Intel PT (no intel_pt PMU), and nothing else records the branches of a "
                           "process that runs", where=where,
                           remedy="start the program under ptweave record, or have its system calls recorded: "
                           f"ptweave events {where} -o NAME.ptw")
    if engine is Engine.SOFT:
        raise BadInput("the soft engine cannot attach to a process", where=where,
                       remedy="leave --engine out; or start the program under ptweave record")


def _attach(bundle: Bundle, options: Options, pid: int, pidfd: int, first: host.Moment,
            relay: SignalRelay) -> Recording:
    session = _Session(bundle, options)
    session.lack("what ran before it was attached to; thunks: libtthread is not in it")
    began = time.monotonic()
    try:
        _reserve(bundle)
        session.add_engine()
        session.add_events()
        assert session.pt is not None
        if session.recorder is not None:
            session.recorder.follow(pid)
        session.pt.attach(pid)
        session.keep_clock(first)
        bundle.save_manifest()
    except BaseException:
        session.close()
        shutil.rmtree(bundle.path, ignore_errors=True)
        raise
    session.watch(pidfd, relay)
    return _conclude(session, session.close(), first, began, relay)


class Repaired(Enum):
    """Why a bundle had to be finished after its recording, in the words for the user."""

    RECORDER_DIED = "its recorder died; what it had written is kept"
    NO_ROOM = "its recorder ran out of room; what it had to leave in the spool is in its place now"


def repair(bundle: Bundle) -> Repaired | None:
    """Finish a bundle whose recorder could not: keep what its engine had written. Returns why there was need to.

    A recorder that died left the bundle as one that is being recorded. One that had no room for the traces closed it
    all the same, and left what the engine wrote: then nothing but that was missing.
    Raises BadInput while the recording is still going on, MachineLacks when there is still no room.
    """
    if not bundle.unfinished:
        return None
    died = bundle.manifest.state is State.RECORDING
    folder = bundle.path / SPOOL
    holder = lock(bundle)
    try:
        _remove_folder(bundle)
        for name in RESERVES:
            _release_reserve(bundle, name)
        if folder.is_dir():
            (pt_spool.salvage if bundle.manifest.engine == Engine.INTEL_PT else salvage)(bundle, folder)
        if not bundle.sideband.exists():  # it died before there was anything to trace: that decodes, to nothing
            write_sideband(bundle.sideband, [])
        lacks = bundle.manifest.lacks
        if died:
            lacks.append("the end: the recorder died before the run was over")
        else:
            lacks[:] = [line for line in lacks if not line.startswith(f"{TRACE}: {STOPPED}")]
        broken = died or any(STOPPED in line for line in lacks)
        bundle.manifest.state = State.PARTIAL if broken else State.COMPLETE
        bundle.save_manifest()
    finally:
        os.close(holder)
        (bundle.path / LOCK).unlink(missing_ok=True)
    return Repaired.RECORDER_DIED if died else Repaired.NO_ROOM
