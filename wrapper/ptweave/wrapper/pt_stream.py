# SPDX-License-Identifier: MIT
"""One trace under way: its event, the files it goes to, what is known to be missing in it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from ptweave.wrapper.perf.event import Event
from ptweave.wrapper.pt_spool import Losses, Trace

NOT_KEPT = "in no snapshot (at least: the kernel does not count what it overwrites)"


@dataclass
class Window:
    """A flight recorder's view of a ring: the processor goes round in it, over what is old, and a snapshot stores what
    it holds at that moment.

    Whenever the thread leaves its processor the kernel says where in the ring that stands (an AUX record's offset), not
    how often it went round meanwhile (`perf_aux_output_end`: with aux_overwrite, `aux_head` is an offset). So what was
    overwritten is counted by these steps, which is right where less than a ring lies between two, and never too much.
    """

    missing: int = 0  # bytes of packets, at least, that are in no snapshot
    spent: bool = False  # what the ring holds was stored, and nothing will be added to it
    _start: int = 0  # where the kernel began in the area that is mapped now, which was zero then
    _head: int = 0  # where it was when that was last said
    _produced: int = 0  # bytes since `_start`, at least

    def step(self, head: int, size: int) -> None:
        """The thread left its processor when that stood at `head`, in a ring of `size` bytes."""
        self._produced += (head - self._head) % size
        self._head = head

    def keep(self, event: Event, losses: Losses, why: str) -> None:
        """Store what the ring holds. Tracing has to be off, and all records taken; `Event.renew` is to follow if it is
        to go on."""
        if self.spent:
            return
        self.step(event.aux_head, int(event.ring.aux_size))
        place = int(event.ring.stored)
        taken = event.snapshot()
        whole = taken == (self._head - self._start) % int(event.ring.aux_size)
        self.missing += max(self._produced, taken + (not whole)) - taken
        if not whole:
            losses.breaks.append((place, f"snapshot ({why}): the packets before these were overwritten"))
            losses.cuts.add(place)
        self._start, self._produced = self._head, 0

    def drop(self, event: Event, losses: Losses, why: str) -> None:
        """Let go what the ring holds, when nothing will be added to it and all records were taken."""
        self.step(event.aux_head, int(event.ring.aux_size))
        if self._produced:
            losses.breaks.append((int(event.ring.stored), f"{why}: packets that are in no snapshot"))
        self.missing += self._produced
        self._start, self._produced = self._head, 0


@dataclass
class Stream:
    """`home` is the pid whose end is its end; the window is a flight recorder's."""

    trace: Trace
    event: Event
    packets: int  # the descriptor of its .pt file
    records: int  # of its .rec file
    losses: Losses = field(default_factory=Losses)
    over: bool = False
    stopped_at: int = -1  # where the kernel stopped tracing; -1: it did not, or went on
    window: Window = field(default_factory=Window)
    begun: bool = False  # the kernel has traced something
    home: int = 0
    over_since: float = 0.0

    def end(self) -> Losses:
        """What is missing in it, in all."""
        ring = self.event.ring
        why = os.strerror(ring.error).lower() if ring.error else "not written"
        lost = {why: int(ring.lost), "overwritten before they were read": int(ring.overwritten),
                NOT_KEPT: self.window.missing}
        self.losses.bytes = {reason: count for reason, count in lost.items() if count}
        return self.losses

    def close(self) -> None:
        self.event.close()
        os.close(self.packets)
        os.close(self.records)
