# SPDX-License-Identifier: MIT
"""`ptweave merge`: put system calls and thunks onto the decoded flow, and sum it up. A run that is not decoded yet is
decoded first: one process does both, and Python starts once."""

from __future__ import annotations

import argparse
from pathlib import Path

from ptweave.cli.cluster import add_cluster, only_one, run_on_cluster
from ptweave.cli.options import (
    add_debug,
    add_decoding,
    add_jobs,
    add_quiet,
    add_runs,
    add_verbose,
    check_debug,
    debug_files,
)
from ptweave.data import Exit

SUMMARY = "merge a run: system calls, thunks and profile onto the flow (decodes it first, if that was not done)"
EXAMPLES = """\
  ptweave merge prog.ptw
  ptweave merge -j 1 prog.ptw             # one thread after the other: takes less memory
  ptweave merge --debug-dir ~/debug prog.ptw   # how to decode it, if that was not done
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
    add_jobs(parser)
    add_quiet(parser)
    undecoded = parser.add_argument_group("for a run that is not decoded yet (with --cluster: decode it first)")
    add_decoding(undecoded)
    add_debug(undecoded)
    add_verbose(undecoded)


def run(args: argparse.Namespace) -> int:
    from ptweave.cli.session import decode, incomplete, is_decoded, merge, open_finished, report_losses

    check_debug(args)
    if args.cluster is not None:
        return run_on_cluster("merge", args, args.runs)
    args.bundle = Path(only_one(args.runs))
    bundle = open_finished(args)
    paths = None if is_decoded(bundle) else decode(bundle, args, debug_files(args), merges=True)
    merge(bundle, calls=args.calls, quiet=args.quiet, jobs=args.jobs, paths=paths)
    report_losses(bundle, quiet=args.quiet)
    return int(Exit.INCOMPLETE if incomplete(bundle) else Exit.DONE)
