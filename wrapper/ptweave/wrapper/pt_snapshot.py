# SPDX-License-Identifier: MIT
"""The flight recorder: what all rings hold is stored when somebody asks for it, when a place is reached, and when a
process crashes. What else was traced is let go, and counted.

Tracing is off while a snapshot is stored, and goes on in fresh rings.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ptweave.data import MachineLacks
from ptweave.wrapper.perf.abi import Ioctl
from ptweave.wrapper.processes import ended_by
from ptweave.wrapper.pt_stream import Stream

GRACE_SECONDS = 0.25
"""A thread is gone so much before its process at most, where it is that which ends."""
NONE_TAKEN = ("packets: no snapshot was taken: nobody asked for one (kill -USR2), no place of --snapshot-at was "
              "reached, nothing crashed")


class FlightRecorder:
    """`statuses`: wait statuses of processes that have ended, as they become known. `places` is the spool's file of
    where snapshots begin, for a recorder that dies."""

    def __init__(self, statuses: Mapping[int, int], places: Path) -> None:
        self._statuses = statuses
        self._places = places.open("a")
        self._asked: list[str] = []
        self.taken = 0
        """How many times something was stored."""

    def ask(self, why: str) -> None:
        """A snapshot is wanted."""
        self._asked.append(why)

    def close(self) -> None:
        """Idempotent."""
        self._places.close()

    def _keep(self, stream: Stream, why: str) -> None:
        place = {"trace": stream.trace.name, "offset": int(stream.event.ring.stored), "why": why}
        self._places.write(json.dumps(place) + "\n")
        self._places.flush()
        stream.window.keep(stream.event, stream.losses, why)

    def take(self, streams: Sequence[Stream], others: Sequence[int], drain: Callable[[], None]) -> list[str]:
        """Take the snapshot that was asked for, if one was. `others`: descriptors of further events of these rings;
        `drain`: reads the records. Returns what did not go as it should, in words for the user."""
        if not self._asked:
            return []
        why, self._asked = ", ".join(dict.fromkeys(self._asked)), []
        streams = [one for one in streams if one.begun]
        alive = [one for one in streams if not one.over]
        events = [one.event.fd for one in alive] + list(others)
        _tell(events, Ioctl.DISABLE)
        drain()
        wrong = []
        for stream in streams:
            self._keep(stream, why)
            stream.window.spent = stream.over
        for stream in alive:
            stream.losses.breaks.append((int(stream.event.ring.stored),
                                         f"snapshot ({why}): tracing was off while it was stored"))
            try:
                stream.event.renew()
            except MachineLacks as error:
                wrong.append(f"trace {stream.trace.name} ends with a snapshot: {error.line()}")
                stream.over = stream.window.spent = True
                events.remove(stream.event.fd)
        _tell(events, Ioctl.ENABLE)
        self.taken += 1
        return wrong

    def settle(self, stream: Stream, *, last: bool = False) -> bool:
        """What becomes of a thread that has ended: stored if its process crashed, or if nobody knows; else let go, as
        is what a processor's ring holds. False: that cannot be told yet (`last`: it has to be)."""
        ended, why = (True, "") if stream.trace.cpu >= 0 else ended_by(stream.trace.pid, self._statuses)
        if stream.home != stream.trace.pid and why is None:
            ended, why = ended_by(stream.home, self._statuses)
        if ended and why != "":
            self._keep(stream, f"ended by {why}" if why else "how it ended is not known")
            self.taken += 1
            return True
        if not ended and not last and time.monotonic() - stream.over_since < GRACE_SECONDS:
            return False
        stream.window.drop(stream.event, stream.losses, "the thread ended" if stream.over else "the recording ended")
        return True


def _tell(events: Sequence[int], request: Ioctl) -> None:
    for fd in events:
        with contextlib.suppress(OSError):  # its thread has ended
            fcntl.ioctl(fd, request, 0)
