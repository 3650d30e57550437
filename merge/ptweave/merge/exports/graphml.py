# SPDX-License-Identifier: MIT
"""Part of the graph as GraphML (http://graphml.graphdrawing.org), for Gephi, yEd, networkx and others.

Thunks are nodes `t3.17`, transfers `x19`. What is not known of one is left out.
"""

from __future__ import annotations

from typing import IO, Any
from xml.sax.saxutils import escape, quoteattr

from ptweave.merge.exports import nodes
from ptweave.merge.exports.nodes import Chosen
from ptweave.merge.exports.spans import lacking
from ptweave.merge.render import safe
from ptweave.merge.run import Run

_NODE = {"kind": "string", "label": "string", "thread": "int", "thunk": "int", "operation": "string",
         "object": "string", "function": "string", "t": "long", "wait": "long", "seq": "long", "transfer": "int",
         "input": "boolean", "path": "string", "descriptor": "int", "offset": "long", "size": "long"}
_EDGE = {"kind": "string", "object": "string", "pages": "long", "bytes": "long"}
_HEAD = """<?xml version="1.0" encoding="UTF-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
 xsi:schemaLocation="http://graphml.graphdrawing.org/xmlns http://graphml.graphdrawing.org/xmlns/1.0/graphml.xsd">
"""


def export(run: Run, out: IO[bytes], chosen: Chosen) -> list[str]:
    """Write the graph to `out`; returns what the run lacks for it. Raises BadInput when there are no thunks."""
    run.need("thunks")
    out.write(_HEAD.encode())
    for what, fields in (("node", _NODE), ("edge", _EDGE)):
        for name, kind in fields.items():
            out.write(f'<key id="{what[0]}_{name}" for="{what}" attr.name="{name}" attr.type="{kind}"/>\n'.encode())
    out.write(b'<graph id="run" edgedefault="directed">\n')
    for thunk in nodes.thunks(run, chosen):
        facts = {"kind": "thunk", "label": thunk.name, "thread": thunk.thread, "thunk": thunk.thunk,
                 "operation": thunk.operation, "object": hexadecimal(thunk.object), "function": thunk.function,
                 "t": thunk.t, "wait": thunk.wait, "seq": thunk.seq}
        out.write(f"<node id={quoteattr('t' + thunk.name)}>{_data('n', facts)}</node>\n".encode())
    for one in nodes.transfers(run, chosen):
        facts = {"kind": one.kind, "label": one.path or f"fd {one.descriptor}", "input": one.input, "t": one.t,
                 "thread": one.thread, "thunk": one.thunk, "transfer": one.transfer, "path": one.path,
                 "descriptor": one.descriptor, "offset": one.offset, "size": one.size}
        out.write(f'<node id="x{one.transfer}">{_data("n", facts)}</node>\n'.encode())
    for edge in nodes.edges(run, chosen):
        source, target = ends(edge)
        facts = {"kind": edge.kind, "object": hexadecimal(edge.object), "pages": edge.pages or None,
                 "bytes": edge.bytes}
        out.write(f'<edge source="{source}" target="{target}">{_data("e", facts)}</edge>\n'.encode())
    out.write(b"</graph>\n</graphml>\n")
    return lacking(run, "edges", "transfers")


def ends(edge: nodes.Edge) -> tuple[str, str]:
    """The names of the nodes an edge is between."""
    return (f"x{edge.transfer}" if edge.source is None else f"t{edge.source}",
            f"x{edge.transfer}" if edge.target is None else f"t{edge.target}")


def hexadecimal(value: int | None) -> str | None:
    """An address."""
    return None if value is None else f"{value:#x}"


def _data(side: str, facts: dict[str, Any]) -> str:
    return "".join(f'<data key="{side}_{name}">{escape(_text(value))}</data>'
                   for name, value in nodes.known(facts).items())


def _text(value: Any) -> str:
    """Characters that XML cannot hold are escapes, as on a terminal."""
    return str(value).lower() if isinstance(value, bool) else safe(str(value))
