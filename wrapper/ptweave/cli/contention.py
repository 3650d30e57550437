# SPDX-License-Identifier: MIT
"""`ptweave contention`: what threads waited for."""

from __future__ import annotations

import argparse

from ptweave.cli.output import add_limit, add_output, write_result
from ptweave.cli.parts import add_run_path
from ptweave.data.errors import Exit
from ptweave.merge import Run

SUMMARY = "locks and what else threads waited for, by how long, with who held it"
EXAMPLES = """\
  ptweave contention prog.ptw
  ptweave contention prog.ptw --each          # every wait, longest first
  ptweave contention prog.ptw --calls         # waits in system calls: for a child, a pipe, a file's lock, time
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_run_path(parser)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--each", action="store_true", help="every single wait instead of sums by object")
    what.add_argument("--calls", action="store_true",
                      help="every system call that may wait, outside of operations, and which thread ended that, where "
                           "it is one of the run's")
    add_limit(parser)
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Answer; returns the exit status."""
    with Run(args.run) as opened:
        write_result(opened.contention(each=args.each, calls=args.calls), args)
    return int(Exit.DONE)
