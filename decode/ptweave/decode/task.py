# SPDX-License-Identifier: MIT
"""One task of a decode: some ranges of a trace in, one file with everything they came to out.

A task knows nothing of other tasks: it numbers blocks, legs and paths by itself and counts blocks from 0. Its file is
an Arrow IPC file. Each row holds what one step filled, column by column as lists; the last row (`PARTS`) holds the
task's dictionaries (legs are lists of blocks, paths lists of legs), its pieces and its sums. It appears in one step,
under a name that says exactly what was decoded, with what, from what; so a file that is there is the result, and
anything else about it need not be asked.
"""

from __future__ import annotations

import errno
import hashlib
import json
import mmap
import os
import stat
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ptweave.data.bundle import Bundle
from ptweave.data.errors import BadInput, MachineLacks
from ptweave.data.sideband import read_sideband
from ptweave.data.table_writer import ROW_GROUP
from ptweave.decode import _ipt, gaps
from ptweave.decode._ipt import ffi, lib
from ptweave.decode.columns import array
from ptweave.decode.images import Code, Mapping
from ptweave.decode.leads import Leads, ended
from ptweave.decode.plan import Switch, Thread, entries_of, switches_of
from ptweave.decode.processor import described, processor
from ptweave.decode.ranges import Range, cut, opened
from ptweave.decode.released import release
from ptweave.decode.stand_ins import may_need_stand_ins, stand_ins

FORMAT = 5
"""Version of the task files."""

DIGEST_SIZE = 8
"""Bytes after the Arrow file: a checksum of it (`ptd_checksum`), against files that power or disk were lost under."""

SECTIONS = 50_000
"""Stretches of code a space may have: libipt counts all it has in 16 bits."""

TOO_MUCH = "beside more code than libipt can hold"

STEP_ROWS = 1 << 18
"""Rows of flow in a step."""


class Decoder(StrEnum):
    """What decodes packets. `auto` chooses."""

    AUTO = "auto"
    LIBIPT = "libipt"
    PATHS = "paths"


@dataclass(frozen=True)
class _Functions:
    """A decoder's C functions: as `ptd_decoder_*` in decode/src/api.h."""

    handle: str
    create: Callable[..., int]
    step: Callable[..., int]
    progress: Callable[..., None]
    destroy: Callable[..., None]
    version: int  # one more whenever the same packets give other rows


def chosen(decoder: Decoder) -> Decoder:
    """The decoder that is meant."""
    return Decoder.PATHS if decoder is Decoder.AUTO else decoder


def _functions(decoder: Decoder) -> _Functions:
    if chosen(decoder) is Decoder.LIBIPT:
        return _Functions("struct ptd_decoder **", lib.ptd_decoder_create, lib.ptd_decoder_step,
                          lib.ptd_decoder_progress, lib.ptd_decoder_destroy, version=9)
    return _Functions("struct ptd_cached **", lib.ptd_cached_create, lib.ptd_cached_step, lib.ptd_cached_progress,
                      lib.ptd_cached_destroy, version=9)


@dataclass(frozen=True)
class Task:
    """Ranges of one trace to be decoded one after the other; `gaps` are (index of the range after them, gap)."""

    trace: Path
    size: int  # of the whole trace
    thread: int
    ranges: tuple[Range, ...]
    gaps: tuple[tuple[int, gaps.Gap], ...]

    @property
    def bytes(self) -> int:
        return sum(part.end - part.begin for part in self.ranges)


def tasks(thread: Thread, size: int, cpu: Any = None) -> list[Task]:
    """A thread's trace as tasks of about `size` bytes each: they depend on the trace and the sideband alone.

    `cpu`, a `struct ptd_cpu *`, is given where times are told by branch.
    """
    made: list[Task] = []
    part: list[Range] = []
    found: list[tuple[int, gaps.Gap]] = []
    if not thread.present and thread.finish is None:
        found.append((0, gaps.no_trace()))
    lost = list(thread.lost)

    def close() -> None:
        made.append(Task(thread.path, thread.size, thread.number, tuple(part), tuple(found)))
        part.clear()
        found.clear()

    with opened(thread.path, thread.size) as packets:
        with ffi.from_buffer("uint8_t[]", packets) as whole:
            for each in cut(thread, whole, size, Leads(cpu, packets, whole) if cpu else None):
                while lost and lost[0].offset <= each.begin:
                    found.append((len(part), gaps.lost(lost.pop(0))))
                if each.space is None:
                    found.append((len(part), gaps.no_slice(each)))
                    continue
                part.append(each)
                if part[-1].end - part[0].begin >= size:
                    close()
        found += [(len(part), gaps.lost(rest)) for rest in lost]
        if thread.end < thread.size and _something(packets, thread.end, thread.size):
            found.append((len(part), gaps.after_end(thread)))
    if part or found or not made:
        close()
    return made


def _something(packets: mmap.mmap, begin: int, end: int) -> bool:
    """Whether there is anything but zeros."""
    step = 1 << 20
    return any(packets[at:min(at + step, end)].strip(b"\0") for at in range(begin, end, step))


# --- files ------------------------------------------------------------------------------------------------------------

_LISTS: dict[str, pa.DataType] = {
    "flow": pa.int32(),
    "clock_seq": pa.int64(), "clock_tsc": pa.uint64(), "clock_before": pa.int32(),
    "event_seq": pa.int64(), "event_tsc": pa.uint64(), "event_kind": pa.int8(), "event_ip": pa.uint64(),
    "event_target": pa.uint64(), "event_offset": pa.uint64(), "event_detail": pa.int64(), "event_size": pa.int8(),
    "event_update": pa.uint8(), "event_lost_mtc": pa.uint32(), "event_lost_cyc": pa.uint32(),
    "gap_seq": pa.int64(), "gap_tsc": pa.uint64(), "gap_kind": pa.string(), "gap_bytes": pa.int64(),
    "gap_offset": pa.uint64(), "gap_ip": pa.uint64(), "gap_detail": pa.string(),
}
_NULLABLE = ("event_ip", "event_target", "event_detail", "event_size")
_PARTS: dict[str, pa.DataType] = {
    "block_image": pa.int32(), "block_offset": pa.int64(), "block_ip": pa.uint64(), "block_last_ip": pa.uint64(),
    "block_size": pa.int32(), "block_instructions": pa.int32(), "block_last": pa.int8(), "block_mode": pa.uint8(),
    "leg_starts": pa.int32(), "leg_blocks": pa.int32(),
    "path_starts": pa.int32(), "path_legs": pa.int32(), "path_length": pa.int32(),
    "piece_thread": pa.int32(), "piece_tsc": pa.uint64(), "piece_flow": pa.int64(), "piece_clock": pa.int64(),
    "piece_event": pa.int64(), "piece_gap": pa.int64(), "piece_seq": pa.int64(), "piece_instructions": pa.uint64(),
    "piece_branches": pa.uint64(),
    "end": pa.int64(),
}
STEPS = tuple(_LISTS)
PARTS = tuple(_PARTS)
PIECE = ("thread", "tsc", "flow", "clock", "event", "gap", "seq", "instructions", "branches")
"""Columns of a piece, as in `struct ptd_rows`; rows are counted in the task here."""

TASK_KINDS = ("flow", "clock", "event", "gap")
"""The kinds of rows a task has."""

_SCHEMA = pa.schema([pa.field(name, pa.list_(kind)) for name, kind in {**_LISTS, **_PARTS}.items()])


def _one_list(values: pa.Array, kind: pa.DataType) -> pa.ListArray:
    offsets = array(None, ffi.new("int32_t[]", [0, len(values)]), 2, pa.int32())
    return pa.ListArray.from_arrays(offsets, values if values.type == kind else values.cast(kind))


_NOTHING = {column.name: _one_list(pa.nulls(0, column.type.value_type), column.type.value_type) for column in _SCHEMA}


@dataclass(frozen=True)
class Key:
    """What all results of a decode depend on, beside the ranges themselves."""

    format: int
    decoder: str
    version: int
    build: str
    sideband: str
    images: str
    processor: str

    @classmethod
    def of(cls, bundle: Bundle, decoder: Decoder) -> Key:
        """Raises BadInput when the sideband cannot be read."""
        try:
            sideband = hashlib.sha256(bundle.sideband.read_bytes()).hexdigest()
        except OSError as error:
            raise BadInput(f"cannot be read ({error})", where=str(bundle.sideband),
                           remedy="record the run again") from error
        library = Path(_ipt.__file__).stat()
        return cls(FORMAT, chosen(decoder).value, _functions(decoder).version,
                   f"{library.st_size} {library.st_mtime_ns}", sideband, _images(bundle.images),
                   json.dumps(described(bundle.manifest), sort_keys=True))

    def name(self, task: Task) -> str:
        """The name of a task's file."""
        try:
            status = task.trace.lstat()
            trace = [status.st_size, status.st_mtime_ns, stat.S_IFMT(status.st_mode)]
        except OSError:
            trace = []
        what = [asdict(self), task.trace.name, trace, task.size, task.thread,
                [asdict(part) for part in task.ranges], [[at, asdict(gap)] for at, gap in task.gaps]]
        digest = hashlib.sha256(json.dumps(what, sort_keys=True, default=str).encode()).hexdigest()
        begin = task.ranges[0].begin if task.ranges else 0
        return f"{task.trace.stem}-{begin:012x}-{digest[:32]}.arrow"


def _images(folder: Path) -> str:
    state = hashlib.sha256()
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name) if folder.is_dir() else []:
        status = entry.stat(follow_symlinks=False)
        state.update(f"{entry.name}\0{status.st_mode}\0{status.st_size}\0{status.st_mtime_ns}\n".encode(
            "utf-8", "surrogateescape"))
    return state.hexdigest()


class TaskFile:
    """The file of a finished task. Raises BadInput when it is damaged."""

    def __init__(self, path: Path, columns: Iterable[str]) -> None:
        self.path = path
        self._columns = list(columns)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as file:
                self.memory = pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            options = pa.ipc.IpcReadOptions(
                included_fields=[_SCHEMA.get_field_index(name) for name in self._columns], use_threads=False)
            self._reader = pa.ipc.open_file(self.memory.slice(0, max(self.memory.size - DIGEST_SIZE, 0)),
                                            options=options)
            self.steps = self._reader.num_record_batches - 1
            types = {column.name: column.type for column in self._reader.schema}
        except (OSError, ValueError, pa.ArrowException) as error:
            raise self._damaged(error) from error
        if self.steps < 0 or any(types.get(name) != _SCHEMA.field(name).type for name in self._columns):
            raise self._damaged("it is no result of a task")

    def _damaged(self, error: object) -> BadInput:
        return BadInput(f"is damaged ({error})", where=str(self.path), remedy="remove it and decode again")

    def row(self, number: int) -> dict[str, pa.Array]:
        """The columns of a step; the last one, after `steps` of them, holds the parts."""
        try:
            batch = self._reader.get_batch(number)
            batch.validate(full=True)
            return {name: batch.column(name)[0].values for name in self._columns}
        except (OSError, IndexError, ValueError, pa.ArrowException) as error:
            raise self._damaged(error) from error


def finished(path: Path) -> bool:
    """Whether a task's file is there and whole (a machine that lost power may leave an empty one)."""
    if not path.is_file() or path.is_symlink():
        return False
    try:
        memory = TaskFile(path, PARTS).memory
    except BadInput:
        return False
    data = memoryview(memory)
    return _checksum(data[:-DIGEST_SIZE]) == bytes(data[-DIGEST_SIZE:])


def _checksum(data: memoryview) -> bytes:
    return int(lib.ptd_checksum(ffi.from_buffer("uint8_t[]", data), len(data))).to_bytes(DIGEST_SIZE, "little")


class TaskWriter:
    """Writes a task's file; it appears under its name when all is written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._partial = path.with_name(f".{path.name}.{os.getpid()}")
        self._sink = pa.OSFile(str(self._partial), "wb")
        # not compressed: it is read once, soon, from the system's cache
        options = pa.ipc.IpcWriteOptions(use_threads=False)
        self._writer = pa.ipc.new_file(self._sink, _SCHEMA, options=options)

    def write(self, columns: dict[str, pa.Array]) -> None:
        """One row; columns that are not given are empty."""
        arrays = [_NOTHING[column.name] if column.name not in columns else
                  _one_list(columns[column.name], column.type.value_type) for column in _SCHEMA]
        self._writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA))

    def close(self) -> None:
        self._writer.close()
        self._sink.close()
        with self._partial.open("r+b") as file:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data, memoryview(data) as whole:
                checksum = _checksum(whole)
            file.seek(0, os.SEEK_END)
            file.write(checksum)
        self._partial.replace(self._path)

    def abort(self) -> None:
        self._sink.close()
        self._partial.unlink(missing_ok=True)


# --- decoding ---------------------------------------------------------------------------------------------------------


class _Sections:
    """Sections and address spaces in libipt's terms. The space asked for last is kept."""

    def __init__(self, code: Code) -> None:
        self.code = code
        self.handle = own(lib.ptd_images_create(), lib.ptd_images_destroy)
        self._last: tuple[tuple[int, int] | None, Any, list[gaps.Lacking]] = (None, None, [])
        self._known: dict[tuple[int, int, int, int], int] = {}

    def space(self, number: int | None, epoch: int) -> tuple[Any, list[gaps.Lacking]]:
        """The space of an epoch, and what is mapped in it but cannot be decoded."""
        key = (-1 if number is None else number, epoch)
        if self._last[0] != key:
            mappings = [] if number is None else self.code.space(number).at(epoch)
            sections: list[int] = []
            missing: list[gaps.Lacking] = []
            for mapping in mappings:
                section = self._section(mapping) if len(sections) < SECTIONS else TOO_MUCH
                if isinstance(section, int):
                    sections.append(section)
                else:
                    why = f"{mapping.image} was mapped there, {section}"
                    missing.append(gaps.Lacking(mapping.start, mapping.end, why))
            made = ffi.new("struct ptd_space **")
            status = lib.ptd_space_create(self.handle, sections, len(sections), made)
            if status < 0:
                raise MachineLacks(f"cannot set up an address space ({_text(-status)})", where=f"epoch {epoch}",
                                   remedy="free some memory")
            self._last = (key, own(made[0], lib.ptd_space_destroy), missing)
        return self._last[1], self._last[2]

    def _section(self, mapping: Mapping) -> int | str:
        """The section's number, or why there is no code to be had. Spaces that follow each other have most in common,
        which may be thousands."""
        key = (mapping.image.number, mapping.offset, mapping.start, mapping.end)
        found: int | str | None = self._known.get(key)
        if found is None:
            found = self._added(mapping)
            if isinstance(found, int):
                self._known[key] = found
        return found

    def _added(self, mapping: Mapping) -> int | str:
        image, size = mapping.image, mapping.end - mapping.start
        if image.file is None or image.size is None or mapping.offset >= image.size:
            return "but its code is not in the bundle"
        section = int(lib.ptd_images_add(
            self.handle, os.fsencode(image.file), image.number, mapping.offset, size, mapping.start))
        return section if section >= 0 else f"but its code cannot be read ({_text(-section)})"


class _Switches:
    """What runs in a trace from which time on, in libipt's terms. `all` is empty where its slices say that."""

    def __init__(self, switches: list[Switch], sections: _Sections) -> None:
        self.all = switches
        self._spaces: list[Any] = []
        self._missing: list[list[gaps.Lacking]] = []
        self._which: list[int] = []
        known: dict[tuple[int, int], int] = {}
        for switch in switches:
            key = (switch.space, switch.epoch)
            if key not in known:
                known[key] = len(self._spaces)
                space, lacking = sections.space(*key)
                self._spaces.append(space)
                self._missing.append(lacking)
            self._which.append(known[key])
        self.handle = ffi.new("struct ptd_switch[]", [
            {"tsc": switch.tsc, "space": self._spaces[which], "thread": -1 if switch.thread is None else
             switch.thread, "when": int(switch.when)} for switch, which in zip(switches, self._which, strict=True)])

    def missing(self, tsc: int) -> list[gaps.Lacking]:
        """What is mapped but cannot be decoded in the space that was in force at that time."""
        at = bisect_right(self.all, tsc, key=lambda switch: switch.tsc) - 1
        return self._missing[self._which[max(at, 0)]]


def switched(sideband: pa.Table, cpu: Any) -> dict[str, list[Switch]]:
    """The switches of each trace that has to be held against them (`cpu`: a `struct ptd_cpu *`)."""
    # where a thread's trace is of one space throughout there is nothing to switch to
    return {stem: switches for stem, switches in switches_of(sideband).items()
            if len(switches) > 1 or cpu.exact_time or stem.startswith("cpu-")}


@dataclass
class _Sums:
    """What a task has come to so far: what the next range of it goes on from."""

    seq: int = 0
    tsc: int = 0
    instructions: int = 0
    branches: int = 0
    off: bool = False
    off_ip: int = 0
    rows: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TASK_KINDS, 0))
    pieces: list[dict[str, int]] = field(default_factory=list)


class Decoding:
    """Decodes tasks of one bundle, one after the other."""

    def __init__(self, bundle: Bundle, decoder: Decoder, code: Code | None = None) -> None:
        """Raises BadInput for a bundle without a readable sideband."""
        self.code = Code(read_sideband(bundle.sideband), bundle.images) if code is None else code
        self._functions = _functions(decoder)
        self._sections = _Sections(self.code)
        self._cpu = processor(bundle.manifest)
        sideband = read_sideband(bundle.sideband)
        self._switches = switched(sideband, self._cpu)
        self._entries = entries_of(sideband)
        self._stands_in = may_need_stand_ins(bundle.manifest)
        self._rows: Any = None
        self._switched: tuple[str, _Switches] | None = None  # of the trace asked for last
        self._tables = own(lib.ptd_tables_create(), lib.ptd_tables_destroy)
        self._lead_tables: Any = None

    def run(self, task: Task, file: Path, moved: Callable[[int], None] = lambda done: None) -> None:
        """Decode a task into `file`; `moved` is told bytes of it that are behind.

        Raises BadInput when the trace cannot be read, MachineLacks when memory runs out.
        """
        tables = self._tables
        lib.ptd_tables_clear(tables)
        sums = _Sums()
        sums.pieces.append({**dict.fromkeys(PIECE, 0), "thread": task.thread})
        writer = TaskWriter(file)
        try:
            with opened(task.trace, task.size if task.ranges else 0) as packets:
                before = 0
                for index, part in enumerate(task.ranges):
                    self._gaps(writer, task, index, sums)
                    self._range(writer, tables, task, part, packets, sums,
                                lambda done, base=before: moved(base + done))  # type: ignore[misc]
                    before += part.end - part.begin
            self._gaps(writer, task, len(task.ranges), sums)
            writer.write(_parts(tables, sums))
        except BaseException:
            writer.abort()
            raise
        writer.close()

    def _gaps(self, writer: TaskWriter, task: Task, index: int, sums: _Sums) -> None:
        """Gaps that were known before."""
        found = [gap for at, gap in task.gaps if at == index]
        if not found:
            return
        writer.write({
            "gap_seq": pa.array([sums.seq] * len(found)), "gap_tsc": pa.array([sums.tsc] * len(found)),
            "gap_kind": pa.array([gap.kind.value for gap in found]), "gap_bytes": pa.array([gap.size for gap in found]),
            "gap_offset": pa.array([gap.offset for gap in found]),
            "gap_ip": pa.nulls(len(found), pa.uint64()), "gap_detail": pa.array([gap.detail for gap in found])})
        sums.rows["gap"] += len(found)

    def _range(self, writer: TaskWriter, tables: Any, task: Task, part: Range, packets: mmap.mmap, sums: _Sums,
               moved: Callable[[int], None]) -> None:
        space, missing = self._sections.space(part.space, part.epoch)
        switches = self._switches_of(task.trace.stem)
        progress = ffi.new("struct ptd_progress *")
        with ffi.from_buffer("uint8_t[]", packets) as whole:
            stand_ins = self._stand_ins(whole, part.begin, part.end)
            where = ffi.new("struct ptd_slice *", {
                "packets": whole + part.begin, "size": part.end - part.begin, "offset": part.begin,
                "stand_ins": stand_ins,
                "seq": sums.seq, "tsc": sums.tsc, "has_stop": part.stop is not None, "stop_ip": part.stop or 0,
                **self._turns(switches), "timing": self._timing(task, part, space, switches, whole)[0]})
            made = ffi.new(self._functions.handle)
            _check(self._functions.create(tables, space, self._cpu, where, made), task)
            decoder = own(made[0], self._functions.destroy)
            more, released = 1, part.begin
            while more:
                rows = self._rows = self._rows or own(lib.ptd_rows_create(STEP_ROWS), lib.ptd_rows_destroy)
                more = _check(self._functions.step(decoder, rows), task)
                writer.write(_columns(rows, switches.missing if switches.all else lambda tsc: missing, sums))
                lib.ptd_rows_clear(rows)
                self._functions.progress(decoder, progress)
                done = part.begin + progress.offset
                moved(progress.offset)
                if stand_ins == ffi.NULL or not more:  # the file has none: libipt may be handed the range late
                    release(packets, released, done)
                    released = max(released, done)
        sums.seq, sums.tsc = progress.seq, progress.tsc
        sums.instructions += progress.instructions
        sums.branches += progress.branches
        sums.off, sums.off_ip = bool(progress.off), progress.off_ip

    def _switches_of(self, trace: str) -> _Switches:
        if self._switched is None or self._switched[0] != trace:
            self._switched = trace, _Switches(self._switches.get(trace, []), self._sections)
        return self._switched[1]

    def _turns(self, switches: _Switches) -> dict[str, Any]:
        """What a slice is told of switches."""
        return {"switches": switches.handle, "switch_count": len(switches.all),
                "switch_ip": self._entries.switch_to, "tell_ip": self._entries.tells}

    def _stand_ins(self, packets: Any, begin: int, end: int) -> Any:
        return stand_ins(packets, begin, end) if self._stands_in else ffi.NULL

    def _timing(self, task: Task, part: Range, space: Any, switches: _Switches, packets: Any) -> Any:
        """What time it is where a range begins, a `struct ptd_timing *`: what its lead comes to."""
        if part.lead is None:
            return ffi.new("struct ptd_timing *")
        timing = ffi.from_buffer("struct ptd_timing *", part.lead.timing)
        if part.lead.begin == part.begin:
            return timing
        self._lead_tables = self._lead_tables or own(lib.ptd_tables_create(), lib.ptd_tables_destroy)
        begin = part.lead.begin
        stand_ins = self._stand_ins(packets, begin, part.begin)
        stop = ffi.new("uint64_t *")
        has_stop = lib.ptd_psb_ip(packets, part.end, part.begin, stop) == 1
        where = ffi.new("struct ptd_slice *", {
            "packets": packets + begin, "size": part.begin - begin, "offset": begin, "has_stop": has_stop,
            "stop_ip": stop[0], "timing": timing[0], "stand_ins": stand_ins, "is_lead": True,
            **self._turns(switches)})
        made = ffi.new("struct ptd_decoder **")
        lib.ptd_tables_clear(self._lead_tables)
        _check(lib.ptd_decoder_create(self._lead_tables, space, self._cpu, where, made), task)
        decoder = own(made[0], lib.ptd_decoder_destroy)
        rows = self._rows = self._rows or own(lib.ptd_rows_create(STEP_ROWS), lib.ptd_rows_destroy)
        while _check(lib.ptd_decoder_step(decoder, rows), task):
            lib.ptd_rows_clear(rows)
        lib.ptd_rows_clear(rows)
        return ended(decoder)


def _columns(rows: Any, missing: Callable[[int], list[gaps.Lacking]], sums: _Sums) -> dict[str, pa.Array]:
    """A step's rows; they borrow the memory of `rows` but for gaps. `missing` is as in `gaps.table`."""
    counts = {"flow": rows.flow_count, "clock": rows.clock_count, "event": rows.event_count, "gap": rows.gap_count}
    columns = {"flow": array(rows, rows.flow_path, rows.flow_count, pa.int32())}
    for name, kind in _LISTS.items():
        if name.startswith(("clock_", "event_")):
            valid = getattr(rows, f"valid_{name}") if name in _NULLABLE else None
            columns[name] = array(rows, getattr(rows, name), counts[name.split("_")[0]], kind, valid)
    if rows.gap_count:
        found = gaps.table(rows, missing)
        columns |= {f"gap_{name}": found[name].combine_chunks() for name in found.column_names}
    for number in range(rows.piece_count):
        piece = {name: int(getattr(rows, f"piece_{name}")[number]) for name in PIECE}
        piece |= {name: sums.rows[name] + piece[name] for name in counts}
        piece["instructions"] += sums.instructions
        piece["branches"] += sums.branches
        last = sums.pieces[-1]
        if all(last[name] == piece[name] for name in TASK_KINDS):
            sums.pieces.pop()  # nothing was in it
        sums.pieces.append(piece)
    for name, count in counts.items():
        sums.rows[name] += count
    return columns


def _parts(tables: Any, sums: _Sums) -> dict[str, pa.Array]:
    blocks = ffi.new("struct ptd_blocks_view *")
    legs, paths = ffi.new("struct ptd_paths_view *"), ffi.new("struct ptd_paths_view *")
    lib.ptd_tables_blocks(tables, blocks)
    lib.ptd_tables_legs(tables, legs)
    lib.ptd_tables_paths(tables, paths)
    columns = {name: array(tables, getattr(blocks, name.removeprefix("block_")), blocks.count, kind)
               for name, kind in _PARTS.items() if name.startswith("block_")}
    columns["leg_starts"] = array(tables, legs.starts, legs.count + 1, pa.int32())
    columns["leg_blocks"] = array(tables, legs.items, legs.item_count, pa.int32())
    columns["path_starts"] = array(tables, paths.starts, paths.count + 1, pa.int32())
    columns["path_legs"] = array(tables, paths.items, paths.item_count, pa.int32())
    columns["path_length"] = array(tables, paths.length, paths.count, pa.int32())
    for name in PIECE:
        columns[f"piece_{name}"] = pa.array([piece[name] for piece in sums.pieces], _PARTS[f"piece_{name}"])
    columns["end"] = pa.array(np.array(
        [sums.seq, sums.tsc, sums.instructions, sums.branches, *sums.rows.values(), sums.off, sums.off_ip],
        np.uint64).view(np.int64))
    return columns


# --- helpers ----------------------------------------------------------------------------------------------------------


def own(handle: Any, destroy: Any) -> Any:
    """A C object that is destroyed with its last reference. Raises MachineLacks for NULL."""
    if handle == ffi.NULL:
        raise MachineLacks("is out of memory", where="the decoder", remedy="free some memory")
    return ffi.gc(handle, destroy)


def _check(status: int, task: Task) -> int:
    """The status of a C function, or its error as an exception."""
    if status >= 0:
        return status
    if status == -errno.EOVERFLOW:
        raise MachineLacks("has more distinct blocks or paths than can be numbered", where=str(task.trace),
                           remedy="decode fewer threads at once")
    if status == -errno.EIO:
        raise MachineLacks("ran code whose files cannot be mapped any more", where=str(task.trace),
                           remedy="see that nothing changes the run bundle, and decode again")
    raise MachineLacks(f"cannot be decoded ({os.strerror(-status)})", where=str(task.trace),
                       remedy="free some memory")


def _text(code: int) -> str:
    return ffi.string(lib.ptd_error_text(code)).decode("ascii", "replace")


assert ROW_GROUP % STEP_ROWS == 0
