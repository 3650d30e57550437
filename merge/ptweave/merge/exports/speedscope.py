# SPDX-License-Identifier: MIT
"""A run as a file of speedscope (https://www.speedscope.app/file-format-schema.json): flame graphs, one a thread.

From the table `profile` each stack becomes a sample with a weight; from the table `calls`, each call an event where it
opened and one where it closed, so that speedscope can show them in order of time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

from ptweave.merge.exports.json_text import dumps, items
from ptweave.merge.exports.spans import UNKNOWN, Extent, Thread, calls, threads
from ptweave.merge.exports.stacks import Stacks, Weight, weights
from ptweave.merge.run import Run

SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def export(run: Run, out: IO[bytes], weight: Weight = Weight.INSTRUCTIONS, *, extent: Extent | None = None,
           with_calls: bool = False) -> list[str]:
    """Write the file to `out`. Raises BadInput when there is no profile (`with_calls`: when there are no calls)."""
    extent = extent or Extent()
    run.need("stacks", "calls" if with_calls else "profile")
    stacks = Stacks(run)
    head = {"$schema": SCHEMA, "exporter": "ptweave", "name": " ".join(run.manifest.command)}
    out.write(dumps(head)[:-1] + b',"shared":{"frames":[')
    items(out, (dumps({"name": name}) for name in stacks.names))
    out.write(b']},"profiles":[')
    first = True
    for thread in threads(run, extent):
        out.write(b"\n" if first else b",\n")
        first = False
        if with_calls:
            _evented(run, out, thread, extent, stacks)
        else:
            _sampled(run, out, thread, weight, stacks)
    out.write(b"]}\n")
    return []


def _sampled(run: Run, out: IO[bytes], thread: Thread, weight: Weight, stacks: Stacks) -> None:
    """A `SampledProfile`. The table is read twice: samples and their weights are lists of their own."""
    total = sum(count for _, count in weights(run, weight, thread.number))
    head = {"type": "sampled", "name": thread.name, "unit": "nanoseconds" if weight is Weight.TIME else "none",
            "startValue": 0, "endValue": total}
    out.write(dumps(head)[:-1] + b',"samples":[')
    indices = [str(index).encode() for index in range(len(stacks.names))]
    items(out, (b"[" + b",".join([indices[index] for index in frames]) + b"]"
                for frames, _ in stacks.frames(weights(run, weight, thread.number))))
    out.write(b'],"weights":[')
    items(out, (str(count).encode() for _, count in weights(run, weight, thread.number)))
    out.write(b"]}")


def _evented(run: Run, out: IO[bytes], thread: Thread, extent: Extent, stacks: Stacks) -> None:
    """An `EventedProfile`."""
    number = {name: index for index, name in enumerate(stacks.names)}
    start = run.manifest.clocks.t0_ns
    last = start

    def events() -> Iterator[bytes]:
        nonlocal last
        still_open: list[int] = []
        for edge in calls(run, thread.number, extent):
            if edge.function is None:
                frame, kind = still_open.pop(), "C"
            else:
                frame, kind = number.get(edge.function, number[UNKNOWN]), "O"
                still_open.append(frame)
            last = edge.t
            yield dumps({"type": kind, "frame": frame, "at": edge.t - start})

    head = {"type": "evented", "name": thread.name, "unit": "nanoseconds"}
    out.write(dumps(head)[:-1] + b',"events":[')
    items(out, events())
    out.write(b'],"startValue":0,"endValue":' + str(max(last - start, 0)).encode() + b"}")
