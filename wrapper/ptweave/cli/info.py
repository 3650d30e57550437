# SPDX-License-Identifier: MIT
"""`ptweave info`: what a run is."""

from __future__ import annotations

import argparse

import pyarrow as pa

from ptweave.cli.output import Rows, add_output, write_rows
from ptweave.cli.parts import add_run_path
from ptweave.data.errors import Exit
from ptweave.merge import Run

SUMMARY = "what a run is: its command, date and end, and what is lost, lacking or missing of it"
EXAMPLES = """\
  ptweave info prog.ptw
  ptweave query prog.ptw --list               # its tables: what a row is, how many, columns
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_run_path(parser)
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Answer; returns the exit status."""
    with Run(args.run) as opened:
        names, texts = zip(*opened.facts(), strict=True)
    write_rows(Rows.given(fact=pa.array(names, pa.string()), value=pa.array(texts, pa.string())), args)
    return int(Exit.DONE)
