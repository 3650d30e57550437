# SPDX-License-Identifier: MIT
"""What the commands do: run a target, decode a bundle, merge it, and say what is missing."""

from __future__ import annotations

import argparse
import time

from ptweave.cli import say
from ptweave.cli.options import output_path
from ptweave.cli.progress import progress
from ptweave.data import BadInput, Bundle, State
from ptweave.wrapper.engines import Engine
from ptweave.wrapper.supervisor import Options, Recording, record, repair
from ptweave.wrapper.threads import Access, ThreadsMode

SHOWN_LOSSES = 3


def run_target(args: argparse.Namespace, words: list[str]) -> Recording:
    """Record as the options of `wrap` and `record` say."""
    return record(Options(words, output_path(args, words), Engine(args.engine), ThreadsMode(args.threads),
                          Access(args.access), notice=say))


def open_finished(args: argparse.Namespace) -> Bundle:
    """Open a bundle for decoding; one whose recorder died is closed first, and that is said."""
    bundle = Bundle.open(args.bundle)
    if repair(bundle):
        say(f"{bundle.path}: its recorder died; what it had written is kept")
    return bundle


def decode(bundle: Bundle, *, quiet: bool) -> None:
    """Packets, event lists and system calls to tables, with a progress line."""
    from ptweave.decode.flow import decode_flow
    from ptweave.decode.syscalls import decode_syscalls
    from ptweave.decode.thunks import decode_thunks

    began = time.monotonic()
    with progress("decode", quiet=quiet) as advance:
        decode_flow(bundle, advance)
        decode_syscalls(bundle)
        decode_thunks(bundle)
    _step(bundle, "decode", began)


def merge(bundle: Bundle, *, calls: bool, quiet: bool) -> None:
    """Everything onto the flow, with a progress line."""
    from ptweave.merge.stage import merge_run

    if not (bundle.tables / "flow").is_dir():
        raise BadInput("is not decoded yet", where=str(bundle.path), remedy=f"run ptweave decode {bundle.path} first")
    began = time.monotonic()
    with progress("merge", quiet=quiet) as advance:
        merge_run(bundle, calls=calls, progress=advance)
    _step(bundle, "merge", began)


def _step(bundle: Bundle, name: str, began: float) -> None:
    bundle.manifest.steps[name] = round(time.monotonic() - began, 6)
    bundle.save_manifest()


def incomplete(bundle: Bundle) -> bool:
    """Whether anything is known to be missing."""
    return bool(bundle.ledger().losses or bundle.manifest.lacks or bundle.manifest.state is not State.COMPLETE)


def report_losses(bundle: Bundle, *, quiet: bool) -> None:
    """The last line a user sees: what is missing, or that nothing is."""
    parts = list(bundle.manifest.lacks)
    losses = sorted(bundle.ledger().losses, key=lambda loss: -loss[2])
    parts += [f"{count} {unit} of {name} ({why})" for name, why, count, unit in losses[:SHOWN_LOSSES]]
    if len(losses) > SHOWN_LOSSES:
        parts.append(f"{len(losses) - SHOWN_LOSSES} more in ledger.json")
    if parts:
        say(f"{bundle.path}: incomplete: lacks {'; '.join(parts)}")
    elif not quiet:
        say(f"{bundle.path}: nothing lost")
