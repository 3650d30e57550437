# SPDX-License-Identifier: MIT
"""`ptweave report`: a run as one HTML file."""

from __future__ import annotations

import argparse
from pathlib import Path

from ptweave.cli.options import add_quiet
from ptweave.cli.output import sink
from ptweave.cli.parts import add_run_path
from ptweave.data.errors import BadInput, Exit
from ptweave.merge import Run

SUMMARY = "one HTML file to look at a run: timeline, flame graph, dependences, source"
EXAMPLES = """\
  ptweave report prog.ptw                        # makes prog.html here
  ptweave report prog.ptw -o /tmp/r.html
  ptweave report prog.ptw --source ~/src/prog    # its source is there; the default is this folder

The file needs no network and no other file. Source text is read below the folders of --source only.
Exit status: 0 done, 1 done without a part, because a table cannot be read (said on stderr). What the run
does not have is said in the file.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_run_path(parser)
    parser.add_argument("-o", dest="output", metavar="FILE", type=Path, help="write to FILE (default: NAME.html here)")
    parser.add_argument("--source", metavar="DIR", type=Path, action="append",
                        help="source files may be read below DIR; can be given several times (default: this folder)")
    add_quiet(parser)


def run(args: argparse.Namespace) -> int:
    """Make the file; returns the exit status."""
    from ptweave.cli import say
    from ptweave.merge.report import collect, render

    folders: list[Path] = args.source or [Path.cwd()]
    for folder in folders:
        if not folder.is_dir():
            raise BadInput("is no folder", where=str(folder), remedy="give --source the folder that has the sources")
    with Run(args.run) as opened:
        output: Path = args.output or Path(opened.path.name).with_suffix(".html")
        report = collect(opened, folders)
        page = render(report)
    with sink(output) as out:
        out.write(page.encode())
        out.flush()
    for failure in report.failures:
        say(f"{output}: without {failure}")
    if not args.quiet:
        say(f"{output}: made; open it in a browser")
    return int(Exit.INCOMPLETE if report.failures else Exit.DONE)
