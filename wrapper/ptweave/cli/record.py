# SPDX-License-Identifier: MIT
"""`ptweave record`: run a program and keep the raw record of what it did."""

from __future__ import annotations

import argparse
import os

from ptweave.cli.options import add_target, target_words

SUMMARY = "run a program and record it, without decoding"
EXAMPLES = """\
  ptweave record -- ./prog arg            # leaves prog.ptw/
  ptweave record -o a.ptw -- sh -c 'ls | wc -l'
  ptweave decode prog.ptw && ptweave merge prog.ptw   # later, or on another machine
"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_target(parser)


def run(args: argparse.Namespace) -> int:
    from ptweave.cli.session import report_losses, run_target

    recording = run_target(args, target_words(args))
    report_losses(recording.bundle, quiet=args.quiet)
    return leave(recording.status)


def leave(status: int) -> int:
    """The exit status for a wait status: the target's own; ends by the target's signal if one ended it."""
    if os.WIFSIGNALED(status):
        from ptweave.wrapper.signals import die_by

        die_by(os.WTERMSIG(status))
        return 128 + os.WTERMSIG(status)
    return os.WEXITSTATUS(status)


