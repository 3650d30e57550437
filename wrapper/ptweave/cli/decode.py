# SPDX-License-Identifier: MIT
"""`ptweave decode`: the packets of a recorded run to exact control flow."""

from __future__ import annotations

import argparse
from pathlib import Path

from ptweave.cli.cluster import add_cluster, one_folder, only_one, run_on_cluster
from ptweave.cli.options import add_debug, add_decoding, add_jobs, add_quiet, add_runs, add_verbose, debug_files
from ptweave.data import Exit

SUMMARY = "decode a recorded run into tables"
EXAMPLES = """\
  ptweave decode prog.ptw
  ptweave decode --debug-dir ~/debug prog.ptw    # names from separate debug files
  ptweave decode -j 4 -v prog.ptw         # four processes; say what each step took
  ptweave decode --decoder libipt prog.ptw
  ptweave decode --times tsc raw.ptw      # coarser times, where estimating finer ones takes long
  ptweave decode --cluster tcp://head:8786 's3://runs/2026-*/*.ptw'
"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_runs(parser)
    add_cluster(parser)
    add_jobs(parser)
    add_decoding(parser)
    add_debug(parser)
    add_quiet(parser)
    add_verbose(parser)


def run(args: argparse.Namespace) -> int:
    from ptweave.cli.session import decode, incomplete, open_finished, report_losses

    files = debug_files(args)
    if args.cluster is not None:
        folder = one_folder(args.runs)
        if folder is None:
            return run_on_cluster("decode", args, args.runs)
        args.bundle = folder
    else:
        args.bundle = Path(only_one(args.runs))
    bundle = open_finished(args)
    if args.cluster is not None:
        from ptweave.decode.cluster import connect

        with connect(args.cluster) as client:
            decode(bundle, args, files, client)
    else:
        decode(bundle, args, files)
    report_losses(bundle, quiet=args.quiet)
    return int(Exit.INCOMPLETE if incomplete(bundle) else Exit.DONE)
