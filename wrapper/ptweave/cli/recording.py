# SPDX-License-Identifier: MIT
"""What `wrap` and `record` do first: run a target, or attach to one, and record it as the options say."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from ptweave.cli import say, user
from ptweave.cli.options import output_path
from ptweave.cli.user import become_target_user
from ptweave.data.errors import BadInput
from ptweave.data.lean_arrow import load_lean_arrow
from ptweave.wrapper.means import Means, check_beside_branches
from ptweave.wrapper.perf.breakpoints import parse_places
from ptweave.wrapper.perf.filters import parse_filters
from ptweave.wrapper.perf.settings import parse_settings
from ptweave.wrapper.target import Linkage, Target, examine
from ptweave.wrapper.threads import Access, ThreadsMode, View, check_shared

# What else there is to import makes threads, and root's privileges are given up before there are any.
if TYPE_CHECKING:
    from ptweave.wrapper.pt import PtOptions
    from ptweave.wrapper.supervisor import Options, Recording
    from ptweave.wrapper.watches.plan import Plan as WatchPlan


def run_target(args: argparse.Namespace, words: list[str], *, decodes: bool = False) -> Recording:
    """Record as the options of `wrap` and `record` say; `decodes`: the bundle is decoded next, by us."""
    from ptweave.wrapper.privileges import give_up

    target = examine(words)
    _check_words(args)
    output = output_path(args, words)
    with ExitStack() as stack:
        start = become_target_user(args, output, user.RECORDING + (user.DECODING if decodes else ()), stack)
        try:
            _import_arrow(args)
            from ptweave.wrapper.supervisor import record

            recording = record(_options(args, target, output, made=start.made), start.held)
        except BaseException:
            start.undo(output)
            raise
    give_up()
    return recording


def _import_arrow(args: argparse.Namespace) -> None:
    if args.own_process:
        load_lean_arrow()


def _check_words(args: argparse.Namespace) -> None:
    """What can be seen to be wrong before a folder is made. Raises BadInput."""
    check_shared(args.shared)
    parse_filters(args.filters)
    parse_settings(args.pt)
    calls_with(args)


def _options(args: argparse.Namespace, target: Target, output: Path, *, made: bool) -> Options:
    """What the options say. Raises BadInput."""
    from ptweave.wrapper.engines import Engine
    from ptweave.wrapper.supervisor import Options

    pt = pt_options(args, target.argv[0])
    _check_linkage(args, target)
    probes, watches = None, make_watches(args.watches, target)
    arrivals = watches is not None and bool(watches.late)
    if args.probes or arrivals:  # it reads programs' code: nobody else waits for what that needs
        from ptweave.cli.probing import plan_for

        probes = plan_for(args.probes, target, arrivals=arrivals)
    return Options(target.argv, output, engine=Engine(args.engine), threads=ThreadsMode(args.threads),
                   access=Access(args.access), view=View(args.view), shared=args.shared, ring=args.ring, probes=probes,
                   watches=watches, pt=pt, calls_with=calls_with(args), target=target, output_made=made, notice=say)


def _check_linkage(args: argparse.Namespace, target: Target) -> None:
    """Raises BadInput for what libtthread would do in a program that cannot load it."""
    for option, asked in (("--probe", args.probes), ("--watch", args.watches)):
        if asked and target.linkage is Linkage.STATIC:
            raise BadInput(f"is static: {option} needs libtthread, which cannot be loaded into it",
                           where=str(target.executable), remedy="leave it out, or link the program dynamically")


def make_watches(texts: Sequence[str], target: Target) -> WatchPlan | None:
    """What --watch asks for. Raises BadInput before anything runs."""
    if not texts:
        return None
    from ptweave.wrapper.watches.plan import make_plan
    from ptweave.wrapper.watches.spec import parse_spec

    return make_plan([parse_spec(text) for text in texts], target.executable)


def pt_options(args: argparse.Namespace, program: str) -> PtOptions:
    """How Intel PT is to trace. Raises BadInput."""
    from ptweave.wrapper.pt import PtOptions

    return PtOptions(args.aux_size, parse_filters(args.filters), parse_settings(args.pt),
                     args.snapshot or bool(args.snapshot_at), parse_places(args.snapshot_at, program))


def calls_with(args: argparse.Namespace) -> Means:
    """What system calls are to be recorded with. Raises BadInput for what an engine cannot be combined with."""
    means = Means(args.syscalls_with)
    check_beside_branches(means)
    return means


def attach_to(args: argparse.Namespace) -> Recording:
    """Record the running process that `record --pid` names."""
    _import_arrow(args)
    from ptweave.wrapper.engines import Engine
    from ptweave.wrapper.supervisor import Options, attach

    output = args.output or Path(f"{args.pid}.ptw")
    pt = pt_options(args, f"/proc/{args.pid}/exe")
    return attach(Options([], output, Engine(args.engine), pt=pt, calls_with=calls_with(args), notice=say), args.pid)
