# SPDX-License-Identifier: MIT
"""What the formats of `ptweave export` share: where the file goes, and which part of the run is in it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from ptweave.cli.output import quiet_when_nobody_reads, sink
from ptweave.cli.parts import add_run_path, add_times, times_of
from ptweave.data.errors import BadInput
from ptweave.merge import Run
from ptweave.merge.exports import nodes
from ptweave.merge.exports.nodes import Chosen
from ptweave.merge.exports.spans import Extent

LIMIT = 5000
"""Thunks in a drawing, unless --limit says otherwise: layouts take long beyond it, and nobody sees anything."""

_NODE = "file:PATH, fd:N, address:0xADDR or thunk:THREAD.THUNK"


@dataclass(frozen=True)
class Exported:
    """What an export made: a file (None: standard output), what is not in it, and what to do with it."""

    path: Path | None
    hint: str = ""
    lacks: list[str] = field(default_factory=list)


def add_file(parser: argparse.ArgumentParser, suffix: str) -> None:
    """RUN, and -o for a file."""
    add_run_path(parser)
    parser.add_argument("-o", "--output", metavar="FILE", type=Path,
                        help=f"the file to make (default: NAME{suffix} in the current folder; - is standard output)")
    parser.set_defaults(suffix=suffix)


def write(args: argparse.Namespace, hint: str, export: Callable[[Run, IO[bytes]], list[str]]) -> Exported:
    """Open the run and have it written where the options say: a file is there only when it is whole."""
    with Run(args.run) as run:
        run.need_thread(getattr(args, "thread", None))
        path = args.output or Path(run.path.resolve().stem + args.suffix)
        target = None if str(path) == "-" else path
        lacks: list[str] = []
        with sink(target) as out, quiet_when_nobody_reads():
            lacks += export(run, out)
            out.flush()
        return Exported(target, hint, lacks)


def add_extent(parser: argparse.ArgumentParser) -> None:
    """--thread, --from and --to of timelines."""
    add_thread(parser)
    add_times(parser, "from this time on", "up to this time")


def add_thread(parser: argparse.ArgumentParser) -> None:
    """--thread"""
    parser.add_argument("--thread", metavar="N", type=int, help="of this thread only")


def extent_of(run: Run, args: argparse.Namespace) -> Extent:
    """What these options name. Raises BadInput where that is nothing of the run."""
    return Extent(args.thread, *times_of(run, args))


def add_nodes(parser: argparse.ArgumentParser, *, limit: int | None) -> None:
    """The options that choose thunks; `limit`: how many there may be."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--to", metavar="NODE", help=f"what this depended on ({_NODE}; see ptweave lineage --help)")
    which.add_argument("--from", dest="from_", metavar="NODE", help="what this reached")
    which.add_argument("--around", metavar="THREAD.THUNK", help="a thunk and those near it")
    which.add_argument("--query", metavar="SQL", help="what a query gives in columns thread and thunk")
    parser.add_argument("--hops", metavar="N", type=int, default=2, help="with --around: edges away (default: 2)")
    parser.add_argument("--memory", action="store_true", help="with --to and --from: follow data edges alone")
    parser.set_defaults(limit=limit)
    if limit is not None:
        parser.add_argument("--limit", metavar="N", type=int, help=f"thunks at most (default: {limit})")


def chosen_of(run: Run, args: argparse.Namespace) -> Chosen:
    """The thunks these options choose. Raises BadInput when there are more than may be."""
    if args.query is not None:
        chosen = nodes.by_query(run, args.query)
    elif args.around is not None:
        chosen = nodes.around(run, args.around, args.hops)
    elif args.to is not None or args.from_ is not None:
        chosen = nodes.by_lineage(run, to=args.to, from_=args.from_, memory=args.memory)
    else:
        chosen = nodes.everything()
    if args.limit is not None and "thunks" not in run.missing:
        found = nodes.count(run, chosen)
        if found > args.limit:
            raise BadInput(f"would have {found} thunks, more than {args.limit}", where=f"export {args.format}",
                           remedy="choose fewer with --around, --to, --from or --query, or raise --limit")
    return chosen
