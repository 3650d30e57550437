# SPDX-License-Identifier: MIT
"""Options that several questions take: the run, part of a thread's flow, a length of time."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from ptweave.cli.options import nothing_between
from ptweave.data.errors import BadInput
from ptweave.merge import Run
from ptweave.merge.questions import Part

if TYPE_CHECKING:
    from ptweave.decode.dump import Moment

_UNITS = {"": 1, "ns": 1, "us": 1000, "ms": 10**6, "s": 10**9}


def add_run_path(parser: argparse.ArgumentParser) -> None:
    """The run that is asked."""
    parser.add_argument("run", metavar="RUN", type=Path, help="run bundle (NAME.ptw)")


def _duration(text: str) -> int:
    """Nanoseconds, of a whole number with a unit or without. Raises ArgumentTypeError."""
    found = re.fullmatch(r"(\d{1,18})(ns|us|ms|s|)", text, re.ASCII)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is no time: give a whole number of ns, or one with us, ms or s")
    return int(found[1]) * _UNITS[found[2]]


def add_resolution(parser: argparse.ArgumentParser, what: str) -> None:
    """--resolution, of `what` follows in time."""
    parser.add_argument("--resolution", metavar="TIME", type=_duration,
                        help=f"fold {what} shorter than this (ns, or with a unit: 100us, 1ms, 2s): those of a thread "
                        "and kind that begin in one stretch of that length are one row, with their number (spans)")


def _moment(text: str) -> Moment:
    """A time of a run, as `dump` takes it but that a bare number is ns. Raises ArgumentTypeError."""
    from ptweave.decode.dump import Moment

    try:
        return Moment.parse(text)
    except BadInput as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no time: give ns as `t` has them, or a time since the run's "
                                         "start with ns, us, ms or s (12.5ms)") from error


def add_times(parser: argparse.ArgumentParser, begin: str, end: str) -> None:
    """--from and --to as times; `begin` and `end` say what they choose."""
    parser.add_argument("--from", dest="begin", metavar="TIME", type=_moment,
                        help=f"{begin}: ns as in `t`, or with a unit (12.5ms, 3s) since the run's start, as `dump` has "
                        "it")
    parser.add_argument("--to", dest="end", metavar="TIME", type=_moment, help=end)


def times_of(run: Run, args: argparse.Namespace) -> tuple[int | None, int | None]:
    """--from and --to in ns. Raises BadInput for an end before the begin, and where nothing of the run is between
    them."""
    if args.begin is None and args.end is None:
        return None, None
    known = run.moments()
    begin, end = (None if one is None else _absolute(one, known) for one in (args.begin, args.end))
    check_order(begin, end)
    if known is not None and ((begin is not None and begin > known[1]) or (end is not None and end < known[0])):
        raise nothing_between(
            begin, end, f"it has times from {known[0]} to {known[1]} ({(known[1] - known[0]) / 1e9:.6f} s)")
    return begin, end


def _absolute(moment: Moment, known: tuple[int, int] | None) -> int:
    if moment.since_start is not None:
        return moment.since_start + (0 if known is None else known[0])
    return (moment.t if moment.seq is None else moment.seq) or 0


def add_part(parser: argparse.ArgumentParser) -> None:
    """RUN, --thread, --from, --to and --thunk."""
    add_run_path(parser)
    parser.add_argument("--thread", metavar="N", type=int, help="of this thread only")
    parser.add_argument("--from", dest="begin", metavar="SEQ", type=int, help="from this block of its flow on")
    parser.add_argument("--to", dest="end", metavar="SEQ", type=int, help="up to this one (not included)")
    parser.add_argument("--thunk", metavar="THREAD.THUNK", help="in this thunk")


def check_order(begin: int | None, end: int | None) -> None:
    """Raises BadInput for a part that ends before it begins: what lies around it is no answer."""
    if begin is not None and end is not None and end < begin:
        raise BadInput("ends before it begins", where=f"--from {begin} --to {end}", remedy="give the smaller one first")


def part_of(run: Run, args: argparse.Namespace) -> Part | None:
    """What the options name; None: all. Raises BadInput for what cannot be."""
    check_order(args.begin, args.end)
    run.need_thread(args.thread)
    bounded = args.begin is not None or args.end is not None
    if args.thunk is not None:
        if bounded or args.thread is not None:
            raise BadInput("goes without --thread, --from and --to", where="--thunk")
        return run.thunk(args.thunk)
    if not bounded:
        return None
    if args.thread is None:
        raise BadInput("need --thread", where="--from and --to", remedy="ordinals of blocks are each thread's own")
    return run.part(args.thread, args.begin or 0, args.end)
