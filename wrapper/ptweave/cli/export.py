# SPDX-License-Identifier: MIT
"""`ptweave export`: a run in another tool's format. Each format is a module with SUMMARY, EXAMPLES,
configure(parser) and run(args), which returns what it made."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module
from typing import Any

from ptweave.cli.exporting import Exported
from ptweave.cli.options import add_quiet
from ptweave.data import Exit
from ptweave.merge.render import safe

SUMMARY = "write a run in another tool's format"
EXAMPLES = """\
  ptweave export perfetto prog.ptw                     # leaves prog.perfetto-trace: open it at ui.perfetto.dev
  ptweave export chrome prog.ptw --thread 3
  ptweave export speedscope prog.ptw --by time
  ptweave export collapsed prog.ptw -o - | flamegraph.pl > prog.svg
  ptweave export prov prog.ptw --to file:out.txt
  ptweave export dot prog.ptw --around 3.17 -o - | dot -Tsvg > near.svg
  ptweave export lldb prog.ptw
  ptweave export perf prog.ptw

`ptweave export FORMAT --help` says what a format takes. Exit status: 0 done; 1 done, but the run lacks something, or
the format has no place for it (a line says what); 2 cannot be read.
"""

FORMATS = ("perfetto", "chrome", "speedscope", "collapsed", "prov", "graphml", "dot", "lldb", "perf")


def configure(parser: argparse.ArgumentParser) -> None:
    formats = parser.add_subparsers(dest="format", metavar="FORMAT", required=True)
    for name in FORMATS:
        module: Any = import_module(f"ptweave.cli.export_{name}")
        sub = formats.add_parser(name, help=module.SUMMARY, description=module.SUMMARY,
                                 epilog="examples:\n" + module.EXAMPLES,
                                 formatter_class=argparse.RawDescriptionHelpFormatter)
        module.configure(sub)
        add_quiet(sub)
        sub.set_defaults(exporter=module.run)


def run(args: argparse.Namespace) -> int:
    from ptweave.cli import say

    exporter: Callable[[argparse.Namespace], Exported] = args.exporter
    made = exporter(args)
    where = "standard output" if made.path is None else str(made.path)
    if made.lacks:
        say(f"{where}: incomplete: lacks {safe('; '.join(made.lacks))}")
    elif not args.quiet and made.path is not None:
        say(f"{where}: exported; {made.hint}")
    return int(Exit.INCOMPLETE if made.lacks else Exit.DONE)
