# SPDX-License-Identifier: MIT
"""`ptweave similar`: which nodes of a run are like a given one."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path

from ptweave.cli.output import add_output, write_result
from ptweave.cli.parts import add_run_path
from ptweave.data.errors import Exit
from ptweave.merge import Run
from ptweave.merge.similar import FOUND, NEAR

SUMMARY = "which thunks of another run (or of the same) are like a given one, say one that was stuck"
EXAMPLES = """\
  ptweave contention stuck.ptw --each | head            # thunk 17 of thread 3 waited longest
  ptweave similar stuck.ptw 3.17 normal.ptw             # what it did in a normal run, and who it was
  ptweave similar prog.ptw 3.17                         # in the same run
  ptweave similar prog.ptw 3@85304370765715-85304371215002 other.ptw   # what thread 3 did between two events

Times are in ns, as t_begin of ptweave timeline is.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_run_path(parser)
    parser.add_argument("node", metavar="NODE", help="THREAD.THUNK, or THREAD@FROM-TO in ns")
    parser.add_argument("other", metavar="OTHER", nargs="?", type=Path,
                        help="run bundle to look in (default: the same run)")
    parser.add_argument("--most", metavar="N", type=int, default=FOUND,
                        help=f"how many to answer, at most {NEAR} (default: {FOUND})")
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Answer; returns the exit status."""
    with ExitStack() as stack:
        opened = stack.enter_context(Run(args.run))
        other = stack.enter_context(Run(args.other)) if args.other else None
        write_result(opened.similar(args.node, other, most=args.most), args)
    return int(Exit.DONE)
