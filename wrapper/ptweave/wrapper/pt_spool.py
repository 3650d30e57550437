# SPDX-License-Identifier: MIT
"""What the recorder of the intel_pt PMU leaves on disk while it runs, and how that becomes a bundle's sideband.

Packets go to `trace/` at once. In the bundle's folder `spool/`:

    pt.json        {"version": 1, "type", "zero", "mult", "shift", "filters": [{"kind", "path", "offset", "size"}]}:
                   the PMU's type; how perf times become TSC ticks; what is traced
    snapshots.jsonl  of a flight recorder, a line before each snapshot of a trace: {"trace", "offset", "why"}
    images.jsonl   a line for each file of code kept: {"device": [major, minor], "inode", "image"}
    <name>.rec     of the trace of that name: HEADER (magic "PTWR", version, then signed: thread, pid, tid, cpu, and
                   1 for a thread that is a process; little-endian), then perf's records as the kernel wrote them
                   (sample ids: synthesis.TRAILER)

Everything is written in order and never changed, so what a recorder that died left is a prefix: `finish` makes a bundle
of it, as of a whole one.
"""

from __future__ import annotations

import json
import shutil
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ptweave.data import BadInput, Bundle, Ledger
from ptweave.data.manifest import Filter, FilterKind
from ptweave.data.perf.attrs import Attr
from ptweave.data.perf.cursor import Short
from ptweave.data.perf.format import AttrFlag, AuxFlag, RecordType
from ptweave.data.perf.packets import tracing_is_off
from ptweave.data.perf.records import Aux, IntelPt, Lost, Mmap, Raw, Record, Task, parse_kernel_record
from ptweave.data.perf.tasks import Row, Tasks
from ptweave.data.sideband import SidebandKind, write_sideband
from ptweave.wrapper.perf.filters import AddressFilter
from ptweave.wrapper.perf.synthesis import TRAILER
from ptweave.wrapper.spool_trace import index_psbs

HEADER = struct.Struct("<4sIiiiiI")
MAGIC = b"PTWR"
VERSION = 1
DESCRIPTION = "pt.json"
IMAGES = "images.jsonl"
SNAPSHOTS = "snapshots.jsonl"
VDSO = "[vdso]"
RECORDS_MAX = 1 << 30
"""Bytes of records of one trace that are read."""

ATTR = Attr(0, 0, 0, int(TRAILER), 0, int(AttrFlag.SAMPLE_ID_ALL))
"""As far as reading the records needs it."""


@dataclass
class Trace:
    """One trace: a thread's own (`cpu` −1), or a processor's (`thread` and `tid` −1)."""

    name: str
    thread: int
    pid: int
    tid: int
    cpu: int
    pseudo: bool = False  # a thread that is a process
    records: list[Record] = field(default_factory=list)
    malformed: int = 0
    stored: int = 0  # bytes of packets

    @property
    def header(self) -> bytes:
        return HEADER.pack(MAGIC, VERSION, self.thread, self.pid, self.tid, self.cpu, self.pseudo)


@dataclass
class Losses:
    """What a living recorder knows of a trace beside its records: bytes of packets by why they are missing, and places
    in the trace where some are, each with why; at those in `cuts`, what follows begins in mid-stream."""

    bytes: dict[str, int] = field(default_factory=dict)
    breaks: list[tuple[int, str]] = field(default_factory=list)
    cuts: set[int] = field(default_factory=set)


def parse_records(data: bytes, order: int = 0) -> Iterator[Record | None]:
    """The records in the bytes; None for one that does not fit its size. Ends where no whole record follows."""
    at = 0
    while at + 8 <= len(data):
        kind, misc, size = struct.unpack_from("<IHH", data, at)
        if size < 8 or at + size > len(data):
            return
        try:
            record = parse_kernel_record(Raw(kind, misc, data, at + 8, at + size, order=order + at), ATTR)
        except Short:
            yield None
        else:
            if record is not None:
                yield record
        at += size


def read_trace(path: Path) -> Trace | None:
    """A `.rec` file; None for one without a whole header."""
    with path.open("rb") as file:
        head = file.read(HEADER.size)
        data = file.read(RECORDS_MAX)
    if len(head) < HEADER.size:
        return None
    magic, version, thread, pid, tid, cpu, pseudo = HEADER.unpack(head)
    if magic != MAGIC or version != VERSION:
        raise BadInput("is no record of the recorder's, or a newer one's", where=str(path), remedy="record again")
    trace = Trace(path.stem, thread, pid, tid, cpu, bool(pseudo))
    for record in parse_records(data):
        if record is None:
            trace.malformed += 1
        else:
            trace.records.append(record)
    return trace


def finish(bundle: Bundle, folder: Path, ledger: Ledger, losses: Mapping[str, Losses] | None = None,
           statuses: Mapping[int, int] | None = None) -> None:
    """Write the sideband and the PSB indexes, account for everything, and remove the spool.

    `losses` by a trace's name, `statuses` (wait statuses) by pid: of a recorder that lived to its end; None: it died.
    """
    info = _info(folder)
    traces = [trace for path in sorted(folder.glob("*.rec")) if (trace := read_trace(path)) is not None]
    images = _images(folder)
    numbers = {trace.tid: trace.thread for trace in traces if trace.cpu < 0}
    tasks = Tasks(info, [(trace.cpu, trace.tid) for trace in traces], _known(traces), idle=False, timeless=False,
                  numbers=numbers)
    records = sorted((record for trace in traces for record in trace.records),
                     key=lambda record: (record.when.time, record.order))
    for record in records:
        if isinstance(record, Mmap):
            record.build_id = images.get((record.path, 0)) if record.path == VDSO else \
                images.get((record.device, record.inode))
    tasks.replay(records)
    tasks.start({(trace.cpu, -1): -1 for trace in traces})
    rows = _of_programs(tasks.finished(), tasks) + _maps(tasks)
    _name_parents(rows, records)
    bundle.manifest.filters = _filters(folder, rows)
    pseudo = {trace.pid for trace in traces if trace.pseudo}
    for row in rows:
        if row["kind"] is SidebandKind.PROCESS_EXIT:
            row["value"] = (statuses or {}).get(int(str(row["pid"])), -1)
        elif row["kind"] is SidebandKind.PROCESS and row["pid"] in pseudo:
            row["detail"] = "thread"
    known = _snapshots(folder) if losses is None else losses
    for trace in traces:
        rows += _packets(bundle, trace, ledger, known.get(trace.name), died=losses is None)
    rows.sort(key=lambda row: (int(str(row["tsc"])), _ORDER[SidebandKind(str(row["kind"]))]))
    write_sideband(bundle.sideband, [_plain(row) for row in rows])
    _account(ledger, traces, rows)
    shutil.rmtree(folder)


def _info(folder: Path) -> IntelPt:
    try:
        raw = json.loads((folder / DESCRIPTION).read_text())
        return IntelPt(pmu_type=int(raw["type"]), time_shift=int(raw["shift"]) & 63, time_mult=int(raw["mult"]),
                       time_zero=int(raw["zero"]), cap_user_time_zero=True)
    except FileNotFoundError:
        return IntelPt()  # it died before anything was traced
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(f"cannot be read ({error})", where=str(folder / DESCRIPTION), remedy="record again") from error


def _filters(folder: Path, rows: list[Row]) -> list[Filter]:
    """Functions that alone were traced, at the addresses where their files were mapped first: the decoder must know
    where tracing goes off without a word. Where it was to stop the packets say themselves."""
    try:
        wanted = json.loads((folder / DESCRIPTION).read_text()).get("filters", [])
        asked = [AddressFilter(FilterKind(one["kind"]), str(one["path"]), int(one["offset"]), int(one["size"]))
                 for one in wanted]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"cannot be read ({error})", where=str(folder / DESCRIPTION), remedy="record again") from error
    found = []
    for one in (one for one in asked if one.kind is FilterKind.FILTER):
        for row in rows:
            if row["kind"] is not SidebandKind.MAP or row["path"] != one.path:
                continue
            inside = one.offset - int(str(row["offset"]))
            if 0 <= inside < int(str(row["size"])):
                first = int(str(row["addr"])) + inside
                found.append(Filter(one.kind, first, first + one.size - 1))
                break
    return found


def _images(folder: Path) -> dict[tuple[object, int], str]:
    found: dict[tuple[object, int], str] = {}
    path = folder / IMAGES
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            raw = json.loads(line)
            where: object = VDSO if raw["device"] is None else (int(raw["device"][0]), int(raw["device"][1]))
            found[where, int(raw["inode"])] = str(raw["image"])
        except (ValueError, KeyError, TypeError, IndexError):
            break  # the recorder died while it wrote this line
    return found


def _snapshots(folder: Path) -> dict[str, Losses]:
    """Where a flight recorder that died began to store snapshots: what is missing before each is not known."""
    found: dict[str, Losses] = {}
    path = folder / SNAPSHOTS
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            raw = json.loads(line)
            name, place, why = str(raw["trace"]), int(raw["offset"]), str(raw["why"])
        except (ValueError, KeyError, TypeError):
            break  # it died while it wrote this line
        losses = found.setdefault(name, Losses())
        losses.breaks.append((place, f"snapshot ({why}): what is missing before it is not known: the recorder died"))
        losses.cuts.add(place)
    return found


def _known(traces: list[Trace]) -> set[int]:
    """tids that are of this run: a processor's trace names others as well."""
    known = {trace.tid for trace in traces}
    for trace in traces:
        for record in trace.records:
            if isinstance(record, (Task, Mmap)) or record.type in (RecordType.COMM, RecordType.ITRACE_START):
                known.add(int(getattr(record, "tid", -1)))
    return known - {-1}


def _of_programs(rows: list[Row], tasks: Tasks) -> list[Row]:
    """Without the process as it was before its exec, which nothing was traced of: it has no maps."""
    first = {space.pid: space.number for space in reversed(tasks.spaces) if space.all}
    instead = {space.number: first[space.pid] for space in tasks.used_spaces if not space.all and space.pid in first}
    for row in rows:
        if row["space"] in instead and row["kind"] not in (SidebandKind.PROCESS, SidebandKind.SWITCH):
            row["space"] = instead[int(str(row["space"]))]
    return [row for row in rows if row["space"] not in instead]


def _maps(tasks: Tasks) -> list[Row]:
    """`build_id` of what is placed is the name of its image here, if that could be kept."""
    return [{"kind": SidebandKind.MAP, "tsc": space.tsc, "pid": space.pid, "space": space.number, "epoch": one.epoch,
             "addr": one.start, "size": one.size, "offset": one.offset, "image": one.build_id, "path": one.path}
            for space in tasks.used_spaces for one in space.all]


def _name_parents(rows: list[Row], records: list[Record]) -> None:
    creators = {record.tid: record.parent_tid for record in records
                if isinstance(record, Task) and record.type == RecordType.FORK}
    for row in rows:
        if row["kind"] is SidebandKind.THREAD:
            row["value"] = creators.get(int(str(row["tid"])), 0)


def _packets(bundle: Bundle, trace: Trace, ledger: Ledger, losses: Losses | None, *, died: bool) -> list[Row]:
    """A trace's account, its PSBs, and where packets are missing in it."""
    path = bundle.trace / f"{trace.name}.pt"
    path.touch()
    trace.stored = path.stat().st_size
    path.with_suffix(".psb").write_bytes(index_psbs(path))
    lost = dict(losses.bytes) if losses is not None else {}
    if died:
        produced = max((record.offset + record.size for record in trace.records
                        if isinstance(record, Aux) and not record.flags & AuxFlag.OVERWRITE), default=0)
        lost["the recorder died"] = max(0, produced - trace.stored)
    ledger.add(f"trace/{trace.name}", "bytes", stored=trace.stored, lost=lost)
    rows: list[Row] = []
    for place, detail in _breaks(trace, losses, died=died):
        cut = losses is not None and place in losses.cuts
        place = min(place, trace.stored)
        clean = not cut and tracing_is_off(path, place)
        rows.append({"kind": SidebandKind.LOST, "tsc": 0, "pid": trace.pid if trace.pid > 0 else 0, "space": 0,
                     "thread": trace.thread if trace.cpu < 0 else None, "offset": place, "size": 0, "detail": detail,
                     "cpu": trace.cpu if trace.cpu >= 0 else None, "value": int(clean)})
    return rows


def _breaks(trace: Trace, losses: Losses | None, *, died: bool) -> list[tuple[int, str]]:
    found = dict(losses.breaks) if losses is not None else {}
    if died and any(isinstance(record, Aux) and record.flags & AuxFlag.OVERWRITE for record in trace.records):
        found[trace.stored] = "the recorder died: packets that are in no snapshot"
    for record in trace.records:
        if isinstance(record, Aux):
            words = [flag.name for flag in (AuxFlag.TRUNCATED, AuxFlag.PARTIAL, AuxFlag.COLLISION)
                     if record.flags & flag and flag.name]
            if words:
                found[record.offset + record.size] = f"the kernel marked the trace {' and '.join(words)} here"
    return sorted(found.items())


def _account(ledger: Ledger, traces: list[Trace], rows: list[Row]) -> None:
    lost = sum(record.count for trace in traces for record in trace.records if isinstance(record, Lost))
    ledger.add("sideband", "records", stored=sum(len(trace.records) for trace in traces), lost={
        "the kernel's ring was full": lost, "malformed": sum(trace.malformed for trace in traces)})
    kinds = Counter(row["kind"] for row in rows)
    ledger.add("threads", "streams", stored=kinds[SidebandKind.THREAD])
    files = {row["path"]: row["image"] for row in rows if row["kind"] is SidebandKind.MAP}
    ledger.add("images", "files", stored=len({image for image in files.values() if image}),
               lost={"gone, or in no file": sum(not image for image in files.values())})


_ORDER = {kind: index for index, kind in enumerate((
    SidebandKind.PROCESS, SidebandKind.THREAD, SidebandKind.COMM, SidebandKind.MAP, SidebandKind.CODE,
    SidebandKind.UNMAP, SidebandKind.SWITCH, SidebandKind.SLICE, SidebandKind.LOST, SidebandKind.FINISH,
    SidebandKind.THREAD_EXIT, SidebandKind.PROCESS_EXIT))}
"""Order of rows of one moment."""


def _plain(row: Row) -> Row:
    """A row whose texts can be stored: bytes that are no UTF-8 as \\xNN."""
    return {name: value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
            if isinstance(value, str) and not isinstance(value, SidebandKind) else value for name, value in row.items()}


def salvage(bundle: Bundle, folder: Path) -> Ledger:
    """Finish what a recorder that died left behind; returns (and saves) the ledger."""
    ledger = bundle.ledger()
    for stream in ("trace/", "sideband", "threads", "images"):
        ledger.drop(stream)
    finish(bundle, folder, ledger)
    bundle.save_ledger(ledger)
    return ledger
