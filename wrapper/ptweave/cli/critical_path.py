# SPDX-License-Identifier: MIT
"""`ptweave critical-path`: what the end of the run had to wait for."""

from __future__ import annotations

import argparse

from ptweave.cli.output import add_output, write_result
from ptweave.cli.parts import add_run_path, duration
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
    parser.add_argument("--resolution", metavar="TIME", type=duration,
                        help="fold segments shorter than this (ns, or with a unit: 100us, 1ms, 2s): those of a thread "
                        "and kind that begin in one stretch of that length are one row, with their number (spans)")
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Answer; returns the exit status."""
    with Run(args.run) as opened:
        write_result(opened.critical_path(resolution=args.resolution), args)
    return int(Exit.DONE)
