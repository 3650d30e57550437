# SPDX-License-Identifier: MIT
"""Events of the kernel, recorded on their own: into a bundle's tables as they come, onto a terminal, or both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from ptweave.data.bundle import Bundle
from ptweave.data.errors import MachineLacks
from ptweave.data.ledger import Ledger
from ptweave.data.syscall_text import Call, Captured, line
from ptweave.wrapper import event_columns, event_tables
from ptweave.wrapper.event_tables import EVENT_ROWS, TABLE_OF, Files, Parts
from ptweave.wrapper.filters import Kind, Rules
from ptweave.wrapper.kernel_events import FILE, KernelEvents, Options
from ptweave.wrapper.pace import Pace
from ptweave.wrapper.syscalls import COUNTED, account_calls, account_captures
from ptweave.wrapper.uprobe_tables import ProbeTables

SHOWN_A_BATCH = 5000
"""Lines shown of one batch: writing them must not hold up the recording."""


class EventRecorder:
    """Use: `follow`, `service` now and then, `finish`. Begins to record when it is made.

    `bundle` None: nothing is stored. `show` takes a line for each event.
    """

    def __init__(self, options: Options, bundle: Bundle | None, show: Callable[[str], None] | None = None) -> None:
        """Raises MachineLacks when this machine cannot, BadInput for options that cannot be."""
        self._show = show
        self._files = Files()
        self._parts = {kind: Parts(bundle.tables, table) for kind, table in TABLE_OF.items()} if bundle else {}
        self._counts = dict.fromkeys(COUNTED, 0)
        self._seen = dict.fromkeys(Kind, 0)
        probed = ProbeTables(options.probes)
        self._probed = probed
        self._rows_of = {**EVENT_ROWS, **probed.rows_of}
        self._events = KernelEvents(options)
        self._batches = options.batches
        self._pace: Pace | None = None
        self.variant = self._events.variant

    def follow(self, tid: int) -> bool:
        """Record a task and all that it will create; see KernelEvents.follow."""
        return self._events.follow(tid)

    def filter(self, rules: Rules) -> None:
        """Replace the filter rules."""
        self._events.filter(rules)

    def fds(self) -> list[int]:
        """Descriptors to poll for reading: then `service` has something to do."""
        return [self._events.fd()] if self._events.active else []

    def service(self) -> None:
        """Store and show what is ready. Raises MachineLacks, once a table, when it cannot be written.

        Between the first time and `finish` the thread that calls it may have another nice value: fork nothing from it.
        """
        self._pace = self._pace or Pace(self._batches)
        self._drain(everything=False)

    def finish(self, ledger: Ledger) -> None:
        """Detach, store the rest, account for every event. Raises as `service` does; all is accounted for then too."""
        if not self._events.active:
            return
        trouble: MachineLacks | None = None
        if self._pace is not None:
            self._pace.usual()
        try:
            self._events.stop()
            for step in (lambda: self._drain(everything=True), *(parts.close for parts in self._parts.values())):
                try:
                    step()
                except MachineLacks as error:
                    trouble = error
            self._account(ledger)
        finally:
            self._events.close()
        if trouble is not None:
            raise trouble

    def close(self) -> None:
        """Detach without storing: for a caller that gives up."""
        self._events.close()

    # --- batches -------------------------------------------------------------------------------------------------

    def _drain(self, *, everything: bool) -> None:
        trouble: MachineLacks | None = None
        for batch in self._events.batches(everything=everything):
            if self._pace is not None and not everything:
                self._pace.look(self._events.backlog())
            try:
                self._take(batch)
            except MachineLacks as error:
                trouble = error
        for parts in self._parts.values():
            try:
                parts.tick()
            except MachineLacks as error:
                trouble = error
        if trouble is not None:
            raise trouble

    def _take(self, batch: Any) -> None:
        ffi, trouble = self._events.ffi, None
        if int(batch.event_rows[FILE]):
            self._files.define(event_columns.files(ffi, batch))
        tables: dict[Kind, pa.Table] = {}
        if int(batch.rows):
            tables[Kind.SYSCALL] = event_tables.syscalls(
                event_columns.copied(event_columns.syscalls(ffi, batch)), self._files)
            for name in COUNTED:
                self._counts[name] += int(getattr(batch, name))
        for kind, rows_of in self._rows_of.items():
            if int(batch.event_rows[kind]):
                tables[kind] = rows_of(event_columns.events(ffi, batch, kind), self._files)
        for kind, table in tables.items():
            self._seen[kind] += table.num_rows
            try:
                if kind in self._parts:
                    self._parts[kind].write(table)
            except MachineLacks as error:
                trouble = error
        if self._show is not None and tables:
            self._show_rows(self._show, tables)
        if trouble is not None:
            raise trouble

    @staticmethod
    def _show_rows(show: Callable[[str], None], tables: dict[Kind, pa.Table]) -> None:
        """Show a batch in the order in which things ended."""
        lines: list[tuple[int, str]] = []
        for kind, table in tables.items():
            for row in table.slice(0, SHOWN_A_BATCH).to_pylist():
                lines.append((row["t_exit"] or row["t_enter"], call_line(row)) if kind is Kind.SYSCALL else
                             (row["t"], event_line(kind, row)))
        for _, text in sorted(lines, key=lambda one: one[0]):
            show(text)
        more = sum(table.num_rows for table in tables.values()) - len(lines)
        if more > 0:
            show(f"... {more} more, too many to show")

    # --- the account ---------------------------------------------------------------------------------------------

    def _account(self, ledger: Ledger) -> None:
        totals = self._events.totals()
        for kind in Kind:
            parts = self._parts.get(kind)
            stored = parts.stored if parts else self._seen[kind]
            lost = parts.lost if parts else 0
            if kind is Kind.SYSCALL:
                account_calls(ledger, totals, self._events.losses(), stored, lost)
                continue
            produced, taken = int(totals.produced[kind]), int(totals.taken[kind])
            full = int(totals.lost[kind])
            if kind is Kind.GARBAGE_COLLECT:
                if produced:
                    ledger.add(f"events/{kind.word}/probes", "hits", stored=taken, produced=produced, lost={
                        "ring_full": full, "not_drained": produced - full - taken})
                    ledger.add(f"events/{kind.word}", "events", stored=stored, lost={
                        "not_ended": self._probed.not_ended, "not_written": lost})
                continue
            if produced:
                ledger.add(f"events/{kind.word}", "events", stored=stored, produced=produced, lost={
                    "ring_full": full, "not_drained": produced - full - taken, "not_written": lost})
        account_captures(ledger, self._counts)
        if totals.lost[FILE] or self._files.unknown:
            ledger.add("events/files", "names", lost={
                "ring_full": int(totals.lost[FILE]), "unknown": self._files.unknown})


def call_line(row: dict[str, Any]) -> str:
    """A row of the table syscalls as one line: the thread, the call, the time it took."""
    call = Call(row["number"], row["args"], row["result"], row["paths"] or [], row["files"] or [],
                [Captured(**one) for one in row["data"] or ()])
    took = f" <{(row['t_exit'] - row['t_enter']) / 1e9:.6f}>" if row["t_exit"] is not None else ""
    return f"{row['tid']} {line(call)}{took}"


def event_line(kind: Kind, row: dict[str, Any]) -> str:
    """A row of another table as one line."""
    shown = " ".join(f"{name}={value!r}" if isinstance(value, str) else f"{name}={value}"
                     for name, value in row.items() if name not in ("t", "tid") and value is not None)
    return f"{row['tid']} {kind.word}: {shown}"
