# SPDX-License-Identifier: MIT
"""Options that several commands share, spelled the same everywhere."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from ptweave.data import BadInput
from ptweave.data.bundle import SUFFIX

if TYPE_CHECKING:
    from ptweave.decode.debug_files import DebugFiles

MAX_JOBS = 1024


def add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle", metavar="RUN", type=Path, help="a run bundle (NAME.ptw)")


def add_quiet(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-q", "--quiet", action="store_true", help="say nothing but errors and what is missing")


def add_verbose(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-v", "--verbose", action="store_true", help="say what each step did and how long it took")


def add_decoding(parser: argparse.ArgumentParser) -> None:
    """The options of what decodes: `decode` and `wrap`."""
    parser.add_argument("-j", "--jobs", metavar="N", type=_count, default=usable_cpus(),
                        help="decode with N processes (default: as many as there are usable processors, "
                        "%(default)s here); the tables are the same whatever N is")
    parser.add_argument("--decoder", choices=["auto", "libipt", "paths"], default="auto",
                        help="what decodes: auto (default), libipt (the reference), paths (faster)")
    parser.add_argument("--times", choices=["full", "tsc"], default="full",
                        help="which packets times are taken from: full (default), all of them; tsc, TSC packets only: "
                        "several times faster on recordings of real processors")


def add_debug(parser: argparse.ArgumentParser) -> None:
    """Where separate debug files are looked for: the options of `decode` and `wrap`."""
    parser.add_argument("--debug-dir", metavar="DIR", type=Path, action="append", default=[],
                        help="look for separate debug files below DIR, too (more than once; before /usr/lib/debug)")
    parser.add_argument("--debuginfod", action="store_true",
                        help="ask the servers in $DEBUGINFOD_URLS for debug files (never done without this)")


def debug_files(args: argparse.Namespace) -> DebugFiles:
    """What these options mean. Raises BadInput for a folder or a server that cannot be."""
    from ptweave.decode.debug_files import DebugFiles
    from ptweave.decode.debuginfod import Debuginfod, cache_folder, servers_of

    for folder in args.debug_dir:
        if not folder.is_dir():
            raise BadInput("is not a folder", where=str(folder), remedy="give a folder with debug files")
    server = Debuginfod(servers_of(os.environ), cache_folder(os.environ)) if args.debuginfod else None
    return DebugFiles(args.debug_dir, server)


def usable_cpus() -> int:
    """Processors this process may run on."""
    return len(os.sched_getaffinity(0))


def _count(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if not 0 < value <= MAX_JOBS:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to {MAX_JOBS}")
    return value


def add_target(parser: argparse.ArgumentParser) -> None:
    """The options of `wrap` and `record`."""
    parser.add_argument("-o", "--output", metavar="RUN", type=Path,
                        help="the bundle to make (default: NAME.ptw in the current folder)")
    parser.add_argument("--engine", choices=["auto", "intel_pt", "soft"], default="auto",
                        help="what makes the packets: auto (default), intel_pt (the processor), soft (software)")
    parser.add_argument("--threads", choices=["native", "process"], default="native",
                        help="native (default): threads stay threads; process: they become processes, whose "
                             "accesses of pages are logged (a first version: docs/libtthread.md lists what it does "
                             "not keep)")
    parser.add_argument("--access", choices=["held", "exact"], default="held",
                        help="with --threads process: log a page as held until another thread's access conflicts "
                             "(default), or every thunk's own accesses")
    add_quiet(parser)
    parser.usage = "%(prog)s [options] -- COMMAND…"
    parser.set_defaults(command_words=[])


def target_words(args: argparse.Namespace) -> list[str]:
    """The target's words; raises BadInput when there are none."""
    words: list[str] = list(args.command_words)
    if not words:
        raise BadInput("no command given", remedy="put it after --, as in: ptweave wrap -- ls -l")
    return words


def output_path(args: argparse.Namespace, words: list[str]) -> Path:
    """Where the bundle goes."""
    if args.output is not None:
        return Path(args.output)
    return Path(Path(words[0]).name + SUFFIX)
