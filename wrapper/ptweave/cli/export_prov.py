# SPDX-License-Identifier: MIT
"""`ptweave export prov`: W3C PROV-JSON."""

from __future__ import annotations

import argparse

from ptweave.cli.exporting import Exported, add_file, add_nodes, chosen_of, write

SUMMARY = "W3C PROV-JSON: which thunk used, made and learnt what"
EXAMPLES = """\
  ptweave export prov prog.ptw                        # leaves prog.prov.json, all of it
  ptweave export prov prog.ptw --to file:out.txt@100  # what that byte depended on
  ptweave export prov prog.ptw --query "select thread, thunk from thunks where thread = 3"
"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_file(parser, ".prov.json")
    add_nodes(parser, limit=None)


def run(args: argparse.Namespace) -> Exported:
    """Export; returns what it made."""
    from ptweave.merge.exports import prov

    return write(args, "any reader of PROV-JSON takes it",
                 lambda opened, out: prov.export(opened, out, chosen_of(opened, args)))
