# SPDX-License-Identifier: MIT
"""`ptweave export collapsed`: collapsed stacks for flame graphs."""

from __future__ import annotations

import argparse

from ptweave.cli.exporting import Exported, add_file, add_thread, write
from ptweave.merge.exports.stacks import Weight

SUMMARY = "collapsed stacks, one a line, as flamegraph.pl and inferno read them"
EXAMPLES = """\
  ptweave export collapsed prog.ptw                   # leaves prog.folded
  ptweave export collapsed prog.ptw --by time --thread 3 -o - | flamegraph.pl > three.svg
"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_file(parser, ".folded")
    parser.add_argument("--by", choices=[weight.value for weight in Weight], default=Weight.INSTRUCTIONS.value,
                        help="what is counted (default: %(default)s)")
    add_thread(parser)


def run(args: argparse.Namespace) -> Exported:
    """Export; returns what it made."""
    from ptweave.merge.exports import collapsed

    return write(args, "draw it with flamegraph.pl or inferno-flamegraph", lambda opened, out: collapsed.export(
        opened, out, Weight(args.by), thread=args.thread))
