# SPDX-License-Identifier: MIT
"""`ptweave timeline`: what threads did, in order of time."""

from __future__ import annotations

import argparse

from ptweave.cli.output import add_output, write_result
from ptweave.cli.parts import add_run_path
from ptweave.data.errors import Exit
from ptweave.merge import Run

SUMMARY = "operations, running, system calls and gaps of threads, in order of time"
EXAMPLES = """\
  ptweave timeline prog.ptw --thread 3
  ptweave timeline prog.ptw --resolution 1000000     # what is shorter than a millisecond: summed up
  ptweave timeline prog.ptw --format csv -o timeline.csv
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_run_path(parser)
    parser.add_argument("--thread", metavar="N", type=int, help="of this thread only")
    parser.add_argument("--from", dest="begin", metavar="NS", type=int, help="not what ended before this time")
    parser.add_argument("--to", dest="end", metavar="NS", type=int, help="not what began after this time")
    parser.add_argument("--resolution", metavar="NS", type=int, help="fold spans shorter than this: those of a thread "
                        "and kind that begin in one stretch of that length are one row, with their number (spans)")
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Answer; returns the exit status."""
    with Run(args.run) as opened:
        write_result(opened.timeline(thread=args.thread, begin=args.begin, end=args.end,
                                     resolution=args.resolution), args)
    return int(Exit.DONE)
