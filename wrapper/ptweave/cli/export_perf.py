# SPDX-License-Identifier: MIT
"""`ptweave export perf`: perf.data, and the code that ran."""

from __future__ import annotations

import argparse
from pathlib import Path

from ptweave.cli.exporting import Exported
from ptweave.cli.options import add_run
from ptweave.data import Bundle

SUMMARY = "a perf.data file, and the code that ran: a folder for perf script and perf report"
EXAMPLES = """\
  ptweave export perf prog.ptw                 # leaves prog.perf/
  perf script -i prog.perf/perf.data --symfs prog.perf/symfs --itrace=b
  perf report -i prog.perf/perf.data --symfs prog.perf/symfs --itrace=i1000i
"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument("-o", "--output", metavar="DIR", type=Path, help="the folder to make (default: NAME.perf)")


def run(args: argparse.Namespace) -> Exported:
    """Export; returns what it made."""
    from ptweave.decode.export_perf import export_perf

    bundle = Bundle.open(args.bundle)
    made = export_perf(bundle, args.output or Path(bundle.path.resolve().stem + ".perf"))
    return Exported(made.path, f"read it with: perf script -i {made.path / 'perf.data'} --symfs {made.path / 'symfs'} "
                    "--itrace=b", made.lacks)
