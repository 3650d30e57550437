# SPDX-License-Identifier: MIT
"""Makes a run bundle of a perf.data file with Intel PT in it."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from ptweave.data.bundle import Bundle
from ptweave.data.errors import BadInput
from ptweave.data.ledger import Ledger
from ptweave.data.manifest import Clocks, Cpu, Manifest, State
from ptweave.data.perf.attrs import Attr
from ptweave.data.perf.format import NO_TASK, RecordType, SampleType
from ptweave.data.perf.records import (
    Aux,
    AuxSample,
    Auxtrace,
    AuxtraceError,
    Comm,
    IntelPt,
    ItraceStart,
    Lost,
    Mmap,
    Record,
    Task,
    TextPoke,
)
from ptweave.data.perf.tasks import Row, Space, Tasks
from ptweave.data.sideband import TELLERS, SidebandKind, write_sideband
from ptweave.decode.importing import Images
from ptweave.decode.perfdata.reader import PerfData
from ptweave.decode.perfimport.files import Finder, plain_id
from ptweave.decode.perfimport.kernel import KernelMap, kernel_entries, kernel_id, kernel_maps, other_kernel
from ptweave.decode.perfimport.patches import WORK_MAX, Patches
from ptweave.decode.perfimport.traces import Buffer, Queue, queue_of

CPUID = re.compile(r"(\w+),(\d{1,5}),(\d{1,3}),(\d{1,3})")
NO_CODE = re.compile(r"//anon|/dev/zero|/anon_hugepage|/SYSV|\[heap\]|\[stack|\[vsyscall\]|\[uprobes\]|anon_inode:")
"""Mapped "files" that are none."""

TELLER = {3: TELLERS[0], 1: TELLERS[1]}
"""Functions in which the kernel writes of a switch before it makes it, by `IntelPt.have_sched_switch`."""

PATCHED = "[kernel text_poke]"
"""What code is called that the kernel wrote over its own."""


@dataclass
class Options:
    """What the user wants. `kcore`, `vmlinux`: where the kernel's code is, if it was traced."""

    file: Path
    output: Path
    symfs: Path | None = None
    caches: list[Path] = field(default_factory=list)
    kcore: Path | None = None
    vmlinux: Path | None = None


@dataclass
class Imported:
    """What came of it. `notes`: what is good to know; what is missing is in the manifest and the ledger."""

    bundle: Bundle
    threads: int
    traces: int
    trace_bytes: int
    notes: list[str]


def import_perf(options: Options) -> Imported:
    """Import a recording. Raises BadInput when it is none, or holds no Intel PT; what is damaged is kept as far as
    it makes sense, and the manifest says `partial` then."""
    file, kcore = options.file, options.kcore
    if file.is_dir():  # what perf record --kcore makes
        if (file / "data.0").exists():
            raise BadInput("is of perf record --threads: its files beside the first are not read", where=str(file),
                           remedy="record it again without --threads")
        inside = file / "kcore_dir" / "kcore"
        kcore = kcore or (inside if inside.is_file() else None)
        file = file / "data"
    perf = PerfData(file)
    try:
        return _Import(perf, options, kcore).run()
    finally:
        perf.close()


class _Import:
    """One import."""

    def __init__(self, perf: PerfData, options: Options, kcore: Path | None) -> None:
        self.perf = perf
        self.options = options
        self.kcore = kcore
        self.vmlinux: Path | None = None  # if it is the kernel that ran
        self.queues: dict[tuple[int, int], Queue] = {}
        self.sideband: list[Record] = []
        self.aux: list[Aux] = []
        self.lost: Counter[str] = Counter()
        self.known: set[int] = set()  # tids that something but a switch names
        self.errors: Counter[int] = Counter()
        self.system_wide = False
        self.samples = 0
        self.notes: list[str] = []  # what is missing
        self.hints: list[str] = []  # what is good to know

    def run(self) -> Imported:
        for record in self.perf.records():
            self._take(record)
        info = self._info()
        attrs = [attr for attr in self.perf.attrs.list if attr.type == info.pmu_type]
        bundle = Bundle.create(self.options.output, self._manifest(info, attrs))
        try:
            return self._fill(bundle, info, attrs)
        except BaseException:
            shutil.rmtree(bundle.path, ignore_errors=True)
            raise

    def _take(self, record: Record) -> None:
        if isinstance(record, Auxtrace):
            self._auxtrace(record)
        elif isinstance(record, AuxSample):
            self._sample(record)
        elif isinstance(record, Aux):
            self.aux.append(record)
            self.known.add(record.when.tid)
        elif isinstance(record, Lost):
            self.lost["samples" if record.type == RecordType.LOST_SAMPLES else "records"] += record.count
        elif isinstance(record, AuxtraceError):
            self.errors[record.code] += 1
        else:
            self.sideband.append(record)
            if isinstance(record, (Comm, Task, ItraceStart, Mmap)):
                self.known.add(record.tid)

    def _auxtrace(self, record: Auxtrace) -> None:
        size = max(0, min(record.size, self.perf.source.size - record.at))
        queue = queue_of(self.queues, record.cpu, record.tid)
        queue.buffers.append(Buffer(size, record.at, offset=record.offset, missing=record.size - size))
        if record.tid < 0:
            self.system_wide = True
        else:
            self.known.add(record.tid)

    def _sample(self, record: AuxSample) -> None:
        per_cpu = self.perf.info is None or self.perf.info.per_cpu_mmaps
        queue = queue_of(self.queues, record.when.cpu if per_cpu else NO_TASK, record.when.tid)
        queue.buffers.append(Buffer(record.size, record.at, record.data))
        self.known.add(record.when.tid)
        self.samples += 1

    def _info(self) -> IntelPt:
        info, damage = self.perf.info, self.perf.source.damage
        if info is None and self.perf.other_trace is not None:
            raise self.perf.source.bad("holds AUX area data of another kind than Intel PT")
        if info is None or not self.queues:
            why = f" ({damage.what})" if damage is not None else ""
            raise self.perf.source.bad(f"holds no Intel PT{why}")
        return info

    # --- what is known of machine and clocks

    def _manifest(self, info: IntelPt, attrs: list[Attr]) -> Manifest:
        features = self.perf.features
        config = attrs[0].config if attrs else 0
        cpu = Cpu(nom_freq=info.max_nonturbo_ratio & 0xFF,
                  tsc_ratio=(info.tsc_ctc_ratio_n, info.tsc_ctc_ratio_d))
        found = CPUID.match(features.cpuid)
        if found and int(found[2]) < 1 << 16 and max(int(found[3]), int(found[4])) < 1 << 8:
            cpu.vendor, (cpu.family, cpu.model, cpu.stepping) = found[1], map(int, found.groups()[1:])
        else:
            self.hints.append("the file does not name the processor: its errata are not worked around")
        if info.mtc_bit and config & info.mtc_bit and info.mtc_freq_bits:
            lowest = info.mtc_freq_bits & -info.mtc_freq_bits
            cpu.mtc_freq = (config & info.mtc_freq_bits) // lowest & 0xFF
        if info.time_mult:
            cpu.tsc_hz = (10**9 << info.time_shift) // info.time_mult
            cpu.nom_freq = cpu.nom_freq or min((cpu.tsc_hz + 50_000_000) // 100_000_000, 255)
        clocks = Clocks()
        if info.cap_user_time_zero and info.time_mult:
            clocks = Clocks(0, info.time_zero, 1 << info.time_shift, info.time_zero + info.time_mult)
            if features.clock is not None:
                clocks.realtime_ns = features.clock[0] - features.clock[1] + info.time_zero
        return Manifest(
            command=[_plain(word) for word in features.command], host=_plain(features.hostname),
            kernel=_plain(features.release), cpu=cpu, engine="intel_pt", exact_time=True, clocks=clocks,
            engine_version=f"perf {_plain(features.version)}" if features.version else "perf")

    # --- the bundle

    def _fill(self, bundle: Bundle, info: IntelPt, attrs: list[Attr]) -> Imported:
        kernel = any(attr.has_kernel for attr in attrs) if attrs else True
        if not kernel:  # its code is not looked at: spaces need no epochs for its changes
            self.sideband = [record for record in self.sideband if not isinstance(record, TextPoke)]
        self.sideband.sort(key=lambda record: (record.when.time, record.order))
        timeless = not info.cap_user_time_zero or not info.time_mult or not all(
            attr.has(SampleType.TIME) for attr in self.perf.attrs.list) or (
            bool(attrs and info.tsc_bit) and not any(attr.config & info.tsc_bit for attr in attrs))
        finder = Finder(Images(bundle.images), self.options.symfs, self.options.caches)
        records = [record for record in self.sideband
                   if isinstance(record, Mmap) and record.kernel and not record.guest] if kernel else []
        ids = {entry.path: entry.build_id for entry in self.perf.features.build_ids if plain_id(entry.build_id)}
        kernels = self._kernel(finder, records, ids) if kernel else []
        entries = self._entries(info, kernels, records) if not timeless else {}
        tasks = Tasks(info, self.queues, None if self.system_wide else self.known, idle=kernel,
                      timeless=timeless, by_place=bool(entries))
        tasks.replay(self.sideband)
        tasks.start({key: queue.tid for key, queue in self.queues.items()})
        ledger = Ledger()
        rows = tasks.finished()
        rows += self._maps(finder, ids, tasks, kernels)
        rows += [{"kind": SidebandKind.ENTRY, "tsc": 0, "pid": 0, "space": 0, "addr": address, "detail": name}
                 for name, address in entries.items()]
        rows += self._traces(bundle, info, tasks, ledger)
        rows.sort(key=lambda row: (int(str(row["tsc"])), ORDER[SidebandKind(str(row["kind"]))]))
        write_sideband(bundle.sideband, [_stored(row) for row in rows])
        self._account(bundle, ledger)
        return Imported(bundle, len(tasks.threads), len(self.queues),
                        sum(queue.written for queue in self.queues.values()), self.hints)

    def _traces(self, bundle: Bundle, info: IntelPt, tasks: Tasks, ledger: Ledger) -> list[Row]:
        rows: list[Row] = []
        overlapping = info.snapshot_mode or self.samples > 0
        for key, queue in self.queues.items():
            thread = None if queue.cpu >= 0 else tasks.threads.get((queue.tid, NO_TASK))
            if queue.cpu < 0 and thread is None:
                thread = len(tasks.threads)
                tasks.threads[queue.tid, NO_TASK] = thread
            stem = str(thread) if queue.cpu < 0 else f"cpu-{queue.cpu}"
            path = bundle.trace / f"{stem}.pt"
            queue.write(path, self.perf.source.data, may_overlap=overlapping)
            for record in self.aux:
                if (record.when.cpu, NO_TASK) == key or (queue.cpu < 0 and record.when.tid == queue.tid):
                    queue.note(record, path)
            ledger.add(f"trace/{stem}", "bytes", stored=queue.written, lost={"file cut": queue.lost})
            if queue.repeated:
                ledger.add(f"trace/{stem} (again in the next copy of the ring)", "bytes", stored=queue.repeated)
            for broken in sorted(set(queue.breaks), key=lambda b: b.offset):
                rows.append({"kind": SidebandKind.LOST, "tsc": 0, "pid": 0, "space": 0, "thread": thread,
                             "offset": broken.offset, "size": broken.size, "detail": broken.detail,
                             "cpu": queue.cpu if queue.cpu >= 0 else None, "value": int(broken.clean)})
        return rows

    def _maps(self, finder: Finder, ids: dict[str, str], tasks: Tasks, kernels: list[KernelMap]) -> list[Row]:
        patches = self._patches(finder, tasks) if any(one.image is not None for one in kernels) else None
        rows: list[Row] = []
        for space in tasks.used_spaces:
            rows += [self._kernel_row(space, one) for one in kernels]
            rows += self._patch_rows(space, patches) if patches is not None else []
            for placed in space.all:
                if NO_CODE.match(placed.path) or placed.path.startswith("//"):
                    image = None
                else:
                    image = finder.find(placed.path, placed.build_id or ids.get(placed.path))
                rows.append({"kind": SidebandKind.MAP, "tsc": space.tsc, "pid": space.pid, "space": space.number,
                             "epoch": placed.epoch, "addr": placed.start, "size": placed.size,
                             "offset": placed.offset, "image": image,
                             "path": _named(placed.path, placed.build_id or ids.get(placed.path), image)})
        for mismatch in finder.mismatches:
            self.notes.append(f"{_plain(mismatch.path)} here is another file (build id {mismatch.found}) than the one "
                              f"that ran ({mismatch.wanted}): it is not used")
        if finder.untested:
            self.hints.append(f"{finder.untested} files were taken by their names: the recording has no build ids of "
                              "them")
        return rows

    def _kernel(self, finder: Finder, records: list[Mmap], ids: dict[str, str]) -> list[KernelMap]:
        self.vmlinux = self.options.vmlinux if self.kcore is None else None
        other = other_kernel(self.vmlinux, kernel_id(records, ids)) if self.vmlinux is not None else None
        if other is not None:
            finder.mismatches.append(other)
            self.vmlinux = None
        return kernel_maps(records, finder.images, kcore=self.kcore, vmlinux=self.vmlinux)

    def _entries(self, info: IntelPt, kernels: list[KernelMap], records: list[Mmap]) -> dict[str, int]:
        """Where the kernel switches and writes of it before, if switches are to take place there: in processors'
        traces whose switches are told of before they are made. Samples are too short for that."""
        if not info.per_cpu_mmaps or info.have_sched_switch not in TELLER or self.samples:
            return {}
        return kernel_entries(kernels, records, kcore=self.kcore, vmlinux=self.vmlinux,
                              teller=TELLER[info.have_sched_switch])

    def _kernel_row(self, space: Space, one: KernelMap) -> Row:
        return {"kind": SidebandKind.MAP, "tsc": 0, "pid": space.pid, "space": space.number, "epoch": 0,
                "addr": one.start, "size": one.size, "offset": one.offset, "image": one.image,
                "path": _plain(one.path)}

    def _patches(self, finder: Finder, tasks: Tasks) -> Patches | None:
        patches = Patches(tasks.patches, finder.images)
        if patches.image is None:
            return None
        if patches.work(tasks.used_spaces) > WORK_MAX:
            self.notes.append("the kernel changed its code too often for all of it to be followed: where it did, what "
                              "is decoded may be other code than ran")
            return None
        return patches

    def _patch_rows(self, space: Space, patches: Patches) -> list[Row]:
        return [{"kind": SidebandKind.MAP, "tsc": 0, "pid": space.pid, "space": space.number, "epoch": piece.epoch,
                 "addr": piece.address, "size": piece.size, "offset": piece.offset, "image": patches.image,
                 "path": PATCHED} for piece in patches.of(space)]

    def _account(self, bundle: Bundle, ledger: Ledger) -> None:
        source, manifest = self.perf.source, bundle.manifest
        manifest.state = State.COMPLETE
        damage = source.damage
        if damage is not None:
            manifest.state = State.PARTIAL
            self.notes.append(f"{damage.what} (byte {damage.at}): what comes before it is kept")
            ledger.add("perf.data", "bytes", stored=damage.at, lost={"unreadable": max(1, damage.size)})
        bad = sum(self.perf.malformed.values())
        if bad or self.lost:
            why = {f"lost by the kernel ({kind})": count for kind, count in self.lost.items()}
            ledger.add("perf.data records", "records", stored=len(self.sideband), lost={**why, "malformed": bad})
        if self.lost:
            manifest.lacks.append(f"{sum(self.lost.values())} records the kernel lost: maps and switches among them "
                                  "may be missing")
        if bad:
            self.notes.append(f"{bad} records were malformed and left out")
        if self.perf.features.malformed:
            names = ", ".join(sorted(set(self.perf.features.malformed)))
            self.notes.append(f"of the header, what does not fit its form was left out ({names})")
        unknown = sum(count for kind, count in self.perf.skipped.items() if kind not in list(RecordType))
        if unknown:
            self.notes.append(f"{unknown} records of unknown types were left out")
        manifest.lacks += self.notes
        bundle.save_ledger(ledger)
        bundle.save_manifest()


ORDER = {kind: index for index, kind in enumerate((
    SidebandKind.PROCESS, SidebandKind.THREAD, SidebandKind.COMM, SidebandKind.ENTRY, SidebandKind.MAP,
    SidebandKind.CODE, SidebandKind.UNMAP, SidebandKind.SWITCH, SidebandKind.SLICE, SidebandKind.LOST,
    SidebandKind.FINISH, SidebandKind.THREAD_EXIT, SidebandKind.PROCESS_EXIT))}
"""Order of rows of one moment."""


def _plain(text: str) -> str:
    """Text that can be stored: bytes that are no UTF-8 as \\xNN."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _stored(row: Row) -> Row:
    """A row whose texts can be stored."""
    return {name: _plain(value) if isinstance(value, str) and not isinstance(value, SidebandKind) else value
            for name, value in row.items()}


def _named(path: str, build_id: str | None, image: str | None) -> str:
    """The path; with the build id when there is no such file here, so that one knows what to look for."""
    known = plain_id(build_id)
    return _plain(path) if image is not None or known is None else f"{_plain(path)} [build id {known}]"
