# SPDX-License-Identifier: MIT
"""Recording the system calls of a tree of tasks with eBPF into `events/syscalls.arrow` and `events/files.arrow`.

The programs (`wrapper/bpf/syscalls.bpf.c`) write into a ring, a C thread drains it into columns
(`wrapper/src/events.h`), and `SyscallRecorder` appends those, a batch at a time, to Arrow IPC streams that are whole
after every batch. Whatever was not recorded is counted, by reason and by call.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa

from ptweave.data.bundle import Bundle
from ptweave.data.errors import MachineLacks
from ptweave.data.ledger import Ledger
from ptweave.data.schemas import RAW_FILES, RAW_SYSCALLS
from ptweave.wrapper import event_columns
from ptweave.wrapper.filters import Kind
from ptweave.wrapper.kernel_events import FILE, KernelEvents, Lost, Options, Variant

STREAM = "syscalls/kernel"
"""The ledger's account of the calls the kernel saw."""

FILE_NAME = "syscalls.arrow"
FILES_NAME = "files.arrow"
COUNTED = ("paths", "truncated", "missed", "captures", "unread", "no_room", "left_out")
"""What a batch counts of the memory that arguments point to; `account_captures` takes the sums."""


class Stream:
    """An Arrow IPC stream that is readable to its last whole batch whenever its writer dies.

    When it cannot be written any more, what is whole is kept, and nothing more is written.
    """

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        """Raises MachineLacks when the file cannot be made."""
        self._path = path
        self.broken = False
        try:
            self._sink: Any = pa.OSFile(str(path), "wb")
            self._writer: Any = pa.ipc.new_stream(self._sink, schema,
                                                  options=pa.ipc.IpcWriteOptions(compression="lz4"))
            # a stream from the start; pa.nulls does not import pandas, as making arrays of lists does (0.4 s)
            nothing = [pa.nulls(0, field.type) for field in schema]
            self._writer.write_batch(pa.RecordBatch.from_arrays(nothing, schema=schema))
            self._complete_until = self._sink.tell()
        except OSError as error:
            raise MachineLacks(f"cannot be written ({error.strerror or error})", where=str(path),
                               remedy="make room, or choose another place with -o") from error

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a batch. Raises MachineLacks, once, when that fails."""
        try:
            self._writer.write_batch(batch)
            self._complete_until = self._sink.tell()
        except OSError as error:
            self.broken = True
            os.truncate(self._path, self._complete_until)
            raise MachineLacks(f"cannot be written ({error.strerror or error})", where=str(self._path),
                               remedy="make room; the calls recorded so far are kept, the others are counted") \
                from error

    def close(self) -> None:
        if self._sink is None:
            return
        try:
            if not self.broken:
                self._writer.close()
        except OSError:
            self.broken = True  # without the end mark the stream is still read to its last whole batch
        finally:
            self._sink.close()
            self._sink = self._writer = None


class SyscallRecorder:
    """Records the system calls of the processes given to `follow` and of all their descendants.

    Use: `start`, `follow` (before the process does what shall be seen), `service` now and then, `finish`.
    Not thread-safe. In a forked child of the caller it does nothing; what the child inherits ends with its exec.
    """

    def __init__(self, bundle: Bundle, options: Options | None = None) -> None:
        self._options = options or Options()
        self._folder = bundle.events
        self._events: KernelEvents | None = None
        self._calls: Stream | None = None
        self._files: Stream | None = None
        self.variant = self._options.variant
        self.stored = 0
        self._not_written = 0
        self._stored_files = 0
        self._counts = dict.fromkeys(COUNTED, 0)

    def start(self) -> None:
        """Load and attach. Raises MachineLacks when this machine cannot: what is missing, and the remedy."""
        self._calls = Stream(self._folder / FILE_NAME, RAW_SYSCALLS)
        try:
            self._files = Stream(self._folder / FILES_NAME, RAW_FILES)
            self._events = KernelEvents(self._options)
        except BaseException:
            self._close_files()
            raise
        self.variant = self._events.variant

    def follow(self, pid: int) -> None:
        """Record the process `pid` and all that it will create. Raises MachineLacks when it is gone."""
        assert self._events is not None
        self._events.follow(pid)

    def killed(self, pid: int) -> int:
        """The signal that ended the last process of this number; 0: none did, or it is not known."""
        return self._events.killed(pid) if self._events is not None and self._events.active else 0

    def fds(self) -> list[int]:
        """Descriptors to poll for reading: then `service` has something to do."""
        return [self._events.fd()] if self._events is not None else []

    def service(self) -> None:
        """Store what is ready. Raises MachineLacks, once, when the file cannot be written; goes on counting then."""
        if self._events is not None and self._events.active:
            self._store(self._events, everything=False)

    def finish(self, ledger: Ledger) -> None:
        """Detach, store the rest, and account for every call in the ledger. Does nothing when not started.

        Raises MachineLacks as `service` does; all is accounted for then too.
        """
        events = self._events
        if events is None or not events.active:
            return
        try:
            events.stop()
            try:
                self._store(events, everything=True)
            finally:
                self._account(events, ledger)
                self._close_files()
        finally:
            events.close()
            self._events = None

    def close(self) -> None:
        """Detach and free everything without accounting: for a caller that gives up."""
        if self._events is not None and self._events.active:
            self._close_files()
            self._events.close()
            self._events = None

    def losses(self) -> list[Lost]:
        """What is known to be missing so far, by reason and call; exact after the last batch is stored."""
        return self._events.losses() if self._events is not None else []

    # --- batches -------------------------------------------------------------------------------------------------

    def _store(self, events: KernelEvents, *, everything: bool) -> None:
        trouble: MachineLacks | None = None
        for batch in events.batches(everything=everything):
            try:
                self._write(events, batch)
            except MachineLacks as error:
                trouble = error
        if trouble is not None:
            raise trouble

    def _write(self, events: KernelEvents, batch: Any) -> None:
        assert self._calls is not None and self._files is not None
        if int(batch.event_rows[FILE]) and not self._files.broken:
            files = event_columns.files(events.ffi, batch)
            self._files.write(files)
            self._stored_files += files.num_rows
        rows = int(batch.rows)
        if not rows:
            return
        if self._calls.broken:
            self._not_written += rows
            return
        try:
            self._calls.write(event_columns.syscalls(events.ffi, batch))
        except MachineLacks:
            self._not_written += rows
            raise
        self.stored += rows
        for name in self._counts:
            self._counts[name] += int(getattr(batch, name))

    def _close_files(self) -> None:
        for stream in (self._calls, self._files):
            if stream is not None:
                stream.close()

    # --- the account ---------------------------------------------------------------------------------------------

    def _account(self, events: KernelEvents, ledger: Ledger) -> None:
        totals = events.totals()
        account_calls(ledger, totals, events.losses(), self.stored, self._not_written)
        counts = self._counts
        account_captures(ledger, counts)
        defined = int(totals.taken[FILE]) + int(totals.lost[FILE])
        ledger.add(f"{STREAM}/files", "files", stored=self._stored_files, produced=defined,
                   lost={"ring_full": int(totals.lost[FILE]),
                         "not_written": int(totals.taken[FILE]) - self._stored_files})


def account_calls(ledger: Ledger, totals: Any, losses: list[Lost], stored: int, not_written: int) -> None:
    """What became of every call that the kernel saw."""
    call = int(Kind.SYSCALL)
    lost: dict[str, int] = {}
    for loss in losses:
        lost[loss.key] = lost.get(loss.key, 0) + loss.count
    produced, submitted, taken = (int(one[call]) for one in (totals.produced, totals.submitted, totals.taken))
    lost["in_flight"] = produced - submitted - sum(lost.values()) - int(totals.compat)
    lost["compat"] = int(totals.compat)
    lost["malformed"] = int(totals.malformed)
    lost["not_drained"] = submitted - taken - int(totals.malformed)
    lost["not_written"] = not_written
    ledger.add(STREAM, "calls", stored=stored, lost=lost, produced=produced)
    if totals.tasks:
        ledger.add(f"{STREAM}/tasks", "tasks", lost={"not_followed": int(totals.tasks)})
    if totals.io_uring:
        ledger.add(f"{STREAM}/io_uring", "operations", lost={"not_decoded": int(totals.io_uring)})


def account_captures(ledger: Ledger, counts: dict[str, int]) -> None:
    """What became of the memory that arguments point to."""
    ledger.add(f"{STREAM}/paths", "paths", stored=counts["paths"] - counts["truncated"] - counts["missed"],
               lost={"truncated": counts["truncated"], "unreadable": counts["missed"]})
    ledger.add(f"{STREAM}/captures", "captures", stored=counts["captures"] - counts["unread"],
               lost={"unreadable": counts["unread"]})
    if counts["no_room"]:
        ledger.add(f"{STREAM}/captures_cut", "calls", lost={"no_room": counts["no_room"]})
    if counts["left_out"]:
        ledger.add(f"{STREAM}/messages", "messages", lost={"not_looked_at": counts["left_out"]})


__all__ = ["FILES_NAME", "FILE_NAME", "STREAM", "Lost", "Options", "Stream", "SyscallRecorder", "Variant",
           "account_calls", "account_captures"]
