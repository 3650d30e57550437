# SPDX-License-Identifier: MIT
"""Part of the graph in Graphviz's DOT language (https://graphviz.org/doc/info/lang.html): a column a thread."""

from __future__ import annotations

from typing import IO

from ptweave.merge.exports import nodes
from ptweave.merge.exports.graphml import ends, hexadecimal
from ptweave.merge.exports.nodes import Chosen, Thunk, Transfer
from ptweave.merge.exports.spans import lacking
from ptweave.merge.render import safe
from ptweave.merge.run import Run

_STYLE = {"control": 'color="gray40"', "sync": 'color="#0072b2", style="bold"', "data": 'color="#d55e00"',
          "input": 'color="#009e73", style="dashed"', "output": 'color="#009e73", style="dashed"'}
"""Colours of Okabe and Ito, which people of every kind of sight tell apart; and lines of different kinds."""


def export(run: Run, out: IO[bytes], chosen: Chosen) -> list[str]:
    """Write the graph to `out`; returns what the run lacks for it. Raises BadInput when there are no thunks."""
    run.need("thunks")
    out.write(b'digraph run {\n  node [shape="box", fontname="sans-serif"];\n  edge [fontname="sans-serif"];\n')
    thread = None
    for thunk in nodes.thunks(run, chosen):
        if thunk.thread != thread:
            if thread is not None:
                out.write(b"  }\n")
            thread = thunk.thread
            out.write(f'  subgraph "cluster_{thread}" {{\n    label={quoted(f"thread {thread}")};\n'.encode())
        out.write(f"    {quoted('t' + thunk.name)} [label={quoted(_thunk(thunk))}];\n".encode())
    if thread is not None:
        out.write(b"  }\n")
    for one in nodes.transfers(run, chosen):
        out.write(f'  "x{one.transfer}" [shape="note", label={quoted(_transfer(one))}];\n'.encode())
    for edge in nodes.edges(run, chosen):
        source, target = ends(edge)
        label = f"{edge.pages} pages" if edge.kind == "data" else hexadecimal(edge.object) if edge.object else ""
        out.write(f"  {quoted(source)} -> {quoted(target)} "
                  f"[class={quoted(edge.kind)}, label={quoted(label or '')}, {_STYLE.get(edge.kind, '')}];\n".encode())
    out.write(b"}\n")
    return lacking(run, "edges", "transfers")


def quoted(text: str) -> str:
    """A quoted string that stands for exactly this text; its lines are lines of the label, its other control characters
    are shown as escapes."""
    lines = (safe(line).replace("\\", "\\\\").replace('"', '\\"') for line in text.split("\n"))
    return '"' + "\\n".join(lines) + '"'


def _one_line(text: str) -> str:
    return text.replace("\n", "\\n")


def _thunk(thunk: Thunk) -> str:
    words = [thunk.operation or "", hexadecimal(thunk.object) or ""]
    lines = [thunk.name, " ".join(word for word in words if word), thunk.function or ""]
    return "\n".join(_one_line(line) for line in lines if line)


def _transfer(one: Transfer) -> str:
    where = one.path if one.path is not None else f"fd {one.descriptor}"
    size = "?" if one.size is None else one.size
    at = "" if one.offset is None else f" at {one.offset}"
    return f"{one.kind} {_one_line(where)}\n{size} bytes{at}"
