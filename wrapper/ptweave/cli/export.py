# SPDX-License-Identifier: MIT
"""`ptweave export`: a run in another tool's format."""

from __future__ import annotations

import argparse
from pathlib import Path

from ptweave.cli.options import add_quiet, add_run
from ptweave.data import Bundle, Exit

SUMMARY = "write a run in another tool's format"
EXAMPLES = """\
  ptweave export lldb prog.ptw                 # leaves prog.lldb/
  lldb -o 'trace load prog.lldb/trace.json'    # where LLDB was built with Intel PT

Exit status: 0 done; 1 done, but the format has no place for something (a line says what); 2 cannot be read.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    formats = parser.add_subparsers(dest="format", metavar="FORMAT", required=True)
    lldb = formats.add_parser("lldb", help="a trace bundle of LLDB: a folder with trace.json",
                              description="a trace bundle of LLDB: a folder with trace.json",
                              epilog="examples:\n" + EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_run(lldb)
    lldb.add_argument("-o", "--output", metavar="DIR", type=Path, help="the folder to make (default: NAME.lldb)")
    add_quiet(lldb)


def run(args: argparse.Namespace) -> int:
    from ptweave.cli import say
    from ptweave.decode.export_lldb import export_lldb

    bundle = Bundle.open(args.bundle)
    exported = export_lldb(bundle, args.output or Path(bundle.path.resolve().stem + ".lldb"))
    if exported.lacks:
        say(f"{exported.path}: incomplete: lacks {'; '.join(exported.lacks)}")
    elif not args.quiet:
        say(f"{exported.path}: exported; load it with: trace load {exported.path / 'trace.json'}")
    return int(Exit.INCOMPLETE if exported.lacks else Exit.DONE)
