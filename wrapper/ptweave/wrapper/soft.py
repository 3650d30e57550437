# SPDX-License-Identifier: MIT
"""The soft engine from outside: how a target runs under it, and how its spool becomes part of a bundle.

Beside `trace/<thread>.pt` this writes `trace/<thread>.psb`: pairs of little-endian u64, the offset of each PSB in
the .pt file and the TSC that follows it (0 when none does), in order.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ptweave.data.bundle import Bundle
from ptweave.data.errors import MachineLacks
from ptweave.data.ledger import Ledger
from ptweave.data.sideband import SidebandKind, write_sideband
from ptweave.wrapper.host import moment
from ptweave.wrapper.images import ImageStore, MappedFile
from ptweave.wrapper.perf_maps import PerfMaps
from ptweave.wrapper.preloaded import Program
from ptweave.wrapper.spool_code import CodePiece, FileMap, place_code
from ptweave.wrapper.spool_format import (
    PAGE,
    Began,
    Ended,
    Kind,
    ProcessState,
    Record,
    ThreadState,
    parse_records,
    read_at,
)
from ptweave.wrapper.spool_trace import StreamFiles, join_streams
from ptweave.wrapper.tasks import TaskRegistry

ENGINE = Path(__file__).resolve().parent / "_engine"
TOOL = "ptsoft-amd64-linux"
REMEDY = "build it: apt-get install valgrind gcc, then python3 hatch_build.py (or make)"
READ_MAX = 16 << 20
STREAMS_MAX = 1 << 22  # pids a Linux system can have
ENGINE_LOG = "engine.log"
_FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGTRAP, signal.SIGABRT, signal.SIGSYS,
           signal.SIGXFSZ}
"""What the engine could die of by itself, or the kernel ends an exec with that it cannot go back from."""
_FAILED = re.compile(r"VALGRIND INTERNAL ERROR|: Assertion '.*' failed\.|EXEC FAILED|: out of memory:?$", re.MULTILINE)
"""What Valgrind says, once, when it ends a process for a reason of its own."""


class SoftEngine:
    """The engine as a command."""

    def __init__(self, folder: Path = ENGINE) -> None:
        self._folder = folder

    def version(self) -> str:
        """Such as `ptsoft 1 (Valgrind 3.19.0)`. Raises MachineLacks when the engine was not built."""
        tool, version = self._folder / TOOL, self._folder / "version"
        if not (tool.is_file() and os.access(tool, os.X_OK) and version.is_file()):
            raise MachineLacks("the soft engine is not built", where=str(tool), remedy=REMEDY)
        words = version.read_text().split()
        if len(words) != 2:
            raise MachineLacks("the soft engine's version cannot be read", where=str(version), remedy=REMEDY)
        return f"ptsoft {words[0]} (Valgrind {words[1]})"

    def command(self, argv: list[str], spool: Path, *, log: bool = False,
                options: tuple[str, ...] = ()) -> tuple[list[str], dict[str, str]]:
        """What to exec so that `argv` runs traced into the folder `spool`, and what to add to the environment
        (the target does not see that). `log`: also count and hash every instruction.
        Raises MachineLacks when the engine was not built."""
        self.version()
        tool = str(self._folder / TOOL)
        own = ["--tool=ptsoft", "-q", "--command-line-only=yes", "--fair-sched=yes", "--vgdb=no",
               "--trace-children=yes", "--max-threads=1024", f"--pt-dir={spool.resolve()}"]
        if log:
            own.append("--pt-log=yes")
        _open_to_all(spool)
        # the tool is its own launcher: it needs no other program and no library
        return [tool, *own, *options, "--", *argv], {"VALGRIND_LAUNCHER": "/proc/thread-self/exe",
                                                     "VALGRIND_LIB": str(self._folder)}


def _open_to_all(spool: Path) -> None:
    """Let a target that changes its user go on writing (it has the folder's descriptor). Nobody else can reach the
    folder: that is, where the folder above it is closed to others; elsewhere the spool stays closed, too."""
    if not spool.resolve().parent.stat().st_mode & 0o077:
        spool.chmod(0o1733)


@dataclass
class _Space:
    """A process image, as far as its files were read."""

    prefix: str
    number: int
    state: ProcessState
    rows: list[dict[str, object]] = field(default_factory=list)
    streams: dict[int, StreamFiles] = field(default_factory=dict)
    maps: list[FileMap] = field(default_factory=list)
    pieces: list[CodePiece] = field(default_factory=list)
    records_read: int = 0
    records: int = 0
    malformed: bool = False
    untraced: int = 0
    tsc: int = 0

    @property
    def pid(self) -> int:
        return self.state.pid

    @property
    def execing(self) -> bool:
        return self.state.ended in (Ended.EXECING, Ended.UNRECORDED)

    @property
    def done(self) -> bool:
        return self.malformed or (self.state.ended != Ended.RUNNING and self.records_read >= self.state.records)


class Spool:
    """Follows the engine's files while the target runs, and turns them into a bundle's."""

    def __init__(self, bundle: Bundle, spool: Path, tasks: TaskRegistry) -> None:
        self._bundle = bundle
        self._spool = spool
        self._tasks = tasks
        self._images = ImageStore(bundle.images, spool)
        self._perf_maps = PerfMaps(bundle.images, bundle.manifest.clocks.realtime_ns)
        self._spaces: dict[str, _Space] = {}
        self._order: list[_Space] = []
        self._last_of: dict[int, _Space] = {}
        self._status: dict[int, int] = {}
        self._gone: dict[int, int] = {}  # pid → when its end was noticed, in ticks
        self._streams_of: dict[int, list[StreamFiles]] = {}
        self.untraced: list[str] = []
        self.programs: list[Program] = []
        """What began by exec, or as the command, in the order in which it did: known when it is finished."""
        self.ended_by: Callable[[int], int] = _unknown
        """The signal that ended the last process of a number, 0 where that is not known."""

    def poll(self) -> None:
        """Read what the engine wrote since the last time; keep images of files that ran."""
        found = self._new_prefixes()
        for space in self._order:
            if not space.done or (space.execing and self._last_of[space.pid] is space):
                self._drain(space)  # an exec that failed goes on
                self._watch(space)
        begun = [(state, prefix) for prefix in found if (state := self._process_state(prefix)) is not None]
        for state, prefix in sorted(begun, key=lambda one: (one[0].tsc_begin, one[1])):
            self._begin(prefix, state)

    def exited(self, pid: int, status: int) -> None:
        """A process ended with this wait status, just now."""
        self._status[pid] = status
        self._gone[pid] = moment().tsc

    @property
    def messages(self) -> str:
        """What the engine itself had to say: nothing, in a normal run."""
        return read_at(self._spool / ENGINE_LOG, 0, READ_MAX).decode(errors="replace")

    def finish(self, ledger: Ledger) -> None:
        """The traced processes are gone, or are given up: write traces, system calls, code and sideband, account
        for them, and remove the spool. Raises MachineLacks when there is no room: the spool is whole then, and
        `salvage` can do it again."""
        try:
            self._finish(ledger)
        except OSError as error:
            raise MachineLacks(f"cannot be written ({error.strerror})", where=str(self._bundle.path),
                               remedy="make room; what was recorded is still in " + str(self._spool)) from error
        shutil.rmtree(self._spool)

    def _finish(self, ledger: Ledger) -> None:
        self.poll()
        for space in self._order:
            self._end(space)
        self.programs = [Program(space.pid, space.state.tsc_begin, self._own_end(space)) for space in self._order
                         if space.state.began == Began.STARTED]
        self._perf_maps.finish(ledger)
        for copy in self._spool.glob("F*"):  # room for what follows, should the disk be full
            copy.unlink()
        for thread, streams in sorted(self._streams_of.items()):
            join_streams(self._bundle.trace, thread, streams, ledger)
        rows = [row for space in self._order for row in self._rows(space)]
        rows.sort(key=_tsc)
        write_sideband(self._bundle.sideband, rows)
        self._account(ledger, rows)
        self._account_failures(ledger)

    # --- reading ----------------------------------------------------------------------------------------------

    def _new_prefixes(self) -> list[str]:
        with os.scandir(self._spool) as entries:
            names = [entry.name for entry in entries if entry.name.endswith(".state")]
        return [name[:-6] for name in names if name[:-6] not in self._spaces]

    def _process_state(self, prefix: str) -> ProcessState | None:
        return ProcessState.parse(read_at(self._spool / f"{prefix}.state", 0, PAGE))

    def _thread_state(self, space: _Space, stream: int) -> ThreadState | None:
        return ThreadState.parse(read_at(self._spool / f"{space.prefix}.state", PAGE * (1 + stream), PAGE))

    def _begin(self, prefix: str, state: ProcessState) -> None:
        before = self._last_of.get(state.pid)
        execed = before is not None and before.execing and state.began == Began.STARTED
        if before is not None and not execed:  # the pid is used again: it is another process
            for task in self._tasks.live(state.pid):
                if task.tsc_start < state.tsc_begin and task.thread in self._streams_of:
                    self._tasks.exit(task.pid, task.tid, state.tsc_begin)
        space = _Space(prefix, len(self._order), state, tsc=state.tsc_begin)
        self._spaces[prefix] = self._last_of[state.pid] = space
        self._order.append(space)
        detail = "exec" if execed else _DETAIL.get(state.began, "start")
        self._perf_maps.watch(state.pid, self._owner(prefix))
        self._row(space, SidebandKind.PROCESS, state.tsc_begin, tid=state.tid, path=state.exe,
                  value=state.parent_pid, detail=detail)
        self._drain(space)

    def _owner(self, prefix: str) -> int | None:
        """The user whose process wrote a state file."""
        try:
            return (self._spool / f"{prefix}.state").lstat().st_uid
        except OSError:
            return None

    def _watch(self, space: _Space) -> None:
        if space.state.ended == Ended.FINISHED:
            self._perf_maps.ended(space.pid)
        else:
            self._perf_maps.watch(space.pid)

    def _drain(self, space: _Space) -> None:
        state = self._process_state(space.prefix)
        if state is None or state.pid != space.pid:
            space.malformed = True
            return
        space.state = state
        size = min(state.records - space.records_read, READ_MAX)
        data = read_at(self._spool / f"{space.prefix}.rec", space.records_read, size) if size > 0 else b""
        read = 0
        for record, read in parse_records(data):  # noqa: B007
            space.records += 1
            if record is not None:
                self._take(space, record)
        space.records_read += read
        if not read and size > 0:
            space.malformed = True

    def _row(self, space: _Space, kind: SidebandKind, tsc: int, **columns: object) -> dict[str, object]:
        space.tsc = max(space.tsc, min(tsc, (1 << 64) - 1))
        row: dict[str, object] = {"kind": kind, "tsc": space.tsc, "pid": space.pid, "space": space.number, **columns}
        space.rows.append(row)
        return row

    def _take(self, space: _Space, record: Record) -> None:
        value, tsc = record.value, record.tsc
        match record.kind:
            case Kind.MAP:
                self._take_map(space, record)
            case Kind.CODE:
                space.pieces.append(CodePiece(value[0], value[1], value[2], value[3] & 0xffffffff, tsc))
            case Kind.UNMAP:
                self._row(space, SidebandKind.UNMAP, tsc, addr=value[0], size=value[1], epoch=value[2] & 0xffffffff)
            case Kind.THREAD:
                self._take_thread(space, value[0], value[1], value[2], tsc)
            case Kind.COMM:
                self._row(space, SidebandKind.COMM, tsc, tid=value[0] & 0x7fffffff, detail=record.text)
            case Kind.UNTRACED:
                space.untraced += 1
                self.untraced.append(record.text)
            case Kind.SLICE | Kind.LOST | Kind.THREAD_EXIT:
                stream = space.streams.get(value[0])
                if stream is not None:
                    self._take_place(space, stream, record)

    def _take_map(self, space: _Space, record: Record) -> None:
        addr, size, offset, dev, inode, mtime, file_size, epoch = record.value
        file = MappedFile(record.text, dev, inode, mtime, file_size, space.pid, addr, addr + size)
        row = self._row(space, SidebandKind.MAP, record.tsc, addr=addr, size=size, offset=offset,
                        epoch=epoch & 0xffffffff, path=record.text, image=self._images.keep(file))
        space.maps.append(FileMap(file, offset, epoch, row))

    def _take_thread(self, space: _Space, number: int, tid: int, creator: int, tsc: int) -> None:
        if number in space.streams or number >= STREAMS_MAX:
            return
        tid &= 0x7fffffff
        creator = (creator or space.state.parent_tid) & 0x7fffffff
        went_on = space.state.began == Began.WENT_ON and tid == space.state.tid and self._tasks.go_on(
            space.pid, tid, creator)
        thread = self._tasks.start(space.pid, tid, tsc, creator)
        known = thread in self._streams_of and not went_on
        files = StreamFiles(self._spool / f"{space.prefix}.{number}", self._spool / f"{space.prefix}.buf", number,
                            thread, tid)
        space.streams[number] = files
        self._streams_of.setdefault(thread, []).append(files)
        if not known:
            self._row(space, SidebandKind.THREAD, tsc, tid=tid, thread=thread, value=0 if went_on else creator)

    def _take_place(self, space: _Space, stream: StreamFiles, record: Record) -> None:
        """A record about an offset in a stream, which moves when the thread's streams are joined."""
        if record.kind is Kind.SLICE:
            row = self._row(space, SidebandKind.SLICE, record.tsc, epoch=record.value[2] & 0xffffffff)
        elif record.kind is Kind.LOST:
            row = self._row(space, SidebandKind.LOST, record.tsc, size=record.value[2], detail="disk full")
            stream.lost_told += record.value[2]
        else:
            row = self._row(space, SidebandKind.FINISH, record.tsc)
            self._row(space, SidebandKind.THREAD_EXIT, record.tsc, tid=stream.tid, thread=stream.thread)
            self._tasks.exit(space.pid, stream.tid, record.tsc)
        row["thread"] = stream.thread
        stream.places.append((record.value[2 if record.kind is Kind.THREAD_EXIT else 1], row))

    # --- finishing --------------------------------------------------------------------------------------------

    def _end(self, space: _Space) -> None:
        for number, stream in space.streams.items():
            stream.state = self._thread_state(space, number)
            unsaid = stream.state.stream_lost - stream.lost_told if stream.state else 0
            if stream.state and unsaid > 0:
                row = self._row(space, SidebandKind.LOST, space.tsc, thread=stream.thread, size=unsaid,
                                detail="disk full")
                stream.places.append((stream.state.stored + stream.state.buffered, row))
        if self._last_of[space.pid] is space or space.state.ended == Ended.FINISHED:
            last = self._last_of[space.pid] is space
            gone = self._gone.get(space.pid, 0) if last else 0  # it was killed: it could not say when it ended
            self._row(space, SidebandKind.PROCESS_EXIT, space.state.tsc_end or max(gone, space.tsc),
                      value=self._status.get(space.pid, -1) if last else -1)
        for file_map in space.maps:
            if file_map.row["image"] is None:  # another process may have kept it meanwhile
                file_map.row["image"] = self._images.keep(file_map.file)

    def _rows(self, space: _Space) -> list[dict[str, object]]:
        code = read_at(self._spool / f"{space.prefix}.code", 0, space.state.code) if space.pieces else b""
        stored = [{"kind": SidebandKind.CODE, "pid": space.pid, "space": space.number, **row}
                  for row in place_code(space.pieces, code, space.maps, self._images)]
        dropped = {id(row) for stream in space.streams.values() for row in stream.dropped}
        return [row for row in space.rows if id(row) not in dropped] + stored

    def _account(self, ledger: Ledger, rows: list[dict[str, object]]) -> None:
        states = [space.state for space in self._order]
        ledger.add("sideband", "records", stored=sum(space.records for space in self._order),
                   lost={"disk full": sum(state.records_lost for state in states),
                         "malformed": sum(space.malformed for space in self._order)})
        ledger.add("code", "bytes", stored=sum(piece.size for space in self._order for piece in space.pieces),
                   lost={"disk full": sum(state.code_lost for state in states)})
        vanished = sum(space.execing and self._last_of[space.pid] is space and not space.untraced
                       and not self._stopped_in_exec(space) for space in self._order)
        ledger.add("processes", "images", stored=len(self._order),
                   lost={"what it executed left no file": vanished,
                         "no file could be made for it": sum(state.children_lost for state in states),
                         "the engine cannot run it": len(self.untraced)})
        unknown = sum(max(space.state.streams - len(space.streams) - space.state.streams_lost, 0)
                      for space in self._order)
        ledger.add("threads", "streams", stored=sum(len(streams) for streams in self._streams_of.values()),
                   lost={"no file could be made for it": sum(state.streams_lost for state in states),
                         "the record of it is lost": unknown})
        missing = {str(row["path"]) for row in rows if row["kind"] is SidebandKind.MAP and row["image"] is None}
        ledger.add("images", "files", stored=self._images.kept,
                   lost={"gone, or no room for it": len(missing)})

    def _stopped_in_exec(self, space: _Space) -> bool:
        """Whether a process was killed in its exec before the program began: nothing of it is missing then."""
        return space.state.ended == Ended.EXECING and self._killed(space)  # it did not say that it began

    def _own_end(self, space: _Space) -> int:
        """When a program ended, in ticks; 0: somebody's signal ended it, whose time the engine writes down, too."""
        return 0 if self._last_of[space.pid] is space and self._killed(space) else space.state.tsc_end

    def _killed(self, space: _Space) -> bool:
        """Whether a signal ended the last process of the number, and none for what it did itself."""
        status = self._status.get(space.pid)
        number = self.ended_by(space.pid) if status is None else os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        return number != 0 and number not in _FAULTS

    def _account_failures(self, ledger: Ledger) -> None:
        """Processes that the engine ended are no ends of the program's: their status is the engine's, too."""
        messages = self.messages
        failures = len(_FAILED.findall(messages))
        if messages:
            (self._bundle.trace / ENGINE_LOG).write_text(messages)
        ledger.add("engine", "processes", stored=max(0, len(self._order) - failures), lost={
            f"ended by a failure of the engine's own, see trace/{ENGINE_LOG}": failures})


def _unknown(pid: int) -> int:
    del pid
    return 0


def _tsc(row: dict[str, object]) -> int:
    tsc = row["tsc"]
    return tsc if isinstance(tsc, int) else 0


_DETAIL: dict[int, str] = {Began.FORKED: "fork", Began.WENT_ON: "thread"}

ACCOUNTED = ("trace/", "engine", "sideband", "code", "processes", "threads", "images")
"""Streams of the ledger that a spool accounts for."""


def salvage(bundle: Bundle, spool: Path) -> Ledger:
    """Finish what a supervisor left behind; returns (and saves) the ledger."""
    ledger = bundle.ledger()
    for stream in ACCOUNTED:  # one that had no room may have accounted for some of it
        ledger.drop(stream)
    Spool(bundle, spool, TaskRegistry()).finish(ledger)
    bundle.save_ledger(ledger)
    return ledger
