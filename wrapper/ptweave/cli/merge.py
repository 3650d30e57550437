# SPDX-License-Identifier: MIT
"""`ptweave merge`: put system calls and thunks onto the decoded flow, and sum it up."""

from __future__ import annotations

import argparse
from pathlib import Path

from ptweave.cli.cluster import add_cluster, only_one, run_on_cluster
from ptweave.cli.options import add_quiet, add_runs
from ptweave.data import Exit

SUMMARY = "merge a decoded run: system calls, thunks and profile onto the flow"
EXAMPLES = """\
  ptweave merge prog.ptw
  ptweave merge --calls prog.ptw          # every call as a row, too
  ptweave merge --cluster tcp://head:8786 's3://runs/2026-*/*.ptw'
"""


def add_calls(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--calls", action="store_true",
                        help="store every function call as a row of `calls` (can outgrow the flow)")


def configure(parser: argparse.ArgumentParser) -> None:
    add_runs(parser)
    add_cluster(parser)
    add_calls(parser)
    add_quiet(parser)


def run(args: argparse.Namespace) -> int:
    from ptweave.cli.session import incomplete, merge, open_finished, report_losses

    if args.cluster is not None:
        return run_on_cluster("merge", args, args.runs)
    args.bundle = Path(only_one(args.runs))
    bundle = open_finished(args)
    merge(bundle, calls=args.calls, quiet=args.quiet)
    report_losses(bundle, quiet=args.quiet)
    return int(Exit.INCOMPLETE if incomplete(bundle) else Exit.DONE)
