# SPDX-License-Identifier: MIT
"""`ptweave decode`: the packets of a recorded run to exact control flow."""

from __future__ import annotations

import argparse

from ptweave.cli.options import add_debug, add_decoding, add_quiet, add_run, add_verbose, debug_files
from ptweave.data import Exit

SUMMARY = "decode a recorded run into tables"
EXAMPLES = """\
  ptweave decode prog.ptw
  ptweave decode --debug-dir ~/debug prog.ptw    # names from separate debug files
  ptweave decode -j 4 -v prog.ptw         # four processes; say what each step took
  ptweave decode --decoder libipt prog.ptw
  ptweave decode --times tsc perf.ptw     # a large recording by perf: coarser times, several times faster
"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    add_decoding(parser)
    add_debug(parser)
    add_quiet(parser)
    add_verbose(parser)


def run(args: argparse.Namespace) -> int:
    from ptweave.cli.session import decode, incomplete, open_finished, report_losses

    files = debug_files(args)
    bundle = open_finished(args)
    decode(bundle, args, files)
    report_losses(bundle, quiet=args.quiet)
    return int(Exit.INCOMPLETE if incomplete(bundle) else Exit.DONE)
