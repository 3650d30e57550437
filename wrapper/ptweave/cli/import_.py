# SPDX-License-Identifier: MIT
"""`ptweave import`: recordings of other tools as run bundles. Each format is a module with SUMMARY, EXAMPLES,
configure(parser) and run(args), which returns the bundle it made."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from ptweave.cli.options import add_quiet
from ptweave.data import Bundle, Exit

SUMMARY = "make a run bundle from another tool's recording"
EXAMPLES = """\
  ptweave import raw --pt trace.pt --image a.out@0x555555554000 --cpu 6/94/3
  ptweave import lldb trace.json -o run.ptw
  ptweave import perf perf.data --symfs sysroot/
  ptweave decode run.ptw && ptweave dump run.ptw

`ptweave import FORMAT --help` says what a format takes. Exit status: 0 done; 1 done, but something is missing (a
line says what); 2 the recording cannot be read.
"""

FORMATS = ("raw", "lldb", "perf")


def configure(parser: argparse.ArgumentParser) -> None:
    formats = parser.add_subparsers(dest="format", metavar="FORMAT", required=True)
    for name in FORMATS:
        module: Any = import_module(f"ptweave.cli.import_{name}")
        sub = formats.add_parser(name, help=module.SUMMARY, description=module.SUMMARY,
                                 epilog="examples:\n" + module.EXAMPLES,
                                 formatter_class=argparse.RawDescriptionHelpFormatter)
        module.configure(sub)
        sub.add_argument("-o", "--output", metavar="RUN", type=Path,
                         help="the bundle to make (default: NAME.ptw in the current folder)")
        add_quiet(sub)
        sub.set_defaults(importer=module.run)


def run(args: argparse.Namespace) -> int:
    from ptweave.cli import say

    importer: Callable[[argparse.Namespace], Bundle] = args.importer
    bundle = importer(args)
    lacks = bundle.manifest.lacks
    if lacks:
        say(f"{bundle.path}: incomplete: lacks {'; '.join(lacks)}")
    elif not args.quiet:
        say(f"{bundle.path}: imported; go on with: ptweave merge {bundle.path}")
    return int(Exit.INCOMPLETE if lacks else Exit.DONE)
