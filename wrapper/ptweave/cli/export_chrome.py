# SPDX-License-Identifier: MIT
"""`ptweave export chrome`: a timeline in Chrome's JSON."""

from __future__ import annotations

import argparse

from ptweave.cli.exporting import Exported, add_extent, add_file, extent_of, write

SUMMARY = "a trace in Chrome's JSON format: the timeline of all threads"
EXAMPLES = """\
  ptweave export chrome prog.ptw                      # leaves prog.trace.json
  ptweave export chrome prog.ptw -o - | gzip > prog.trace.json.gz
"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_file(parser, ".trace.json")
    add_extent(parser)


def run(args: argparse.Namespace) -> Exported:
    """Export; returns what it made."""
    from ptweave.merge.exports import chrome

    return write(args, "open it in chrome://tracing or at https://ui.perfetto.dev",
                 lambda opened, out: chrome.export(opened, out, extent_of(opened, args)))
