# SPDX-License-Identifier: MIT
"""`ptweave export perfetto`: a timeline for ui.perfetto.dev."""

from __future__ import annotations

import argparse

from ptweave.cli.exporting import Exported, add_extent, add_file, extent_of, write

SUMMARY = "a Perfetto trace: the timeline of all threads"
EXAMPLES = """\
  ptweave export perfetto prog.ptw                    # leaves prog.perfetto-trace
  ptweave export perfetto prog.ptw --thread 3 --from 12.5ms --to 13ms    # since the run's start
  ptweave merge --calls prog.ptw && ptweave export perfetto prog.ptw --calls
"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_file(parser, ".perfetto-trace")
    add_extent(parser)
    parser.add_argument("--calls", action="store_true", help="every function call, too (of a run merged with --calls)")


def run(args: argparse.Namespace) -> Exported:
    """Export; returns what it made."""
    from ptweave.merge.exports import perfetto

    return write(args, "open it at https://ui.perfetto.dev", lambda opened, out: perfetto.export(
        opened, out, extent_of(opened, args), with_calls=args.calls))
