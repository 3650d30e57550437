# SPDX-License-Identifier: MIT
"""The tables of a run by name, as `run.thunks`: nothing is read before rows are asked for."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ptweave.merge.result import Result


class Relations:
    """A property for each table whose name no question of `Run` has; `table` has them all. docs/tables.md describes
    their rows."""

    @abstractmethod
    def table(self, name: str) -> Result:
        """A table by its name. Raises BadInput for a name that is none."""

    @property
    def threads(self) -> Result:
        """Traced tasks."""
        return self.table("threads")

    @property
    def processes(self) -> Result:
        """Process images."""
        return self.table("processes")

    @property
    def images(self) -> Result:
        """Files whose code ran."""
        return self.table("images")

    @property
    def maps(self) -> Result:
        """Images in address spaces."""
        return self.table("maps")

    @property
    def variables(self) -> Result:
        """Variables of images, where they are in these."""
        return self.table("variables")

    @property
    def blocks(self) -> Result:
        """Distinct basic blocks."""
        return self.table("blocks")

    @property
    def paths(self) -> Result:
        """Distinct sequences of blocks."""
        return self.table("paths")

    @property
    def clock(self) -> Result:
        """Moments known in threads' flows."""
        return self.table("clock")

    @property
    def pt_events(self) -> Result:
        """Events of the trace."""
        return self.table("pt_events")

    @property
    def gaps(self) -> Result:
        """Known holes."""
        return self.table("gaps")

    @property
    def syscalls(self) -> Result:
        """System calls."""
        return self.table("syscalls")

    @property
    def thunks(self) -> Result:
        """What threads did from one synchronisation operation to the next."""
        return self.table("thunks")

    @property
    def accesses(self) -> Result:
        """Pages that threads read and wrote."""
        return self.table("accesses")

    @property
    def allocations(self) -> Result:
        """Memory that the heap took."""
        return self.table("allocations")

    @property
    def transfers(self) -> Result:
        """Data that came in or went out."""
        return self.table("transfers")

    @property
    def edges(self) -> Result:
        """Dependences."""
        return self.table("edges")

    @property
    def tags(self) -> Result:
        """Moments that the program tagged."""
        return self.table("tags")

    @property
    def profile(self) -> Result:
        """Distinct call stacks and what ran in them."""
        return self.table("profile")

    @property
    def stacks(self) -> Result:
        """Call stacks by number."""
        return self.table("stacks")

    @property
    def call_stacks(self) -> Result:
        """Call stacks that were logged, frame by frame."""
        return self.table("call_stacks")

    @property
    def blocking(self) -> Result:
        """System calls by the time they took (of `ptweave events`)."""
        return self.table("blocking")

    @property
    def fd_changes(self) -> Result:
        """File descriptors opened and closed (of `ptweave events`)."""
        return self.table("fd_changes")

    @property
    def signals(self) -> Result:
        """Signals sent and delivered (of `ptweave events`)."""
        return self.table("signals")

    @property
    def writes(self) -> Result:
        """Calls of write and its kin (of `ptweave events`)."""
        return self.table("writes")

    @property
    def gc(self) -> Result:
        """Garbage collections and other pauses of runtimes (of `ptweave events`)."""
        return self.table("gc")

    @property
    def jni_refs(self) -> Result:
        """JNI references made and deleted (of `ptweave events`)."""
        return self.table("jni_refs")

    @property
    def uprobes(self) -> Result:
        """Places of --uprobe that were reached (of `ptweave events`)."""
        return self.table("uprobes")

    @property
    def probes(self) -> Result:
        """Hits of probes (--probe)."""
        return self.table("probes")

    @property
    def watches(self) -> Result:
        """Accesses of what was watched (--watch)."""
        return self.table("watches")

    @property
    def watch_sites(self) -> Result:
        """Watchpoints, and how often each was hit."""
        return self.table("watch_sites")

    @property
    def probe_sites(self) -> Result:
        """Places that probes were asked for, and why some were refused."""
        return self.table("probe_sites")
