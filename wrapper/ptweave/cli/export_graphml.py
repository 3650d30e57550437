# SPDX-License-Identifier: MIT
"""`ptweave export graphml`: part of the graph as GraphML."""

from __future__ import annotations

import argparse

from ptweave.cli.exporting import LIMIT, Exported, add_file, add_nodes, chosen_of, write

SUMMARY = "part of the graph as GraphML"
EXAMPLES = """\
  ptweave export graphml prog.ptw                     # leaves prog.graphml
  ptweave export graphml prog.ptw --from file:input.txt@10 --memory
  ptweave export graphml prog.ptw --query "select thread, thunk from thunks where operation = 'mutex_lock'"
"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_file(parser, ".graphml")
    add_nodes(parser, limit=LIMIT)


def run(args: argparse.Namespace) -> Exported:
    """Export; returns what it made."""
    from ptweave.merge.exports import graphml

    return write(args, "open it with Gephi, yEd or networkx",
                 lambda opened, out: graphml.export(opened, out, chosen_of(opened, args)))
