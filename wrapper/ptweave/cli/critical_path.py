# SPDX-License-Identifier: MIT
"""`ptweave critical-path`: what the end of the run had to wait for."""

from __future__ import annotations

import argparse

from ptweave.cli.output import add_limit, add_output, write_result
from ptweave.cli.parts import add_resolution, add_run_path
from ptweave.data.errors import Exit
from ptweave.merge import Run

SUMMARY = "what the end of the run had to wait for, from thread to thread"
EXAMPLES = """\
  ptweave critical-path prog.ptw
  ptweave critical-path prog.ptw --resolution 1ms   # what is shorter than a millisecond: summed up
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_run_path(parser)
    add_resolution(parser, "segments")
    add_limit(parser)
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Answer; returns the exit status."""
    with Run(args.run) as opened:
        write_result(opened.critical_path(resolution=args.resolution), args)
    return int(Exit.DONE)
