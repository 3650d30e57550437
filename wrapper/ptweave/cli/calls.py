# SPDX-License-Identifier: MIT
"""`ptweave calls`: the function calls of part of a thread's flow."""

from __future__ import annotations

import argparse

from ptweave.cli.output import add_limit, add_output, write_result
from ptweave.cli.parts import add_part, part_of
from ptweave.data.errors import BadInput, Exit
from ptweave.merge import Run

SUMMARY = "function calls of a thread, or between two points of it (of a run merged with --calls)"
EXAMPLES = """\
  ptweave merge --calls prog.ptw
  ptweave calls prog.ptw --thread 0
  ptweave calls prog.ptw --thunk 3.17
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_part(parser)
    add_limit(parser)
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Answer; returns the exit status."""
    with Run(args.run) as opened:
        part = part_of(opened, args)
        if part is None and args.thread is None:
            raise BadInput("needs --thread or --thunk", where="calls")
        write_result(opened.calls(part or opened.part(args.thread)), args)
    return int(Exit.DONE)
