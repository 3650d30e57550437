# SPDX-License-Identifier: MIT
"""`ptweave timeline`: what threads did, in order of time."""

from __future__ import annotations

import argparse

from ptweave.cli import say
from ptweave.cli.output import add_limit, add_output, write_result
from ptweave.cli.parts import add_resolution, add_run_path, add_times, times_of
from ptweave.data.errors import BadInput, Exit
from ptweave.data.schemas import THUNKS
from ptweave.merge import Run
from ptweave.merge.run import NotMade
from ptweave.merge.timeline import PARTS

SUMMARY = "operations, running, system calls and gaps of threads, in order of time"
EXAMPLES = """\
  ptweave timeline prog.ptw --thread 3
  ptweave timeline prog.ptw --from 12.5ms --to 13ms   # since the run's start; or --from 85304370765715, as in `t`
  ptweave timeline prog.ptw --resolution 1ms     # what is shorter than a millisecond: summed up
  ptweave timeline prog.ptw --format csv -o timeline.csv
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_run_path(parser)
    parser.add_argument("--thread", metavar="N", type=int, help="of this thread only")
    add_times(parser, "not what ended before this time", "not what began after this time")
    add_resolution(parser, "spans")
    add_limit(parser)
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Answer; returns the exit status."""
    with Run(args.run) as opened:
        parts, missing = _parts(opened)
        begin, end = times_of(opened, args)
        write_result(opened.timeline(thread=args.thread, begin=begin, end=end, parts=parts,
                                     resolution=args.resolution), args)
    for line in missing:
        say(f"{args.run}: {line}")
    return int(Exit.INCOMPLETE if missing else Exit.DONE)


def _parts(opened: Run) -> tuple[list[str], list[str]]:
    """Parts of a timeline that can be answered, and lines about the others. System calls and gaps need not be there.
    Raises BadInput where there is none."""
    parts, missing = [], []
    for part in PARTS:
        try:
            opened.need(part)
        except NotMade:
            if part == THUNKS.name:
                missing.append(f"without {part}, which {opened.missing[part]}")
        except BadInput:
            missing.append(f"without {part}: {opened.missing[part]}")
        else:
            parts.append(part)
    if not parts:
        opened.need(THUNKS.name)
    return parts, missing
