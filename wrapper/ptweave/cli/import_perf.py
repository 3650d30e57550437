# SPDX-License-Identifier: MIT
"""`ptweave import perf`: what `perf record -e intel_pt//` wrote."""

from __future__ import annotations

import argparse
from pathlib import Path

from ptweave.data import Bundle
from ptweave.data.bundle import SUFFIX

SUMMARY = "a perf.data file with Intel PT in it, and the files of code that ran"
EXAMPLES = """\
  perf record -e intel_pt//u -- ./prog && ptweave import perf perf.data
  ptweave import perf perf.data --symfs sysroot/ -o run.ptw
  perf record -a --kcore -e intel_pt// sleep 1 && ptweave import perf perf.data
  ptweave import perf perf.data --symfs sysroot/ --vmlinux sysroot/boot/vmlinux

files of code are looked for by their recorded paths, below --symfs or on this machine, then by build id (below
.build-id/ in --symfs; in ~/.debug without it). A file whose build id is not the recorded one is not used. Kernel code
comes from the copy of kcore that perf record --kcore makes, from --kcore, or from --vmlinux.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", type=Path, help="perf.data (or the folder perf record --kcore makes)")
    parser.add_argument("--symfs", metavar="DIR", type=Path, help="where the recorded paths are; nothing else is read")
    parser.add_argument("--buildid-dir", metavar="DIR", type=Path, action="append", default=[], dest="caches",
                        help="a build-id cache of perf's (default: ~/.debug, without --symfs)")
    parser.add_argument("--kcore", metavar="FILE", type=Path, help="a copy of /proc/kcore made while it was recorded")
    parser.add_argument("--vmlinux", metavar="FILE", type=Path, help="the kernel that ran, with its symbols")


def run(args: argparse.Namespace) -> Bundle:
    """Import; returns the bundle."""
    from ptweave.cli import say
    from ptweave.data import BadInput
    from ptweave.decode.perfimport import Options, import_perf

    if args.symfs is not None and not args.symfs.is_dir():
        raise BadInput("is not a folder", where=f"--symfs {args.symfs}", remedy="name the folder with the files")
    caches = list(args.caches)
    if args.symfs is None and not caches:
        caches.append(Path("~/.debug").expanduser())
    output = args.output or Path(args.file.resolve().stem + SUFFIX)
    made = import_perf(Options(args.file, output, args.symfs, caches, args.kcore, args.vmlinux))
    for note in made.notes if not args.quiet else []:
        say(f"{made.bundle.path}: {note}")
    return made.bundle
