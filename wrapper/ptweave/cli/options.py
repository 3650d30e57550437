# SPDX-License-Identifier: MIT
"""Options that several commands share, spelled the same everywhere."""

from __future__ import annotations

import argparse
from pathlib import Path

from ptweave.data import BadInput
from ptweave.data.bundle import SUFFIX


def add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle", metavar="RUN", type=Path, help="a run bundle (NAME.ptw)")


def add_quiet(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-q", "--quiet", action="store_true", help="say nothing but errors and what is missing")


def add_target(parser: argparse.ArgumentParser) -> None:
    """The options of `wrap` and `record`."""
    parser.add_argument("-o", "--output", metavar="RUN", type=Path,
                        help="the bundle to make (default: NAME.ptw in the current folder)")
    parser.add_argument("--engine", choices=["auto", "intel_pt", "soft"], default="auto",
                        help="what makes the packets: auto (default), intel_pt (the processor), soft (software)")
    parser.add_argument("--threads", choices=["native", "process"], default="native",
                        help="native (default): threads stay threads; process: they become processes, whose "
                             "accesses of pages are found")
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
