# SPDX-License-Identifier: MIT
"""Options that several commands share, spelled the same everywhere."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from ptweave.data import BadInput
from ptweave.data.bundle import SUFFIX

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
                        help="native (default): threads stay threads; process is not part of this version")
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
