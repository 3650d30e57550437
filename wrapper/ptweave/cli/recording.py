# SPDX-License-Identifier: MIT
"""What `wrap` and `record` do first: run a target, or attach to one, and record it as the options say."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Sequence
from pathlib import Path

from ptweave.cli import say, user
from ptweave.cli.options import output_path
from ptweave.cli.user import become_target_user
from ptweave.wrapper.call_stream import check
from ptweave.wrapper.engines import Engine
from ptweave.wrapper.means import Means
from ptweave.wrapper.perf.breakpoints import parse_places
from ptweave.wrapper.perf.filters import parse_filters
from ptweave.wrapper.perf.settings import parse_settings
from ptweave.wrapper.pt import PtOptions
from ptweave.wrapper.supervisor import Options, Recording, attach, record
from ptweave.wrapper.target import Linkage, examine
from ptweave.wrapper.threads import Access, ThreadsMode, View, check_shared
from ptweave.wrapper.watches.plan import Plan as WatchPlan
from ptweave.wrapper.watches.plan import make_plan
from ptweave.wrapper.watches.spec import parse_spec


def run_target(args: argparse.Namespace, words: list[str], *, decodes: bool = False) -> Recording:
    """Record as the options of `wrap` and `record` say; `decodes`: the bundle is decoded next, by us."""
    from ptweave.wrapper.privileges import give_up

    examine(words)
    _check_words(args)
    output = output_path(args, words)
    made = become_target_user(args, output, user.RECORDING + (user.DECODING if decodes else ()))
    try:
        recording = record(_options(args, words, output, made))
    except BaseException:
        if made:
            with contextlib.suppress(OSError):  # it is gone already, or only root, who we are no more, can remove it
                output.rmdir()
        raise
    give_up()
    return recording


def _check_words(args: argparse.Namespace) -> None:
    """What can be seen to be wrong before a folder is made. Raises BadInput."""
    check_shared(args.shared)
    parse_filters(args.filters)
    parse_settings(args.pt)
    calls_with(args)


def _options(args: argparse.Namespace, words: list[str], output: Path, made: bool) -> Options:
    """What the options say. Raises BadInput."""
    pt = pt_options(args, words[0])
    probes, watches = None, make_watches(args.watches, words)
    arrivals = watches is not None and bool(watches.late)
    if args.probes or arrivals:  # it reads programs' code: nobody else waits for what that needs
        from ptweave.cli.probing import plan_for

        probes = plan_for(args.probes, words, arrivals=arrivals)
    return Options(words, output, Engine(args.engine), ThreadsMode(args.threads), Access(args.access),
                   View(args.view), args.shared, args.ring, probes, watches, pt, calls_with(args), made, notice=say)


def make_watches(texts: Sequence[str], words: list[str]) -> WatchPlan | None:
    """What --watch asks for. Raises BadInput before anything runs."""
    if not texts:
        return None
    specs = [parse_spec(text) for text in texts]
    target = examine(words)
    return None if target.linkage is Linkage.STATIC else make_plan(specs, target.executable)


def pt_options(args: argparse.Namespace, program: str) -> PtOptions:
    """How Intel PT is to trace. Raises BadInput."""
    return PtOptions(args.aux_size, parse_filters(args.filters), parse_settings(args.pt),
                     args.snapshot or bool(args.snapshot_at), parse_places(args.snapshot_at, program))


def calls_with(args: argparse.Namespace) -> Means:
    """What system calls are to be recorded with. Raises BadInput for what an engine cannot be combined with."""
    means = Means(args.syscalls_with)
    check(means)
    return means


def attach_to(args: argparse.Namespace) -> Recording:
    """Record the running process that `record --pid` names."""
    output = args.output or Path(f"{args.pid}.ptw")
    pt = pt_options(args, f"/proc/{args.pid}/exe")
    return attach(Options([], output, Engine(args.engine), pt=pt, calls_with=calls_with(args), notice=say), args.pid)
