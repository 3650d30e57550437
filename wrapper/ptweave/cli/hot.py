# SPDX-License-Identifier: MIT
"""`ptweave hot`: where instructions were executed."""

from __future__ import annotations

import argparse

from ptweave.cli.output import add_limit, add_output, write_result
from ptweave.cli.parts import add_part, part_of
from ptweave.data.errors import Exit
from ptweave.merge import Run
from ptweave.merge.questions import By

SUMMARY = "functions, lines, blocks or images by the instructions executed in them"
EXAMPLES = """\
  ptweave hot prog.ptw
  ptweave hot prog.ptw -n 20                           # the first 20
  ptweave hot prog.ptw --by image                      # the program, each library
  ptweave hot prog.ptw --by line --thread 3
  ptweave hot prog.ptw --thunk 3.17                    # in thunk 17 of thread 3
  ptweave hot prog.ptw --thread 0 --from 1000 --to 9000   # in these blocks of its flow
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_part(parser)
    parser.add_argument("--by", choices=[by.value for by in By], default=By.FUNCTION.value,
                        help="what to sum up by (default: function)")
    add_limit(parser)
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Answer; returns the exit status."""
    with Run(args.run) as opened:
        write_result(opened.hot(args.by, thread=args.thread, part=part_of(opened, args)), args)
    return int(Exit.DONE)
