# SPDX-License-Identifier: MIT
"""`ptweave decode`: the packets of a recorded run to exact control flow."""

from __future__ import annotations

import argparse

from ptweave.cli.options import add_quiet, add_run
from ptweave.data import Exit

SUMMARY = "decode a recorded run into tables"
EXAMPLES = """\
  ptweave decode prog.ptw
"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    add_quiet(parser)


def run(args: argparse.Namespace) -> int:
    from ptweave.cli.session import decode, incomplete, open_finished, report_losses

    bundle = open_finished(args)
    decode(bundle, quiet=args.quiet)
    report_losses(bundle, quiet=args.quiet)
    return int(Exit.INCOMPLETE if incomplete(bundle) else Exit.DONE)
