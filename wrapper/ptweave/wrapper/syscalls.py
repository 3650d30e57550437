# SPDX-License-Identifier: MIT
"""Recording the system calls of a tree of tasks with eBPF into `events/syscalls.arrow`.

The programs (`wrapper/bpf/syscalls.bpf.c`) write into a ring, a C thread drains it into columns
(`wrapper/src/events.h`), and `SyscallRecorder` appends those, a batch at a time, to an Arrow IPC stream that is whole
after every batch. Whatever was not recorded is counted, by reason and by call.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import pyarrow as pa

from ptweave.data import syscall_table
from ptweave.data.bundle import Bundle
from ptweave.data.errors import MachineLacks
from ptweave.data.ledger import Ledger
from ptweave.data.schemas import RAW_SYSCALLS
from ptweave.wrapper.bpf_checks import explain_failure, load_extension

STREAM = "syscalls/kernel"
"""The ledger's account of the calls the kernel saw."""

FILE_NAME = "syscalls.arrow"

_OBJECT = Path(__file__).parent / "_bpf" / "syscalls.bpf.o"
_NUMBERS = 512  # enum ptw_limit: call numbers with a counter of their own
_INITIAL_PID_NAMESPACE = 0xEFFFFFFC  # include/linux/proc_ns.h: PROC_PID_INIT_INO


class Variant(Enum):
    """Which kind of BPF programs: typed ones, raw ones, or the first that the kernel takes."""

    AUTO = "auto"
    TYPED = "tp_btf"
    RAW = "raw_tp"


@dataclass(frozen=True)
class Options:
    """Sizes of the recorder; the defaults carry about a million calls a second over a caller's pause of a second."""

    ring_bytes: int = 32 << 20  # a power of two, at least a page
    batch_rows: int = 1 << 16
    batches: int = 16  # at most so many at a time, about 10 MB each
    batch_age_ms: int = 100  # how old a row may be before it is stored, if service() is called
    variant: Variant = Variant.AUTO


@dataclass(frozen=True)
class Lost:
    """So many calls with this number are missing, and why."""

    reason: str
    number: int | None  # None: numbers that are in no table
    count: int

    @property
    def key(self) -> str:
        """The ledger's name for it, such as `ring_full/write`."""
        return f"{self.reason}/{'other' if self.number is None else syscall_table.name_of(self.number)}"


class SyscallRecorder:
    """Records the system calls of the processes given to `follow` and of all their descendants.

    Use: `start`, `follow` (before the process does what shall be seen), `service` now and then, `finish`.
    Not thread-safe. In a forked child of the caller it does nothing; what the child inherits ends with its exec.
    """

    def __init__(self, bundle: Bundle, options: Options | None = None) -> None:
        self._options = options or Options()
        self._path = bundle.events / FILE_NAME
        self._owner = os.getpid()
        self._recorder: Any = None
        self._lib: Any = None
        self._ffi: Any = None
        self._sink: Any = None
        self._writer: Any = None
        self._complete_until = 0  # size of the file up to its last whole batch
        self._broken = False
        self.variant = self._options.variant
        self.stored = 0
        self._not_written = 0
        self._paths = 0
        self._truncated = 0
        self._missed = 0

    def start(self) -> None:
        """Load and attach. Raises MachineLacks when this machine cannot: what is missing, and the remedy."""
        extension = load_extension()
        self._lib, self._ffi = extension.lib, extension.ffi
        if not _OBJECT.exists():
            raise MachineLacks("the BPF programs are not built", where=str(_OBJECT),
                               remedy="install clang and libbpf-dev, and build ptweave again")
        self._open_file()
        try:
            self._begin()
        except BaseException:
            self._close_file()
            raise

    def _begin(self) -> None:
        """Create and start the recorder, with the first kind of programs that the kernel takes."""
        wanted = self._options.variant
        for variant in (Variant.TYPED, Variant.RAW) if wanted is Variant.AUTO else (wanted,):
            error = self._create(variant)
            if error == 0:
                error = int(self._lib.ptw_recorder_start(self._recorder))
                if error == 0:
                    self.variant = variant
                    return
                self._destroy()
        raise explain_failure(-error, self._ffi.string(self._lib.ptw_recorder_trouble()).decode(errors="replace"))

    def follow(self, pid: int) -> None:
        """Record the process `pid` and all that it will create. Raises MachineLacks when it is gone."""
        error = self._lib.ptw_recorder_follow(self._recorder, pid)
        if error:
            raise MachineLacks(f"cannot be followed ({os.strerror(-error)})", where=f"process {pid}",
                               remedy="its system calls are not recorded")

    def fds(self) -> list[int]:
        """Descriptors to poll for reading: then `service` has something to do."""
        return [self._lib.ptw_recorder_fd(self._recorder)] if self._recorder is not None else []

    def service(self) -> None:
        """Store what is ready. Raises MachineLacks, once, when the file cannot be written; goes on counting then."""
        if self._active:
            self._store(everything=False)

    def finish(self, ledger: Ledger) -> None:
        """Detach, store the rest, and account for every call in the ledger. Does nothing when not started.

        Raises MachineLacks as `service` does; all is accounted for then too.
        """
        if not self._active:
            return
        try:
            self._lib.ptw_recorder_stop(self._recorder)
            try:
                self._store(everything=True)
            finally:
                self._account(ledger)
                self._close_file()
        finally:
            self._destroy()

    def close(self) -> None:
        """Detach and free everything without accounting: for a caller that gives up."""
        if self._active:
            self._close_file()
            self._destroy()

    @property
    def _active(self) -> bool:
        return self._recorder is not None and os.getpid() == self._owner

    def losses(self) -> list[Lost]:
        """What is known to be missing so far, by reason and call; exact after the last batch is stored."""
        reasons = {"ring_full": self._lib.PTW_LOSS_RING_FULL, "no_memory": self._lib.PTW_LOSS_NO_MEMORY,
                   "no_exit_seen": self._lib.PTW_LOSS_NO_EXIT}
        found = []
        for reason, index in reasons.items():
            for number in range(_NUMBERS + 1):
                count = int(self._lib.ptw_recorder_lost(self._recorder, index, number))
                if count:
                    found.append(Lost(reason, number if number < _NUMBERS else None, count))
        return found

    # --- the recorder in C ---------------------------------------------------------------------------------------

    def _create(self, variant: Variant) -> int:
        options, ffi = self._options, self._ffi
        paths = ffi.new("uint8_t[]", _path_arguments())
        where = ffi.new("char[]", os.fsencode(_OBJECT))
        config = ffi.new("struct ptw_config *", {
            "object": where,
            "variant": self._lib.PTW_VARIANT_RAW if variant is Variant.RAW else self._lib.PTW_VARIANT_TYPED,
            "ring_bytes": options.ring_bytes,
            "batch_rows": options.batch_rows,
            "batches": options.batches,
            "batch_age_ms": options.batch_age_ms,
            "pid_namespace": _pid_namespace(),
            "paths": paths,
        })
        made = ffi.new("struct ptw_recorder **")
        error = int(self._lib.ptw_recorder_create(config, made))
        if error == 0:
            self._recorder = made[0]
        return error

    def _destroy(self) -> None:
        self._lib.ptw_recorder_destroy(self._recorder)
        self._recorder = None

    # --- batches -------------------------------------------------------------------------------------------------

    def _store(self, *, everything: bool) -> None:
        trouble: MachineLacks | None = None
        taken = self._ffi.new("struct ptw_batch **")
        while self._lib.ptw_recorder_take(self._recorder, int(everything), taken) == 1:
            batch = taken[0]
            try:
                self._write(batch)
            except MachineLacks as error:
                trouble = error
            finally:
                self._lib.ptw_recorder_release(self._recorder, batch)
        if trouble is not None:
            raise trouble

    def _write(self, batch: Any) -> None:
        rows = int(batch.rows)
        if self._broken:
            self._not_written += rows
            return
        try:
            self._writer.write_batch(_columns(self._ffi, batch))
        except OSError as error:
            self._broken = True
            self._not_written += rows
            os.truncate(self._path, self._complete_until)
            raise MachineLacks(f"cannot be written ({error.strerror or error})", where=str(self._path),
                               remedy="make room; the calls recorded so far are kept, the others are counted") \
                from error
        self._complete_until = self._sink.tell()
        self.stored += rows
        self._paths += int(batch.paths)
        self._truncated += int(batch.truncated)
        self._missed += int(batch.missed)

    def _open_file(self) -> None:
        try:
            self._sink = pa.OSFile(str(self._path), "wb")
            self._writer = pa.ipc.new_stream(self._sink, RAW_SYSCALLS,
                                             options=pa.ipc.IpcWriteOptions(compression="lz4"))
            # a stream from the start; pa.nulls does not import pandas, as making arrays of lists does (0.4 s)
            nothing = [pa.nulls(0, field.type) for field in RAW_SYSCALLS]
            self._writer.write_batch(pa.RecordBatch.from_arrays(nothing, schema=RAW_SYSCALLS))
            self._complete_until = self._sink.tell()
        except OSError as error:
            raise MachineLacks(f"cannot be written ({error.strerror or error})", where=str(self._path),
                               remedy="make room, or choose another place with -o") from error

    def _close_file(self) -> None:
        if self._sink is None:
            return
        try:
            if not self._broken:
                self._writer.close()
        except OSError:
            self._broken = True  # without the end mark the stream is still read to its last whole batch
        finally:
            self._sink.close()
            self._sink = self._writer = None

    # --- the account ---------------------------------------------------------------------------------------------

    def _account(self, ledger: Ledger) -> None:
        totals = self._ffi.new("struct ptw_totals *")
        self._lib.ptw_recorder_totals(self._recorder, totals)
        lost: dict[str, int] = {}
        for loss in self.losses():
            lost[loss.key] = lost.get(loss.key, 0) + loss.count
        ended = int(totals.submitted) + sum(lost.values()) + int(totals.compat)
        lost["compat"] = int(totals.compat)
        lost["in_flight"] = int(totals.entered) - ended
        lost["malformed"] = int(totals.malformed)
        lost["not_drained"] = int(totals.submitted) - int(totals.taken) - int(totals.malformed)
        lost["not_written"] = self._not_written
        ledger.add(STREAM, "calls", stored=self.stored, lost=lost, produced=int(totals.entered))
        ledger.add(f"{STREAM}/paths", "paths", stored=self._paths - self._truncated - self._missed,
                   lost={"truncated": self._truncated, "unreadable": self._missed})
        if totals.tasks:
            ledger.add(f"{STREAM}/tasks", "tasks", lost={"not_followed": int(totals.tasks)})


def _path_arguments() -> bytes:
    """By path (2) and call number (512): 1 + the argument that is a path, 0 for none."""
    table = bytearray(syscall_table.MAX_PATHS * _NUMBERS)
    for call in syscall_table.SYSCALLS.values():
        for index, argument in enumerate(call.paths):
            table[index * _NUMBERS + call.number] = argument + 1
    return bytes(table)


def _pid_namespace() -> int:
    """Inode of our pid namespace; 0 for the initial one, whose numbers the kernel gives for nothing."""
    inode = Path("/proc/self/ns/pid").stat().st_ino
    return 0 if inode == _INITIAL_PID_NAMESPACE else inode


def _columns(ffi: Any, batch: Any) -> pa.RecordBatch:
    """A batch as an Arrow record batch of RAW_SYSCALLS over the batch's own memory: valid until it is released."""
    rows, paths = int(batch.rows), int(batch.paths)

    def buffer(pointer: Any, size: int) -> pa.Buffer:
        return pa.py_buffer(ffi.buffer(pointer, size))

    def column(kind: pa.DataType, pointer: Any, valid: pa.Buffer | None = None) -> pa.Array:
        return pa.Array.from_buffers(kind, rows, [valid, buffer(pointer, rows * kind.bit_width // 8)])

    has_exit = None if batch.returned == rows else buffer(batch.has_exit, (rows + 7) // 8)
    has_path = None if batch.readable == paths else buffer(batch.has_path, (paths + 7) // 8)
    args = pa.Array.from_buffers(pa.uint64(), 6 * rows, [None, buffer(batch.args, 48 * rows)])
    text = pa.Array.from_buffers(pa.binary(), paths, [
        has_path, buffer(batch.path_begin, 4 * (paths + 1)), buffer(batch.text, int(batch.path_begin[paths]))])
    return pa.RecordBatch.from_arrays([
        column(pa.int64(), batch.t_enter),
        column(pa.int64(), batch.t_exit, has_exit),
        column(pa.int32(), batch.pid),
        column(pa.int32(), batch.tid),
        column(pa.int32(), batch.number),
        column(pa.uint64(), batch.ip),
        pa.Array.from_buffers(pa.list_(pa.uint64(), 6), rows, [None], children=[args]),
        pa.Array.from_buffers(pa.list_(pa.binary()), rows, [None, buffer(batch.path_first, 4 * (rows + 1))],
                              children=[text]),
        column(pa.int64(), batch.result, has_exit),
    ], schema=RAW_SYSCALLS)


__all__ = ["FILE_NAME", "STREAM", "Lost", "Options", "SyscallRecorder", "Variant"]
