# SPDX-License-Identifier: MIT
"""Records with the processor's Intel PT: an event for each thread, opened when it shakes hands, or for each CPU.

A thread of the target has an event of its own (its packets are `trace/<thread>.pt`): the first one's begins with exec,
others' when the thread's handshake is answered. A program that libtthread cannot be preloaded into is recorded by CPU
(`trace/cpu-<n>.pt`), and everything it forks with it; the packets are told apart when they are decoded.

Packets go from the rings to the files in C; records go to the spool (`pt_spool`), which also is what a recorder that
dies leaves. Nothing here blocks. One process uses this, in one thread.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import select
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ptweave.data import Bundle, Cpu, Ledger, MachineLacks
from ptweave.data.handshake import Hello
from ptweave.data.perf.format import AuxFlag, RecordType
from ptweave.data.perf.records import Aux, Comm, ItraceStart, Mmap, Task
from ptweave.wrapper import host, processes, pt_spool
from ptweave.wrapper._perf_ring import ffi, lib
from ptweave.wrapper.images import ImageStore, MappedFile
from ptweave.wrapper.perf import synthesis
from ptweave.wrapper.perf.abi import Ioctl, PerfEventAttr
from ptweave.wrapper.perf.breakpoints import Breakpoints, Place, Watched
from ptweave.wrapper.perf.event import PAGE, Event
from ptweave.wrapper.perf.filters import AddressFilter
from ptweave.wrapper.perf.pmu import Pmu, read_pmu
from ptweave.wrapper.perf.settings import DEFAULTS, check_settings
from ptweave.wrapper.pt_snapshot import NONE_TAKEN, FlightRecorder
from ptweave.wrapper.pt_spool import VDSO, Losses, Trace
from ptweave.wrapper.pt_stream import Stream
from ptweave.wrapper.tasks import TaskRegistry

PMU = "intel_pt"
DATA_SIZE = 64 << 10
"""Bytes of the ring of records of one event."""
AUX_SIZES = (4 << 20, 1 << 20, 256 << 10, 64 << 10)
"""Bytes of packets that a ring holds, the first that the limits of memory allow."""
MEMORY_SHARE = 8
"""Rings take at most one part in so many of the memory (but 64 KiB each)."""
WATERMARK_MAX = 256 << 10
"""Bytes of packets after which they can be read, at most: what was not read is lost with a recorder that is killed."""
FULL = "the ring was full: the kernel stopped tracing until it was read"


@dataclass(frozen=True)
class PtOptions:
    """How to trace. `aux_size` 0: as much as the limits of memory allow. `settings`: by sysfs's names, beside those
    that are always on. `snapshot`: keep what the rings hold when that is asked for, when one of `places` is reached,
    and when a process crashes, and nothing else."""

    aux_size: int = 0
    filters: tuple[AddressFilter, ...] = ()
    settings: Mapping[str, int] = field(default_factory=dict)
    snapshot: bool = False
    places: tuple[Place, ...] = ()


def intel_pt() -> Pmu:
    """The PMU. Raises MachineLacks."""
    pmu = read_pmu(PMU)
    if pmu is None:
        raise no_intel_pt()
    return pmu


def no_intel_pt() -> MachineLacks:
    """The error where there is no such PMU."""
    return MachineLacks("this machine has no Intel PT (no intel_pt PMU)", where="--engine intel_pt",
                        remedy="use --engine soft, which emits the same packets")


def obstacle() -> MachineLacks | None:
    """Why this user cannot trace with Intel PT at this moment; None where nothing is in the way."""
    try:
        attr = PerfEventAttr()
        intel_pt().set(attr, {"tsc": 1})
        attr.disabled = attr.exclude_kernel = attr.exclude_hv = 1
        Event(attr, 0, -1, data=PAGE, aux=AUX_SIZES[-1], file=-1).close()
    except MachineLacks as error:
        return error
    return None


def timing(cpu: Cpu, pmu: Pmu, settings: Mapping[str, int]) -> None:
    """What the decoder must know of the processor's timing packets."""
    cpu.mtc_freq = settings.get("mtc_period", 0)
    cpu.nom_freq = pmu.max_nonturbo_ratio & 0xFF
    cpu.tsc_ratio = pmu.tsc_art_ratio


class PtRecorder:
    """The rings of all threads. `observe` is called for each handshake before it is answered, `begin` for the first
    thread before it runs; then `service` until all is over."""

    def __init__(self, bundle: Bundle, spool: Path, tasks: TaskRegistry, options: PtOptions) -> None:
        """Raises MachineLacks without an intel_pt PMU."""
        self.pmu = intel_pt()
        check_settings(self.pmu, options.settings)
        if len(options.filters) > self.pmu.filters:
            raise MachineLacks(f"this processor has {self.pmu.filters} address ranges, {len(options.filters)} are "
                               "asked for", where="--filter", remedy="name fewer functions")
        self._bundle = bundle
        self._spool = spool
        self._tasks = tasks
        self._options = options
        self._images = ImageStore(bundle.images, spool)
        self._known: set[tuple[tuple[int, int], int]] = set()
        self._streams: dict[int, Stream] = {}  # by thread, or ~cpu
        self._by_fd: dict[int, Stream] = {}
        self._past: dict[str, Losses] = {}  # by trace, of threads that have ended
        self._seen: set[int] = set()  # threads that have or had a stream
        self._budget = processes.memory() // MEMORY_SHARE
        self._shared: list[int] = []  # events that write into others' rings
        self._forked: set[int] = set()  # pids whose beginning the kernel told
        self._statuses: dict[int, int] = {}
        self._flight = FlightRecorder(self._statuses, spool / pt_spool.SNAPSHOTS) if options.snapshot else None
        self._places = Breakpoints(options.places)
        self._told: list[int] = []  # threads that were attached to
        self._aux_size = options.aux_size or AUX_SIZES[0]
        self._time: tuple[int, int, int] | None = None
        self._epoll = select.epoll(flags=select.EPOLL_CLOEXEC)
        self._rings: Any = None
        self._lines = (spool / pt_spool.IMAGES).open("a")
        self._flawed: list[str] = []  # what is to be said at the end
        self.refused: list[str] = []
        """Threads that could not be traced, and why."""

    # --- what is traced ---

    def begin(self, pid: int, *, by_cpu: bool = False) -> None:
        """The target's first process, held before exec. Raises MachineLacks."""
        attr = self._attr()
        attr.disabled = attr.enable_on_exec = 1
        if by_cpu:
            attr.inherit = 1
            for cpu in sorted(processes.online_cpus()):
                self._open(Trace(f"cpu-{cpu}", -1, -1, -1, cpu), attr, pid)
            self._told = [pid]
            self._watch()
            return
        thread = self._tasks.start(pid, pid, host.moment().tsc)
        self._open(Trace(str(thread), thread, pid, pid, -1), attr, pid)

    def attach(self, pid: int) -> None:
        """A process that runs, with all its threads, and what they will make. Raises MachineLacks."""
        attr = self._attr()
        attr.disabled = attr.inherit = 1
        tids = processes.tasks(pid)
        if not tids:
            raise MachineLacks("there is no such process (any more)", where=f"pid {pid}", remedy="check the pid")
        streams = [self._open(Trace(f"cpu-{cpu}", -1, -1, -1, cpu), attr, tids[0])
                   for cpu in sorted(processes.online_cpus())]
        self._told = tids
        self._told_of(streams[0], pid, tids)
        for tid in tids[1:]:
            for stream in streams:
                try:
                    self._shared.append(stream.event.share(attr, tid, stream.trace.cpu))
                except MachineLacks as error:
                    if isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.ESRCH:
                        break  # it ended meanwhile
                    raise
        for fd in [stream.event.fd for stream in streams] + self._shared:
            fcntl.ioctl(fd, Ioctl.ENABLE, 0)
        self._watch()  # not before: what is reached then would be in no ring

    def _told_of(self, stream: Stream, pid: int, tids: list[int]) -> None:
        """What the kernel told of a process before anybody listened."""
        when = synthesis.Moment(pid, pid, self._now())
        made = [synthesis.comm(when, processes.comm(pid), execed=True)]
        made += [synthesis.itrace_start(synthesis.Moment(pid, tid, when.time)) for tid in tids]
        made += [synthesis.mmap2(when, *mapping) for mapping in processes.code_maps(pid)]
        self._take(stream, b"".join(made))

    def observe(self, kind: Hello, pid: int, tid: int, owner: int) -> None:
        """A thread shakes hands, and waits: trace it from here on, if it is not traced already."""
        if self._places.any:
            self.service()  # what its program has mapped: it must not run past a place before that is watched
        thread = self._tasks.lookup(pid, tid)
        if thread is None or thread in self._seen or any(key < 0 for key in self._streams):
            return
        self.service()  # what the kernel told of it already
        attr = self._attr()
        try:
            trace = Trace(str(thread), thread, pid, tid, -1, pseudo=kind is Hello.PSEUDO_THREAD)
            stream = self._open(trace, attr, tid)
        except MachineLacks as error:
            self.refused.append(f"thread {thread} (tid {tid}): {error.line()}")
            return
        stream.home = owner if kind is Hello.PSEUDO_THREAD else pid
        self._tell(stream, kind, owner)
        self._watch()

    def exited(self, pid: int, status: int) -> None:
        """A process ended with this wait status."""
        self._statuses[pid] = status
        if self._flight is not None and os.WIFSIGNALED(status) and any(key < 0 for key in self._streams):
            self._flight.ask(f"pid {pid} was ended by {processes.signal_name(os.WTERMSIG(status))}")

    def ask(self, why: str) -> None:
        """A snapshot is wanted, of a recorder that takes them; it is taken when this is serviced next."""
        if self._flight is not None:
            self._flight.ask(why)

    def _watch(self) -> None:
        """Have breakpoints in all threads that are traced."""
        if self._options.places:
            self._places.watch([
                Watched(stream.event, tid, tid, stream.trace.cpu) for stream in self._streams.values()
                if stream.trace.cpu >= 0 for tid in self._told] + [
                Watched(stream.event, stream.trace.pid, stream.trace.tid) for stream in self._streams.values()
                if stream.trace.cpu < 0 and not stream.over])

    def _attr(self) -> PerfEventAttr:
        attr = PerfEventAttr()
        self.pmu.set(attr, {name: value for name, value in DEFAULTS.items() if name in self.pmu.formats})
        self.pmu.set(attr, self._options.settings)
        attr.exclude_kernel = attr.exclude_hv = 1
        attr.sample_type = synthesis.TRAILER
        attr.sample_id_all = attr.mmap = attr.mmap2 = attr.comm = attr.comm_exec = attr.task = attr.context_switch = 1
        attr.watermark = 1
        attr.wakeup_watermark = DATA_SIZE // 4
        return attr

    def _open(self, trace: Trace, attr: PerfEventAttr, pid: int) -> Stream:
        packets = _appending(self._bundle.trace / f"{trace.name}.pt")
        try:
            event = self._event(attr, pid, trace.cpu, packets)
        except BaseException:
            os.close(packets)
            (self._bundle.trace / f"{trace.name}.pt").unlink()
            raise
        records = _appending(self._spool / f"{trace.name}.rec")
        os.write(records, trace.header)
        stream = Stream(trace, event, packets, records, home=trace.pid)
        self._streams[trace.thread if trace.cpu < 0 else ~trace.cpu] = stream
        self._seen.add(trace.thread)
        self._by_fd[event.fd] = stream
        self._epoll.register(event.fd, select.EPOLLIN)
        self._rings = None
        if self._time is None:
            self._describe(event)
        return stream

    def _event(self, attr: PerfEventAttr, pid: int, cpu: int, packets: int) -> Event:
        """With rings as large as may be: where the size is ours to choose, all of them take a share of the memory,
        and a smaller one is tried where the limits forbid it."""
        left = self._budget - sum(stream.event.ring.aux_size for stream in self._streams.values())
        sizes = [size for size in AUX_SIZES if size <= min(self._aux_size, left)] or [AUX_SIZES[-1]]
        if self._options.aux_size:
            sizes = [self._options.aux_size]
        for size in sizes:
            attr.aux_watermark = max(PAGE, min(size // 4, WATERMARK_MAX))
            try:
                event = Event(attr, pid, cpu, data=DATA_SIZE, aux=size, file=packets, overwrite=self._options.snapshot,
                              filters=",".join(one.kernel for one in self._options.filters))
            except MachineLacks as error:
                if size == sizes[-1] or not isinstance(error.__cause__, OSError) or "memory" not in error.what:
                    raise
                continue
            if size != sizes[0]:
                self._aux_size = size  # of those that follow, too
            return event
        raise AssertionError("there is always a last size")

    def _describe(self, event: Event) -> None:
        """What is needed to read the records, once."""
        self._time = event.time()
        if self._time is None:
            raise MachineLacks("the kernel does not say how its times become TSC ticks", where="intel_pt",
                               remedy="boot with the TSC as clock source (clocksource=tsc), or use --engine soft")
        zero, mult, shift = self._time
        zero -= (zero >> 63) << 64
        path = self._spool / pt_spool.DESCRIPTION
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(
            {"version": pt_spool.VERSION, "type": self.pmu.type, "zero": zero, "mult": mult, "shift": shift,
             "filters": [asdict(one) for one in self._options.filters]}))
        partial.replace(path)
        self._keep_vdso()

    # --- what was there before ---

    def _now(self) -> int:
        """The perf time."""
        assert self._time is not None
        zero, mult, shift = self._time
        tsc = host.moment().tsc
        return zero + (tsc >> shift) * mult + ((tsc & (1 << shift) - 1) * mult >> shift) & (1 << 64) - 1

    def _tell(self, stream: Stream, kind: Hello, owner: int) -> None:
        """Put into a thread's records what the kernel told before there was an event of its own."""
        trace = stream.trace
        when = synthesis.Moment(trace.pid, trace.tid, self._now())
        made = []
        if kind is Hello.PROCESS:
            made.append(synthesis.comm(when, processes.comm(trace.pid), execed=True))
        elif kind is not Hello.THREAD and trace.pid not in self._forked:
            parent = owner if kind is Hello.PSEUDO_THREAD else processes.parent(trace.pid)
            made.append(synthesis.fork(when, parent, parent))
            self._forked.add(trace.pid)
        if kind is not Hello.THREAD:
            made += [synthesis.mmap2(when, *mapping) for mapping in processes.code_maps(trace.pid)]
        made.append(synthesis.itrace_start(when))
        self._take(stream, b"".join(made))

    # --- while it runs ---

    def fds(self) -> list[int]:
        """One descriptor: readable when there is something to take."""
        return [] if self._epoll.closed else [self._epoll.fileno()]

    def service(self) -> None:
        """Take what is there. Raises OSError when records cannot be written."""
        if self._epoll.closed:
            return
        for fd, events in self._epoll.poll(0):
            if events & (select.EPOLLHUP | select.EPOLLERR):  # its thread is gone: it would be ready for ever
                self._epoll.unregister(fd)
                self._by_fd[fd].over = True
                self._by_fd[fd].over_since = time.monotonic()
        self._drain()
        if self._flight is not None:
            self._watch()
            self._flawed += self._flight.take(list(self._streams.values()), self._shared, self._drain)
        for stream in [one for one in self._streams.values() if one.over and one.trace.cpu < 0]:
            if self._flight is None or self._flight.settle(stream):
                self._retire(stream)

    def _drain(self) -> None:
        live = list(self._streams.values())
        if self._flight is not None:
            for stream in live:
                self._drain_records(stream)
            return
        if self._rings is None:
            self._rings = ffi.new("struct ptw_ring *[]", [stream.event.ring for stream in live])
        before = [(stream.event.ring.position, stream.event.ring.lost) for stream in live]
        lib.ptw_rings_aux(self._rings, len(live))
        for stream, (position, lost) in zip(live, before, strict=True):
            ring = stream.event.ring
            if ring.full and not stream.over:
                stream.losses.breaks.append((ring.stored, FULL))
            if ring.lost > lost:
                stream.losses.breaks.append((ring.stored, f"packets could not be written ({os.strerror(ring.error)})"))
            stopped = self._drain_records(stream) or bool(ring.full)
            if stopped:
                stream.stopped_at = ring.position
            elif ring.position > position:
                stream.stopped_at = -1
            if stream.stopped_at >= 0 and not stream.over:
                self._go_on(stream)

    def _drain_records(self, stream: Stream) -> bool:
        """True: tracing was stopped."""
        stopped = False
        while data := stream.event.records():
            stopped |= self._take(stream, data)
        return stopped

    def _retire(self, stream: Stream) -> None:
        """A thread has ended and everything it left was taken: give its memory and its descriptors back."""
        self._past[stream.trace.name] = stream.end()
        del self._streams[stream.trace.thread]
        del self._by_fd[stream.event.fd]
        self._rings = None
        stream.close()
        self._watch()

    def _go_on(self, stream: Stream) -> None:
        """The kernel stopped tracing when the ring was full; there is room again. It may be about to stop only now: so
        this is said again until there are packets."""
        try:
            stream.event.ioctl(Ioctl.ENABLE)
        except OSError:
            stream.over = True

    def _take(self, stream: Stream, data: bytes) -> bool:
        """Store records; keep the files they name. True: tracing was stopped."""
        stopped = False
        for record in pt_spool.parse_records(data):
            if isinstance(record, Mmap) and record.executable:
                self._keep(record)
                self._places.mapped(record)
            elif isinstance(record, Aux):
                stopped |= bool(record.flags & AuxFlag.TRUNCATED)
                if record.flags & AuxFlag.OVERWRITE:
                    stream.window.step(record.offset, int(stream.event.ring.aux_size))
            elif isinstance(record, Task) and record.type == RecordType.FORK:
                self._forked.add(record.pid)
            elif isinstance(record, Task):
                self._tasks.exit(record.pid, record.tid, 0)
            elif isinstance(record, ItraceStart):
                stream.begun = True
            elif isinstance(record, Comm) and record.exec:
                self._places.execed(record.pid)
        if self._flight is not None and self._places.any:
            for name in self._places.hits(data):
                self._flight.ask(f"{name} was reached")
        self._lines.flush()
        _write_all(stream.records, data)
        return stopped

    # --- images ---

    def _keep(self, mapping: Mmap) -> None:
        where = (mapping.device, mapping.inode)
        if where in self._known or not mapping.inode or not mapping.path.startswith("/"):
            return
        image = self._images.keep(MappedFile(
            mapping.path, os.makedev(*mapping.device), mapping.inode, 0, 0, mapping.pid, mapping.start,
            mapping.start + mapping.size))
        if image is not None:
            self._known.add(where)
            self._line({"device": list(mapping.device), "inode": mapping.inode, "image": image})

    def _keep_vdso(self) -> None:
        """Ours is everybody's: the kernel maps the same pages into every 64-bit process."""
        for start, size, *_ in processes.code_maps(os.getpid(), VDSO.encode()):
            image = self._images.keep_bytes(ctypes.string_at(start, size))
            self._line({"device": None, "inode": 0, "image": image})
        self._lines.flush()

    def _line(self, entry: dict[str, object]) -> None:
        self._lines.write(json.dumps(entry) + "\n")

    # --- the end ---

    def finish(self, ledger: Ledger) -> None:
        """Stop, take what is left, write the sideband, account. Raises MachineLacks when there is no room."""
        if self._epoll.closed:
            return
        try:
            for fd in [stream.event.fd for stream in self._streams.values() if not stream.over] + self._shared:
                fcntl.ioctl(fd, Ioctl.DISABLE, 0)
            self._drain()
            self._drain()  # what the first one made room for
            if self._flight is not None:
                self._end_flight(self._flight)
            losses = self._past | {stream.trace.name: stream.end() for stream in self._streams.values()}
        finally:
            self._close()
        try:
            pt_spool.finish(self._bundle, self._spool, ledger, losses, self._statuses)
        except OSError as error:
            raise MachineLacks(f"cannot be written ({error.strerror})", where=str(self._bundle.path),
                               remedy="make room; what was recorded is still in " + str(self._spool)) from error
        if self.refused:
            self._bundle.manifest.lacks += self.refused
            ledger.add("threads", "streams", lost={"no trace could be begun": len(self.refused)})
        self._bundle.manifest.lacks += self._places.refused + self._flawed

    def _end_flight(self, flight: FlightRecorder) -> None:
        self._flawed += flight.take(list(self._streams.values()), self._shared, self._drain)
        for stream in self._streams.values():
            flight.settle(stream, last=True)
        if not flight.taken:
            self._flawed.append(NONE_TAKEN)

    def _close(self) -> None:
        self._epoll.close()
        self._rings = None
        self._lines.close()
        for fd in self._shared:
            os.close(fd)
        for stream in self._streams.values():
            stream.close()
        self._places.close()
        if self._flight is not None:
            self._flight.close()


def _appending(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view):]
