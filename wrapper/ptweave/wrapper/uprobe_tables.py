# SPDX-License-Identifier: MIT
"""Hits of probes into the tables uprobes, jni_refs and gc. A collection is a row once it has ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ptweave.data.event_schemas import GC
from ptweave.wrapper.event_tables import Files, Rows
from ptweave.wrapper.filters import Kind
from ptweave.wrapper.uprobes import Probe, Source, Value

MOST_NAMES = 1 << 12
"""Names of causes that are remembered; of more, all are forgotten, and told again with the next collection."""
MOST_UNENDED = 1 << 16
"""Threads whose collections are under way; more are not remembered."""


@dataclass
class _Collection:
    """One under way, or a pause in which there may be some."""

    t: int
    kind: str
    full: bool | None = None
    generation: int | None = None
    cause: int | None = None
    used: list[int | None] = field(default_factory=lambda: [None, None])
    committed: int | None = None
    end: int = 0
    ended: list[_Collection] = field(default_factory=list)
    """Of a pause: the collections in it. What the pools have is told when one has ended, before the pause has."""


def narrow(values: npt.NDArray[np.uint64], value: Value) -> npt.NDArray[np.int64]:
    """Values of a probe as wide and as signed as they are."""
    found = values.astype(np.uint64)
    if value.size == 8 or value.source in (Source.STRING, Source.CONSTANT):
        return found.view(np.int64)
    found &= np.uint64((1 << 8 * value.size) - 1)
    if value.signed:
        half = np.uint64(1 << 8 * value.size - 1)
        return ((found ^ half).view(np.int64) - half.astype(np.int64))
    return found.view(np.int64)


class _CauseNames:
    """What processes call the causes of collections: each HotSpot asks for a name, and gets it, before it collects."""

    def __init__(self) -> None:
        self._asked: dict[int, int] = {}  # by tid: the cause
        self._names: dict[tuple[int, str, int], str | None] = {}  # by pid, library, cause

    def hit(self, probe: Probe, pid: int, tid: int, value: int, text: bytes | None) -> None:
        """A hit of any probe of collections: a question, the answer to the one right before it, or neither."""
        asked = self._asked.pop(tid, None)
        if probe.name == "hotspot cause":
            self._asked[tid] = value
        elif probe.name == "hotspot named" and asked is not None and text is not None:
            if len(self._names) >= MOST_NAMES:
                self._names.clear()
            key = (pid, probe.path, asked)
            name = text.decode(errors="backslashreplace")
            # two names of one cause: hits in between were lost, and which of them is right is not known
            self._names[key] = name if self._names.get(key, name) == name else None

    def of(self, probe: Probe, pid: int, cause: int | None) -> str | None:
        """The name of a cause; None when it was not told."""
        return None if cause is None else self._names.get((pid, probe.path, cause))


class ProbeTables:
    """Knows the probes by number, and the collections that have not ended. `rows_of` is as EVENT_ROWS."""

    def __init__(self, probes: Sequence[Probe]) -> None:
        self._probes = probes
        self._open: dict[int, list[_Collection]] = {}  # by tid
        self._completed: dict[int, int] = {}  # by pid
        self._names = _CauseNames()
        self.rows_of: dict[Kind, Callable[[Rows, Files], pa.Table]] = {
            Kind.GARBAGE_COLLECT: self._collections, Kind.JNI_REFERENCE: self._references, Kind.UPROBE: self._uprobes}

    @property
    def not_ended(self) -> int:
        """Collections that have begun and not ended."""
        return sum(len(stack) for stack in self._open.values())

    # --- uprobes and references ---

    def _uprobes(self, rows: Rows, files: Files) -> pa.Table:
        numbers = np.ascontiguousarray(rows["number"])
        lines: list[dict[str, Any]] = [{} for _ in range(len(rows))]
        for number in np.unique(numbers):
            probe = self._probes[int(number)]
            mine = np.flatnonzero(numbers == number)
            columns = [narrow(rows["value"][mine, i], value) for i, value in enumerate(probe.values)]
            string = next((i for i, value in enumerate(probe.values) if value.source is Source.STRING), None)
            for at, row in enumerate(mine):
                bad = int(rows["unreadable"][row])
                text = None if string is None or bad >> string & 1 else bytes(rows["text"][row])
                lines[row] = {"names": [value.name for value in probe.values], "text": text, "values": [
                    None if bad >> i & 1 else int(column[at]) for i, column in enumerate(columns)]}
        head = {name: np.ascontiguousarray(rows[name]) for name in ("t", "pid", "tid")}
        return pa.table({
            **head, "probe": pa.array([self._probes[int(number)].name for number in numbers], pa.string()),
            "names": pa.array([line["names"] for line in lines], pa.list_(pa.string())),
            "values": pa.array([line["values"] for line in lines], pa.list_(pa.int64())),
            "text": pa.array([line["text"] for line in lines], pa.binary())})

    def _references(self, rows: Rows, files: Files) -> pa.Table:
        names = pa.array([probe.name for probe in self._probes], pa.string())
        return pa.table({
            **{name: np.ascontiguousarray(rows[name]) for name in ("t", "pid", "tid")},
            "operation": names.take(pa.array(rows["number"].astype(np.int32))),
            "reference": np.ascontiguousarray(rows["value"][:, 0])})

    # --- collections ---

    def _collections(self, rows: Rows, files: Files) -> pa.Table:
        found: list[dict[str, Any]] = []
        for row in rows:
            probe = self._probes[int(row["number"])]
            values = [int(narrow(row["value"][i:i + 1], value)[0]) for i, value in enumerate(probe.values)]
            pid, tid = int(row["pid"]), int(row["tid"])
            text = None if not values or int(row["unreadable"]) & 1 else bytes(row["text"])
            self._names.hit(probe, pid, tid, values[0] if values else 0, text)
            runtime = "cpython" if probe.name.startswith("python") else "hotspot"
            freed = values[0] if probe.name == "python done" else None
            for done in self._step(probe.name, tid, int(row["t"]), values):
                name = self._names.of(probe, pid, done.cause)
                found.append({**self._row(pid, tid, done, runtime, freed), "cause_name": name})
        return pa.Table.from_pylist(found, schema=pa.schema([(one.name, one.type) for one in GC.columns]))

    def _row(self, pid: int, tid: int, done: _Collection, runtime: str, freed: int | None) -> dict[str, Any]:
        self._completed[pid] = self._completed.get(pid, 0) + 1
        return {"t": done.t, "pid": pid, "tid": tid, "runtime": runtime, "kind": done.kind,
                "gcs_completed": self._completed[pid], "duration": done.end - done.t, "full": done.full,
                "generation": done.generation, "cause": done.cause, "freed_objects": freed,
                "used_before": done.used[0], "used_after": done.used[1], "committed": done.committed}

    def _step(self, name: str, tid: int, t: int, values: list[int]) -> list[_Collection]:
        """One hit; the collections that are known whole with it."""
        stack = self._open.setdefault(tid, []) if len(self._open) < MOST_UNENDED else self._open.get(tid, [])
        match name:
            case "python start":
                generation = values[0] if values else None  # unknown of a function that a compiler changed
                stack.append(_Collection(t, "collection", full=None if generation is None else generation == 2,
                                         generation=generation))
            case "hotspot begin":
                stack.append(_Collection(t, "pause", full=bool(values[0])))
            case "hotspot start":
                stack.append(self._started(t, values[0], stack[-1] if stack else None))
            case "hotspot pool begin" | "hotspot pool end" if stack:
                pause = stack[-1]
                ending = name.endswith("end")
                self._pool(pause.ended[-1] if ending and pause.ended else pause, values, ending=ending)
            case "python done" | "hotspot stop" | "hotspot end" if stack:
                done = stack.pop()
                done.end = t
                if stack and name == "hotspot stop":
                    stack[-1].ended.append(done)
                    return []
                if not stack:
                    del self._open[tid]
                return done.ended or [done]
        return []

    @staticmethod
    def _started(t: int, cause: int, pause: _Collection | None) -> _Collection:
        """A collection that a tracer of HotSpot's begins: in a pause, or beside the program."""
        if pause is None:
            return _Collection(t, "cycle", cause=cause)
        begun = _Collection(t, "collection", full=pause.full, cause=cause, used=pause.used)
        pause.used = [None, None]
        return begun

    @staticmethod
    def _pool(open_: _Collection, values: list[int], *, ending: bool) -> None:
        used, committed = values
        open_.used[ending] = (open_.used[ending] or 0) + used
        if ending:
            open_.committed = (open_.committed or 0) + committed


__all__ = ["ProbeTables", "narrow"]
