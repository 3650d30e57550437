# SPDX-License-Identifier: MIT
"""`ptweave decode`: the packets of a recorded run to exact control flow."""

from __future__ import annotations

import argparse

from ptweave.cli.options import add_decoding, add_quiet, add_run, add_verbose
from ptweave.data import Exit

SUMMARY = "decode a recorded run into tables"
EXAMPLES = """\
  ptweave decode prog.ptw
  ptweave decode -j 4 -v prog.ptw         # four processes; say what each step took
  ptweave decode --decoder libipt prog.ptw
"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    add_decoding(parser)
    add_quiet(parser)
    add_verbose(parser)


def run(args: argparse.Namespace) -> int:
    from ptweave.cli.session import decode, incomplete, open_finished, report_losses

    bundle = open_finished(args)
    decode(bundle, jobs=args.jobs, decoder=args.decoder, quiet=args.quiet, verbose=args.verbose)
    report_losses(bundle, quiet=args.quiet)
    return int(Exit.INCOMPLETE if incomplete(bundle) else Exit.DONE)
