# SPDX-License-Identifier: MIT
"""`ptweave export lldb`: a trace bundle of LLDB."""

from __future__ import annotations

import argparse
from pathlib import Path

from ptweave.cli.exporting import Exported
from ptweave.cli.options import add_run
from ptweave.data import Bundle

SUMMARY = "a trace bundle of LLDB: a folder with trace.json"
EXAMPLES = """\
  ptweave export lldb prog.ptw                 # leaves prog.lldb/
  lldb -o 'trace load prog.lldb/trace.json'    # where LLDB was built with Intel PT
"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument("-o", "--output", metavar="DIR", type=Path, help="the folder to make (default: NAME.lldb)")


def run(args: argparse.Namespace) -> Exported:
    """Export; returns what it made."""
    from ptweave.decode.export_lldb import export_lldb

    bundle = Bundle.open(args.bundle)
    made = export_lldb(bundle, args.output or Path(bundle.path.resolve().stem + ".lldb"))
    return Exported(made.path, f"load it with: trace load {made.path / 'trace.json'}", made.lacks)
