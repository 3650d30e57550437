# SPDX-License-Identifier: MIT
"""Recording system calls, and nothing else, without eBPF: into the same table, by perf or by ptrace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import pyarrow as pa

from ptweave.data.bundle import Bundle
from ptweave.data.errors import BadInput, MachineLacks
from ptweave.data.ledger import Ledger
from ptweave.wrapper import event_tables
from ptweave.wrapper.event_recorder import SHOWN_A_BATCH, EventRecorder, call_line
from ptweave.wrapper.event_tables import TABLE_OF, Files, Parts
from ptweave.wrapper.filters import Kind, Rules
from ptweave.wrapper.kernel_events import Options
from ptweave.wrapper.means import Means
from ptweave.wrapper.perf_calls import PerfCalls
from ptweave.wrapper.ptrace_calls import PtraceCalls
from ptweave.wrapper.syscalls import STREAM


class CallSource(Protocol):
    """What records calls: PerfCalls, PtraceCalls."""

    name: str
    lacks: str

    def follow(self, tid: int) -> bool: ...
    def settle(self) -> None: ...
    def fds(self) -> list[int]: ...
    def batches(self, *, everything: bool) -> Iterator[pa.RecordBatch]: ...
    def stop(self) -> None: ...
    def account(self, ledger: Ledger, stream: str, stored: int, not_written: int) -> None: ...
    def close(self) -> None: ...


class FallbackRecorder:
    """Used as EventRecorder is. `lacks` says what its recordings do not have."""

    def __init__(self, source: CallSource, bundle: Bundle | None, show: Callable[[str], None] | None,
                 kinds: frozenset[Kind]) -> None:
        self._source: CallSource | None = source
        self._show = show
        self._files = Files()
        self._parts = Parts(bundle.tables, TABLE_OF[Kind.SYSCALL]) if bundle else None
        self._rows = 0
        others = ", ".join(kind.word for kind in Kind if kind in kinds and kind is not Kind.SYSCALL)
        self.lacks = [source.lacks] + ([f"events of the kinds {others}: they need eBPF"] if others else [])

    def follow(self, tid: int) -> bool:
        """Record a task and all that it will create. Raises MachineLacks when that cannot be."""
        return self._source is not None and self._source.follow(tid)

    def settle(self) -> None:
        """All that is to be followed is: every call from now on is recorded, or counted."""
        if self._source is not None:
            self._source.settle()

    def filter(self, rules: Rules) -> None:
        """Raises BadInput: there are no filters without eBPF."""
        raise BadInput("rules need eBPF", remedy="leave them out, or record as root")

    def fds(self) -> list[int]:
        """Descriptors to poll for reading."""
        return self._source.fds() if self._source is not None else []

    def service(self) -> None:
        """Store and show what is ready. Raises MachineLacks, once, when it cannot be written."""
        self._drain(everything=False)

    def finish(self, ledger: Ledger) -> None:
        """Stop, store the rest, account for every call. Raises as `service` does, after that."""
        source = self._source
        if source is None:
            return
        trouble: MachineLacks | None = None
        source.stop()
        for step in (lambda: self._drain(everything=True), *([self._parts.close] if self._parts else [])):
            try:
                step()
            except MachineLacks as error:
                trouble = error
        source.account(ledger, STREAM, self._parts.stored if self._parts else self._rows,
                       self._parts.lost if self._parts else 0)
        self.close()
        if trouble is not None:
            raise trouble

    def close(self) -> None:
        """Stop without storing: for a caller that gives up."""
        if self._source is not None:
            self._source.close()
            self._source = None

    def _drain(self, *, everything: bool) -> None:
        trouble: MachineLacks | None = None
        for batch in self._source.batches(everything=everything) if self._source is not None else ():
            table = event_tables.syscalls(batch, self._files)
            self._rows += table.num_rows
            try:
                if self._parts is not None:
                    self._parts.write(table)
            except MachineLacks as error:
                trouble = error
            if self._show is not None:
                for row in table.slice(0, SHOWN_A_BATCH).to_pylist():
                    self._show(call_line(row))
                if table.num_rows > SHOWN_A_BATCH:
                    self._show(f"... {table.num_rows - SHOWN_A_BATCH} more, too many to show")
        if self._parts is not None:
            self._parts.tick()
        if trouble is not None:
            raise trouble


def open_recorder(means: Means, options: Options, bundle: Bundle | None, show: Callable[[str], None] | None
                  ) -> tuple[EventRecorder | FallbackRecorder, Means]:
    """Begin to record with what was asked for, or with the first that works; says which.

    Raises MachineLacks when nothing does, BadInput for options that need eBPF with other means.
    """
    if means in (Means.AUTO, Means.EBPF):
        try:
            return EventRecorder(options, bundle, show), Means.EBPF
        except MachineLacks:
            if means is Means.EBPF or _need_ebpf(options):
                raise
    elif need := _need_ebpf(options):
        raise BadInput(f"{need} need eBPF", where=f"--syscalls-with {means.value}", remedy="leave one of them out")
    if means is not Means.PTRACE:
        try:
            perf = PerfCalls(everybody=options.everybody)
            return FallbackRecorder(perf, bundle, show, options.rules.kinds), Means.PERF
        except MachineLacks:
            if means is Means.PERF or options.everybody:
                raise
    if options.everybody:
        raise BadInput("ptrace follows processes, not the machine", where="--all", remedy="record with eBPF or perf")
    return FallbackRecorder(PtraceCalls(), bundle, show, options.rules.kinds), Means.PTRACE


def _need_ebpf(options: Options) -> str:
    """What of the options no other means can do; empty for nothing."""
    if options.rules.rules or options.rules.defaults:
        return "filter rules"
    return "" if Kind.SYSCALL in options.rules.kinds else "events other than system calls"


__all__ = ["FallbackRecorder", "Means", "open_recorder"]
