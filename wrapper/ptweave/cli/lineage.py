# SPDX-License-Identifier: MIT
"""`ptweave lineage`: what something depended on, or reached."""

from __future__ import annotations

import argparse

from ptweave.cli.output import add_limit, add_output, write_result
from ptweave.cli.parts import add_run_path
from ptweave.data.errors import Exit
from ptweave.merge import Run

SUMMARY = "all that an output depended on, or that an input reached"
EXAMPLES = """\
  ptweave lineage prog.ptw --to file:out.txt@100-200      # bytes 100 to 199 of what was written
  ptweave lineage prog.ptw --to fd:1
  ptweave lineage prog.ptw --from file:in.txt@17          # byte 17
  ptweave lineage prog.ptw --from thunk:3.17 --memory
  ptweave lineage prog.ptw --to address:0x40001000
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_run_path(parser)
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("--to", metavar="NODE", help="what this depended on")
    way.add_argument("--from", dest="from_", metavar="NODE", help="what this reached")
    parser.add_argument("--memory", action="store_true",
                        help="follow only what went through memory, thunk by thunk: assume that threads carry nothing "
                             "on in registers and on their stacks")
    add_limit(parser)
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Answer; returns the exit status."""
    with Run(args.run) as opened:
        write_result(opened.lineage(to=args.to, from_=args.from_, memory=args.memory), args)
    return int(Exit.DONE)
