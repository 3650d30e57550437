# SPDX-License-Identifier: MIT
"""`ptweave export speedscope`: flame graphs for speedscope.app."""

from __future__ import annotations

import argparse

from ptweave.cli.exporting import Exported, add_extent, add_file, extent_of, write
from ptweave.merge.exports.stacks import Weight

SUMMARY = "flame graphs for speedscope, one a thread"
EXAMPLES = """\
  ptweave export speedscope prog.ptw                  # leaves prog.speedscope.json
  ptweave export speedscope prog.ptw --by time
  ptweave merge --calls prog.ptw && ptweave export speedscope prog.ptw --calls    # in order of time
"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_file(parser, ".speedscope.json")
    parser.add_argument("--by", choices=[weight.value for weight in Weight], default=Weight.INSTRUCTIONS.value,
                        help="how wide a function is (default: %(default)s)")
    parser.add_argument("--calls", action="store_true",
                        help="every call, in order of time (of a run merged with --calls)")
    add_extent(parser)


def run(args: argparse.Namespace) -> Exported:
    """Export; returns what it made."""
    from ptweave.data.errors import BadInput
    from ptweave.merge.exports import speedscope

    if not args.calls and (args.begin is not None or args.end is not None):
        raise BadInput("need --calls", where="--from and --to", remedy="the profile is of the whole run")
    return write(args, "open it at https://www.speedscope.app", lambda opened, out: speedscope.export(
        opened, out, Weight(args.by), extent=extent_of(opened, args), with_calls=args.calls))
