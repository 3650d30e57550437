# SPDX-License-Identifier: MIT
"""`ptweave import lldb`: trace bundles of LLDB (`trace save`)."""

from __future__ import annotations

import argparse
from pathlib import Path

from ptweave.data import Bundle
from ptweave.data.bundle import SUFFIX

SUMMARY = "a trace bundle of LLDB (trace.json and the files it names)"
EXAMPLES = """\
  ptweave import lldb trace.json -o run.ptw
  ptweave import lldb bundle/trace.json --system-modules    # the libraries are still on this machine
  ptweave decode run.ptw && ptweave dump run.ptw

Only files below the folder of trace.json are read. Per-CPU bundles are taken with their context switches.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("description", metavar="trace.json", type=Path, help="the bundle's description")
    parser.add_argument("--system-modules", action="store_true",
                        help="read modules outside the bundle's folder, too, where their build id is the recorded one")


def run(args: argparse.Namespace) -> Bundle:
    """Import; returns the bundle."""
    from ptweave.decode.import_lldb import import_lldb

    name = args.description.stem if args.description.stem != "trace" else args.description.resolve().parent.name
    output = args.output or Path((name or "trace") + SUFFIX)
    return import_lldb(output, args.description, system_modules=args.system_modules).bundle
