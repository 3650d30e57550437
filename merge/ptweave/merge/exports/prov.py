# SPDX-License-Identifier: MIT
"""A run as W3C PROV-JSON (https://www.w3.org/submissions/prov-json/): what came to be from what.

A thunk is an activity of its thread (an agent); a transfer is an entity, a specialisation of the file it was of. Input
is used, output was generated, and what a thunk learnt from another it was informed by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import IO, Any

from ptweave.data.manifest import Clocks
from ptweave.merge.exports import nodes
from ptweave.merge.exports.graphml import hexadecimal
from ptweave.merge.exports.json_text import dumps, items
from ptweave.merge.exports.nodes import Chosen
from ptweave.merge.exports.spans import lacking
from ptweave.merge.run import Run

PREFIXES = {"run": "urn:ptweave:run:", "ptweave": "urn:ptweave:terms:"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Members = Iterator[tuple[str, dict[str, Any]]]


def export(run: Run, out: IO[bytes], chosen: Chosen) -> list[str]:
    """Write the document to `out`; returns what the run lacks for it. Raises BadInput when there are no thunks."""
    run.need("thunks")
    sections: dict[str, Callable[[Run, Chosen], Members]] = {
        "agent": _agents, "activity": _activities, "wasAssociatedWith": _associations, "entity": _entities,
        "specializationOf": _specialisations, "used": _used, "wasGeneratedBy": _generated,
        "wasInformedBy": _informed}
    out.write(b'{"prefix":' + dumps(PREFIXES))
    for name, members in sections.items():
        out.write(b",\n" + dumps(name) + b":{")
        items(out, (dumps(key) + b":" + dumps(value) for key, value in members(run, chosen)))
        out.write(b"}")
    out.write(b"}\n")
    return lacking(run, "threads", "edges", "transfers")


def _thread(thread: int) -> str:
    return f"run:thread_{thread}"


def _thunk(name: str) -> str:
    return f"run:thunk_{name.replace('.', '_')}"


def _transfer(number: int | None) -> str:
    return f"run:transfer_{number}"


def _typed(value: int, kind: str = "xsd:long") -> dict[str, str]:
    return {"$": str(value), "type": kind}


def _when(clocks: Clocks, t: int | None) -> str | None:
    """A time of CLOCK_MONOTONIC as a date, to the µs; None when the recording does not say when it was made."""
    if t is None or not clocks.realtime_ns:
        return None
    try:
        return (_EPOCH + timedelta(microseconds=(clocks.realtime_ns + t - clocks.t0_ns) // 1000)).isoformat()
    except OverflowError:
        return None


def _agents(run: Run, chosen: Chosen) -> Members:
    for thread, pid, tid, function in run.ask(f"""
            select thread, any_value(pid), any_value(tid), any_value(start_function)
            from (select distinct thread from ({chosen.sql})) left join threads using (thread)
            group by thread order by thread"""):
        yield _thread(thread), nodes.known({
            "prov:type": {"$": "prov:SoftwareAgent", "type": "prov:QUALIFIED_NAME"}, "prov:label": f"thread {thread}",
            "ptweave:pid": None if pid is None else _typed(pid), "ptweave:tid": None if tid is None else _typed(tid),
            "ptweave:start_function": function})


def _activities(run: Run, chosen: Chosen) -> Members:
    clocks = run.manifest.clocks
    for thunk in nodes.thunks(run, chosen):
        yield _thunk(thunk.name), nodes.known({
            "prov:startTime": _when(clocks, thunk.t), "prov:label": f"thunk {thunk.name}",
            "ptweave:operation": thunk.operation, "ptweave:object": hexadecimal(thunk.object),
            "ptweave:function": thunk.function, "ptweave:t": None if thunk.t is None else _typed(thunk.t)})


def _associations(run: Run, chosen: Chosen) -> Members:
    for thunk in nodes.thunks(run, chosen):
        yield f"_:by_{thunk.name}", {"prov:activity": _thunk(thunk.name), "prov:agent": _thread(thunk.thread)}


def _paths(run: Run, chosen: Chosen) -> dict[str, int]:
    """The files' numbers: as many as the run opened."""
    paths: dict[str, int] = {}
    for one in nodes.transfers(run, chosen):
        if one.path is not None:
            paths.setdefault(one.path, len(paths))
    return paths


def _entities(run: Run, chosen: Chosen) -> Members:
    for path, number in _paths(run, chosen).items():
        yield f"run:file_{number}", {"prov:label": path, "ptweave:path": path}
    for one in nodes.transfers(run, chosen):
        yield _transfer(one.transfer), nodes.known({
            "prov:label": f"{one.kind} {one.path if one.path is not None else one.descriptor}",
            "ptweave:kind": one.kind, "ptweave:path": one.path,
            "ptweave:descriptor": None if one.descriptor is None else _typed(one.descriptor, "xsd:int"),
            "ptweave:offset": None if one.offset is None else _typed(one.offset),
            "ptweave:size": None if one.size is None else _typed(one.size)})


def _specialisations(run: Run, chosen: Chosen) -> Members:
    paths = _paths(run, chosen)
    for one in nodes.transfers(run, chosen):
        if one.path is not None:
            yield f"_:of_{one.transfer}", {"prov:specificEntity": _transfer(one.transfer),
                                           "prov:generalEntity": f"run:file_{paths[one.path]}"}


def _used(run: Run, chosen: Chosen) -> Members:
    for number, edge in enumerate(nodes.edges(run, chosen)):
        if edge.kind == "input" and edge.target is not None:
            yield f"_:used_{number}", {"prov:activity": _thunk(edge.target), "prov:entity": _transfer(edge.transfer)}


def _generated(run: Run, chosen: Chosen) -> Members:
    for number, edge in enumerate(nodes.edges(run, chosen)):
        if edge.kind == "output" and edge.source is not None:
            yield f"_:made_{number}", {"prov:entity": _transfer(edge.transfer), "prov:activity": _thunk(edge.source)}


def _informed(run: Run, chosen: Chosen) -> Members:
    for number, edge in enumerate(nodes.edges(run, chosen)):
        if edge.source is not None and edge.target is not None:
            yield f"_:informed_{number}", nodes.known({
                "prov:informed": _thunk(edge.target), "prov:informant": _thunk(edge.source),
                "ptweave:kind": edge.kind, "ptweave:object": hexadecimal(edge.object),
                "ptweave:pages": _typed(edge.pages) if edge.pages else None,
                "ptweave:bytes": None if edge.bytes is None else _typed(edge.bytes)})
