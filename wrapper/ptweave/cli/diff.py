# SPDX-License-Identifier: MIT
"""`ptweave diff`: what differs between two runs of one program."""

from __future__ import annotations

import argparse
from pathlib import Path

from ptweave.cli import say
from ptweave.cli.options import add_quiet
from ptweave.cli.output import add_limit, add_output, check_output, write_result
from ptweave.cli.progress import progress
from ptweave.data.errors import Exit
from ptweave.merge import Run
from ptweave.merge.render import safe

SUMMARY = "what differs between two runs of one program: branches, calls, system calls, thunks; and what took longer"
EXAMPLES = """\
  ptweave diff good.ptw bad.ptw                 # likeliest cause first
  ptweave diff good.ptw bad.ptw --timing        # what is the same in both but for the time it took
  ptweave diff good.ptw bad.ptw --threads       # which thread was compared with which
  ptweave diff good.ptw bad.ptw --format json | head -1    # the first difference, with both call stacks
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("run", metavar="A", type=Path, help="run bundle (NAME.ptw), say the good one")
    parser.add_argument("other", metavar="B", type=Path, help="another run of the same program, say the bad one")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--timing", action="store_true", help="what both did alike but not in the same time")
    which.add_argument("--threads", action="store_true", help="which thread is which, and how much they agree in")
    add_quiet(parser)
    add_limit(parser)
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Answer; returns the exit status: 1 when something could not be compared."""
    check_output(args)
    with Run(args.run) as a, Run(args.other) as b:
        with progress("diff", quiet=args.quiet) as advance:
            found = a.diff(b, progress=advance)
        write_result(found.timing if args.timing else found.threads if args.threads else found.differences, args)
        for note in found.notes:
            say(f"not compared: {safe(note)}")
    return int(Exit.INCOMPLETE if found.notes else Exit.DONE)
