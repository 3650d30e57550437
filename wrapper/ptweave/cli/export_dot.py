# SPDX-License-Identifier: MIT
"""`ptweave export dot`: part of the graph in Graphviz's language."""

from __future__ import annotations

import argparse

from ptweave.cli.exporting import LIMIT, Exported, add_file, add_nodes, chosen_of, write

SUMMARY = "part of the graph in Graphviz's language"
EXAMPLES = """\
  ptweave export dot prog.ptw --around 3.17 -o - | dot -Tsvg > near.svg
  ptweave export dot prog.ptw --to fd:1 --limit 500   # leaves prog.dot
"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_file(parser, ".dot")
    add_nodes(parser, limit=LIMIT)


def run(args: argparse.Namespace) -> Exported:
    """Export; returns what it made."""
    from ptweave.merge.exports import dot

    return write(args, "draw it with: dot -Tsvg",
                 lambda opened, out: dot.export(opened, out, chosen_of(opened, args)))
