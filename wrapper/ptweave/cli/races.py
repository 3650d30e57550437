# SPDX-License-Identifier: MIT
"""`ptweave races`: accesses that conflict and have no order."""

from __future__ import annotations

import argparse

from ptweave.cli.output import add_limit, add_output, write_result
from ptweave.cli.parts import add_run_path
from ptweave.data.errors import Exit
from ptweave.merge import Run

SUMMARY = "accesses of two threads that conflict and that nothing orders, surest first"
EXAMPLES = """\
  ptweave races prog.ptw                      # best of a run with --access exact
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_run_path(parser)
    add_limit(parser)
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Answer; returns the exit status."""
    with Run(args.run) as opened:
        write_result(opened.races(), args)
    return int(Exit.DONE)
